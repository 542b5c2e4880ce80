//! Responses of PTAX, the central bank's exchange rates: every row is counted.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vintem_domain::Currency;
use vintem_ingest::parsers::ptax::parse_bulletins;

fuzz_target!(|body: &[u8]| {
    for currency in Currency::ALL {
        if let Ok(parsed) = parse_bulletins(currency, body, vintem_fuzz::TODAY) {
            vintem_fuzz::assert_all_rows_counted(&parsed);
        }
    }
});
