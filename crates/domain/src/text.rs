//! Folding: how two spellings of a word are found to be the same; and bytes as text.

use unicode_normalization::{UnicodeNormalization, char::is_combining_mark};

/// Bytes as hexadecimal digits.
pub fn hex_encode(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Lower case without accents, white space collapsed: `"  PETRÓLEO  S.A. "` → `"petroleo s.a."`.
pub fn normalize_text(text: &str) -> String {
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
    use super::normalize_text;

    #[test]
    fn normalized_text_ignores_case_accents_and_spacing() {
        assert_eq!(normalize_text("  PETRÓLEO   Brasileiro\tS.A. "), "petroleo brasileiro s.a.");
        assert_eq!(normalize_text("Ações"), normalize_text("ACOES"));
        assert_eq!(normalize_text(""), "");
    }
}
