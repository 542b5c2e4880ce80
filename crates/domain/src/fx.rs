//! Currencies, currency pairs, and rates derived from those that the central bank publishes.

use std::fmt;

use chrono::NaiveDate;

use crate::Decimal;
use crate::decimal::divide_to_8_decimals;

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

    pub fn from_code(code: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|currency| currency.code().eq_ignore_ascii_case(code))
    }
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

    /// Whether we compute its rate from published ones.
    pub const fn is_derived(self) -> bool {
        !matches!(self, Self::Published(_))
    }

    /// The currencies whose published rates make up this pair.
    pub fn legs(self) -> (Currency, Option<Currency>) {
        match self {
            Self::Published(currency) | Self::Inverse(currency) => (currency, None),
            Self::Cross(base, quote) => (base, Some(quote)),
        }
    }

    /// Computes the quote of this pair from the published quotes of its legs on one day.
    pub fn derive_quote(self, first_leg: Quote, second_leg: Option<Quote>) -> Option<Quote> {
        match (self, second_leg) {
            (Self::Published(_), _) => Some(first_leg),
            (Self::Inverse(_), _) => Some(Quote {
                buy: divide_to_8_decimals(Decimal::ONE, first_leg.sell)?,
                sell: divide_to_8_decimals(Decimal::ONE, first_leg.buy)?,
            }),
            (Self::Cross(..), Some(second)) => Some(Quote {
                buy: divide_to_8_decimals(first_leg.buy, second.sell)?,
                sell: divide_to_8_decimals(first_leg.sell, second.buy)?,
            }),
            (Self::Cross(..), None) => None,
        }
    }

    /// `AUD/BRL, CAD/BRL, …`, for the error message about an unknown pair.
    pub fn published_pair_names() -> String {
        Currency::ALL.map(|currency| Self::Published(currency).to_string()).join(", ")
    }
}

impl fmt::Display for CurrencyPair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Published(base) => write!(f, "{}/BRL", base.code()),
            Self::Inverse(quote) => write!(f, "BRL/{}", quote.code()),
            Self::Cross(base, quote) => write!(f, "{}/{}", base.code(), quote.code()),
        }
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

    #[test]
    fn derived_quotes_use_the_less_favorable_side() {
        let quote = |buy: &str, sell: &str| Quote { buy: buy.parse().unwrap(), sell: sell.parse().unwrap() };
        let usd = quote("5.4000", "5.5000");
        let eur = quote("6.0000", "6.1000");

        let inverse = CurrencyPair::Inverse(Currency::Usd).derive_quote(usd, None).unwrap();
        assert_eq!((inverse.buy.to_string(), inverse.sell.to_string()), ("0.18181818".into(), "0.18518519".into()));

        let cross = CurrencyPair::Cross(Currency::Eur, Currency::Usd).derive_quote(eur, Some(usd)).unwrap();
        assert_eq!((cross.buy.to_string(), cross.sell.to_string()), ("1.09090909".into(), "1.12962963".into()));
    }
}
