//! Lists as CSV: format negotiation and streaming. Rows are written while they are sent, so memory use does not depend
//! on the length of the list.

use axum::body::Body;
use chrono::NaiveDate;
use http::{HeaderMap, HeaderValue, header};
use vintem_deliver::table::OutputTable;
use vintem_deliver::table::csv::{self, CsvChunks};
use vintem_domain::quality_list::parse_quality_list;
use vintem_domain::{LocalizedText, Problem};

use crate::params::{QueryParams, invalid_param};
use crate::response_body::{ResponseBody, stream_chunks};

pub const CSV_CONTENT_TYPE: HeaderValue = HeaderValue::from_static("text/csv; charset=utf-8; header=present");

/// The query parameter that selects CSV, in the form that the route table's options use.
pub const CSV_FORMAT_PARAM: (&str, Option<&str>) = ("format", Some("csv"));

/// The format in which a list is requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ListFormat {
    Json,
    Csv(CsvOptions),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CsvOptions {
    dialect: csv::CsvDialect,
    /// Whether a browser should save the response as a file.
    is_download: bool,
}

impl CsvOptions {
    /// The name under which a browser saves the table, if it should.
    pub fn content_disposition(self, table: &OutputTable, today: NaiveDate) -> Option<HeaderValue> {
        let disposition = format!("attachment; filename=\"vintem-{}-{today}.csv\"", table.name);
        self.is_download.then(|| HeaderValue::from_str(&disposition).ok()).flatten()
    }
}

impl ListFormat {
    /// `prefers_csv` is whether `Accept` ranks CSV above JSON; the parameter wins.
    pub fn from_query(query: &QueryParams, prefers_csv: bool) -> Result<Self, Problem> {
        let is_csv = match query.single_value("format")? {
            None => prefers_csv,
            Some("json") => false,
            Some("csv") => true,
            Some(_) => {
                let must = LocalizedText::new("must be `json` or `csv`", "deve ser `json` ou `csv`");
                return invalid_param("format", must);
            }
        };

        let dialect = match query.single_value("locale")? {
            None | Some("en") => csv::CsvDialect::Plain,
            Some("pt-BR") => csv::CsvDialect::Brazilian,
            Some(_) => {
                let must = LocalizedText::new("must be `en` or `pt-BR`", "deve ser `en` ou `pt-BR`");
                return invalid_param("locale", must);
            }
        };

        let is_download = match query.single_value("download")? {
            None | Some("0") => false,
            Some("1") => true,
            Some(_) => {
                return invalid_param("download", LocalizedText::new("must be `0` or `1`", "deve ser `0` ou `1`"));
            }
        };

        if is_csv {
            return Ok(Self::Csv(CsvOptions { dialect, is_download }));
        }
        for name in ["locale", "download"] {
            if query.single_value(name)?.is_some() {
                let must =
                    LocalizedText::new("requires CSV output (`format=csv`)", "exige resposta em CSV (`format=csv`)");
                return invalid_param(name, must);
            }
        }
        Ok(Self::Json)
    }

    /// The maximum page size. CSV allows far more rows, because it is streamed.
    pub fn max_rows(self, as_json: usize, as_csv: usize) -> usize {
        match self {
            Self::Json => as_json,
            Self::Csv(_) => as_csv,
        }
    }
}

/// Whether `Accept` names CSV and puts it before JSON.
pub fn prefers_csv(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let mut csv_quality = 0;
    let mut json_quality = 0;
    let mut json_exactness = 0;
    for preference in accepted.flat_map(parse_quality_list) {
        if preference.is("text/csv") {
            csv_quality = preference.quality;
            continue;
        }

        let json_ranges = ["*/*", "application/*", "application/json"];
        let exactness = json_ranges.iter().position(|range| preference.is(range)).map_or(0, |position| position + 1);
        if exactness > json_exactness {
            json_quality = preference.quality;
            json_exactness = exactness;
        }
    }

    csv_quality > json_quality
}

/// Writes the whole table if it takes at most `max_bytes`, and otherwise streams it.
pub fn collect_csv(table: OutputTable, options: CsvOptions, max_bytes: usize) -> ResponseBody {
    ResponseBody::from_chunks(CsvChunks::new(table, options.dialect), max_bytes)
}

pub fn stream_csv(table: OutputTable, options: CsvOptions) -> Body {
    stream_chunks(CsvChunks::new(table, options.dialect))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn csv_is_preferred_only_if_accept_ranks_it_above_json() {
        let prefers = |accept: &str| {
            let value = HeaderValue::from_str(accept).unwrap();
            prefers_csv(&HeaderMap::from_iter([(header::ACCEPT, value)]))
        };
        for accept in [
            "text/csv",
            "TEXT/CSV; charset=utf-8",
            "text/csv, application/json;q=0.9",
            "text/csv, */*;q=0.1",
            "application/json;q=0, text/csv;q=0.1, */*",
        ] {
            assert!(prefers(accept), "{accept}");
        }
        for accept in [
            "*/*",
            "text/*",
            "application/json",
            "text/csv, application/json",
            "text/csv;q=0.5, application/json",
            "text/csv;q=0",
            "text/csv;q=0.2, */*;q=0.8",
            "text/html, */*;q=0.8",
            "text/csv;q=nonsense",
            "",
        ] {
            assert!(!prefers(accept), "{accept}");
        }
        assert!(!prefers_csv(&HeaderMap::new()));
    }
}
