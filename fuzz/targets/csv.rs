//! The regulator's tables. Every reader meets every input: those whose columns it lacks refuse it at its header.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vintem_domain::FilingSet;
use vintem_fuzz::{TODAY, all_rows_are_accounted_for};
use vintem_ingest::read::{fca, index, ipe, registry};

fuzz_target!(|table: &[u8]| {
    if let Ok(read) = registry::read(table) {
        all_rows_are_accounted_for(&read);
        // What is archived holds the same companies. That it may be refused: without its persons' accents, those that
        // are left can look like another encoding.
        if let Ok(archived) = registry::read(&registry::without_persons(table)) {
            assert_eq!(archived.rows, read.rows);
        }
    }
    if let Ok(read) = ipe::read(table, TODAY) {
        all_rows_are_accounted_for(&read);
    }
    for set in FilingSet::ALL {
        if let Ok(read) = index::read(set, table, TODAY) {
            all_rows_are_accounted_for(&read);
        }
    }
    if let Ok(read) = fca::read(table) {
        all_rows_are_accounted_for(&read);
    }
});
