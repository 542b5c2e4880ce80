//! Values: decimal text to exact decimals. A value that cannot be kept exactly is set aside, never rounded.

use vintem_domain::Decimal;
use vintem_domain::decimal::parse_exact;

/// Of 28 significant digits at most twelve after the point: what the whole service keeps.
const MOST_DECIMALS: usize = 12;
const MOST_SIGNIFICANT: usize = 28;

/// Why a text is no value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotADecimal {
    #[error("is empty")]
    Empty,
    #[error("is not a plain decimal number with a point")]
    NotPlain,
    #[error("has more than {MOST_DECIMALS} decimals")]
    TooManyDecimals,
    #[error("has more than {MOST_SIGNIFICANT} significant digits")]
    TooManyDigits,
}

/// A value with the characters that it is written in: `15.00` stays `15.00`. There is no exponent, no plus sign and
/// no comma, and no zero before another digit. Minus zero is zero.
pub fn exact(text: &str) -> Result<Decimal, NotADecimal> {
    if text.is_empty() {
        return Err(NotADecimal::Empty);
    }
    let digits = text.strip_prefix('-').unwrap_or(text);
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, "0"));
    let all_digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    if !all_digits(whole) || !all_digits(fraction) || (whole.len() > 1 && whole.starts_with('0')) {
        return Err(NotADecimal::NotPlain);
    }
    if fraction.len() > MOST_DECIMALS {
        return Err(NotADecimal::TooManyDecimals);
    }
    let mut value = parse_exact(text).ok_or(NotADecimal::TooManyDigits)?;
    if value.is_zero() {
        value.set_sign_positive(true);
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn trailing_zeros_stay() {
        for text in [
            "15.00",
            "0.053400",
            "5.5760",
            "-0.23",
            "0",
            "0.00",
            "2814.0000",
            "438898.00",
            "12345678901234567890.12345678",
        ] {
            assert_eq!(exact(text).unwrap().to_string(), text);
        }
        assert_eq!(exact("-0.00").unwrap().to_string(), "0.00");
    }

    #[test]
    fn what_is_no_plain_decimal_is_named() {
        assert_eq!(exact(""), Err(NotADecimal::Empty));
        for text in [
            "-", ".", "1.", ".5", "+1", "--1", "1e3", "1E+2", "1,5", "1.000,50", "NaN", "Infinity", " 1", "1 ", "007",
            "1.2.3", "１",
        ] {
            assert_eq!(exact(text), Err(NotADecimal::NotPlain), "{text:?}");
        }
        assert_eq!(exact("0.1234567890123"), Err(NotADecimal::TooManyDecimals));
        assert_eq!(exact("12345678901234567890123456789"), Err(NotADecimal::TooManyDigits));
        assert_eq!(exact(&"9".repeat(100_000)), Err(NotADecimal::TooManyDigits));
    }

    proptest! {
        #[test]
        fn a_value_keeps_its_characters(text in "-?(0|[1-9][0-9]{0,15})(\\.[0-9]{1,12})?") {
            let value = exact(&text).unwrap();
            let expected = if value.is_zero() { text.trim_start_matches('-') } else { &text };
            prop_assert_eq!(value.to_string(), expected);
        }

        #[test]
        fn nothing_panics(text in "\\PC*") {
            let _ = exact(&text);
        }

        #[test]
        fn near_decimals_are_kept_whole_or_refused(text in "[-0-9.,eE+]{0,45}") {
            if let Ok(value) = exact(&text) {
                let expected = if value.is_zero() { text.trim_start_matches('-') } else { &text };
                prop_assert_eq!(value.to_string(), expected);
            }
        }
    }
}
