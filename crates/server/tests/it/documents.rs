//! The lists in documents that repeat tables of the code. With `VINTEM_WRITE_DOCUMENTS` set, as by `just documents`,
//! these tests write the lists; otherwise they fail where a list is out of date.

use vintem_domain::event::EventKind;
use vintem_domain::problem::ErrorCode;
use vintem_domain::series::{PlausibleRange, SeriesGroup, published_series, served_series};
use vintem_domain::{Lang, Series};
use vintem_server::operator::metrics::METRICS;

use crate::TestResult;
use crate::architecture::check_document;

#[test]
fn documents_list_every_error_code() -> TestResult {
    let mut table = "| status | `error` | when |\n|---|---|---|\n".to_owned();
    for code in ErrorCode::ALL {
        table.push_str(&format!("| {} | `{}` | {} |\n", code.status(), code.id(), code.description()));
    }
    check_list("docs/api-design.md", "codes", &table)
}

#[test]
fn documents_list_every_series() -> TestResult {
    for (file, lang, header) in [
        ("docs/guides/series.md", Lang::En, "| id | SGS | unit | what it is | note |"),
        ("docs/guides/pt/series.md", Lang::Pt, "| id | SGS | unidade | o que é | observação |"),
    ] {
        let row = |series: &Series| {
            let code = series.sgs_code.map_or("–".to_owned(), |code| code.to_string());
            let texts = [series.unit.text(), series.name, series.is_not].map(|text| text.in_lang(lang));
            format!("| `{}` | {code} | {} |\n", series.id, texts.join(" | "))
        };
        let of_group = |group: SeriesGroup| {
            let rows: String = served_series().filter(|series| series.group == group).map(row).collect();
            let name = group.name().in_lang(lang);
            (!rows.is_empty()).then(|| format!("### {name}\n\n{header}\n|---|---|---|---|---|\n{rows}"))
        };
        let groups: Vec<String> = SeriesGroup::ALL.into_iter().filter_map(of_group).collect();
        check_list(file, "series", &groups.join("\n"))?;
    }

    let row = |series: &Series| {
        let code = series.sgs_code.map(|code| code.to_string()).unwrap_or_default();
        let PlausibleRange { min, max, reason, .. } = series.plausible;
        let (id, publisher) = (series.id, series.publisher.name().en);
        let (starts_on, license) = (series.starts_on, series.license.id());
        let evidence = series.evidence.join("; ");
        format!("| `{id}` | {code} | {publisher} | {starts_on} | {min} to {max}: {reason} | {license} | {evidence} |\n")
    };
    let rows: String = published_series().map(row).collect();
    let header = "| id | SGS | publisher | first date | plausible values | license | sources of the code |";
    check_list("docs/upstreams.md", "series", &format!("{header}\n|---|---|---|---|---|---|---|\n{rows}"))
}

#[test]
fn documents_list_every_metric() -> TestResult {
    let mut table = "| name | type | meaning and labels |\n|---|---|---|\n".to_owned();
    for metric in METRICS {
        table.push_str(&format!("| `{}` | {} | {} |\n", metric.name, metric.kind.id(), metric.help));
    }
    check_list("docs/operations.md", "metrics", &table)
}

#[test]
fn documents_list_every_event_type() -> TestResult {
    for (file, lang, header) in [
        ("docs/guides/webhooks.md", Lang::En, "| type | when | filters | `data` |"),
        ("docs/guides/pt/webhooks.md", Lang::Pt, "| tipo | quando | filtros | `data` |"),
    ] {
        let row = |kind: EventKind| {
            let filters: Vec<String> = kind.filters().iter().map(|field| format!("`{}`", field.id())).collect();
            let description = kind.description().in_lang(lang);
            let data = kind.data_description().in_lang(lang);
            format!("| `{}` | {description} | {} | {data} |\n", kind.id(), filters.join(", "))
        };
        let rows: String = EventKind::ALL.map(row).concat();
        check_list(file, "events", &format!("{header}\n|---|---|---|---|\n{rows}"))?;
    }

    Ok(())
}

/// Compares the list between the two comments with this name, a blank line away from each.
fn check_list(file: &str, name: &str, list: &str) -> TestResult {
    let text = std::fs::read_to_string(crate::architecture::workspace_root().join(file))?;
    let begin = format!("<!-- {name}: written by `just documents`. -->\n");
    let end = format!("<!-- end of {name} -->\n");

    let list_start = text.find(&begin).map(|at| at + begin.len());
    let (Some(list_start), Some(list_end)) = (list_start, text.find(&end)) else {
        anyhow::bail!("{file} has no place for the list of {name}")
    };
    check_document(file, &format!("{}\n{list}\n{}", &text[..list_start], &text[list_end..]))
}
