//! Text helpers: normalization, which makes spellings comparable, and hexadecimal encoding.

use unicode_normalization::{UnicodeNormalization, char::is_combining_mark};

pub fn hex_encode(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Lower case without accents, white space collapsed: `"  PETRÓLEO  S.A. "` → `"petroleo s.a."`.
pub fn normalize_text(text: &str) -> String {
    let mut normalized = String::with_capacity(text.len());
    for character in text.nfd().filter(|character| !is_combining_mark(*character)) {
        if character.is_whitespace() {
            if !normalized.ends_with(' ') && !normalized.is_empty() {
                normalized.push(' ');
            }
        } else {
            normalized.extend(character.to_lowercase());
        }
    }

    normalized.truncate(normalized.trim_end().len());
    normalized
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
