//! Shared by the filing parsers: deduplication by id, and the checks of common fields.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use chrono::NaiveDate;
use vintem_domain::CompanyId;
use vintem_domain::company;
use vintem_store::load::Filing;

use super::csv::{CsvLine, CsvRow};
use super::{BadRow, FormatAlert, FormatError, ParsedRows};

/// No dataset begins before 2003, and nothing was filed electronically with the regulator before this date.
const EARLIEST_DELIVERY_DATE: NaiveDate = NaiveDate::from_ymd_opt(1990, 1, 1).expect("a day of the calendar");

/// Collects parsed filings, each id once.
pub struct FilingCollector {
    parsed: ParsedRows<Filing>,
    by_id: HashMap<String, usize>,
}

impl FilingCollector {
    pub fn new(alerts: Vec<FormatAlert>) -> Self {
        Self { parsed: ParsedRows::new(alerts), by_id: HashMap::new() }
    }

    /// Adds a filing or a bad row. Of two different filings with the same id, the first stays.
    pub fn add_line<const N: usize>(
        &mut self,
        line: &CsvLine<'_, N>,
        parse_filing: impl Fn(&CsvRow<'_, N>) -> Result<Filing, String>,
    ) -> Result<(), FormatError> {
        self.parsed.total += 1;
        let filing = match line.row.as_ref().map_err(String::clone).and_then(parse_filing) {
            Ok(filing) => filing,
            Err(reason) => return self.parsed.push_bad_row(BadRow::from_line(line.number, line.bytes, reason)),
        };

        match self.by_id.entry(filing.id.clone()) {
            Entry::Vacant(entry) => {
                entry.insert(self.parsed.rows.len());
                self.parsed.rows.push(filing);
                Ok(())
            }
            Entry::Occupied(entry) if self.parsed.rows[*entry.get()] == filing => {
                self.parsed.merged += 1;
                Ok(())
            }
            Entry::Occupied(_) => {
                let reason = format!("an earlier row of the id {} differs from this one", filing.id);
                self.parsed.push_bad_row(BadRow::from_line(line.number, line.bytes, reason))
            }
        }
    }

    pub fn finish(self) -> ParsedRows<Filing> {
        self.parsed
    }
}

/// The company need not be in the registry: foreign issuers are not. That is also why the CNPJ is not checked.
pub fn parse_company_id<const N: usize>(row: &CsvRow<'_, N>, column: usize) -> Result<CompanyId, String> {
    company::parse_company_id(&row.trimmed(column))
        .ok_or_else(|| row.invalid_field_reason(column, "not a company code"))
}

pub fn parse_delivery_date<const N: usize>(
    row: &CsvRow<'_, N>,
    column: usize,
    today: NaiveDate,
) -> Result<NaiveDate, String> {
    let delivered_on = row.required_date(column)?;
    if delivered_on > today {
        return Err(row.invalid_field_reason(column, "in the future"));
    }
    if delivered_on < EARLIEST_DELIVERY_DATE {
        return Err(row.invalid_field_reason(column, "before the regulator took any filing"));
    }
    Ok(delivered_on)
}

pub fn parse_version<const N: usize>(row: &CsvRow<'_, N>, column: usize) -> Result<u16, String> {
    let digits = row.trimmed(column);
    let version = digits.parse::<i16>().ok().and_then(|version| u16::try_from(version).ok());
    let has_only_digits = digits.bytes().all(|byte| byte.is_ascii_digit());
    version
        .filter(|version| has_only_digits && *version > 0)
        .ok_or_else(|| row.invalid_field_reason(column, "not a version"))
}

/// The address of the document. Only web addresses are valid, because readers will open them.
pub fn parse_url<const N: usize>(row: &CsvRow<'_, N>, column: usize) -> Result<String, String> {
    let url = row.text(column)?;
    let is_web = url.starts_with("https://") || url.starts_with("http://");
    if url.is_empty() || (is_web && !url.contains(' ')) {
        Ok(url)
    } else {
        Err(row.invalid_field_reason(column, "not a web address"))
    }
}
