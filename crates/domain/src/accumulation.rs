//! Exact accumulation of rates, by the market's rule for daily rates (B3's book of formulas). Monthly rates follow the
//! same rule.
//!
//! Each factor is truncated to sixteen decimals, and so is the running product at each step; the result is rounded
//! half-up to eight. Because of the truncation the product depends on its first day, so nothing can be precomputed; ten
//! thousand integer steps take a fraction of a millisecond.

use std::fmt;

use num_bigint::BigInt;
use rust_decimal::Decimal;

/// Sixteen decimals.
const FACTOR_SCALE: u128 = 10_u128.pow(16);
const BUSINESS_DAYS_PER_YEAR: u32 = 252;

/// A factor with sixteen decimals, wide enough for all inflation since 1980.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GrowthFactor(u128);

impl GrowthFactor {
    pub const ONE: Self = Self(FACTOR_SCALE);

    /// 1 + rate × percent, both in percent, truncated to sixteen decimals. `None` if that is negative or overflows.
    pub fn from_rate(rate: Decimal, percent: Decimal) -> Option<Self> {
        let growth = rate.mantissa().checked_mul(percent.mantissa())?;

        // `growth` is in units of 10^-scale; each of the two percentages adds two decimals.
        let scale = rate.scale() + percent.scale() + 4;
        let growth = match scale.checked_sub(16) {
            None | Some(0) => growth.checked_mul(10_i128.checked_pow(16 - scale)?)?,
            Some(excess) => growth.div_euclid(10_i128.checked_pow(excess)?),
        };

        u128::try_from(FACTOR_SCALE.cast_signed().checked_add(growth)?).ok().map(Self)
    }

    /// 1 + (end price / start price − 1) × percent, with quotient and result truncated to sixteen decimals. `None` if
    /// the start price is not positive, or if the result is negative or overflows.
    pub fn from_prices(start_price: Decimal, end_price: Decimal, percent: Decimal) -> Option<Self> {
        if start_price <= Decimal::ZERO {
            return None;
        }

        let scaled = BigInt::from(end_price.mantissa()) * power_of_ten(16 + start_price.scale());
        let ratio: BigInt = scaled / (BigInt::from(start_price.mantissa()) * power_of_ten(end_price.scale()));

        let growth = i128::try_from(ratio).ok()?.checked_sub(FACTOR_SCALE.cast_signed())?;
        let growth = growth.checked_mul(percent.mantissa())?.div_euclid(10_i128.checked_pow(percent.scale() + 2)?);
        u128::try_from(FACTOR_SCALE.cast_signed().checked_add(growth)?).ok().map(Self)
    }

    /// The product, truncated to sixteen decimals.
    pub fn checked_mul(self, other: Self) -> Option<Self> {
        // Multiplies the whole part and the fraction separately, because the full product would overflow.
        let whole = self.0 / FACTOR_SCALE;
        let fraction = self.0 % FACTOR_SCALE;
        let fraction_product = fraction.checked_mul(other.0)? / FACTOR_SCALE;
        whole.checked_mul(other.0)?.checked_add(fraction_product).map(Self)
    }

    /// Rounds half-up to `decimals`, which is at most sixteen.
    pub fn round_half_up(self, decimals: u32) -> FixedDecimal {
        let unit = 10_u128.pow(16 - decimals);
        FixedDecimal { units: (self.0 + unit / 2) / unit, decimals }
    }
}

impl fmt::Display for GrowthFactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        FixedDecimal { units: self.0, decimals: 16 }.fmt(f)
    }
}

/// A non-negative number with a fixed number of decimals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FixedDecimal {
    units: u128,
    decimals: u32,
}

impl FixedDecimal {
    /// The product, rounded half-up to `decimals`.
    pub fn checked_mul(self, other: Self, decimals: u32) -> Option<Self> {
        let product = BigInt::from(self.units) * BigInt::from(other.units);
        let dropped = (self.decimals + other.decimals).checked_sub(decimals)?;
        let units = divide_half_up(&product, dropped);
        Some(Self { units: units.try_into().ok()?, decimals })
    }

    /// `None` for a negative number.
    pub fn from_decimal(value: Decimal) -> Option<Self> {
        Some(Self { units: u128::try_from(value.mantissa()).ok()?, decimals: value.scale() })
    }

    /// The gain of this factor in percent, with two decimals fewer than the factor.
    pub fn gain_percent(self) -> String {
        let one = 10_u128.pow(self.decimals);
        let sign = if self.units < one { "-" } else { "" };
        let gain = Self { units: self.units.abs_diff(one), decimals: self.decimals - 2 };
        format!("{sign}{gain}")
    }
}

impl fmt::Display for FixedDecimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let one = 10_u128.pow(self.decimals);
        match self.decimals {
            0 => write!(f, "{}", self.units),
            decimals => write!(f, "{}.{:0width$}", self.units / one, self.units % one, width = decimals as usize),
        }
    }
}

/// (1 + spread/100)^(days/252), rounded half-up to nine decimals: an annual spread in percent, over `days` business
/// days.
///
/// Computed by logarithm and exponential with sixty decimals, of which at least fifty are right. A tolerance of 10^-40
/// is added before rounding, so that an exact result is not rounded down.
pub fn spread_factor(spread: Decimal, days: u32) -> Option<FixedDecimal> {
    const WORKING_DECIMALS: u32 = 60;
    let one = power_of_ten(WORKING_DECIMALS);
    let hundred = BigInt::from(100) * power_of_ten(spread.scale());
    let spread = BigInt::from(spread.mantissa());
    if spread <= -hundred.clone() {
        return None;
    }

    // ln(1 + x) = 2 artanh(x / (2 + x)), for every x above −1.
    let ratio: BigInt = &spread * &one / (hundred * 2 + &spread);
    let square = &ratio * &ratio / &one;
    let mut power = ratio.clone();
    let mut logarithm = ratio;
    let mut divisor = 1;
    while power != BigInt::ZERO {
        power = power * &square / &one;
        divisor += 2;
        logarithm += &power / divisor;
    }
    let exponent = logarithm * 2 * days / BUSINESS_DAYS_PER_YEAR;

    // e^y = (e^(y / 2^16))^(2^16), because the series of a small exponent converges quickly.
    let small_exponent = &exponent >> 16;
    let mut term = one.clone();
    let mut sum = one.clone();
    let mut term_number = 1;
    while term != BigInt::ZERO {
        term = term * &small_exponent / &one / term_number;
        sum += &term;
        term_number += 1;
    }
    for _ in 0..16 {
        sum = &sum * &sum / &one;
    }

    let tolerance = power_of_ten(WORKING_DECIMALS - 40);
    let units = divide_half_up(&(sum + tolerance), WORKING_DECIMALS - 9);
    Some(FixedDecimal { units: units.try_into().ok()?, decimals: 9 })
}

/// Drops decimals from a non-negative number, rounding half-up.
fn divide_half_up(number: &BigInt, dropped_decimals: u32) -> BigInt {
    let unit = power_of_ten(dropped_decimals);
    (number * 2 + &unit) / (unit * 2)
}

fn power_of_ten(exponent: u32) -> BigInt {
    BigInt::from(10).pow(exponent)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_decimal(text: &str) -> Decimal {
        text.parse().unwrap()
    }

    #[test]
    fn a_rate_converts_to_a_growth_factor() {
        let factor = |rate, percent| {
            GrowthFactor::from_rate(parse_decimal(rate), parse_decimal(percent)).map(|factor| factor.to_string())
        };
        assert_eq!(factor("0.053400", "100").as_deref(), Some("1.0005340000000000"));
        assert_eq!(factor("0.053400", "110.5").as_deref(), Some("1.0005900700000000"));
        assert_eq!(factor("-0.23", "100").as_deref(), Some("0.9977000000000000"));
        assert_eq!(factor("0.12345678", "33.33333333").as_deref(), Some("1.0004115225999588"));
        assert_eq!(factor("-0.12345678", "33.33333333").as_deref(), Some("0.9995884774000411"), "cut, not rounded");
        assert_eq!(factor("-100.01", "100"), None);
    }

    #[test]
    fn two_prices_convert_to_a_growth_factor() {
        let factor = |first, second, percent| {
            let factor = GrowthFactor::from_prices(parse_decimal(first), parse_decimal(second), parse_decimal(percent));
            factor.map(|factor| factor.to_string())
        };
        assert_eq!(factor("4.8413", "5.5805", "100").as_deref(), Some("1.1526862619544337"));
        assert_eq!(factor("5.5805", "4.8413", "100").as_deref(), Some("0.8675387510079741"));
        assert_eq!(factor("4", "5", "110").as_deref(), Some("1.2750000000000000"));
        assert_eq!(factor("0", "5", "100"), None);
    }

    #[test]
    fn products_truncate_at_each_step_and_round_at_the_end() {
        let third = GrowthFactor(FACTOR_SCALE / 3);
        assert_eq!(third.checked_mul(third).unwrap().to_string(), "0.1111111111111110");
        assert_eq!(GrowthFactor(1_123_909_885_000_000_000 / 100).round_half_up(8).to_string(), "1.12390989");
        assert_eq!(GrowthFactor(11_239_098_849_999_999).round_half_up(8).to_string(), "1.12390988");
        let large = GrowthFactor(FACTOR_SCALE * 10_u128.pow(14));
        assert_eq!(
            large.checked_mul(GrowthFactor(FACTOR_SCALE * 3 / 2)).unwrap().to_string(),
            "150000000000000.0000000000000000"
        );
        assert_eq!(GrowthFactor(u128::MAX).checked_mul(GrowthFactor(2 * FACTOR_SCALE)), None);
    }

    #[test]
    fn a_spread_compounds_over_its_share_of_a_year() {
        let factor = |spread, days| spread_factor(parse_decimal(spread), days).map(|factor| factor.to_string());
        assert_eq!(factor("2.5", 252).as_deref(), Some("1.025000000"));
        assert_eq!(factor("21", 126).as_deref(), Some("1.100000000"));
        assert_eq!(factor("2.5", 1).as_deref(), Some("1.000097991"));
        assert_eq!(factor("100", 10_080).as_deref(), Some("1099511627776.000000000"));
        assert_eq!(factor("0", 500).as_deref(), Some("1.000000000"));
        assert_eq!(factor("-50", 252).as_deref(), Some("0.500000000"));
        assert_eq!(factor("-100", 252), None);

        // 1.00005^2 = 1.0001000025 exactly: a tie in the tenth decimal, which rounds up.
        assert_eq!(factor("0.005", 504).as_deref(), Some("1.000100003"));
    }

    #[test]
    fn amounts_are_multiplied_rounding_half_up() {
        let fixed = |text| FixedDecimal::from_decimal(parse_decimal(text)).unwrap();
        assert_eq!(fixed("10000").checked_mul(fixed("1.12026360"), 2).unwrap().to_string(), "11202.64");
        assert_eq!(fixed("1.04620000").gain_percent(), "4.620000");
        assert_eq!(fixed("0.99770000").gain_percent(), "-0.230000");
        assert_eq!(FixedDecimal::from_decimal(parse_decimal("-1")), None);
    }
}
