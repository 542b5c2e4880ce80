//! Currencies, currency pairs, and rates derived from those that the central bank publishes.

use std::fmt;

use chrono::NaiveDate;

use crate::Decimal;
use crate::decimal::divide_to_8_decimals;
use crate::lang::LocalizedText;

/// The first day of the real. Earlier quotes are stored in the currency of their day and never served as BRL.
pub const BRL_START_DATE: NaiveDate = NaiveDate::from_ymd_opt(1994, 7, 1).expect("a day of the calendar");

/// The ten currencies that PTAX quotes. Each rate is reais per one unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Currency {
    Aud,
    Cad,
    Chf,
    Dkk,
    Eur,
    Gbp,
    Jpy,
    Nok,
    Sek,
    Usd,
}

impl Currency {
    pub const ALL: [Self; 10] =
        [Self::Aud, Self::Cad, Self::Chf, Self::Dkk, Self::Eur, Self::Gbp, Self::Jpy, Self::Nok, Self::Sek, Self::Usd];

    pub const fn code(self) -> &'static str {
        match self {
            Self::Aud => "AUD",
            Self::Cad => "CAD",
            Self::Chf => "CHF",
            Self::Dkk => "DKK",
            Self::Eur => "EUR",
            Self::Gbp => "GBP",
            Self::Jpy => "JPY",
            Self::Nok => "NOK",
            Self::Sek => "SEK",
            Self::Usd => "USD",
        }
    }

    /// The id of the series of its rates in reais.
    pub const fn series_id(self) -> &'static str {
        match self {
            Self::Aud => "aud-brl",
            Self::Cad => "cad-brl",
            Self::Chf => "chf-brl",
            Self::Dkk => "dkk-brl",
            Self::Eur => "eur-brl",
            Self::Gbp => "gbp-brl",
            Self::Jpy => "jpy-brl",
            Self::Nok => "nok-brl",
            Self::Sek => "sek-brl",
            Self::Usd => "usd-brl",
        }
    }

    /// The name of the series of its rates in reais.
    pub const fn series_name(self) -> LocalizedText {
        match self {
            Self::Aud => LocalizedText::new("Australian dollar, PTAX sell", "Dólar australiano, PTAX venda"),
            Self::Cad => LocalizedText::new("Canadian dollar, PTAX sell", "Dólar canadense, PTAX venda"),
            Self::Chf => LocalizedText::new("Swiss franc, PTAX sell", "Franco suíço, PTAX venda"),
            Self::Dkk => LocalizedText::new("Danish krone, PTAX sell", "Coroa dinamarquesa, PTAX venda"),
            Self::Eur => LocalizedText::new("Euro, PTAX sell", "Euro, PTAX venda"),
            Self::Gbp => LocalizedText::new("Pound sterling, PTAX sell", "Libra esterlina, PTAX venda"),
            Self::Jpy => LocalizedText::new("Japanese yen, PTAX sell", "Iene japonês, PTAX venda"),
            Self::Nok => LocalizedText::new("Norwegian krone, PTAX sell", "Coroa norueguesa, PTAX venda"),
            Self::Sek => LocalizedText::new("Swedish krona, PTAX sell", "Coroa sueca, PTAX venda"),
            Self::Usd => LocalizedText::new("US dollar, PTAX sell", "Dólar americano, PTAX venda"),
        }
    }

    /// The currency of a series id such as `usd-brl`.
    pub fn from_series_id(id: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|currency| currency.series_id() == id)
    }

    pub fn from_code(code: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|currency| currency.code().eq_ignore_ascii_case(code))
    }

    /// The direction in which the central bank publishes the parity of this currency.
    pub const fn parity_basis(self) -> ParityBasis {
        match self {
            Self::Aud | Self::Eur | Self::Gbp => ParityBasis::DollarsPerUnit,
            Self::Cad | Self::Chf | Self::Dkk | Self::Jpy | Self::Nok | Self::Sek | Self::Usd => {
                ParityBasis::UnitsPerDollar
            }
        }
    }
}

/// A parity is a published rate against the dollar. Its direction depends on the currency.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParityBasis {
    /// The central bank calls these currencies type A.
    UnitsPerDollar,
    /// Type B.
    DollarsPerUnit,
}

/// A pair that we can quote: a published pair, its inverse, or a cross of two published pairs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CurrencyPair {
    /// `USD/BRL`, as published.
    Published(Currency),
    /// `BRL/USD`.
    Inverse(Currency),
    /// `EUR/USD`: base and quote currency.
    Cross(Currency, Currency),
}

/// Bid and ask of one day.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quote {
    pub buy: Decimal,
    pub sell: Decimal,
}

/// The rates of one currency in a bulletin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PublishedRates {
    /// Reais per unit.
    pub quote: Quote,
    /// The rate against the dollar, in the direction of [`Currency::parity_basis`]. Some bulletins have none.
    pub parity: Option<Quote>,
}

impl CurrencyPair {
    pub const DEFAULT: Self = Self::Published(Currency::Usd);

    /// Parses `USD/BRL`, `USD-BRL` or `USDBRL`, in upper or lower case.
    pub fn parse(text: &str) -> Option<Self> {
        if !text.is_ascii() {
            return None;
        }

        let (base, quote) = match text.len() {
            6 => text.split_at(3),
            7 if matches!(text.as_bytes()[3], b'/' | b'-') => (&text[..3], &text[4..]),
            _ => return None,
        };

        let is_brl = |code: &str| code.eq_ignore_ascii_case("BRL");
        match (Currency::from_code(base), Currency::from_code(quote)) {
            (Some(base), None) if is_brl(quote) => Some(Self::Published(base)),
            (None, Some(quote)) if is_brl(base) => Some(Self::Inverse(quote)),
            (Some(base), Some(quote)) if base != quote => Some(Self::Cross(base, quote)),
            _ => None,
        }
    }

    /// The id of the pair's series, such as `usd-brl`. Inverses and crosses have none.
    pub const fn series_id(self) -> Option<&'static str> {
        match self {
            Self::Published(currency) => Some(currency.series_id()),
            Self::Inverse(_) | Self::Cross(..) => None,
        }
    }

    /// The unit of its rates, such as `brl_per_usd`: the quote currency per unit of the base currency.
    pub fn unit_code(self) -> String {
        let (base, quote) = self.codes();
        format!("{}_per_{}", quote.to_ascii_lowercase(), base.to_ascii_lowercase())
    }

    /// The codes of the base and the quote currency.
    pub const fn codes(self) -> (&'static str, &'static str) {
        match self {
            Self::Published(base) => (base.code(), "BRL"),
            Self::Inverse(quote) => ("BRL", quote.code()),
            Self::Cross(base, quote) => (base.code(), quote.code()),
        }
    }

    /// Whether we compute its rate from published ones.
    pub const fn is_derived(self) -> bool {
        !matches!(self, Self::Published(_))
    }

    /// The currencies whose published rates this pair is computed from.
    pub fn legs(self) -> (Currency, Option<Currency>) {
        match self {
            Self::Published(currency) | Self::Inverse(currency) => (currency, None),
            Self::Cross(base, quote) => (base, Some(quote)),
        }
    }

    /// Computes the quote of this pair from the published rates of its legs on one day.
    pub fn derive_quote(self, first_leg: PublishedRates, second_leg: Option<PublishedRates>) -> Option<Quote> {
        match (self, second_leg) {
            (Self::Published(_), _) => Some(first_leg.quote),
            (Self::Inverse(_), _) => Some(Quote {
                buy: divide_to_8_decimals(Decimal::ONE, first_leg.quote.sell)?,
                sell: divide_to_8_decimals(Decimal::ONE, first_leg.quote.buy)?,
            }),
            (Self::Cross(base, quote), Some(second)) => derive_cross((base, first_leg), (quote, second)),
            (Self::Cross(..), None) => None,
        }
    }

    /// Whether a cross is computed from the parities of its legs. If so, it does not need the dollar's bulletin.
    pub fn uses_parities(self, first_leg: PublishedRates, second_leg: PublishedRates) -> bool {
        match self {
            Self::Published(_) | Self::Inverse(_) => false,
            Self::Cross(base, quote) => {
                DollarValue::of(base, first_leg).is_some() && DollarValue::of(quote, second_leg).is_some()
            }
        }
    }

    /// `AUD/BRL, CAD/BRL, …`, for the error message about an unknown pair.
    pub fn published_pair_names() -> String {
        Currency::ALL.map(|currency| Self::Published(currency).to_string()).join(", ")
    }
}

/// Computes a cross from the parities, so that it contains no spread against the real. If a parity is missing, divides
/// the rates in reais.
fn derive_cross(base: (Currency, PublishedRates), quote: (Currency, PublishedRates)) -> Option<Quote> {
    // A cross that is the parity itself keeps the published digits.
    let published = match (base.0, quote.0) {
        (Currency::Usd, other) if other.parity_basis() == ParityBasis::UnitsPerDollar => quote.1.parity,
        (other, Currency::Usd) if other.parity_basis() == ParityBasis::DollarsPerUnit => base.1.parity,
        _ => None,
    };
    if published.is_some() {
        return published;
    }

    if let (Some(base), Some(quote)) = (DollarValue::of(base.0, base.1), DollarValue::of(quote.0, quote.1)) {
        return Some(Quote { buy: base.buy.divide_by(quote.sell)?, sell: base.sell.divide_by(quote.buy)? });
    }

    Some(Quote {
        buy: divide_to_8_decimals(base.1.quote.buy, quote.1.quote.sell)?,
        sell: divide_to_8_decimals(base.1.quote.sell, quote.1.quote.buy)?,
    })
}

/// Dollars per unit of a currency.
struct DollarValue {
    buy: Fraction,
    sell: Fraction,
}

impl DollarValue {
    /// `None` if the parity is needed and missing. The dollar needs none.
    fn of(currency: Currency, rates: PublishedRates) -> Option<Self> {
        if currency == Currency::Usd {
            return Some(Self {
                buy: Fraction::from_decimal(Decimal::ONE),
                sell: Fraction::from_decimal(Decimal::ONE),
            });
        }

        let parity = rates.parity?;
        Some(match currency.parity_basis() {
            ParityBasis::DollarsPerUnit => {
                Self { buy: Fraction::from_decimal(parity.buy), sell: Fraction::from_decimal(parity.sell) }
            }
            ParityBasis::UnitsPerDollar => {
                Self { buy: Fraction::inverse_of(parity.sell), sell: Fraction::inverse_of(parity.buy) }
            }
        })
    }
}

/// Delays the division, because the inverse of a parity has no exact decimal and a cross must be rounded only once.
#[derive(Clone, Copy)]
struct Fraction {
    numerator: Decimal,
    denominator: Decimal,
}

impl Fraction {
    const fn from_decimal(value: Decimal) -> Self {
        Self { numerator: value, denominator: Decimal::ONE }
    }

    const fn inverse_of(value: Decimal) -> Self {
        Self { numerator: Decimal::ONE, denominator: value }
    }

    fn divide_by(self, divisor: Self) -> Option<Decimal> {
        let numerator = self.numerator.checked_mul(divisor.denominator)?;
        let denominator = self.denominator.checked_mul(divisor.numerator)?;
        divide_to_8_decimals(numerator, denominator)
    }
}

impl fmt::Display for CurrencyPair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (base, quote) = self.codes();
        write!(f, "{base}/{quote}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_parse_in_every_format() {
        for text in ["EUR/BRL", "EUR-BRL", "EURBRL", "eurbrl", "Eur/Brl"] {
            assert_eq!(CurrencyPair::parse(text), Some(CurrencyPair::Published(Currency::Eur)), "{text}");
        }
        assert_eq!(CurrencyPair::parse("brl-usd"), Some(CurrencyPair::Inverse(Currency::Usd)));
        assert_eq!(CurrencyPair::parse("EUR/USD"), Some(CurrencyPair::Cross(Currency::Eur, Currency::Usd)));
        for text in ["", "XXX/BRL", "nonsense", "BRL/BRL", "USD/USD", "USD_BRL", "ÉURBRL", "USD/BRLX"] {
            assert_eq!(CurrencyPair::parse(text), None, "{text}");
        }
    }

    fn quote(buy: &str, sell: &str) -> Quote {
        Quote { buy: buy.parse().unwrap(), sell: sell.parse().unwrap() }
    }

    fn published(rates: (&str, &str), parity: Option<(&str, &str)>) -> PublishedRates {
        PublishedRates { quote: quote(rates.0, rates.1), parity: parity.map(|(buy, sell)| quote(buy, sell)) }
    }

    fn derive(pair: &str, first_leg: PublishedRates, second_leg: Option<PublishedRates>) -> (String, String) {
        let derived = CurrencyPair::parse(pair).unwrap().derive_quote(first_leg, second_leg).unwrap();
        (derived.buy.to_string(), derived.sell.to_string())
    }

    fn texts(buy: &str, sell: &str) -> (String, String) {
        (buy.to_owned(), sell.to_owned())
    }

    #[test]
    fn derived_quotes_use_the_less_favorable_side() {
        let usd = published(("5.4000", "5.5000"), None);
        let eur = published(("6.0000", "6.1000"), None);

        assert_eq!(derive("BRL/USD", usd, None), texts("0.18181818", "0.18518519"));
        assert_eq!(derive("EUR/USD", eur, Some(usd)), texts("1.09090909", "1.12962963"));
    }

    #[test]
    fn a_cross_with_the_dollar_is_the_parity_or_its_inverse() {
        // The closing bulletins of 2022-01-03.
        let aud = published(("4.0459", "4.0475"), Some(("0.7186", "0.7188")));
        let usd = published(("5.6303", "5.6309"), Some(("1.0000", "1.0000")));
        assert_eq!(derive("AUD/USD", aud, Some(usd)), texts("0.7186", "0.7188"));
        assert_eq!(derive("USD/AUD", usd, Some(aud)), texts("1.39120757", "1.39159477"));

        let jpy = published(("0.03669", "0.03671"), Some(("153.43", "153.45")));
        assert_eq!(derive("USD/JPY", usd, Some(jpy)), texts("153.43", "153.45"));
        assert_eq!(derive("JPY/USD", jpy, Some(usd)), texts("0.00651678", "0.00651763"));
    }

    #[test]
    fn a_cross_of_two_other_currencies_goes_through_the_dollar_and_is_rounded_once() {
        let eur = published(("6.0000", "6.1000"), Some(("1.1000", "1.1002")));
        let aud = published(("4.0459", "4.0475"), Some(("0.7186", "0.7188")));
        let jpy = published(("0.03669", "0.03671"), Some(("153.43", "153.45")));
        let chf = published(("6.9900", "7.0000"), Some(("0.8050", "0.8052")));

        assert_eq!(derive("EUR/JPY", eur, Some(jpy)), texts("168.77300000", "168.82569000"));
        assert_eq!(derive("JPY/EUR", jpy, Some(eur)), texts("0.00592327", "0.00592512"));
        assert_eq!(derive("JPY/CHF", jpy, Some(chf)), texts("0.00524601", "0.00524800"));
        assert_eq!(derive("EUR/AUD", eur, Some(aud)), texts("1.53032832", "1.53103256"));
    }

    #[test]
    fn a_cross_without_one_of_its_parities_divides_the_rates_in_reais() {
        let usd = published(("5.6303", "5.6309"), Some(("1.0000", "1.0000")));
        let aud = published(("4.0459", "4.0475"), None);
        let eur = published(("6.0000", "6.1000"), Some(("1.1000", "1.1002")));
        assert_eq!(derive("AUD/USD", aud, Some(usd)), texts("0.71851747", "0.71887821"));

        let from_reais = derive("EUR/AUD", published(("6.0000", "6.1000"), None), Some(aud));
        assert_eq!(derive("EUR/AUD", eur, Some(aud)), from_reais);

        let pair = |text: &str| CurrencyPair::parse(text).unwrap();
        assert!(!pair("EUR/AUD").uses_parities(eur, aud));
        assert!(pair("EUR/USD").uses_parities(eur, usd));
        assert!(!pair("AUD/USD").uses_parities(aud, usd));
    }
}
