//! Days and moments: what is read is what was written.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vintem_ingest::read::day::{brazilian_day, iso_day, moment};

fuzz_target!(|text: &str| {
    if let Some(day) = iso_day(text) {
        assert_eq!(day.to_string(), text);
    }
    if let Some(day) = brazilian_day(text) {
        assert_eq!(day.format("%d/%m/%Y").to_string(), text);
    }
    if let Some(moment) = moment(text) {
        assert!(text.starts_with(&moment.format("%Y-%m-%d %H:%M:%S").to_string()));
    }
});
