//! What the readers of filings have in common: what a filing may be, and that each is taken once.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use chrono::NaiveDate;
use vintem_domain::company::parse_id;
use vintem_domain::{CompanyId, Filing};

use super::csv::{Line, Row};
use super::{Alert, BadRow, Read, Refused};

/// No set begins before 2003, and nothing was delivered to a computer of the regulator before this.
const FIRST_DELIVERY: NaiveDate = NaiveDate::from_ymd_opt(1990, 1, 1).expect("a day of the calendar");

/// Filings under way, each id once.
pub struct Filings {
    read: Read<Filing>,
    by_id: HashMap<String, usize>,
}

impl Filings {
    pub fn new(alerts: Vec<Alert>) -> Self {
        Self { read: Read::new(alerts), by_id: HashMap::new() }
    }

    /// Takes a line, or sets it aside: of two filings with one id the first stays.
    pub fn take<const N: usize>(
        &mut self,
        line: &Line<'_, N>,
        filing: impl Fn(&Row<'_, N>) -> Result<Filing, String>,
    ) -> Result<(), Refused> {
        self.read.total += 1;
        let filing = match line.row.as_ref().map_err(String::clone).and_then(filing) {
            Ok(filing) => filing,
            Err(reason) => return self.read.set_aside(BadRow::of_line(line.number, line.bytes, reason)),
        };
        match self.by_id.entry(filing.id.clone()) {
            Entry::Vacant(entry) => {
                entry.insert(self.read.rows.len());
                self.read.rows.push(filing);
                Ok(())
            }
            Entry::Occupied(entry) if self.read.rows[*entry.get()] == filing => {
                self.read.merged += 1;
                Ok(())
            }
            Entry::Occupied(_) => {
                let reason = format!("an earlier row of the id {} says other things than this one", filing.id);
                self.read.set_aside(BadRow::of_line(line.number, line.bytes, reason))
            }
        }
    }

    pub fn finish(self) -> Read<Filing> {
        self.read
    }
}

/// A filing's company need not be in the registry: foreign issuers are not. That is also why its CNPJ is not judged.
pub fn company_id<const N: usize>(row: &Row<'_, N>, column: usize) -> Result<CompanyId, String> {
    parse_id(&row.raw(column)).ok_or_else(|| row.complaint(column, "no code of a company"))
}

pub fn delivered_on<const N: usize>(row: &Row<'_, N>, column: usize, today: NaiveDate) -> Result<NaiveDate, String> {
    let delivered_on = row.required_day(column)?;
    if delivered_on > today {
        return Err(row.complaint(column, "in the future"));
    }
    if delivered_on < FIRST_DELIVERY {
        return Err(row.complaint(column, "before the regulator took any filing"));
    }
    Ok(delivered_on)
}

pub fn version<const N: usize>(row: &Row<'_, N>, column: usize) -> Result<u16, String> {
    let digits = row.raw(column);
    let version = digits.parse::<i16>().ok().and_then(|version| u16::try_from(version).ok());
    let is_plain = digits.bytes().all(|byte| byte.is_ascii_digit());
    version.filter(|version| is_plain && *version > 0).ok_or_else(|| row.complaint(column, "no version"))
}

/// The address of the document, which readers will follow: nothing but the web.
pub fn address<const N: usize>(row: &Row<'_, N>, column: usize) -> Result<String, String> {
    let address = row.text(column)?;
    let is_web = address.starts_with("https://") || address.starts_with("http://");
    if address.is_empty() || (is_web && !address.contains(' ')) {
        Ok(address)
    } else {
        Err(row.complaint(column, "no address of the web"))
    }
}
