//! The CNPJ, Brazil's company tax number: numeric or (since July 2026) alphanumeric.

use std::fmt;

/// Fourteen characters `[0-9A-Z]`, of which the last two are valid check digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Cnpj([u8; 14]);

impl Cnpj {
    /// Parses any spelling: with or without dots, slash, hyphen and spaces, in upper or lower case.
    pub fn parse(text: &str) -> Option<Self> {
        let mut characters = [0u8; 14];
        let mut length = 0;
        for byte in text.bytes() {
            match byte {
                b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' => {
                    *characters.get_mut(length)? = byte.to_ascii_uppercase();
                    length += 1;
                }
                b'.' | b'/' | b'-' | b' ' => {}
                _ => return None,
            }
        }

        let cnpj = Self(characters);

        // All zeros has valid check digits, but the regulator writes it for "none".
        let is_complete = length == 14 && characters.iter().any(|character| *character != b'0');
        (is_complete && cnpj.compute_check_digits() == characters[12..]).then_some(cnpj)
    }

    /// Builds the number from its root and branch (`b"999123450001"`), computing the check digits.
    pub fn from_root_and_branch(root_and_branch: [u8; 12]) -> Self {
        let mut characters = [b'0'; 14];
        characters[..12].copy_from_slice(&root_and_branch);

        let [first, second] = Self(characters).compute_check_digits();
        characters[12] = first;
        characters[13] = second;
        Self(characters)
    }

    /// The stored form: `12ABC34501DE35`.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).expect("only ASCII is ever stored")
    }

    fn compute_check_digits(self) -> [u8; 2] {
        let first = compute_check_digit(&self.0[..12]);
        let mut with_first = [0u8; 13];
        with_first[..12].copy_from_slice(&self.0[..12]);
        with_first[12] = first;
        [first, compute_check_digit(&with_first)]
    }
}

/// Each character is worth its ASCII code − 48. Weights repeat 2…9 from the right; the sum is taken modulo 11.
fn compute_check_digit(characters: &[u8]) -> u8 {
    let weights = (2..=9).cycle();
    let sum: u32 =
        characters.iter().rev().zip(weights).map(|(character, weight)| u32::from(character - 48) * weight).sum();
    match sum % 11 {
        0 | 1 => b'0',
        remainder => b'0' + u8::try_from(11 - remainder).expect("one digit"),
    }
}

/// The formatted number: `12.ABC.345/01DE-35`.
impl fmt::Display for Cnpj {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.as_str();
        write!(f, "{}.{}.{}/{}-{}", &text[..2], &text[2..5], &text[5..8], &text[8..12], &text[12..])
    }
}

impl fmt::Debug for Cnpj {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cnpj({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn valid_numbers_parse_in_any_format() {
        for text in [
            "12ABC34501DE35",
            "12.abc.345/01de-35",
            "00000000E08G12",
            "33000167000101",
            "33.000.167/0001-01",
            "33000167/0001-01",
        ] {
            assert!(Cnpj::parse(text).is_some(), "{text}");
        }
        assert_eq!(Cnpj::parse("33000167000101").unwrap().to_string(), "33.000.167/0001-01");
    }

    #[test]
    fn invalid_numbers_are_rejected() {
        for text in [
            "LBNXQOB5000163",
            "33000167000102",
            "00.000.000/0000-00",
            "",
            "3300016700010",
            "330001670001011",
            "33000167_000101",
            "12ABC34501DEX5",
        ] {
            assert_eq!(Cnpj::parse(text), None, "{text}");
        }
    }

    #[test]
    fn check_digits_are_computed() {
        assert_eq!(Cnpj::from_root_and_branch(*b"330001670001").as_str(), "33000167000101");
    }
}
