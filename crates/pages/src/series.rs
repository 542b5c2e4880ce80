//! `/series/{id}`: one series or exchange rate with its description, a chart of all values, a table of the latest ones,
//! an accumulation form, and the API call that returns the full history.

use std::iter;

use askama::Template;
use axum::extract::{Path, State};
use axum::response::Response;
use chrono::{Months, NaiveDate};
use vintem_domain::dates::sao_paulo_date;
use vintem_domain::fx::BRL_START_DATE;
use vintem_domain::lang::{Lang, LocalizedText};
use vintem_domain::series::{Accumulation, Frequency, Series, Shape, find_series};
use vintem_domain::{DateRange, Problem};

use crate::catalog::group_path;
use crate::chart::{SvgCurve, draw_curve};
use crate::context::SharedSettings;
use crate::formatting::{format_date, format_decimal, format_integer, format_period};
use crate::layout::{Layout, PageMetadata, PageRequest, StylePolicy, html_response};
use crate::market::{Indicator, MarketValues, SeriesOrRate, build_indicator, describe_curve};
use crate::problem_response::problem_response;

const CURVE_WIDTH: u32 = 600;
const CURVE_HEIGHT: u32 = 320;
const NEWEST_ROW_COUNT: usize = 20;

#[derive(Template)]
#[template(path = "series.html")]
struct SeriesPage {
    page: Layout,
    kind: &'static str,
    name: &'static str,
    value: String,
    unit: String,
    date: NaiveDate,
    date_label: String,
    change: String,
    stale: bool,
    ranges: Vec<ChartRange>,
    chart_path: String,
    chart_field: &'static str,
    curve: SvgCurve,
    curve_description: String,
    details_heading: &'static str,
    details: Vec<(&'static str, String)>,
    /// Whether the guide to the series applies.
    has_guide: bool,
    /// The path and the name of its group.
    group: (String, &'static str),
    accumulation_form: Option<AccumulationForm>,
    columns: Vec<&'static str>,
    rows: Vec<SeriesTableRow>,
    api_path: String,
}

/// A part of the history that the reader can select.
struct ChartRange {
    from: NaiveDate,
    label: &'static str,
    is_default: bool,
}

struct SeriesTableRow {
    date: NaiveDate,
    date_label: String,
    cells: Vec<String>,
}

/// The inputs of the accumulation form.
struct AccumulationForm {
    path: String,
    /// Whether `from` and `to` are months; both count in full.
    is_monthly: bool,
    from: String,
    to: String,
    /// Whether the day of `to` counts.
    includes_end: bool,
    has_percent: bool,
}

pub(crate) async fn show_series(
    State(settings): State<SharedSettings>,
    Path(id): Path<String>,
    request: PageRequest,
) -> Response {
    let lang = request.lang();
    let now = settings.clock.now();
    let Some(subject) = SeriesOrRate::from_id(&id) else { return problem_response(Problem::NoSuchSeries) };
    let Some(snapshot) = settings.snapshot.get() else { return problem_response(Problem::DependencyUnavailable) };
    let not_loaded = || problem_response(Problem::DatasetNotLoaded { dataset: subject.datasets()[0].id() });
    let Some(values) = subject.values(&snapshot) else { return not_loaded() };
    let Some(indicator) = build_indicator(subject, &settings.snapshot, now, lang) else { return not_loaded() };

    let today = sao_paulo_date(now);
    let served = values.range(DateRange::ALL.capped_at(today));
    let first = values.get(served.start).map_or(indicator.date, |(date, _)| date);
    let ranges = build_chart_ranges(first, indicator.date, lang);
    let from = ranges.iter().find(|range| range.is_default).map_or(first, |range| range.from);
    let points = values.points(DateRange { from, to: today });

    let name = subject.name(lang);
    let description = page_description(name, &indicator, lang);
    let metadata = PageMetadata::with_title(&format!("/series/{id}"), format!("{name} · Vintém"), description);
    let next_expected = subject
        .datasets()
        .into_iter()
        .filter_map(|dataset| settings.snapshot.freshness(&snapshot, dataset, now).next_expected_on)
        .max();

    let series = SeriesPage {
        page: Layout::new(&settings, &request, metadata),
        kind: kind_label(subject).in_lang(lang),
        name,
        ranges,
        chart_path: full_history_path(&subject.api_path()),
        chart_field: match subject {
            SeriesOrRate::Series(_) => "value",
            SeriesOrRate::ExchangeRate(_) => "sell",
        },
        curve: draw_curve(&points, CURVE_WIDTH, CURVE_HEIGHT),
        curve_description: describe_curve(subject, &points, lang),
        details_heading: details_heading(subject).in_lang(lang),
        details: series_details(subject, (served.len(), first, next_expected), lang),
        has_guide: matches!(subject, SeriesOrRate::Series(_)),
        group: (group_path(subject.group()), subject.group().name().in_lang(lang)),
        accumulation_form: accumulation_form(subject, indicator.date),
        columns: table_columns(subject, lang),
        rows: served
            .rev()
            .take(NEWEST_ROW_COUNT)
            .filter_map(|index| build_table_row(subject, &values, index, lang))
            .collect(),
        api_path: full_history_path(&subject.api_path()),
        value: indicator.value,
        unit: indicator.unit,
        date: indicator.date,
        date_label: indicator.date_label,
        change: indicator.change,
        stale: indicator.stale,
    };
    html_response(&series, &series.page, StylePolicy::ExternalOnly)
}

fn page_description(name: &str, indicator: &Indicator, lang: Lang) -> String {
    let Indicator { value, unit, date_label, .. } = indicator;
    match lang {
        Lang::En => format!("{name}: {value} {unit} ({date_label}). Chart, table and API call."),
        Lang::Pt => format!("{name}: {value} {unit} ({date_label}). Gráfico, tabela e chamada da API."),
    }
}

/// All values in one call, oldest first.
fn full_history_path(path: &str) -> String {
    let separator = if path.contains('?') { '&' } else { '?' };
    format!("{path}{separator}limit=20000&order=asc")
}

/// The headings of the columns after the date.
fn table_columns(subject: SeriesOrRate, lang: Lang) -> Vec<&'static str> {
    let headings = match subject {
        SeriesOrRate::Series(Series { shape: Shape::Period, .. }) => {
            vec![LocalizedText::new("Value", "Valor"), LocalizedText::new("Until", "Até")]
        }
        SeriesOrRate::Series(_) => vec![LocalizedText::new("Value", "Valor")],
        SeriesOrRate::ExchangeRate(_) => {
            vec![LocalizedText::new("Buy", "Compra"), LocalizedText::new("Sell", "Venda")]
        }
    };
    headings.into_iter().map(|heading| heading.in_lang(lang)).collect()
}

fn build_table_row(
    subject: SeriesOrRate,
    values: &MarketValues<'_>,
    index: usize,
    lang: Lang,
) -> Option<SeriesTableRow> {
    let (date, value) = values.get(index)?;
    let cells = match values.quote(index) {
        Some((_, quote)) => vec![format_decimal(quote.buy, lang), format_decimal(quote.sell, lang)],
        None => {
            let value = format_decimal(value, lang);
            iter::once(value).chain(values.period_end(index).map(|end| format_date(end, lang))).collect()
        }
    };
    let date_label = values.date_label(index, subject.frequency(), lang);
    Some(SeriesTableRow { date, date_label, cells })
}

/// The ranges that the reader can select. Values from before the real would flatten the rest of the chart, so they are
/// not shown by default.
fn build_chart_ranges(first: NaiveDate, newest: NaiveDate, lang: Lang) -> Vec<ChartRange> {
    let years = |years: u32| newest.checked_sub_months(Months::new(12 * years)).unwrap_or(first);
    let predates_real = first < BRL_START_DATE;
    let ranges = [
        (years(1), LocalizedText::new("1 year", "1 ano"), false),
        (years(5), LocalizedText::new("5 years", "5 anos"), false),
        (years(10), LocalizedText::new("10 years", "10 anos"), false),
        (BRL_START_DATE, LocalizedText::new("since 1994 (Brazilian real)", "desde o Plano Real (1994)"), predates_real),
        (first, LocalizedText::new("all", "tudo"), !predates_real),
    ];

    let has_data = |(from, _, _): &(NaiveDate, LocalizedText, bool)| *from >= first;
    let available = ranges.into_iter().filter(has_data);
    available.map(|(from, label, is_default)| ChartRange { from, label: label.in_lang(lang), is_default }).collect()
}

fn kind_label(subject: SeriesOrRate) -> LocalizedText {
    match subject {
        SeriesOrRate::ExchangeRate(_) => LocalizedText::new("Exchange rate", "Câmbio"),
        SeriesOrRate::Series(series) if series.formula.is_some() => {
            LocalizedText::new("Series computed by Vintém", "Série calculada pelo Vintém")
        }
        SeriesOrRate::Series(_) => LocalizedText::new("Central bank series", "Série do Banco Central"),
    }
}

fn details_heading(subject: SeriesOrRate) -> LocalizedText {
    match subject {
        SeriesOrRate::ExchangeRate(_) => LocalizedText::new("About this rate", "Sobre esta cotação"),
        SeriesOrRate::Series(_) => LocalizedText::new("About this series", "Sobre esta série"),
    }
}

/// Labels and values that describe the series, what it is often confused with, and how many values it has.
fn series_details(
    subject: SeriesOrRate,
    (count, first, next_expected): (usize, NaiveDate, Option<NaiveDate>),
    lang: Lang,
) -> Vec<(&'static str, String)> {
    let localize = |en, pt| LocalizedText::new(en, pt).in_lang(lang);
    let mut details = Vec::new();

    match subject {
        SeriesOrRate::Series(series) => {
            match (series.sgs_code, &series.formula) {
                (Some(code), _) => details.push((localize("Source", "Fonte"), format!("BCB SGS {code}"))),
                (None, Some(formula)) => {
                    details.push((localize("Formula", "Fórmula"), formula.description.in_lang(lang).to_owned()));
                }
                (None, None) => {}
            }
            details.push((
                localize("Unit and basis", "Unidade e base"),
                format!("{}; {}", series.unit.in_lang(lang), series.basis.in_lang(lang)),
            ));
            details.push((localize("Note", "Atenção"), series.is_not.in_lang(lang).replace('`', "")));
            let publisher = series.publisher.name().in_lang(lang);
            let license = series.license.text().in_lang(lang);
            details
                .push((localize("Publisher and license", "Quem publica e licença"), format!("{publisher}; {license}")));
        }
        SeriesOrRate::ExchangeRate(currency) => {
            details.push((localize("Source", "Fonte"), format!("BCB PTAX, {}", currency.code())));
            details.push((
                localize("Unit and basis", "Unidade e base"),
                localize(
                    "reais per unit, from the closing bulletin",
                    "reais por unidade da moeda, no boletim de fechamento",
                )
                .to_owned(),
            ));
            details.push((
                localize("Note", "Atenção"),
                localize(
                    "not a live trading rate, but the daily average that the central bank publishes",
                    "não é uma cotação em tempo real, e sim a média do dia publicada pelo Banco Central",
                )
                .to_owned(),
            ));
        }
    }

    let frequency = frequency_label(subject.frequency()).in_lang(lang);
    details.push((localize("Published", "Publicada"), frequency.to_owned()));
    let since = format_period(first, subject.frequency(), lang);
    details.push((
        localize("Available", "Cobertura"),
        match lang {
            Lang::En => format!("{} values since {since}", format_integer(count, lang)),
            Lang::Pt => format!("{} valores desde {since}", format_integer(count, lang)),
        },
    ));
    details.extend(
        next_expected.map(|next| (localize("Next expected", "Próximo valor previsto"), format_date(next, lang))),
    );
    details
}

/// How often a series has a new value.
fn frequency_label(frequency: Frequency) -> LocalizedText {
    match frequency {
        Frequency::Daily => LocalizedText::new("every day", "todos os dias"),
        Frequency::BusinessDaily => LocalizedText::new("every business day", "todos os dias úteis"),
        Frequency::Anniversaries => {
            LocalizedText::new("for the days 1 to 28 of each month", "para os dias 1 a 28 de cada mês")
        }
        Frequency::Weekly(_) => LocalizedText::new("every week", "toda semana"),
        Frequency::Monthly => LocalizedText::new("every month", "todos os meses"),
        Frequency::Quarterly => LocalizedText::new("every quarter", "todo trimestre"),
        Frequency::Annual => LocalizedText::new("every year", "todo ano"),
    }
}

/// Defaults to the year up to the newest value; for monthly series, to the newest twelve months. `None` if the API
/// cannot accumulate the series.
fn accumulation_form(subject: SeriesOrRate, newest: NaiveDate) -> Option<AccumulationForm> {
    let (id, has_percent) = match subject {
        SeriesOrRate::ExchangeRate(currency) => (currency.series_id(), false),
        SeriesOrRate::Series(series) => match series.accumulation {
            Accumulation::OwnValues
            | Accumulation::DailyTwin(_)
            | Accumulation::Anniversaries
            | Accumulation::SimpleInterest => (series.id, true),
            Accumulation::Refused { instead } => {
                let is_alike = |other: &&Series| other.frequency == series.frequency;
                (instead.and_then(find_series).filter(is_alike)?.id, true)
            }
        },
    };
    let is_monthly = subject.frequency() == Frequency::Monthly;
    // The last month of a rate of the month ahead may end on `to`, and an exchange rate is that of `to`.
    let has_anniversaries =
        matches!(subject, SeriesOrRate::Series(Series { accumulation: Accumulation::Anniversaries, .. }));
    let (from, to) = if is_monthly {
        let first_month = newest.checked_sub_months(Months::new(11))?;
        (first_month.format("%Y-%m").to_string(), newest.format("%Y-%m").to_string())
    } else {
        (newest.checked_sub_months(Months::new(12))?.to_string(), newest.to_string())
    };
    Some(AccumulationForm {
        path: format!("/api/v1/market/series/{id}/accumulated"),
        is_monthly,
        from,
        to,
        includes_end: is_monthly || has_anniversaries || !has_percent,
        has_percent,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_form_of_a_monthly_series_covers_the_newest_twelve_months() {
        let form = |id: &str, newest: &str| {
            let form = accumulation_form(SeriesOrRate::from_id(id).unwrap(), parse_date(newest))?;
            Some((form.path, form.is_monthly, form.from, form.to))
        };
        let path = |id: &str| format!("/api/v1/market/series/{id}/accumulated");
        let expected =
            |id: &str, is_monthly, from: &str, to: &str| Some((path(id), is_monthly, from.to_owned(), to.to_owned()));
        assert_eq!(form("ipca", "2026-10-01"), expected("ipca", true, "2025-11", "2026-10"));
        assert_eq!(form("ipca-12m", "2026-10-01"), expected("ipca", true, "2025-11", "2026-10"));
        assert_eq!(form("cdi", "2026-11-12"), expected("cdi", false, "2025-11-12", "2026-11-12"));
        assert_eq!(form("usd-brl", "2026-11-12"), expected("usd-brl", false, "2025-11-12", "2026-11-12"));
        assert_eq!(form("real-selic", "2026-10-01"), None);
    }

    fn parse_date(text: &str) -> NaiveDate {
        text.parse().unwrap()
    }

    #[test]
    fn charts_default_to_1994_when_a_series_predates_the_real() {
        let ranges = |first: &str| -> Vec<(String, bool)> {
            let ranges = build_chart_ranges(parse_date(first), parse_date("2026-11-13"), Lang::En);
            ranges.into_iter().map(|range| (range.from.to_string(), range.is_default)).collect()
        };

        let old = ranges("1986-03-06");
        assert_eq!(old[3], ("1994-07-01".to_owned(), true));
        assert_eq!(old[4], ("1986-03-06".to_owned(), false));

        let recent = ranges("2020-01-01");
        assert_eq!(recent.len(), 3);
        assert_eq!(recent[2], ("2020-01-01".to_owned(), true));
    }
}
