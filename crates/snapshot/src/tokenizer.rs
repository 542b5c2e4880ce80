//! How Portuguese text becomes words to search by: the same for documents and for queries.

use std::collections::HashSet;

use vintem_domain::text::normalize_text;

/// The words of a text, without case and accents, equal where people mean the same.
pub fn tokenize(text: &str) -> Vec<String> {
    let folded = normalize_text(text);
    let mut words: Vec<String> = Vec::new();
    let mut previous_end = 0;
    let mut previous_is_s = false;
    for (start, word) in word_spans(&folded) {
        let between = &folded[previous_end..start];
        // `S.A.` and `S/A` are `SA`.
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

/// The pieces of a text, each with whether it is one of these words: to be shown with what matched.
pub fn highlight_matches<'t>(text: &'t str, matched_words: &HashSet<String>) -> Vec<(&'t str, bool)> {
    let mut pieces: Vec<(&str, bool)> = Vec::new();
    let mut shown = 0;
    for (start, word) in word_spans(text) {
        if tokenize(word).iter().any(|word| matched_words.contains(word)) {
            if shown < start {
                pieces.push((&text[shown..start], false));
            }
            pieces.push((word, true));
            shown = start + word.len();
        }
    }
    if shown < text.len() {
        pieces.push((&text[shown..], false));
    }
    pieces
}

/// `ações` and `ação`: with accents gone, the stemmers at hand never join them. The same for -ães and -ãos.
fn to_singular(word: &str) -> String {
    for ending in ["oes", "aes", "aos"] {
        if let Some(stem) = word.strip_suffix(ending).filter(|stem| !stem.is_empty()) {
            return format!("{stem}ao");
        }
    }
    word.to_owned()
}

fn word_spans(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut rest = 0;
    std::iter::from_fn(move || {
        let start = rest + text[rest..].find(char::is_alphanumeric)?;
        let length = text[start..].find(|character: char| !character.is_alphanumeric()).unwrap_or(text.len() - start);
        rest = start + length;
        Some((start, &text[start..rest]))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matched_words_are_highlighted_with_the_text_between() {
        let sought = ["acao", "serra"].map(str::to_owned).into();
        assert_eq!(
            highlight_matches("Ações da SERRA S.A.", &sought),
            [("Ações", true), (" da ", false), ("SERRA", true), (" S.A.", false)]
        );
        assert_eq!(highlight_matches("nada", &sought), [("nada", false)]);
        assert_eq!(highlight_matches("", &sought), []);
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
