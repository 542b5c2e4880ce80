//! Financial statements: the tables in which the regulator publishes them, and what a document says.

mod account;
mod chart;
mod document;
mod restatement;
mod row;
mod set;
mod table;
mod table_set;

pub use account::{AccountKey, AccountRow, ScaleOfValues, ValueUnit};
pub use chart::{ChartOfAccounts, FixedAccount, english_account_name, fixed_accounts};
pub use document::{ContradictingRows, DocumentFormatError, StatementContent, UnreadableRow, split_into_tables};
pub use restatement::{ValueChange, changed_values};
pub use row::{ShareCounts, VALUE_DECIMALS};
pub use set::StatementSet;
pub use table::{
    BALANCE_CONTENT_COLUMNS, CashFlowMethod, EQUITY_CHANGES_CONTENT_COLUMNS, FLOW_CONTENT_COLUMNS,
    SHARES_CONTENT_COLUMNS, Statement, StatementScope, StatementTable, TableContent, TableLayout,
};
pub use table_set::StatementTableSet;
