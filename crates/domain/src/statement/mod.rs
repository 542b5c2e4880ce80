//! Financial statements: the tables in which the regulator publishes them, and what a document says.

mod account;
mod document;
mod set;
mod table;
mod table_set;

pub use account::{AccountKey, AccountRow, ScaleOfValues, ValueUnit};
pub use document::{ContradictingRows, DocumentFormatError, ShareCounts, StatementContent, UnreadableRow};
pub use set::StatementSet;
pub use table::{
    BALANCE_CONTENT_COLUMNS, CashFlowMethod, EQUITY_CHANGES_CONTENT_COLUMNS, FLOW_CONTENT_COLUMNS,
    SHARES_CONTENT_COLUMNS, Statement, StatementScope, StatementTable, TableContent, TableLayout,
};
pub use table_set::StatementTableSet;
