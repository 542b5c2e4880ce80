//! Values that several tables store.

use chrono::{DateTime, Utc};
use vintem_domain::decimal::parse_exact_decimal;
use vintem_domain::{CompanyId, Decimal};

use crate::{Result, StoreError};

/// When we learned of a row, and which fetch brought it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RowProvenance {
    /// Seconds since 1970.
    pub known_at_seconds: u32,
    pub fetch_id: u32,
}

impl RowProvenance {
    pub(crate) fn new(known_at: DateTime<Utc>, fetch_id: i64) -> Result<Self> {
        let fetch_id =
            u32::try_from(fetch_id).map_err(|_| StoreError::UnreadableData(format!("the fetch {fetch_id}")))?;
        Ok(Self { known_at_seconds: Self::to_unix_seconds(known_at), fetch_id })
    }

    /// An instant in the unit of `known_at_seconds`.
    pub fn to_unix_seconds(instant: DateTime<Utc>) -> u32 {
        u32::try_from(instant.timestamp().max(0)).unwrap_or(u32::MAX)
    }

    pub fn known_at(self) -> DateTime<Utc> {
        DateTime::from_timestamp(self.known_at_seconds.into(), 0).unwrap_or_default()
    }
}

/// Numbers are read as text, because zero would lose its decimals as a binary numeric.
pub(crate) fn parse_stored_decimal(text: &str) -> Result<Decimal> {
    parse_exact_decimal(text).ok_or_else(|| StoreError::UnreadableData(format!("the number {text}")))
}

pub(crate) fn parse_company_code(code: i32) -> Result<CompanyId> {
    CompanyId::try_from(code).map_err(|_| StoreError::UnreadableData(format!("company code {code}")))
}
