//! Dates and timestamps: formatting a parsed value gives the original text.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vintem_ingest::parsers::dates::{parse_brazilian_date, parse_iso_date, parse_timestamp};

fuzz_target!(|text: &str| {
    if let Some(date) = parse_iso_date(text) {
        assert_eq!(date.to_string(), text);
    }
    if let Some(date) = parse_brazilian_date(text) {
        assert_eq!(date.format("%d/%m/%Y").to_string(), text);
    }
    if let Some(timestamp) = parse_timestamp(text) {
        assert!(text.starts_with(&timestamp.format("%Y-%m-%d %H:%M:%S").to_string()));
    }
});
