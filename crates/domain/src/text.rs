//! Folding: how two spellings of a word are found to be the same; and bytes as text.

use unicode_normalization::{UnicodeNormalization, char::is_combining_mark};

/// Bytes as hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Lower case without accents, white space collapsed: `"  PETRÓLEO  S.A. "` → `"petroleo s.a."`.
pub fn fold(text: &str) -> String {
    let mut folded = String::with_capacity(text.len());
    for character in text.nfd().filter(|character| !is_combining_mark(*character)) {
        if character.is_whitespace() {
            if !folded.ends_with(' ') && !folded.is_empty() {
                folded.push(' ');
            }
        } else {
            folded.extend(character.to_lowercase());
        }
    }
    folded.truncate(folded.trim_end().len());
    folded
}

#[cfg(test)]
mod tests {
    use super::fold;

    #[test]
    fn case_accents_and_spaces_do_not_matter() {
        assert_eq!(fold("  PETRÓLEO   Brasileiro\tS.A. "), "petroleo brasileiro s.a.");
        assert_eq!(fold("Ações"), fold("ACOES"));
        assert_eq!(fold(""), "");
    }
}
