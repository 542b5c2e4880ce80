//! What the readers of filings have in common: what a filing may be, and that each is taken once.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use chrono::NaiveDate;
use vintem_domain::company;
use vintem_domain::{CompanyId, Filing};

use super::csv::{CsvLine, CsvRow};
use super::{BadRow, FormatAlert, FormatError, ParsedRows};

/// No set begins before 2003, and nothing was delivered to a computer of the regulator before this.
const EARLIEST_DELIVERY_DATE: NaiveDate = NaiveDate::from_ymd_opt(1990, 1, 1).expect("a day of the calendar");

/// Filings under way, each id once.
pub struct FilingCollector {
    parsed: ParsedRows<Filing>,
    by_id: HashMap<String, usize>,
}

impl FilingCollector {
    pub fn new(alerts: Vec<FormatAlert>) -> Self {
        Self { parsed: ParsedRows::new(alerts), by_id: HashMap::new() }
    }

    /// Takes a line, or sets it aside: of two filings with one id the first stays.
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
                let reason = format!("an earlier row of the id {} says other things than this one", filing.id);
                self.parsed.push_bad_row(BadRow::from_line(line.number, line.bytes, reason))
            }
        }
    }

    pub fn finish(self) -> ParsedRows<Filing> {
        self.parsed
    }
}

/// A filing's company need not be in the registry: foreign issuers are not. That is also why its CNPJ is not judged.
pub fn parse_company_id<const N: usize>(row: &CsvRow<'_, N>, column: usize) -> Result<CompanyId, String> {
    company::parse_company_id(&row.trimmed(column))
        .ok_or_else(|| row.invalid_field_reason(column, "no code of a company"))
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
    let is_plain = digits.bytes().all(|byte| byte.is_ascii_digit());
    version.filter(|version| is_plain && *version > 0).ok_or_else(|| row.invalid_field_reason(column, "no version"))
}

/// The address of the document, which readers will follow: nothing but the web.
pub fn parse_url<const N: usize>(row: &CsvRow<'_, N>, column: usize) -> Result<String, String> {
    let address = row.text(column)?;
    let is_web = address.starts_with("https://") || address.starts_with("http://");
    if address.is_empty() || (is_web && !address.contains(' ')) {
        Ok(address)
    } else {
        Err(row.invalid_field_reason(column, "no address of the web"))
    }
}
