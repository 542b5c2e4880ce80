//! Helpers for upstream text: decoding, whitespace and quoting.

use std::borrow::Cow;

/// Decodes ISO-8859-1 the way browsers do, so that no byte is an error: 0x80 to 0x9F, which the standard reserves for
/// control characters, become the dashes and quotes of Windows-1252. The files seen so far never use these bytes.
pub fn decode_latin1(bytes: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(bytes) {
        Ok(text) if bytes.is_ascii() => Cow::Borrowed(text),
        _ => Cow::Owned(bytes.iter().copied().map(decode_byte).collect()),
    }
}

fn decode_byte(byte: u8) -> char {
    const WINDOWS_1252_CHARS: [char; 32] = [
        '€', '\u{81}', '‚', 'ƒ', '„', '…', '†', '‡', 'ˆ', '‰', 'Š', '‹', 'Œ', '\u{8D}', 'Ž', '\u{8F}', '\u{90}', '‘',
        '’', '“', '”', '•', '–', '—', '˜', '™', 'š', '›', 'œ', '\u{9D}', 'ž', 'Ÿ',
    ];
    match byte {
        0x80..=0x9F => WINDOWS_1252_CHARS[usize::from(byte - 0x80)],
        _ => char::from(byte),
    }
}

/// Trims text and collapses whitespace inside it, which has no meaning and would spoil display and comparison. Control
/// characters count as whitespace.
pub fn collapse_whitespace(text: &str) -> String {
    let mut collapsed = String::with_capacity(text.len());
    for word in text.split(|character: char| character.is_whitespace() || character.is_control()) {
        if word.is_empty() {
            continue;
        }
        if !collapsed.is_empty() {
            collapsed.push(' ');
        }
        collapsed.push_str(word);
    }
    collapsed
}

/// Quotes upstream text for a message of ours, truncated so that a log line stays readable.
pub fn quote_truncated(text: &str) -> String {
    const MAX_CHARS: usize = 60;
    let truncated: String = text.chars().take(MAX_CHARS).collect();
    let ellipsis = if truncated.len() < text.len() { "…" } else { "" };
    format!("{truncated:?}{ellipsis}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn latin_1_is_decoded_and_ascii_is_borrowed() {
        assert_eq!(decode_latin1(b"PETR\xD3LEO A\xC7\xC3O 10\xBA"), "PETRÓLEO AÇÃO 10º");
        assert_eq!(decode_latin1(b"a \x96 b \x93c\x94"), "a – b “c”");
        assert!(matches!(decode_latin1(b"plain; \"ascii\""), Cow::Borrowed(_)));
    }

    #[test]
    fn white_space_is_collapsed() {
        assert_eq!(
            collapse_whitespace("  PETRÓLEO BRASILEIRO  S.A.  - PETROBRAS\u{a0}\t"),
            "PETRÓLEO BRASILEIRO S.A. - PETROBRAS"
        );
        assert_eq!(collapse_whitespace("a\u{0}b\u{85}c"), "a b c");
        assert_eq!(collapse_whitespace(" \r"), "");
    }

    #[test]
    fn quoted_text_is_truncated() {
        assert_eq!(quote_truncated("31/02"), "\"31/02\"");
        assert_eq!(quote_truncated(&"x".repeat(61)), format!("\"{}\"…", "x".repeat(60)));
    }

    proptest! {
        #[test]
        fn every_byte_is_one_character(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            prop_assert_eq!(decode_latin1(&bytes).chars().count(), bytes.len());
        }
    }
}
