//! Shared by the filing parsers: deduplication, and the checks of common fields.

use std::collections::{BTreeMap, HashMap};

use chrono::NaiveDate;
use vintem_domain::CompanyId;
use vintem_domain::company;
use vintem_store::load::Filing;

use super::csv::{CsvLine, CsvRow};
use super::{BadRow, BadRowKind, ColumnBlanks, FormatAlert, FormatError, ParsedRows, RowError};

/// No dataset begins before 2003, and nothing was filed electronically with the regulator before this date.
const EARLIEST_DELIVERY_DATE: NaiveDate = NaiveDate::from_ymd_opt(1990, 1, 1).expect("a day of the calendar");

/// Collects parsed filings. Several may have the same id, but then they are different documents: the regulator reuses its
/// numbers, and [`vintem_store::load::LoadTransaction::append_full_filings`] tells them apart.
pub struct FilingCollector<'f> {
    parsed: ParsedRows<Filing>,
    /// The line that each row comes from: its number and bytes.
    lines: Vec<(u64, &'f [u8])>,
    indexes_by_id: HashMap<String, Vec<usize>>,
}

impl<'f> FilingCollector<'f> {
    pub fn new(alerts: Vec<FormatAlert>) -> Self {
        Self { parsed: ParsedRows::new(alerts), lines: Vec::new(), indexes_by_id: HashMap::new() }
    }

    /// Adds a filing or a bad row. Of two rows of one document, that with the higher version stays; which one comes first
    /// makes no difference.
    pub fn add_line<const N: usize>(
        &mut self,
        line: &CsvLine<'f, N>,
        parse_filing: impl Fn(&CsvRow<'f, N>) -> Result<Filing, String>,
    ) -> Result<(), FormatError> {
        self.parsed.total += 1;
        let filing = match line.row.as_ref().map_err(String::clone).and_then(parse_filing) {
            Ok(filing) => filing,
            Err(reason) => return self.parsed.push_bad_row(BadRow::from_line(line.number, line.bytes, reason)),
        };

        let indexes = self.indexes_by_id.entry(filing.id.clone()).or_default();
        let rows = &mut self.parsed.rows;
        let Some(index) = indexes.iter().copied().find(|index| rows[*index].is_same_document(&filing)) else {
            indexes.push(rows.len());
            rows.push(filing);
            self.lines.push((line.number, line.bytes));
            return Ok(());
        };
        if rows[index] == filing {
            self.parsed.merged += 1;
            return Ok(());
        }

        let mut rejected = (line.number, line.bytes);
        let reason = format!("another row of the document {} has its version or a later one", filing.id);
        if precedence(&filing) > precedence(&rows[index]) {
            rows[index] = filing;
            rejected = std::mem::replace(&mut self.lines[index], rejected);
        }
        let error = RowError { kind: BadRowKind::SharedId, reason };
        self.parsed.push_bad_row(BadRow::from_line(rejected.0, rejected.1, error))
    }

    pub fn finish(mut self, blanks: BTreeMap<String, ColumnBlanks>) -> ParsedRows<Filing> {
        self.parsed.blanks = blanks;
        self.parsed.bad_rows.sort_by_key(|bad| bad.line);
        self.parsed
    }
}

/// Which of two rows of one document stays. The texts only make the choice independent of the order of the rows.
fn precedence(filing: &Filing) -> (u16, Option<NaiveDate>, &str, &str, &str) {
    (filing.version, filing.reference_date, &filing.subject, &filing.protocol, &filing.url)
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

/// Filings before 2015 have no version; the regulator writes 0 or nothing.
pub fn parse_version<const N: usize>(row: &CsvRow<'_, N>, column: usize) -> Result<u16, String> {
    let digits = row.trimmed(column);
    if digits.is_empty() {
        return Ok(0);
    }
    let version = digits.parse::<i16>().ok().and_then(|version| u16::try_from(version).ok());
    let has_only_digits = digits.bytes().all(|byte| byte.is_ascii_digit());
    version.filter(|_| has_only_digits).ok_or_else(|| row.invalid_field_reason(column, "not a version"))
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
