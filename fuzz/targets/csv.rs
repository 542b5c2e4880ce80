//! CVM's CSV files. Every parser gets every input: it rejects a file that lacks its columns at the header.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vintem_domain::CvmDataset;
use vintem_fuzz::{TODAY, assert_all_rows_counted};
use vintem_ingest::parsers::{company_registry, fca_securities, ipe, structured_filings};

fuzz_target!(|table: &[u8]| {
    if let Ok(parsed) = company_registry::parse_companies(table) {
        assert_all_rows_counted(&parsed);
        // The archived file has the same companies. It may be rejected: without the accents in personal names, the
        // remaining bytes can look like another encoding.
        if let Ok(archived) = company_registry::parse_companies(&company_registry::redact_personal_data(table)) {
            assert_eq!(archived.rows, parsed.rows);
        }
    }
    if let Ok(parsed) = ipe::parse_filings(table, TODAY) {
        assert_all_rows_counted(&parsed);
    }
    for dataset in CvmDataset::ALL {
        if let Ok(parsed) = structured_filings::parse_filings(dataset, table, TODAY) {
            assert_all_rows_counted(&parsed);
        }
    }
    if let Ok(parsed) = fca_securities::parse_securities(table) {
        assert_all_rows_counted(&parsed);
    }
});
