//! `/companies/{id}`: who a company is, and the titles of its newest filings. The rest is the API's.

use askama::Template;
use axum::extract::{Path, State};
use axum::response::Response;
use chrono::NaiveDate;
use vintem_domain::dates::sao_paulo_day;
use vintem_domain::lang::{Lang, Text};
use vintem_domain::route::route;
use vintem_domain::{Company, Dataset, DateRange, Problem};
use vintem_snapshot::{FilingFilter, FilingView};

use crate::layout::{Asked, Head, Layout, Styles, html_response};
use crate::notation::{day, grouped};
use crate::{MOST_SHOWN, Shared, refuse};

#[derive(Template)]
#[template(path = "company.html")]
struct CompanyPage {
    page: Layout,
    id: u32,
    name: String,
    status: String,
    tickers: Vec<String>,
    identity: Vec<(&'static str, String)>,
    filings: Vec<FilingShown>,
    /// Whether one of them has an original to be read.
    has_originals: bool,
    /// How the rest is to be had.
    rest: String,
}

pub(crate) struct FilingShown {
    pub(crate) title: String,
    pub(crate) category: String,
    pub(crate) date: NaiveDate,
    pub(crate) day: String,
    /// The original, where it has an address of the web.
    pub(crate) url: Option<String>,
}

pub(crate) async fn show_company(
    State(settings): State<Shared>,
    id: Result<Path<String>, axum::extract::rejection::PathRejection>,
    asked: Asked,
) -> Response {
    let lang = asked.lang();
    let Some(snapshot) = settings.snapshot.get() else { return refuse(Problem::DependencyAway) };
    let Some(companies) = snapshot.companies() else {
        return refuse(Problem::NeverLoaded { dataset: Dataset::Companies.id() });
    };
    // What is no UTF-8 is no company's code.
    let Some(row) = id.ok().and_then(|Path(id)| companies.resolve(&id)) else { return refuse(Problem::NoSuchCompany) };
    let company = companies.get(row);
    let days = DateRange::ALL.until(sao_paulo_day(settings.clock.now()));
    let filter = FilingFilter { company: Some(company.id), ..FilingFilter::of_days(days) };
    let (total, filings) = snapshot.filings().map_or((0, Vec::new()), |filings| {
        let found = filings.list(&filter, 0, MOST_SHOWN);
        (found.total, found.rows.iter().map(|row| filing(&filings.get(*row), lang)).collect())
    });
    let description = match lang {
        Lang::En => format!("{}: CNPJ, status, sector, tickers and its newest filings at CVM.", company.name),
        Lang::Pt => format!("{}: CNPJ, situação, setor, tickers e seus documentos mais recentes na CVM.", company.name),
    };
    let head = Head::named(&format!("/companies/{}", company.id), format!("{} · Vintém", company.name), description);
    let shown = CompanyPage {
        page: Layout::new(&settings, &asked, head),
        id: company.id,
        name: company.name.clone(),
        status: company.status.clone(),
        tickers: company.tickers.clone(),
        identity: identity(company, lang),
        has_originals: filings.iter().any(|filing: &FilingShown| filing.url.is_some()),
        filings,
        rest: rest(total, lang),
    };
    html_response(&shown, &shown.page, Styles::File)
}

fn rest(total: usize, lang: Lang) -> String {
    let (total, plan) = (grouped(total, lang), route("list_company_filings").plan.name());
    match lang {
        Lang::En => {
            format!("All {total} of them, with filters, versions and search, are one call away, from {plan} on:")
        }
        Lang::Pt => format!("Todos os {total}, com filtros, versões e busca, estão a uma chamada, a partir do {plan}:"),
    }
}

/// A filing by what it is about.
pub(crate) fn filing(view: &FilingView<'_>, lang: Lang) -> FilingShown {
    let filing = &view.filing;
    let is_of_the_web = filing.url.starts_with("https://") || filing.url.starts_with("http://");
    FilingShown {
        title: view.description().into_owned(),
        category: filing.category.to_owned(),
        date: filing.delivered_on,
        day: day(filing.delivered_on, lang),
        url: is_of_the_web.then(|| filing.url.to_owned()),
    }
}

/// What is known of it, and nothing of what is not.
fn identity(company: &Company, lang: Lang) -> Vec<(&'static str, String)> {
    let date = |date: Option<NaiveDate>| date.map(|date| day(date, lang)).unwrap_or_default();
    let place = [company.city.as_str(), company.state.as_str()].into_iter().filter(|text| !text.is_empty());
    let lines = [
        (Text::new("CNPJ", "CNPJ"), company.cnpj.map(|cnpj| cnpj.to_string()).unwrap_or_default()),
        (Text::new("CVM code", "Código CVM"), company.id.to_string()),
        (Text::new("Sector", "Setor"), company.sector.clone()),
        (Text::new("Trade name", "Nome fantasia"), company.trade_name.clone()),
        (Text::new("Former names", "Nomes anteriores"), company.former_names.join(" · ")),
        (Text::new("Registered", "Registrada em"), date(company.registered_on)),
        (Text::new("Cancelled", "Cancelada em"), date(company.cancelled_on)),
        (Text::new("Category", "Categoria"), company.category.clone()),
        (Text::new("Situation", "Situação"), company.situation.clone()),
        (Text::new("Control", "Controle"), company.control.clone()),
        (Text::new("Seat", "Sede"), place.collect::<Vec<_>>().join(", ")),
        (Text::new("Auditor", "Auditor"), company.auditor.clone()),
    ];
    let known = lines.into_iter().filter(|(_, words)| !words.trim().is_empty());
    known.map(|(term, words)| (term.in_lang(lang), words)).collect()
}
