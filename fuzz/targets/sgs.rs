//! Answers of the central bank's series: whatever the status and the bytes, every row is accounted for.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vintem_ingest::read::sgs::{Sgs, judge};

fuzz_target!(|body: &[u8]| {
    for status in [200, 400, 404, 406, 500] {
        if let Ok(Sgs::Rows(read)) = judge(status, body) {
            vintem_fuzz::all_rows_are_accounted_for(&read);
            assert!(read.rows.is_sorted_by(|one, next| one.date < next.date), "a day stands twice or out of order");
        }
    }
});
