//! `/series/{id}`: one series or exchange rate: what it is, all of its values as a curve, the newest as a table, what it
//! comes to between two days, and the call that gives all of it.

use askama::Template;
use axum::extract::{Path, State};
use axum::response::Response;
use chrono::{Months, NaiveDate};
use vintem_domain::dates::sao_paulo_day;
use vintem_domain::fx::REAL_SINCE;
use vintem_domain::lang::{Lang, Text};
use vintem_domain::series::Frequency;
use vintem_domain::{DateRange, Problem};

use crate::chart::{Curve, curve};
use crate::layout::{Asked, Head, Layout, Styles, html_response};
use crate::market::{Subject, Values, in_words, indicator};
use crate::notation::{day, decimal, grouped, period};
use crate::{Shared, refuse};

const CURVE_WIDTH: u32 = 600;
const CURVE_HEIGHT: u32 = 320;
const NEWEST_ROWS: usize = 20;

#[derive(Template)]
#[template(path = "series.html")]
struct SeriesPage {
    page: Layout,
    kind: &'static str,
    name: &'static str,
    value: String,
    unit: String,
    date: NaiveDate,
    day: String,
    change: String,
    stale: bool,
    ranges: Vec<RangeShown>,
    chart_path: String,
    chart_field: &'static str,
    curve: Curve,
    spoken: String,
    which: &'static str,
    identity: Vec<(&'static str, String)>,
    /// Whether the guide to rates of interest tells of it.
    has_guide: bool,
    accumulated: Option<Accumulated>,
    columns: Vec<&'static str>,
    rows: Vec<RowShown>,
    api_path: String,
}

/// A part of the history that can be chosen.
struct RangeShown {
    from: NaiveDate,
    label: &'static str,
    is_first_shown: bool,
}

struct RowShown {
    date: NaiveDate,
    day: String,
    cells: Vec<String>,
}

/// What the calculator asks.
struct Accumulated {
    path: &'static str,
    pair: String,
    from: NaiveDate,
    to: NaiveDate,
    has_percent: bool,
}

pub(crate) async fn show_series(State(settings): State<Shared>, Path(id): Path<String>, asked: Asked) -> Response {
    let (lang, now) = (asked.lang(), settings.clock.now());
    let Some(subject) = Subject::from_id(&id) else { return refuse(Problem::NoSuchSeries) };
    let Some(snapshot) = settings.snapshot.get() else { return refuse(Problem::DependencyAway) };
    let never = || refuse(Problem::NeverLoaded { dataset: subject.datasets()[0].id() });
    let Some(values) = subject.values(&snapshot) else { return never() };
    let Some(indicator) = indicator(subject, &settings.snapshot, now, lang) else { return never() };
    let today = sao_paulo_day(now);
    let served = values.range(DateRange::ALL.until(today));
    let first = values.get(served.start).map_or(indicator.date, |(date, _)| date);
    let ranges = ranges(first, indicator.date, lang);
    let from = ranges.iter().find(|range| range.is_first_shown).map_or(first, |range| range.from);
    let points = values.points(DateRange { from, to: today });
    let name = subject.name(lang);
    let description = match lang {
        Lang::En => {
            format!("{name}: {} {} on {}. Chart, table and API call.", indicator.value, indicator.unit, indicator.day)
        }
        Lang::Pt => format!(
            "{name}: {} {} em {}. Gráfico, tabela e chamada da API.",
            indicator.value, indicator.unit, indicator.day
        ),
    };
    let head = Head::named(&format!("/series/{id}"), format!("{name} · Vintém"), description);
    let next = subject
        .datasets()
        .into_iter()
        .filter_map(|dataset| settings.snapshot.freshness(&snapshot, dataset, now).next_expected_on)
        .max();
    let series = SeriesPage {
        page: Layout::new(&settings, &asked, head),
        kind: kind(subject).in_lang(lang),
        name,
        ranges,
        chart_path: with_whole_history(&subject.api_path()),
        chart_field: match subject {
            Subject::Series(_) => "value",
            Subject::Rate(_) => "sell",
        },
        curve: curve(&points, CURVE_WIDTH, CURVE_HEIGHT),
        spoken: in_words(subject, &points, lang),
        which: which(subject).in_lang(lang),
        identity: identity(subject, (served.len(), first, next), lang),
        has_guide: matches!(subject, Subject::Series(_)),
        accumulated: accumulated(subject, indicator.date),
        columns: match subject {
            Subject::Series(_) => vec![Text::new("Value", "Valor").in_lang(lang)],
            Subject::Rate(_) => {
                vec![Text::new("Buy", "Compra").in_lang(lang), Text::new("Sell", "Venda").in_lang(lang)]
            }
        },
        rows: served.rev().take(NEWEST_ROWS).filter_map(|at| row(subject, &values, at, lang)).collect(),
        api_path: with_whole_history(&subject.api_path()),
        value: indicator.value,
        unit: indicator.unit,
        date: indicator.date,
        day: indicator.day,
        change: indicator.change,
        stale: indicator.stale,
    };
    html_response(&series, &series.page, Styles::File)
}

/// All of it in one call, oldest first.
fn with_whole_history(path: &str) -> String {
    let joint = if path.contains('?') { '&' } else { '?' };
    format!("{path}{joint}limit=20000&order=asc")
}

fn row(subject: Subject, values: &Values<'_>, at: usize, lang: Lang) -> Option<RowShown> {
    let (date, value) = values.get(at)?;
    let cells = match values.quote(at) {
        Some((_, quote)) => vec![decimal(quote.buy, lang), decimal(quote.sell, lang)],
        None => vec![decimal(value, lang)],
    };
    Some(RowShown { date, day: period(date, subject.frequency(), lang), cells })
}

/// What can be looked at; the prices of before the real would flatten all that came after, so those come by themselves.
fn ranges(first: NaiveDate, newest: NaiveDate, lang: Lang) -> Vec<RangeShown> {
    let years = |years: u32| newest.checked_sub_months(Months::new(12 * years)).unwrap_or(first);
    let is_older_than_the_real = first < REAL_SINCE;
    let all = [
        (years(1), Text::new("1 year", "1 ano"), false),
        (years(5), Text::new("5 years", "5 anos"), false),
        (years(10), Text::new("10 years", "10 anos"), false),
        (REAL_SINCE, Text::new("since the real, 1994", "desde o real, 1994"), is_older_than_the_real),
        (first, Text::new("all", "tudo"), !is_older_than_the_real),
    ];
    let is_there = |(from, _, _): &(NaiveDate, Text, bool)| *from >= first;
    let shown = all.into_iter().filter(is_there);
    shown.map(|(from, label, is_first_shown)| RangeShown { from, label: label.in_lang(lang), is_first_shown }).collect()
}

fn kind(subject: Subject) -> Text {
    match subject {
        Subject::Rate(_) => Text::new("Exchange rate", "Câmbio"),
        Subject::Series(series) if series.formula.is_some() => {
            Text::new("Series that we compute", "Série que calculamos")
        }
        Subject::Series(_) => Text::new("Series of the central bank", "Série do Banco Central"),
    }
}

fn which(subject: Subject) -> Text {
    let id = subject.id();
    match subject {
        Subject::Rate(_) => Text::new("Which rate is this?", "Que cotação é esta?"),
        Subject::Series(_) if id.contains("selic") => Text::new("Which Selic is this?", "Qual Selic é esta?"),
        Subject::Series(_) if id.contains("cdi") => Text::new("Which CDI is this?", "Qual CDI é este?"),
        Subject::Series(_) => Text::new("Which IPCA is this?", "Qual IPCA é este?"),
    }
}

/// What it is and what it is not, and how much of it there is.
fn identity(
    subject: Subject,
    (count, first, next): (usize, NaiveDate, Option<NaiveDate>),
    lang: Lang,
) -> Vec<(&'static str, String)> {
    let say = |en, pt| Text::new(en, pt).in_lang(lang);
    let mut lines = Vec::new();
    match subject {
        Subject::Series(series) => {
            match (series.code, &series.formula) {
                (Some(code), _) => lines.push((say("Source", "Fonte"), format!("BCB SGS {code}"))),
                (None, Some(formula)) => lines.push((say("Formula", "Fórmula"), formula.text.in_lang(lang).to_owned())),
                (None, None) => {}
            }
            lines.push((
                say("Unit and basis", "Unidade e base"),
                format!("{}; {}", series.unit.in_lang(lang), series.basis.in_lang(lang)),
            ));
            lines.push((say("Careful", "Atenção"), series.is_not.in_lang(lang).replace('`', "")));
        }
        Subject::Rate(currency) => {
            lines.push((say("Source", "Fonte"), format!("BCB PTAX, {}", currency.code())));
            lines.push((
                say("Unit and basis", "Unidade e base"),
                say("reais for one unit, at the closing bulletin", "reais por unidade, no boletim de fechamento")
                    .to_owned(),
            ));
            lines.push((
                say("Careful", "Atenção"),
                say("not a rate at which anyone trades now, but the average that the central bank publishes for the day", "não é uma cotação de negócio agora, e sim a média que o Banco Central publica para o dia").to_owned(),
            ));
        }
    }
    let rhythm = match subject.frequency() {
        Frequency::Daily => say("every day", "todo dia"),
        Frequency::BusinessDaily => say("every business day", "todo dia útil"),
        Frequency::Monthly => say("every month", "todo mês"),
    };
    lines.push((say("Published", "Publicada"), rhythm.to_owned()));
    let since = period(first, subject.frequency(), lang);
    lines.push((
        say("Held", "Disponível"),
        match lang {
            Lang::En => format!("{} values since {since}", grouped(count, lang)),
            Lang::Pt => format!("{} valores desde {since}", grouped(count, lang)),
        },
    ));
    lines.extend(next.map(|next| (say("Next expected", "Próximo esperado"), day(next, lang))));
    lines
}

/// A year until the newest value, of what the API can accumulate.
fn accumulated(subject: Subject, newest: NaiveDate) -> Option<Accumulated> {
    let (path, pair, has_percent) = match subject {
        Subject::Rate(currency) => ("/api/v1/market/fx/accumulated", format!("{}-BRL", currency.code()), false),
        Subject::Series(series) => {
            let path = match series.id {
                "selic" | "selic-effective" | "selic-daily" => "/api/v1/market/selic/accumulated",
                "cdi" | "cdi-daily" => "/api/v1/market/cdi/accumulated",
                "ipca" | "ipca-12m" | "ipca-ytd" => "/api/v1/market/ipca/accumulated",
                _ => return None,
            };
            (path, String::new(), true)
        }
    };
    let from = newest.checked_sub_months(Months::new(12))?;
    Some(Accumulated { path, pair, from, to: newest, has_percent })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn day(text: &str) -> NaiveDate {
        text.parse().unwrap()
    }

    #[test]
    fn what_began_before_the_real_is_first_shown_from_it_on() {
        let shown = |first: &str| -> Vec<(String, bool)> {
            let ranges = ranges(day(first), day("2026-11-13"), Lang::En);
            ranges.into_iter().map(|range| (range.from.to_string(), range.is_first_shown)).collect()
        };
        let old = shown("1986-03-06");
        assert_eq!(old[3], ("1994-07-01".to_owned(), true));
        assert_eq!(old[4], ("1986-03-06".to_owned(), false));
        let young = shown("2020-01-01");
        assert_eq!(young.len(), 3);
        assert_eq!(young[2], ("2020-01-01".to_owned(), true));
    }
}
