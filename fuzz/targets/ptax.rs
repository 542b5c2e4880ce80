//! Answers of the central bank's exchange rates.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vintem_domain::Currency;
use vintem_ingest::read::ptax::read;

fuzz_target!(|body: &[u8]| {
    for currency in Currency::ALL {
        if let Ok(read) = read(currency, body, vintem_fuzz::TODAY) {
            vintem_fuzz::all_rows_are_accounted_for(&read);
        }
    }
});
