//! Parses decimal text into exact decimals. A value that cannot be kept exactly is rejected, never rounded.

use vintem_domain::Decimal;
use vintem_domain::decimal;

/// At most 28 significant digits, and at most twelve after the point: the limits of the whole service.
const MAX_DECIMAL_PLACES: usize = 12;
const MAX_SIGNIFICANT_DIGITS: usize = 28;

/// Why a text is not a valid value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ParseDecimalError {
    #[error("is empty")]
    Empty,
    #[error("is not a plain decimal number with a point")]
    InvalidSyntax,
    #[error("has more than {MAX_DECIMAL_PLACES} decimals")]
    TooManyDecimals,
    #[error("has more than {MAX_SIGNIFICANT_DIGITS} significant digits")]
    TooManyDigits,
}

/// Keeps a value exactly as written: `15.00` stays `15.00`. Exponents, plus signs, commas and leading zeros are
/// invalid. Minus zero becomes zero.
pub fn parse_exact_decimal(text: &str) -> Result<Decimal, ParseDecimalError> {
    if text.is_empty() {
        return Err(ParseDecimalError::Empty);
    }

    let digits = text.strip_prefix('-').unwrap_or(text);
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, "0"));
    let all_digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    if !all_digits(whole) || !all_digits(fraction) || (whole.len() > 1 && whole.starts_with('0')) {
        return Err(ParseDecimalError::InvalidSyntax);
    }
    if fraction.len() > MAX_DECIMAL_PLACES {
        return Err(ParseDecimalError::TooManyDecimals);
    }

    let mut value = decimal::parse_exact_decimal(text).ok_or(ParseDecimalError::TooManyDigits)?;
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
    fn trailing_zeros_are_kept() {
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
            assert_eq!(parse_exact_decimal(text).unwrap().to_string(), text);
        }
        assert_eq!(parse_exact_decimal("-0.00").unwrap().to_string(), "0.00");
    }

    #[test]
    fn invalid_decimals_are_rejected_with_a_reason() {
        assert_eq!(parse_exact_decimal(""), Err(ParseDecimalError::Empty));
        for text in [
            "-", ".", "1.", ".5", "+1", "--1", "1e3", "1E+2", "1,5", "1.000,50", "NaN", "Infinity", " 1", "1 ", "007",
            "1.2.3", "１",
        ] {
            assert_eq!(parse_exact_decimal(text), Err(ParseDecimalError::InvalidSyntax), "{text:?}");
        }
        assert_eq!(parse_exact_decimal("0.1234567890123"), Err(ParseDecimalError::TooManyDecimals));
        assert_eq!(parse_exact_decimal("12345678901234567890123456789"), Err(ParseDecimalError::TooManyDigits));
        assert_eq!(parse_exact_decimal(&"9".repeat(100_000)), Err(ParseDecimalError::TooManyDigits));
    }

    proptest! {
        #[test]
        fn valid_decimals_keep_their_exact_digits(text in "-?(0|[1-9][0-9]{0,15})(\\.[0-9]{1,12})?") {
            let value = parse_exact_decimal(&text).unwrap();
            let expected = if value.is_zero() { text.trim_start_matches('-') } else { &text };
            prop_assert_eq!(value.to_string(), expected);
        }

        #[test]
        fn parsing_never_panics(text in "\\PC*") {
            let _ = parse_exact_decimal(&text);
        }

        #[test]
        fn almost_valid_decimals_are_exact_or_rejected(text in "[-0-9.,eE+]{0,45}") {
            if let Ok(value) = parse_exact_decimal(&text) {
                let expected = if value.is_zero() { text.trim_start_matches('-') } else { &text };
                prop_assert_eq!(value.to_string(), expected);
            }
        }
    }
}
