//! What somebody types into a search: a bounded number of words, whatever it is.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vintem_snapshot::SearchQuery;

fuzz_target!(|text: &str| {
    let query = SearchQuery::parse(text);
    let words = query.words.iter().chain(query.phrases.iter().flatten());
    assert!(words.clone().count() <= 16);
    assert!(words.into_iter().all(|word| !word.is_empty() && !word.contains(char::is_whitespace)));
    assert!(!query.is_last_word_prefix || !query.words.is_empty());
    // To be typed again changes nothing: what was folded stays so.
    let again = SearchQuery::parse(&query.words.join(" "));
    assert_eq!(again.words, query.words);
});
