//! The lists in documents that repeat tables of the code. With `VINTEM_WRITE_DOCUMENTS` set, as by `just documents`,
//! these tests write the lists; otherwise they fail where a list is out of date.

use vintem_domain::event::EventKind;
use vintem_domain::problem::ErrorCode;
use vintem_domain::series::{PUBLISHED_SERIES, served_series};
use vintem_domain::{Lang, Series};

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
        let rows: String = served_series().map(row).collect();
        check_list(file, "series", &format!("{header}\n|---|---|---|---|---|\n{rows}"))?;
    }

    let ids: Vec<String> = PUBLISHED_SERIES.iter().map(|series| format!("`{}`", series.id)).collect();
    let codes: Vec<String> =
        PUBLISHED_SERIES.iter().filter_map(|series| series.sgs_code).map(|code| code.to_string()).collect();
    let sources = format!("- {}: series {} of SGS\n", ids.join(", "), codes.join(", "));
    check_list("docs/upstreams.md", "series", &sources)
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
