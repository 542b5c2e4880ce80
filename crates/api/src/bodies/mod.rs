//! JSON bodies and table rows of the resources. A filing, a company or a rate looks the same in responses, events and
//! export files.

pub mod catalog_source;
pub mod company;
pub mod filing;
pub mod fx_series;
pub mod market;
pub mod provenance;
pub mod search;
pub mod series;
pub mod statement;
pub mod statement_event;

use chrono::{DateTime, SecondsFormat, Utc};
use serde::Serialize;
use vintem_domain::{Dataset, LocalizedText, Problem};

use crate::api_error::ApiError;

/// A name in both languages, beside the one in the caller's language.
#[derive(Serialize)]
pub struct NamesBody {
    pub en: &'static str,
    pub pt: &'static str,
}

impl From<LocalizedText> for NamesBody {
    fn from(name: LocalizedText) -> Self {
        Self { en: name.en, pt: name.pt }
    }
}

pub fn format_instant(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Secs, true)
}

/// A part of the snapshot, or an error if it was never loaded: unknown is not the same as empty.
pub fn require_loaded<T>(part: Option<T>, dataset: Dataset) -> Result<T, ApiError> {
    part.ok_or(ApiError(Problem::DatasetNotLoaded { dataset: dataset.id() }))
}
