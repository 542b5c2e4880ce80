//! Splits Portuguese text into search words, the same way for documents and queries.

use std::collections::HashSet;

use vintem_domain::text::normalize_text;

/// The words of a text, without case and accents. Different spellings of one word become equal.
pub fn tokenize(text: &str) -> Vec<String> {
    let folded = normalize_text(text);

    let mut words: Vec<String> = Vec::new();
    let mut previous_end = 0;
    let mut previous_is_s = false;
    for (start, word) in word_spans(&folded) {
        let between = &folded[previous_end..start];
        // `S.A.` and `S/A` become `SA`.
        if previous_is_s && word == "a" && matches!(between, "." | "/") {
            words.pop();
            words.push("sa".to_owned());
            previous_is_s = false;
        } else {
            words.push(to_singular(word));
            previous_is_s = word == "s";
        }
        previous_end = start + word.len();
    }
    words
}

/// Splits a text into pieces for display, each with whether it is one of the matched words.
pub fn highlight_matches<'t>(text: &'t str, matched_words: &HashSet<String>) -> Vec<(&'t str, bool)> {
    let mut pieces: Vec<(&str, bool)> = Vec::new();
    let mut end_of_last = 0;
    for (start, word) in word_spans(text) {
        if tokenize(word).iter().any(|word| matched_words.contains(word)) {
            if end_of_last < start {
                pieces.push((&text[end_of_last..start], false));
            }
            pieces.push((word, true));
            end_of_last = start + word.len();
        }
    }

    if end_of_last < text.len() {
        pieces.push((&text[end_of_last..], false));
    }
    pieces
}

/// Joins `ações` with `ação`, which the available stemmers do not do once accents are gone. The same for -ães and -ãos.
fn to_singular(word: &str) -> String {
    for ending in ["oes", "aes", "aos"] {
        if let Some(stem) = word.strip_suffix(ending).filter(|stem| !stem.is_empty()) {
            return format!("{stem}ao");
        }
    }
    word.to_owned()
}

fn word_spans(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut position = 0;
    std::iter::from_fn(move || {
        let start = position + text[position..].find(char::is_alphanumeric)?;
        let length = text[start..].find(|character: char| !character.is_alphanumeric()).unwrap_or(text.len() - start);
        position = start + length;
        Some((start, &text[start..position]))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matched_words_are_highlighted_with_the_text_between() {
        let matched_words = ["acao", "serra"].map(str::to_owned).into();
        assert_eq!(
            highlight_matches("Ações da SERRA S.A.", &matched_words),
            [("Ações", true), (" da ", false), ("SERRA", true), (" S.A.", false)]
        );
        assert_eq!(highlight_matches("nada", &matched_words), [("nada", false)]);
        assert_eq!(highlight_matches("", &matched_words), []);
    }

    #[test]
    fn plurals_and_singulars_become_the_same_word() {
        for (plural, singular) in
            [("Reuniões", "reunião"), ("AÇÕES", "acao"), ("Capitães", "capitão"), ("órgãos", "órgão")]
        {
            assert_eq!(tokenize(plural), tokenize(singular));
        }
    }

    #[test]
    fn spellings_of_sa_are_one_word() {
        for text in ["Serra S.A.", "SERRA S/A", "serra sa", "Serra S.A"] {
            assert_eq!(tokenize(text), ["serra", "sa"], "{text}");
        }
        assert_eq!(tokenize("plano s a prazo"), ["plano", "s", "a", "prazo"]);
    }

    #[test]
    fn punctuation_and_symbols_are_not_words() {
        for text in ["'", "\"", "(", "*", "\\", "%", "-", "🦜", "^~", "\0"] {
            assert!(tokenize(text).is_empty(), "{text:?}");
        }
    }
}
