//! CVM's ZIP archives, opened and parsed as ingestion does it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vintem_domain::CvmDataset;
use vintem_ingest::upstreams::cvm::parse_whole_archive;

fuzz_target!(|archive: &[u8]| {
    for dataset in CvmDataset::ALL {
        if let Ok(year) = parse_whole_archive(archive, dataset, 2025, vintem_fuzz::TODAY) {
            vintem_fuzz::assert_all_rows_counted(&year.filings.parsed);
        }
    }
});
