//! Searches in small and large indexes: what they find, and in which order.

use std::sync::Arc;

use super::search::SearchHits;
use super::{IndexEntry, NameTokens, SearchIndex, SearchScope, build_index, search};
use crate::search_query::SearchQuery;
use crate::tokenizer::tokenize;

const SMALL_INDEX_ROWS: [(&str, &str); 2] = [("Cerâmica Serra S.A.", "cerâmica"), ("Banco Vale", "serra e bancos")];

fn build_small_index() -> SearchIndex {
    build_index(502, 1, |row, writer| {
        let (title, text) = SMALL_INDEX_ROWS.get(row as usize).copied().unwrap_or(("Aviso", "comunicado ao mercado"));
        writer.add(IndexEntry {
            title: tokenize(title).join(" "),
            text: tokenize(text).join(" "),
            ..IndexEntry::default()
        })
    })
    .unwrap()
}

fn full_scope(index: &SearchIndex) -> SearchScope<'_> {
    SearchScope {
        index,
        from_row: 0,
        hidden_rows: Arc::default(),
        excluded_rows: &[],
        row_weights: &[],
        facet_lookup: None,
    }
}

fn run_query(scopes: &[SearchScope<'_>], query: &str, limit: usize) -> SearchHits {
    search(scopes, &SearchQuery::parse(query), |_| NameTokens::default(), limit).unwrap()
}

fn hit_rows(hits: &SearchHits) -> Vec<u32> {
    hits.best.iter().map(|hit| hit.row).collect()
}

#[test]
fn title_matches_rank_above_text_matches() {
    let index = build_small_index();
    let found = |query| run_query(&[full_scope(&index)], query, 10);
    assert_eq!((found("SERRA").total, hit_rows(&found("SERRA"))), (2, vec![0, 1]));
    assert_eq!(hit_rows(&found("ceramica s/a")), [0]);
    assert_eq!(found("serra ausente").total, 0);
}

#[test]
fn the_last_word_matches_as_a_prefix_and_phrases_match_in_order() {
    let index = build_small_index();
    let found = |query| hit_rows(&run_query(&[full_scope(&index)], query, 3));
    assert_eq!(found("cera"), [0]);
    assert_eq!(found("cera "), [0u32; 0]);
    assert_eq!(found("\"serra e bancos\""), [1]);
    assert_eq!(found("\"bancos e serra\""), [0u32; 0]);
    assert_eq!(found("\"comunicado ao\" mercado"), [2, 3, 4]);
}

#[test]
fn typos_are_corrected_when_nothing_matches_exactly() {
    let index = build_small_index();
    let found = |query| hit_rows(&run_query(&[full_scope(&index)], query, 3));
    assert_eq!(found("ceramcia"), [0]);
    assert_eq!(found("serar ceramica"), [0]);
    // Too short to be corrected.
    assert_eq!(found("vlae"), [0u32; 0]);
}

#[test]
fn limited_results_are_the_start_of_the_full_ranking() {
    let index = build_small_index();
    for limit in [0, 1, 70, 499, 500, 600] {
        let found = run_query(&[full_scope(&index)], "comunicado", limit);
        assert_eq!(found.total, 500);
        assert_eq!(hit_rows(&found), (2..502).take(limit).collect::<Vec<u32>>());
    }
}

#[test]
fn hidden_and_excluded_rows_are_neither_found_nor_counted() {
    let index = build_small_index();
    let scope =
        SearchScope { from_row: 10, hidden_rows: [5, 11, 13].into(), excluded_rows: &[20], ..full_scope(&index) };
    let found = run_query(&[scope], "comunicado", 4);
    assert_eq!((found.total, hit_rows(&found)), (489, vec![10, 12, 14, 15]));
}

const LARGE_INDEX_ROWS: u32 = 20_000;
/// Each word with the interval of the titles, and of the texts, that hold it.
const WORD_INTERVALS: [(&str, u32, u32); 4] =
    [("aviso", 11, 1), ("aos", 9, 2), ("avisar", 7, LARGE_INDEX_ROWS), ("avisados", 5_000, LARGE_INDEX_ROWS)];

fn build_large_index() -> SearchIndex {
    let words_where = |predicate: &dyn Fn(&(&'static str, u32, u32)) -> bool| {
        WORD_INTERVALS.iter().filter(|entry| predicate(entry)).map(|(word, ..)| *word).collect::<Vec<_>>().join(" ")
    };
    build_index(LARGE_INDEX_ROWS as usize, 1, |row, writer| {
        let title = words_where(&|(_, interval, _)| row.is_multiple_of(*interval));
        let text = words_where(&|(_, _, interval)| row.is_multiple_of(*interval));
        writer.add(IndexEntry { title, text, ..IndexEntry::default() })
    })
    .unwrap()
}

#[test]
fn queries_with_common_words_find_exactly_the_matching_rows() {
    let index = build_large_index();
    assert_eq!(index.parts[0].common_words.len(), 4);
    let rows_where =
        |predicate: fn(u32) -> bool| (0..LARGE_INDEX_ROWS).filter(|row| predicate(*row)).collect::<Vec<u32>>();
    let found = |query| {
        let mut rows = hit_rows(&run_query(&[full_scope(&index)], query, LARGE_INDEX_ROWS as usize));
        rows.sort_unstable();
        rows
    };

    assert_eq!(found("aviso "), rows_where(|_| true));
    assert_eq!(found("aviso aos "), rows_where(|row| row % 2 == 0 || row % 9 == 0));
    assert_eq!(found("aos avisar "), rows_where(|row| row % 7 == 0 && (row % 2 == 0 || row % 9 == 0)));
    assert_eq!(found("avisados aos aviso "), rows_where(|row| row % 5_000 == 0));
    assert_eq!(found("\"aos avisar\" aviso "), rows_where(|row| row % 63 == 0));
    // Two words begin like this, a common one and a rare one.
    assert_eq!(found("avisa"), rows_where(|row| row % 7 == 0 || row % 5_000 == 0));
}

#[test]
fn limited_results_of_a_large_index_are_the_start_of_the_full_ranking() {
    let index = build_large_index();
    for query in ["aviso", "avi", "aviso aos", "aos avi", "aviso aos avisar"] {
        let best = |limit| hit_rows(&run_query(&[full_scope(&index)], query, limit));
        // No row is skipped if all are requested.
        let all = best(LARGE_INDEX_ROWS as usize);
        for limit in [1, 10, 100, 1_000] {
            assert_eq!(best(limit), all[..limit], "{query}");
        }
    }
}

#[test]
fn word_rarity_is_computed_over_all_scopes() {
    let one = build_small_index();
    let other = build_small_index();
    let found = run_query(&[full_scope(&one), full_scope(&other)], "serra", 10);
    let scores: Vec<(u32, u32)> = found.best.iter().map(|hit| (hit.row, hit.score.to_bits())).collect();
    assert_eq!((found.total, scores.len()), (4, 4));
    assert_eq!(scores[0], scores[2]);
}

/// A row of pseudorandom words, some of them several times. One row in 90 is so long that positions do not fit a byte.
fn random_row_words(row: u32) -> Vec<&'static str> {
    let length = if row.is_multiple_of(90) { 400 } else { 3 + row % 7 };
    let mut state = u64::from(row).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next_word = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        ["ata", "de", "reuniao", "do", "conselho"][(state >> 33) as usize % 5]
    };
    let mut words: Vec<&'static str> = (0..length).map(|_| next_word()).collect();
    if row.is_multiple_of(50) {
        words.insert(1, "rara");
    }
    words
}

#[test]
fn phrases_are_found_wherever_their_words_follow_each_other() {
    const ROWS: u32 = 6_000;
    let index = build_index(ROWS as usize, 1, |row, writer| {
        let title = random_row_words(row).join(" ");
        let text = if row.is_multiple_of(3) { "conselho fiscal".to_owned() } else { "conselho".to_owned() };
        writer.add(IndexEntry { title, text, ..IndexEntry::default() })
    })
    .unwrap();
    assert!(index.parts[0].common_words.len() >= 5, "all words of titles are common");

    for phrase in [
        "ata de",
        "de ata",
        "reuniao do conselho",
        "ata ata",
        "do conselho fiscal",
        "de reuniao do conselho de",
        "de rara",
        "ata rara do",
    ] {
        let words: Vec<&str> = phrase.split(' ').collect();
        let holds_phrase = |row: u32| random_row_words(row).windows(words.len()).any(|window| window == words);
        let found = |query: &str| {
            let mut rows = hit_rows(&run_query(&[full_scope(&index)], query, ROWS as usize));
            rows.sort_unstable();
            rows
        };
        let expected: Vec<u32> = (0..ROWS).filter(|row| holds_phrase(*row)).collect();
        assert_eq!(found(&format!("\"{phrase}\"")), expected, "{phrase}");

        let expected: Vec<u32> = expected.into_iter().filter(|row| row.is_multiple_of(3)).collect();
        assert_eq!(found(&format!("\"{phrase}\" fiscal ")), expected, "{phrase} with another word");
    }
}
