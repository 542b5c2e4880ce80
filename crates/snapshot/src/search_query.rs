//! What somebody typed, as words: plain ones, phrases in quotes, and a last word that may go on.

use crate::tokenizer::tokenize;

/// What is said beyond so many words asks for nothing more: no query costs more than a bounded amount of work.
const MAX_QUERY_WORDS: usize = 16;

/// A shorter word is not taken for the beginning of others: too many begin so.
const MIN_PREFIX_CHARACTERS: usize = 2;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SearchQuery {
    /// In the order in which they were typed, each once.
    pub words: Vec<String>,
    /// In quotes: these words in this order, one after the other.
    pub phrases: Vec<Vec<String>>,
    /// Whether the last of `words` may be the beginning of one.
    pub is_last_word_prefix: bool,
}

impl SearchQuery {
    pub fn parse(text: &str) -> Self {
        let mut query = Self::default();
        let mut left = MAX_QUERY_WORDS;
        let pieces: Vec<&str> = text.split('"').collect();
        for (at, piece) in pieces.iter().enumerate() {
            let mut said = tokenize(piece);
            said.truncate(left);
            left -= said.len();
            // A quote that is never closed is none.
            let is_phrase = at % 2 == 1 && at + 1 < pieces.len();
            if is_phrase {
                if !said.is_empty() {
                    query.phrases.push(said);
                }
                query.is_last_word_prefix = false;
            } else if let Some(last) = said.last() {
                query.is_last_word_prefix = last.chars().count() >= MIN_PREFIX_CHARACTERS && ends_mid_word(piece);
                query.words.extend(said);
            }
        }
        query.deduplicate_words();
        query
    }

    pub fn is_empty(&self) -> bool {
        self.words.is_empty() && self.phrases.is_empty()
    }

    /// A word that is said again asks for nothing more. Of the same words the last stays, because it may be open.
    fn deduplicate_words(&mut self) {
        let words = std::mem::take(&mut self.words);
        for (at, word) in words.iter().enumerate() {
            if !words[at + 1..].contains(word) {
                self.words.push(word.clone());
            }
        }
    }
}

/// `vale ` is a word that was ended; `vale` may go on to become `valente`.
fn ends_mid_word(text: &str) -> bool {
    text.chars().next_back().is_some_and(char::is_alphanumeric)
}

/// So many typing errors are forgiven in a word.
pub fn max_typos(word: &str) -> u8 {
    match word.chars().count() {
        0..5 => 0,
        5..8 => 1,
        _ => 2,
    }
}

/// How many letters were missed, doubled, mistaken or swapped between two words, if no more than `most`.
pub fn edit_distance(one: &[char], other: &[char], max_distance: usize) -> Option<usize> {
    if one.len().abs_diff(other.len()) > max_distance {
        return None;
    }
    let mut before_last: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=other.len()).collect();
    for (row, letter) in one.iter().enumerate() {
        let mut current = Vec::with_capacity(other.len() + 1);
        current.push(row + 1);
        for (column, compared) in other.iter().enumerate() {
            let mistaken = last[column] + usize::from(letter != compared);
            let mut least = mistaken.min(last[column + 1] + 1).min(current[column] + 1);
            if row > 0 && column > 0 && *letter == other[column - 1] && one[row - 1] == *compared {
                least = least.min(before_last[column - 1] + 1);
            }
            current.push(least);
        }
        if current.iter().min().is_some_and(|least| *least > max_distance) {
            return None;
        }
        before_last = std::mem::replace(&mut last, current);
    }
    last.last().copied().filter(|distance| *distance <= max_distance)
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
        let between = |one: &str, other: &str| {
            edit_distance(&one.chars().collect::<Vec<_>>(), &other.chars().collect::<Vec<_>>(), 2)
        };
        for (typed, meant, errors) in [
            ("luisa", "luiza", 1),
            ("petrobas", "petrobras", 1),
            ("petrobbras", "petrobras", 1),
            ("pertobras", "petrobras", 1),
            ("ptrobas", "petrobras", 2),
            ("vale", "vale", 0),
        ] {
            assert_eq!(between(typed, meant), Some(errors), "{typed}");
            assert_eq!(between(meant, typed), Some(errors), "{typed}");
        }
        assert_eq!(between("bradesco", "petrobras"), None);
        assert_eq!(between("", "abc"), None);
        assert_eq!((max_typos("vale"), max_typos("luisa"), max_typos("bradesco")), (0, 1, 2));
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
