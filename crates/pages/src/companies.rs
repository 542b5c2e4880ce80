//! `/companies/{id}`: the registration of a company, its annual statements of two years and the titles of its latest
//! filings. The API has the rest. The ID is a CVM code, a CNPJ or a ticker; the page's canonical link uses the CVM code.

use askama::Template;
use axum::Extension;
use axum::extract::{Path, State};
use axum::response::Response;
use chrono::NaiveDate;
use vintem_domain::dates::sao_paulo_date;
use vintem_domain::lang::{Lang, LocalizedText};
use vintem_domain::route::route_by_operation;
use vintem_domain::{AddressBucket, Company, Dataset, DateRange, Problem};
use vintem_snapshot::{FilingFilter, FilingView};

use crate::context::SharedSettings;
use crate::formatting::{format_date, format_integer};
use crate::layout::{Layout, MAX_PAGE_ROWS, PageMetadata, PageRequest, StylePolicy, html_response};
use crate::problem_response::problem_response;
use crate::statements::{AnnualStatements, annual_statements, has_annual_statements};

#[derive(Template)]
#[template(path = "company.html")]
struct CompanyPage {
    page: Layout,
    id: u32,
    name: String,
    status: String,
    tickers: Vec<String>,
    details: Vec<(&'static str, String)>,
    statements: Option<AnnualStatements>,
    filings: Vec<FilingListItem>,
    /// Whether one of the filings links to its original.
    has_originals: bool,
    /// Says how to get all filings from the API.
    api_hint: String,
}

pub(crate) struct FilingListItem {
    pub(crate) title: String,
    pub(crate) category: String,
    pub(crate) date: NaiveDate,
    pub(crate) date_label: String,
    /// The original, if it has an HTTP address.
    pub(crate) url: Option<String>,
}

pub(crate) async fn show_company(
    State(settings): State<SharedSettings>,
    Extension(address): Extension<AddressBucket>,
    id: Result<Path<String>, axum::extract::rejection::PathRejection>,
    request: PageRequest,
) -> Response {
    let lang = request.lang();
    let Some(snapshot) = settings.snapshot.get() else { return problem_response(Problem::DependencyUnavailable) };
    let Some(companies) = snapshot.companies() else {
        return problem_response(Problem::DatasetNotLoaded { dataset: Dataset::Companies.id() });
    };
    // No company ID contains invalid UTF-8.
    let Ok(Path(id)) = id else { return problem_response(Problem::NoSuchCompany) };
    let row = match companies.find_by_id_or_ticker(&id)[..] {
        [row] => row,
        [] => return problem_response(Problem::NoSuchCompany),
        _ => return problem_response(Problem::AmbiguousTicker),
    };
    let company = companies.get(row);

    let today = sao_paulo_date(settings.clock.now());
    let (reading, company_id) = (snapshot.clone(), company.id);
    let read_statements = move || annual_statements(&reading, company_id, today, lang);
    let statements = if has_annual_statements(&snapshot, company.id) {
        match settings.run(address, read_statements).await {
            Ok(statements) => statements,
            Err(problem) => return problem_response(problem),
        }
    } else {
        None
    };

    let days = DateRange::ALL.capped_at(today);
    let filter = FilingFilter { company: Some(company.id), ..FilingFilter::for_days(days) };
    let (total, filings) = snapshot.filings().map_or((0, Vec::new()), |filings| {
        let page = filings.list(&filter, 0, MAX_PAGE_ROWS);
        (page.total, page.rows.iter().map(|row| filing_list_item(&filings.get(*row), lang)).collect())
    });

    let description = match lang {
        Lang::En => format!("{}: CNPJ, status, sector, tickers and latest CVM filings.", company.name),
        Lang::Pt => format!("{}: CNPJ, situação, setor, tickers e documentos mais recentes na CVM.", company.name),
    };
    let metadata = PageMetadata::with_title(
        &format!("/companies/{}", company.id),
        format!("{} · Vintém", company.name),
        description,
    );

    let company_page = CompanyPage {
        page: Layout::new(&settings, &request, metadata),
        id: company.id,
        name: company.name.clone(),
        status: company.status.clone(),
        tickers: company.tickers.clone(),
        details: company_details(company, lang),
        statements,
        has_originals: filings.iter().any(|filing: &FilingListItem| filing.url.is_some()),
        filings,
        api_hint: api_hint(total, lang),
    };
    html_response(&company_page, &company_page.page, StylePolicy::ExternalOnly)
}

fn api_hint(total: usize, lang: Lang) -> String {
    let total = format_integer(total, lang);
    let plan = route_by_operation("list_company_filings").plan.name();
    match lang {
        Lang::En => {
            format!(
                "The API returns all filings ({total}), with filters, versions and search. This request requires the {plan} plan:"
            )
        }
        Lang::Pt => {
            format!(
                "A API retorna todos os documentos ({total}), com filtros, versões e busca. Esta requisição está disponível a partir do plano {plan}:"
            )
        }
    }
}

pub(crate) fn filing_list_item(view: &FilingView<'_>, lang: Lang) -> FilingListItem {
    let filing = &view.filing;
    let has_web_url = filing.url.starts_with("https://") || filing.url.starts_with("http://");
    FilingListItem {
        title: view.description().into_owned(),
        category: filing.category.to_owned(),
        date: filing.delivered_on,
        date_label: format_date(filing.delivered_on, lang),
        url: has_web_url.then(|| filing.url.to_owned()),
    }
}

/// Labels and values; unknown values are left out.
fn company_details(company: &Company, lang: Lang) -> Vec<(&'static str, String)> {
    let date = |date: Option<NaiveDate>| date.map(|date| format_date(date, lang)).unwrap_or_default();
    let city_and_state = [company.city.as_str(), company.state.as_str()].into_iter().filter(|text| !text.is_empty());
    let details = [
        (LocalizedText::new("CNPJ", "CNPJ"), company.cnpj.map(|cnpj| cnpj.to_string()).unwrap_or_default()),
        (LocalizedText::new("CVM code", "Código CVM"), company.id.to_string()),
        (LocalizedText::new("Sector", "Setor"), company.sector.clone()),
        (LocalizedText::new("Trade name", "Nome fantasia"), company.trade_name.clone()),
        (LocalizedText::new("Former names", "Nomes anteriores"), company.former_names.join(" · ")),
        (LocalizedText::new("Registered", "Registrada em"), date(company.registered_on)),
        (LocalizedText::new("Canceled", "Cancelada em"), date(company.cancelled_on)),
        (LocalizedText::new("Category", "Categoria"), company.category.clone()),
        (LocalizedText::new("Issuer status", "Situação do emissor"), company.situation.clone()),
        (LocalizedText::new("Shareholder control", "Controle acionário"), company.control.clone()),
        (LocalizedText::new("Headquarters", "Sede"), city_and_state.collect::<Vec<_>>().join(", ")),
        (LocalizedText::new("Auditor", "Auditor"), company.auditor.clone()),
    ];

    let known = details.into_iter().filter(|(_, value)| !value.trim().is_empty());
    known.map(|(label, value)| (label.in_lang(lang), value)).collect()
}
