//! The data tables, one file each: its columns, how a row is written, and how it is read.

pub mod bulletin;
pub mod company;
pub mod filing;
pub mod observation;
pub mod security;
pub mod statement;
pub mod stored_values;
pub mod table;

use bulletin::BULLETIN_TABLE;
use company::COMPANY_TABLE;
use filing::FILING_TABLE;
use observation::OBSERVATION_TABLE;
use security::SECURITY_TABLE;
use statement::STATEMENT_TABLE;

/// The data tables, each with the names of its columns, but without those that say when and how we learned of a row. All
/// who lock several of them do so in this order, so that they wait for each other instead of deadlocking.
pub fn data_tables() -> [(&'static str, String); 6] {
    [
        (OBSERVATION_TABLE.name, OBSERVATION_TABLE.data_column_names()),
        (BULLETIN_TABLE.name, BULLETIN_TABLE.data_column_names()),
        (COMPANY_TABLE.name, COMPANY_TABLE.data_column_names()),
        (SECURITY_TABLE.name, SECURITY_TABLE.data_column_names()),
        (FILING_TABLE.name, FILING_TABLE.data_column_names()),
        (STATEMENT_TABLE.name, STATEMENT_TABLE.data_column_names()),
    ]
}

/// The names of the data tables, separated by commas.
pub(crate) fn data_table_names() -> String {
    data_tables().map(|(name, _)| name).join(", ")
}
