//! Decimals: parsed without losing a digit, or rejected.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vintem_ingest::parsers::decimal::parse_exact_decimal;

fuzz_target!(|text: &str| {
    if let Ok(value) = parse_exact_decimal(text) {
        let expected = if value.is_zero() { text.trim_start_matches('-') } else { text };
        assert_eq!(value.to_string(), expected);
    }
});
