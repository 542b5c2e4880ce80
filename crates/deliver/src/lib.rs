//! What is handed out as a whole: tables as CSV, NDJSON and Parquet, and the files of the bulk export.
//!
//! It knows no SQL and no HTTP. What the rows are is said by whoever has them; here is how they are written and kept.

pub mod export;
pub mod table;
