//! Loads files that someone saved earlier, such as a copy of a yearly archive from before the regulator changed it.

use chrono::{DateTime, NaiveDate, Utc};
use vintem_domain::dates::{MAX_DATE, MIN_DATE, sao_paulo_date};
use vintem_domain::{CvmDataset, DataOrigin, Series, StatementSet};
use vintem_store::load::{ArchivedResponse, Filing, LoadTransaction, NewFetch, Observation, RawBody};

use super::Ingestor;
use crate::IngestError;
use crate::fetch::compress_for_archive;
use crate::parsers::ParsedRows;
use crate::parsers::sgs::{SgsResponse, parse_response};
use crate::source::DataSource;
use crate::upstreams::cvm::ParsedFile;
use crate::upstreams::cvm_statements::{ParsedStatementYear, parse_whole_statement_archive};
use crate::upstreams::{PartReport, RejectionError, cvm, sgs};
use crate::validation::{to_quarantined_rows, validate_bad_row_count, validate_observations};

/// A file, and when its content became known.
struct SavedFile<'a> {
    source: DataSource,
    name: &'a str,
    bytes: &'a [u8],
    known_at: DateTime<Utc>,
}

impl Ingestor {
    /// Loads an archived file as if it had been fetched at `known_at`. It emits no events, and rows that it lacks do
    /// not count as missing.
    pub async fn load_file(
        &self,
        source: DataSource,
        name: &str,
        bytes: &[u8],
        known_at: DateTime<Utc>,
    ) -> Result<PartReport, IngestError> {
        let _lock = self.store.lock_source(source.id(), true).await?;

        let file = SavedFile { source, name, bytes, known_at };
        let today = sao_paulo_date(self.clock.now());
        match source {
            DataSource::Series(series) => {
                let parsed = file.parse_series(series, today)?;
                let mut load = self.begin_load_of_file(&file, compress_for_archive(bytes)).await?;
                load.append_observations(series, &parsed.rows).await?;
                finish_load(load, &file, series.id, &parsed).await
            }
            DataSource::Companies => {
                let registry = cvm::parse_registry_file(bytes).map_err(|error| file.not_loaded(&error))?;
                let mut load = self.begin_load_of_redacted_file(&file, &registry).await?;
                load.append_companies(&registry.parsed.rows).await?;
                finish_load(load, &file, "registry", &registry.parsed).await
            }
            DataSource::Filings(set) => {
                let filings = file.parse_filings(set, today)?;
                let mut load = self.begin_load_of_redacted_file(&file, &filings).await?;
                load.append_filings(&filings.parsed.rows).await?;
                finish_load(load, &file, name, &filings.parsed).await
            }
            DataSource::Statements(set) => {
                let statements = file.parse_statements(set)?;
                let mut load = self.begin_load_of_file(&file, statements.manifest).await?;
                load.append_statements(&statements.documents).await?;
                finish_load(load, &file, name, &statements.lines).await
            }
            DataSource::Fx => Err(file.not_loaded("bulletins are not loaded from files")),
        }
    }

    /// `archived_body` is what is kept of the file; its hash stands for the file.
    async fn begin_load_of_file(
        &self,
        file: &SavedFile<'_>,
        archived_body: RawBody,
    ) -> Result<LoadTransaction, IngestError> {
        let fetch = file.fetch_record(archived_body.sha256, archived_body);
        Ok(self.store.begin_load(file.source.dataset(), DataOrigin::Real, &fetch).await?)
    }

    /// For a file that is kept without its personal data, or only in part.
    async fn begin_load_of_redacted_file<T>(
        &self,
        file: &SavedFile<'_>,
        parsed: &ParsedFile<T>,
    ) -> Result<LoadTransaction, IngestError> {
        let fetch = file.fetch_record(parsed.sha256, parsed.archived_body.clone());
        Ok(self.store.begin_load(file.source.dataset(), DataOrigin::Real, &fetch).await?)
    }
}

async fn finish_load<T>(
    mut load: LoadTransaction,
    file: &SavedFile<'_>,
    part: &str,
    parsed: &ParsedRows<T>,
) -> Result<PartReport, IngestError> {
    load.quarantine_rows(file.source.id(), part, &to_quarantined_rows(&parsed.bad_rows)).await?;
    let mut report = PartReport { bytes: file.bytes.len() as u64, unchanged: true, ..PartReport::default() };
    report.add_load(load.commit().await?, parsed);
    Ok(report)
}

impl SavedFile<'_> {
    fn parse_series(&self, series: &'static Series, today: NaiveDate) -> Result<ParsedRows<Observation>, IngestError> {
        let Ok(SgsResponse::Rows(parsed)) = parse_response(200, self.bytes) else {
            return Err(self.not_loaded("it is no JSON array of observations"));
        };
        let parsed = sgs::retain_valid_rows(parsed, series, (MIN_DATE, MAX_DATE), today);
        validate_bad_row_count(&parsed).map_err(|error| self.not_loaded(&error))?;
        validate_observations(series, &parsed.rows).map_err(|error| self.not_loaded(&error))?;
        Ok(parsed)
    }

    /// From an archive, or from its index alone.
    fn parse_filings(&self, set: CvmDataset, today: NaiveDate) -> Result<ParsedFile<Filing>, IngestError> {
        let filings: Result<_, RejectionError> = if self.bytes.starts_with(b"PK") {
            cvm::parse_whole_archive(self.bytes, set, self.year()?, today).map(|year| year.filings)
        } else {
            cvm::parse_filings_file(self.bytes, None, set, today)
        };
        filings.map_err(|error| self.not_loaded(&error))
    }

    fn parse_statements(&self, set: StatementSet) -> Result<ParsedStatementYear, IngestError> {
        parse_whole_statement_archive(self.bytes, set, self.year()?).map_err(|error| self.not_loaded(&error))
    }

    /// `ipe_cia_aberta_2015.zip` → 2015.
    fn year(&self) -> Result<i32, IngestError> {
        let mut numbers = self.name.split(|character: char| !character.is_ascii_digit());
        let year = numbers.find(|digits| digits.len() == 4).and_then(|digits| digits.parse().ok());
        year.ok_or_else(|| self.not_loaded("its name holds no year"))
    }

    fn fetch_record(&self, sha256: [u8; 32], body: RawBody) -> NewFetch {
        let response = ArchivedResponse { status: 0, content_type: String::new(), body };
        let source_url = format!("file:{}", self.name);
        NewFetch { source_url, fetched_at: self.known_at, sha256, response: Some(response) }
    }

    fn not_loaded(&self, reason: &(impl ToString + ?Sized)) -> IngestError {
        IngestError::FileNotLoaded { name: self.name.to_owned(), reason: reason.to_string() }
    }
}
