//! Responses of SGS, the central bank's time series: whatever the status and the bytes, every row is counted.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vintem_ingest::parsers::sgs::{SgsResponse, parse_response};

fuzz_target!(|body: &[u8]| {
    for status in [200, 400, 404, 406, 500] {
        if let Ok(SgsResponse::Rows(parsed)) = parse_response(status, body) {
            vintem_fuzz::assert_all_rows_counted(&parsed);
            assert!(parsed.rows.is_sorted_by(|one, next| one.date < next.date), "a day stands twice or out of order");
        }
    }
});
