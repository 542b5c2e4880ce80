//! Search queries: any text gives a bounded number of words.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vintem_snapshot::SearchQuery;

fuzz_target!(|text: &str| {
    let query = SearchQuery::parse(text);
    let words = query.words.iter().chain(query.phrases.iter().flatten());
    assert!(words.clone().count() <= 16);
    assert!(words.into_iter().all(|word| !word.is_empty() && !word.contains(char::is_whitespace)));
    assert!(!query.is_last_word_prefix || !query.words.is_empty());

    // Normalization is idempotent: parsing the words again changes nothing.
    let reparsed = SearchQuery::parse(&query.words.join(" "));
    assert_eq!(reparsed.words, query.words);
});
