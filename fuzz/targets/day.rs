//! Days and moments: what is read is what was written.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vintem_ingest::parsers::dates::{parse_brazilian_date, parse_iso_date, parse_timestamp};

fuzz_target!(|text: &str| {
    if let Some(day) = parse_iso_date(text) {
        assert_eq!(day.to_string(), text);
    }
    if let Some(day) = parse_brazilian_date(text) {
        assert_eq!(day.format("%d/%m/%Y").to_string(), text);
    }
    if let Some(moment) = parse_timestamp(text) {
        assert!(text.starts_with(&moment.format("%Y-%m-%d %H:%M:%S").to_string()));
    }
});
