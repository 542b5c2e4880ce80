//! The settings of the fakes.

use std::net::{Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::PathBuf;

use chrono::NaiveDate;

use super::statements::StatementOptions;
use super::{calendar, ipe};

/// Size of the synthetic data, and the day on which the fakes start.
#[derive(Debug, Clone)]
pub struct FakeUpstreamOptions {
    /// A directory of real files, with the subdirectories `sgs`, `ptax` and `cvm`.
    pub data_dir: Option<PathBuf>,
    /// The day in Brasília; the fakes start at its end.
    pub today: NaiveDate,
    pub ipe_rows_per_year: usize,
    /// Years that have filings; future years have none yet.
    pub ipe_years: RangeInclusive<i32>,
    pub statements: StatementOptions,
    /// Companies in the registry, if it is synthetic.
    pub companies: usize,
    /// A kit that `vintem doctor --live` recorded; its requests get its responses, and all others none.
    pub kit: Option<PathBuf>,
    /// An address on loopback.
    pub listen: SocketAddr,
}

/// Small enough for a test; archives are generated on first request.
impl Default for FakeUpstreamOptions {
    fn default() -> Self {
        Self {
            data_dir: None,
            today: calendar::ymd(2026, 11, 13),
            ipe_rows_per_year: 200,
            ipe_years: ipe::FIRST_YEAR..=i32::MAX,
            statements: StatementOptions { rows_per_document: 16, restated_per_thousand_weekly: 0 },
            companies: 120,
            kit: None,
            listen: (Ipv4Addr::LOCALHOST, 0).into(),
        }
    }
}
