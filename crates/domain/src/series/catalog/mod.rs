//! The table of published series, by subject. An entry states what it does not share with the entry after `..`.

mod activity;
mod credit;
mod external;
mod fiscal;
mod inflation;
mod inflation_details;
mod interest;
mod money;
mod savings;

use super::base::{EVENING, MONTHLY, day, text};
use super::{Accumulation, Frequency, PlausibleRange, Release, Series, SeriesGroup};
use crate::unit::Unit;

/// In the order in which the catalog lists them.
pub static GROUPS: [&[Series]; 9] = [
    &interest::SERIES,
    &savings::SERIES,
    &inflation::SERIES,
    &inflation_details::SERIES,
    &activity::SERIES,
    &credit::SERIES,
    &external::SERIES,
    &money::SERIES,
    &fiscal::SERIES,
];

/// Stored only to cross-check others and never served.
pub static CROSS_CHECK_SERIES: [Series; 4] = [
    Series {
        id: "check-usd-sell",
        sgs_code: Some(1),
        name: text("Dollar, PTAX sell, for comparison", "Dólar, PTAX venda, para comparação"),
        ..DOLLAR
    },
    Series {
        id: "check-usd-buy",
        sgs_code: Some(10813),
        name: text("Dollar, PTAX buy, for comparison", "Dólar, PTAX compra, para comparação"),
        ..DOLLAR
    },
    // Publications disagree on which of these holds the buy rates, so the comparison decides.
    Series {
        id: "check-eur-21619",
        sgs_code: Some(21619),
        name: text("Euro, PTAX, for comparison", "Euro, PTAX, para comparação"),
        ..EURO
    },
    Series {
        id: "check-eur-21620",
        sgs_code: Some(21620),
        name: text("Euro, PTAX, other side, for comparison", "Euro, PTAX, outro lado, para comparação"),
        ..EURO
    },
];

const EURO: Series = Series { unit: Unit::BrlPerEur, starts_on: day(1999, 1, 4), ..DOLLAR };

/// A dollar bulletin as SGS repeats it.
const DOLLAR: Series = Series {
    group: SeriesGroup::ExchangeRates,
    unit: Unit::BrlPerUsd,
    basis: text("closing bulletin", "boletim de fechamento"),
    is_not: text("not served", "não é oferecida na API"),
    frequency: Frequency::BusinessDaily,
    release: Release::Daily(EVENING),
    starts_on: day(1984, 11, 28),
    decimals: 4,
    plausible: PlausibleRange {
        min: 0,
        max: 1_000_000,
        may_jump: false,
        reason: "covers the currencies before the real",
    },
    accumulation: Accumulation::Refused { instead: None },
    ..MONTHLY
};
