//! Accounts of a document, and their values.

use chrono::NaiveDate;
use rust_decimal::Decimal;

use super::table::{CashFlowMethod, Statement, StatementScope};

/// Figures of one share. They have the scale of the document written beside them, but are not in it.
const PER_SHARE_ACCOUNT: &str = "3.99";

/// An account with its value in one period.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AccountRow<'t> {
    pub key: AccountKey<'t>,
    pub name: &'t str,
    /// Whether the regulator's chart of accounts has it, not only the company's.
    pub is_fixed: bool,
    /// In whole reais, or reais per share; without trailing zeros.
    pub value: Decimal,
    /// As it was filed.
    pub raw_value: Decimal,
    pub scale: ScaleOfValues,
    pub unit: ValueUnit,
}

/// Identifies an account's value within a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct AccountKey<'t> {
    pub statement: Statement,
    pub method: Option<CashFlowMethod>,
    pub scope: StatementScope,
    /// Whether it is of an earlier period, repeated to compare with.
    pub is_comparative: bool,
    /// `None` for the balance of a day.
    pub period_start: Option<NaiveDate>,
    pub period_end: NaiveDate,
    /// The component of equity whose changes these are.
    pub column: Option<&'t str>,
    pub account: &'t str,
}

/// What filed values are counted in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScaleOfValues {
    Units,
    Thousands,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueUnit {
    Brl,
    BrlPerShare,
}

impl std::fmt::Display for AccountKey<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} of {} {}", self.account, self.scope.id(), self.statement.id())?;
        if let Some(column) = self.column {
            write!(f, " ({column})")?;
        }
        match self.period_start {
            Some(start) => write!(f, ", {start} to {}", self.period_end),
            None => write!(f, ", {}", self.period_end),
        }
    }
}

impl ScaleOfValues {
    pub const fn id(self) -> &'static str {
        match self {
            Self::Units => "units",
            Self::Thousands => "thousands",
        }
    }

    /// The whole value of a filed one. `None` if it has more digits than a decimal can hold.
    pub(super) fn apply(self, raw_value: Decimal, unit: ValueUnit) -> Option<Decimal> {
        // Nearly all filed values are whole numbers with ten zeros behind the point.
        let whole = raw_value.trunc().normalize();
        let value = if whole == raw_value { whole } else { raw_value.normalize() };
        match (self, unit) {
            (Self::Thousands, ValueUnit::Brl) if value.scale() == 0 => value.checked_mul(Decimal::ONE_THOUSAND),
            (Self::Thousands, ValueUnit::Brl) => Some(value.checked_mul(Decimal::ONE_THOUSAND)?.normalize()),
            (Self::Units, _) | (_, ValueUnit::BrlPerShare) => Some(value),
        }
    }
}

impl ValueUnit {
    pub(super) fn of_account(account: &str) -> Self {
        let below_per_share = account.strip_prefix(PER_SHARE_ACCOUNT);
        let is_per_share = below_per_share.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
        if is_per_share { Self::BrlPerShare } else { Self::Brl }
    }

    pub const fn id(self) -> &'static str {
        match self {
            Self::Brl => "BRL",
            Self::BrlPerShare => "BRL/share",
        }
    }
}
