//! Answers of the central bank's series: whatever the status and the bytes, every row is accounted for.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vintem_ingest::parsers::sgs::{SgsResponse, parse_response};

fuzz_target!(|body: &[u8]| {
    for status in [200, 400, 404, 406, 500] {
        if let Ok(SgsResponse::Rows(read)) = parse_response(status, body) {
            vintem_fuzz::assert_all_rows_counted(&read);
            assert!(read.rows.is_sorted_by(|one, next| one.date < next.date), "a day stands twice or out of order");
        }
    }
});
