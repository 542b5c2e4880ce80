//! Reads a row of a table.

use rust_decimal::Decimal;

use super::account::{AccountKey, AccountRow, ScaleOfValues, ValueUnit};
use super::table::{CashFlowMethod, SHARES_CONTENT_COLUMNS, Statement, StatementScope, TableLayout};
use crate::dates::parse_date;
use crate::decimal::parse_exact_decimal;

/// As filed. Some companies count shares and others thousands of shares, and the document doesn't say which.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShareCounts {
    pub common: Decimal,
    pub preferred: Decimal,
    pub total: Decimal,
    pub treasury_common: Decimal,
    pub treasury_preferred: Decimal,
    pub treasury_total: Decimal,
}

/// The decimals of filed values.
pub const VALUE_DECIMALS: u32 = 10;

/// The label of values of an earlier period.
const COMPARATIVE: &str = "PENÚLTIMO";
/// `ORDEM_EXERC`, in the layouts of all statements.
const ORDER_COLUMN: usize = 3;

/// With its decimals, a value has at most 38 digits, the most that a decimal of Parquet can have.
fn fits_export(value: &Decimal) -> bool {
    value.trunc().mantissa().unsigned_abs() < 10_u128.pow(38 - VALUE_DECIMALS)
}

/// The column that cannot be read; `None` if the number of fields is wrong.
pub type FieldError = Option<&'static str>;

/// A row of a table.
#[derive(Clone, Copy)]
pub struct TableRow<'t> {
    pub layout: TableLayout,
    pub text: &'t str,
}

/// The fields of a row of a statement, without the first, which names the statement.
struct AccountFields<'t> {
    currency: &'t str,
    scale: &'t str,
    order: &'t str,
    period_start: Option<&'t str>,
    period_end: &'t str,
    column: Option<&'t str>,
    account: &'t str,
    name: &'t str,
    value: &'t str,
    fixed: &'t str,
}

impl<'t> TableRow<'t> {
    /// Whether it repeats a value of an earlier period.
    pub fn is_comparative(self) -> bool {
        self.layout != TableLayout::Shares && self.text.split(';').nth(ORDER_COLUMN) == Some(COMPARATIVE)
    }

    pub fn to_account_row(
        self,
        statement: Statement,
        method: Option<CashFlowMethod>,
        scope: StatementScope,
    ) -> Result<AccountRow<'t>, FieldError> {
        let fields = self.split_account_row()?;
        let required = |name: &'static str, text: &'t str| Some(text).filter(|text| !text.is_empty()).ok_or(Some(name));
        let date = |name: &'static str, text: &'t str| parse_date(required(name, text)?).ok_or(Some(name));
        let label = |name: &'static str, text: &'t str, labels: [&str; 2]| {
            let text = required(name, text)?;
            labels.iter().position(|label| *label == text).ok_or(Some(name))
        };
        if required("MOEDA", fields.currency)? != "REAL" {
            return Err(Some("MOEDA"));
        }
        let thousands = label("ESCALA_MOEDA", fields.scale, ["UNIDADE", "MIL"])?;
        let scale = [ScaleOfValues::Units, ScaleOfValues::Thousands][thousands];

        let account = required("CD_CONTA", fields.account)?;
        let unit = ValueUnit::of_account(account);
        let raw_value = parse_exact_decimal(required("VL_CONTA", fields.value)?);
        let raw_value = raw_value.filter(|value| value.scale() <= VALUE_DECIMALS).ok_or(Some("VL_CONTA"))?;
        Ok(AccountRow {
            key: AccountKey {
                statement,
                method,
                scope,
                is_comparative: label("ORDEM_EXERC", fields.order, ["ÚLTIMO", COMPARATIVE])? == 1,
                period_start: fields.period_start.map(|text| date("DT_INI_EXERC", text)).transpose()?,
                period_end: date("DT_FIM_EXERC", fields.period_end)?,
                column: fields.column,
                account,
            },
            name: fields.name,
            is_fixed: label("ST_CONTA_FIXA", fields.fixed, ["N", "S"])? == 1,
            value: scale.apply(raw_value, unit).filter(fits_export).ok_or(Some("VL_CONTA"))?,
            raw_value,
            scale,
            unit,
        })
    }

    /// In the order of [`TableLayout::content_columns`].
    fn split_account_row(self) -> Result<AccountFields<'t>, FieldError> {
        let mut fields = self.text.split(';').skip(1);
        let mut next = || fields.next().ok_or(None);
        let split = AccountFields {
            currency: next()?,
            scale: next()?,
            order: next()?,
            period_start: if self.layout == TableLayout::Balance { None } else { Some(next()?) },
            period_end: next()?,
            column: if self.layout == TableLayout::EquityChanges { Some(next()?) } else { None },
            account: next()?,
            name: next()?,
            value: next()?,
            fixed: next()?,
        };
        if fields.next().is_some() { Err(None) } else { Ok(split) }
    }

    pub fn to_share_counts(self) -> Result<ShareCounts, FieldError> {
        let columns = self.layout.content_columns();
        let mut fields = self.text.split(';');
        let mut values = [""; SHARES_CONTENT_COLUMNS.len()];
        for value in &mut values {
            *value = fields.next().ok_or(None)?;
        }
        if fields.next().is_some() {
            return Err(None);
        }
        let count = |at: usize| parse_exact_decimal(values[at]).map(|count| count.normalize()).ok_or(Some(columns[at]));
        Ok(ShareCounts {
            common: count(0)?,
            preferred: count(1)?,
            total: count(2)?,
            treasury_common: count(3)?,
            treasury_preferred: count(4)?,
            treasury_total: count(5)?,
        })
    }
}
