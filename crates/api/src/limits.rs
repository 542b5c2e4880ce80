//! The limits that callers can reach, collected here for the API description.

pub use crate::load::MAX_LONG_POLLS;
pub use crate::params::{
    DEFAULT_LIMIT, MAX_CSV_COMPANIES, MAX_CSV_FILINGS, MAX_FILTER_CHARS, MAX_OBSERVATIONS, MAX_PAGE_ROWS,
    MAX_SEARCH_CHARS, MAX_SEARCH_HITS, MAX_STATEMENT_ROWS, MAX_WAIT_SECONDS,
};
pub use crate::request_body::MAX_BODY_BYTES;
pub use crate::routes::calendar::{MAX_RANGE_YEARS, MAX_STEP_DAYS};
pub use crate::routes::keys::MAX_GRACE_SECONDS;
pub use crate::routes::market::accumulation::{AMOUNT_BOUNDS, PERCENT_BOUNDS, SPREAD_BOUNDS};
pub use crate::routes::market::compare::MAX_COMPARED_VALUES;
pub use crate::routes::plans::MAX_NAME_CHARS;
pub use crate::routes::usage::{DEFAULT_DAYS as DEFAULT_USAGE_DAYS, MAX_DAYS as MAX_USAGE_DAYS};
pub use crate::routes::webhooks::request::MAX_FILTER_VALUES;
