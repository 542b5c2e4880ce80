//! The regulator's archives, opened and read as ingestion does it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vintem_domain::CvmDataset;
use vintem_ingest::upstreams::cvm::parse_year_archive;

fuzz_target!(|archive: &[u8]| {
    for set in CvmDataset::ALL {
        if let Ok(year) = parse_year_archive(archive, set, 2025, vintem_fuzz::TODAY) {
            vintem_fuzz::assert_all_rows_counted(&year.filings.parsed);
        }
    }
});
