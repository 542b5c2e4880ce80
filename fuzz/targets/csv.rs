//! The regulator's tables. Every reader meets every input: those whose columns it lacks refuse it at its header.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vintem_domain::CvmDataset;
use vintem_fuzz::{TODAY, assert_all_rows_counted};
use vintem_ingest::parsers::{company_registry, fca_securities, ipe, structured_filings};

fuzz_target!(|table: &[u8]| {
    if let Ok(read) = company_registry::parse_companies(table) {
        assert_all_rows_counted(&read);
        // What is archived holds the same companies. That it may be refused: without its persons' accents, those that
        // are left can look like another encoding.
        if let Ok(archived) = company_registry::parse_companies(&company_registry::redact_personal_data(table)) {
            assert_eq!(archived.rows, read.rows);
        }
    }
    if let Ok(read) = ipe::parse_filings(table, TODAY) {
        assert_all_rows_counted(&read);
    }
    for set in CvmDataset::ALL {
        if let Ok(read) = structured_filings::parse_filings(set, table, TODAY) {
            assert_all_rows_counted(&read);
        }
    }
    if let Ok(read) = fca_securities::parse_securities(table) {
        assert_all_rows_counted(&read);
    }
});
