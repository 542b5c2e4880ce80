//! Parses a typed search query into plain words, quoted phrases, and a last word that may be incomplete.

use crate::tokenizer::tokenize;

/// Words beyond this many are ignored, which bounds the work of any query.
const MAX_QUERY_WORDS: usize = 16;

/// A shorter word is not used as a prefix: too many words begin with it.
const MIN_PREFIX_CHARACTERS: usize = 2;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SearchQuery {
    /// In the order typed, without duplicates.
    pub words: Vec<String>,
    /// Quoted: these words must follow each other in this order.
    pub phrases: Vec<Vec<String>>,
    /// Whether the last of `words` may be the beginning of a longer word.
    pub is_last_word_prefix: bool,
}

impl SearchQuery {
    pub fn parse(text: &str) -> Self {
        let mut query = Self::default();
        let mut remaining_words = MAX_QUERY_WORDS;
        let pieces: Vec<&str> = text.split('"').collect();

        for (index, piece) in pieces.iter().enumerate() {
            let mut words = tokenize(piece);
            words.truncate(remaining_words);
            remaining_words -= words.len();

            // An unclosed quote does not start a phrase.
            let is_phrase = index % 2 == 1 && index + 1 < pieces.len();
            if is_phrase {
                if !words.is_empty() {
                    query.phrases.push(words);
                }
                query.is_last_word_prefix = false;
            } else if let Some(last) = words.last() {
                query.is_last_word_prefix = last.chars().count() >= MIN_PREFIX_CHARACTERS && ends_mid_word(piece);
                query.words.extend(words);
            }
        }

        query.deduplicate_words();
        query
    }

    pub fn is_empty(&self) -> bool {
        self.words.is_empty() && self.phrases.is_empty()
    }

    /// A repeated word adds nothing. The last occurrence stays, because it may be an open prefix.
    fn deduplicate_words(&mut self) {
        let words = std::mem::take(&mut self.words);
        for (index, word) in words.iter().enumerate() {
            if !words[index + 1..].contains(word) {
                self.words.push(word.clone());
            }
        }
    }
}

/// `vale ` is a complete word; `vale` may still become `valente`.
fn ends_mid_word(text: &str) -> bool {
    text.chars().next_back().is_some_and(char::is_alphanumeric)
}

/// Number of typing errors tolerated in a word.
pub fn max_typos(word: &str) -> u8 {
    match word.chars().count() {
        0..5 => 0,
        5..8 => 1,
        _ => 2,
    }
}

/// Number of missing, extra, wrong or swapped letters between two words, if it is at most `max_distance`.
pub fn edit_distance(one: &str, other: &str, max_distance: usize) -> Option<usize> {
    let length_difference = one.chars().count().abs_diff(other.chars().count());
    if length_difference > max_distance {
        return None;
    }

    // Optimal string alignment, because it counts a swapped pair of letters as one edit.
    let distance = strsim::osa_distance(one, other);
    (distance <= max_distance).then_some(distance)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn expected_query(words: &[&str], phrases: &[&[&str]], is_last_word_prefix: bool) -> SearchQuery {
        let owned = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        SearchQuery {
            words: owned(words),
            phrases: phrases.iter().map(|phrase| owned(phrase)).collect(),
            is_last_word_prefix,
        }
    }

    #[test]
    fn a_query_is_parsed_into_words_phrases_and_an_open_prefix() {
        assert_eq!(SearchQuery::parse("Petróleo bras"), expected_query(&["petroleo", "bras"], &[], true));
        assert_eq!(SearchQuery::parse("vale "), expected_query(&["vale"], &[], false));
        assert_eq!(SearchQuery::parse("v"), expected_query(&["v"], &[], false));
        assert_eq!(
            SearchQuery::parse("\"fato relevante\" aviso"),
            expected_query(&["aviso"], &[&["fato", "relevante"]], true)
        );
        assert_eq!(
            SearchQuery::parse("aviso \"fato relevante\""),
            expected_query(&["aviso"], &[&["fato", "relevante"]], false)
        );
        assert_eq!(SearchQuery::parse("aviso \"fato rel"), expected_query(&["aviso", "fato", "rel"], &[], true));
        assert_eq!(SearchQuery::parse("\"\" \" \""), SearchQuery::default());
        assert_eq!(SearchQuery::parse("S/A sa"), expected_query(&["sa"], &[], true));
        assert_eq!(SearchQuery::parse(&"palavra1 palavra2 ".repeat(40)).words.len(), 2);

        let many: Vec<String> = (0..100).map(|number| number.to_string()).collect();
        assert_eq!(SearchQuery::parse(&many.join(" ")).words.len(), MAX_QUERY_WORDS);
    }

    #[test]
    fn edit_distance_counts_missing_extra_wrong_and_swapped_letters() {
        let distance = |one: &str, other: &str| edit_distance(one, other, 2);
        for (typed, meant, errors) in [
            ("luisa", "luiza", 1),
            ("petrobas", "petrobras", 1),
            ("petrobbras", "petrobras", 1),
            ("pertobras", "petrobras", 1),
            ("ptrobas", "petrobras", 2),
            ("vale", "vale", 0),
        ] {
            assert_eq!(distance(typed, meant), Some(errors), "{typed}");
            assert_eq!(distance(meant, typed), Some(errors), "{typed}");
        }

        assert_eq!(distance("bradesco", "petrobras"), None);
        assert_eq!(distance("", "abc"), None);
        assert_eq!((max_typos("vale"), max_typos("luisa"), max_typos("bradesco")), (0, 1, 2));
    }

    #[test]
    fn a_swapped_pair_of_letters_is_one_edit() {
        assert_eq!(edit_distance("pertobras", "petrobras", 1), Some(1));
        assert_eq!(edit_distance("petrobrsa", "petrobras", 1), Some(1));
        // Lengths and positions are letters, not bytes.
        assert_eq!(edit_distance("aãç", "açã", 1), Some(1));
        // Two swaps are two edits.
        assert_eq!(edit_distance("pertobrsa", "petrobras", 2), Some(2));
        assert_eq!(edit_distance("pertobrsa", "petrobras", 1), None);
        // A swapped pair is not edited again: with that, this would be two edits instead of three.
        assert_eq!(edit_distance("ca", "abc", 2), None);
        assert_eq!(edit_distance("ca", "abc", 3), Some(3));
    }

    proptest! {
        #[test]
        fn any_text_parses_into_a_bounded_query(text in "\\PC{0,300}") {
            let query = SearchQuery::parse(&text);
            prop_assert!(query.words.len() + query.phrases.iter().map(Vec::len).sum::<usize>() <= MAX_QUERY_WORDS);
            prop_assert!(query.words.iter().chain(query.phrases.iter().flatten()).all(|word| !word.is_empty()));
        }
    }
}
