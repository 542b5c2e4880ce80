//! The regulator's archives, opened and read as ingestion does it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vintem_domain::FilingSet;
use vintem_ingest::upstreams::cvm::read_year;

fuzz_target!(|archive: &[u8]| {
    for set in FilingSet::ALL {
        if let Ok(year) = read_year(archive, set, 2025, vintem_fuzz::TODAY) {
            vintem_fuzz::all_rows_are_accounted_for(&year.filings.read);
        }
    }
});
