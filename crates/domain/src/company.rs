//! Companies in CVM's registry.

use chrono::NaiveDate;

use crate::Cnpj;

/// CVM's company code, without leading zeros.
pub type CompanyId = u32;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Company {
    pub id: CompanyId,
    pub name: String,
    pub cnpj: Option<Cnpj>,
    pub status: String,
    /// Empty if the registry has none.
    pub sector: String,
    pub trade_name: String,
    /// Names in earlier versions of the registry, newest first.
    pub former_names: Vec<String>,
    /// Earlier trade names: searchable, but not shown.
    pub former_trade_names: Vec<String>,
    pub tickers: Vec<String>,
    pub markets: Vec<String>,
    pub registered_on: Option<NaiveDate>,
    pub cancelled_on: Option<NaiveDate>,
    pub status_since: Option<NaiveDate>,
    pub category: String,
    pub situation: String,
    pub control: String,
    pub city: String,
    pub state: String,
    pub auditor: String,
    /// False for an issuer that appears only in filings.
    pub is_registered: bool,
}

/// Parses a CVM code as people write it: digits, with or without leading zeros.
pub fn parse_company_id(text: &str) -> Option<CompanyId> {
    let is_numeric = !text.is_empty() && text.len() <= 9 && text.bytes().all(|byte| byte.is_ascii_digit());
    is_numeric.then(|| text.parse().ok()).flatten().filter(|id| *id > 0)
}

#[cfg(test)]
mod tests {
    use super::parse_company_id;

    #[test]
    fn company_ids_parse_with_and_without_leading_zeros() {
        assert_eq!(parse_company_id("9512"), Some(9512));
        assert_eq!(parse_company_id("009512"), Some(9512));
        for text in ["", "0", "-1", "+1", "1a", "9999999999"] {
            assert_eq!(parse_company_id(text), None, "{text}");
        }
    }
}
