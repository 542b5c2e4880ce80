//! Exact decimals: parsing, division and compounding without floats.

use rust_decimal::{Decimal, RoundingStrategy};

/// Parses a decimal exactly as written, trailing zeros included. `None` for anything else, such as an exponent, a plus
/// sign or a thousands separator, and for more than 28 significant digits.
pub fn parse_exact_decimal(text: &str) -> Option<Decimal> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, "0"));
    let all_digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    if !all_digits(whole) || !all_digits(fraction) {
        return None;
    }

    let significant_digits = digits.bytes().filter(u8::is_ascii_digit).skip_while(|digit| *digit == b'0').count();
    if significant_digits > 28 {
        return None;
    }

    Decimal::from_str_exact(text).ok()
}

/// `numerator / denominator`, rounded half-even to the eight decimals of derived exchange rates.
pub fn divide_to_8_decimals(numerator: Decimal, denominator: Decimal) -> Option<Decimal> {
    let quotient = numerator.checked_div(denominator)?;
    let mut rounded = quotient.round_dp_with_strategy(8, RoundingStrategy::MidpointNearestEven);
    rounded.rescale(8);
    Some(rounded)
}

/// Compounds percentages; the result is in percent with two decimals. `None` on overflow.
pub fn compound_rates(mut rates: impl Iterator<Item = Decimal>) -> Option<Decimal> {
    let product = rates.try_fold(Decimal::ONE, |product, rate| {
        let factor = Decimal::ONE.checked_add(rate.checked_div(Decimal::ONE_HUNDRED)?)?;

        // More digits would not change the second decimal, and would overflow.
        Some(product.checked_mul(factor)?.round_dp(18))
    })?;

    let mut percent = ((product - Decimal::ONE) * Decimal::ONE_HUNDRED).round_dp(2);
    percent.rescale(2);
    Some(percent)
}

/// The annual rate that a daily rate compounds to over 252 business days, as the central bank publishes it.
pub fn annualize_daily_rate(daily: Decimal) -> Option<Decimal> {
    compound_rates(std::iter::repeat_n(daily, 252))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_plain_decimals_are_parsed() {
        for text in ["", "-", ".", "1.", ".5", "+1", "1e3", "1,5", "NaN", " 1", "12345678901234567890123456789"] {
            assert_eq!(parse_exact_decimal(text), None, "{text:?}");
        }
    }

    #[test]
    fn daily_rates_compound_to_the_published_annual_ones() {
        let annual = |daily: &str| annualize_daily_rate(daily.parse().unwrap()).unwrap().to_string();
        let published = [("0.050788", "13.65"), ("0.052531", "14.15"), ("0.053400", "14.40"), ("0.055131", "14.90")];
        for (daily, expected) in published {
            assert_eq!(annual(daily), expected);
        }
        assert_eq!(annual("0"), "0.00");
        assert!(annual("3.626").len() > 6, "hyperinflation fits");
    }

    #[test]
    fn derived_rates_are_rounded_half_even() {
        let one = Decimal::ONE;
        assert_eq!(divide_to_8_decimals(one, "5.5".parse().unwrap()).unwrap().to_string(), "0.18181818");
        assert_eq!(divide_to_8_decimals(one, Decimal::ZERO), None);
    }

    proptest! {
        #[test]
        fn every_decimal_keeps_its_characters(mantissa in -9_999_999_999_999_999_999_999_999_999i128..=9_999_999_999_999_999_999_999_999_999i128, scale in 0u32..=12) {
            let text = Decimal::from_i128_with_scale(mantissa, scale).to_string();
            if let Some(parsed) = parse_exact_decimal(&text) {
                prop_assert_eq!(parsed.to_string(), text);
            } else {
                prop_assert!(false, "{} was refused", text);
            }
        }
    }
}
