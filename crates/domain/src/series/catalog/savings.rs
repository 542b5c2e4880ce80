//! TR and savings accounts. For each start day they give the rate of the month that begins on it.

use crate::series::base::{MONTHLY, SOME_DAYS_LATER, day, text};
use crate::series::{Accumulation, Frequency, License, PlausibleRange, Release, Series, SeriesGroup, Shape};
use crate::unit::Unit;

/// The rate of the month that begins on each day. A start on the 29th, 30th or 31st may end on the 1st.
const RATE_OF_MONTH_AHEAD: Series = Series {
    group: SeriesGroup::Savings,
    unit: Unit::PercentInPeriod,
    basis: text("rate from `date` to `period_end`, one month later", "taxa de `date` a `period_end`, um mês depois"),
    frequency: Frequency::Daily,
    release: Release::Daily(SOME_DAYS_LATER),
    shape: Shape::Period,
    decimals: 4,
    accumulation: Accumulation::Anniversaries,
    ..MONTHLY
};

const SAVINGS: Series = Series { frequency: Frequency::Anniversaries, ..RATE_OF_MONTH_AHEAD };

const fn plausible(max: i64, reason: &'static str) -> PlausibleRange {
    PlausibleRange { min: 0, max, may_jump: true, reason }
}

pub static SERIES: [Series; 4] = [
    Series {
        id: "tr",
        sgs_code: Some(226),
        name: text("TR, reference rate", "TR, taxa referencial"),
        tags: &["FGTS", "mortgage", "financiamento imobiliário", "taxa referencial"],
        is_not: text(
            "not a daily rate: each row covers a whole month, and rows overlap, so never compound all of them",
            "não é uma taxa diária: cada linha cobre um mês inteiro e as linhas se sobrepõem; nunca capitalize todas",
        ),
        license: License::Undeclared,
        evidence: &["rafpyprog/pySGS, 34100ca", "rteoo/bcbpy"],
        starts_on: day(1991, 2, 1),
        plausible: plausible(75, "51.7526% for the month from 1994-05-30; zero is normal, as from 2017 to 2021"),
        ..RATE_OF_MONTH_AHEAD
    },
    Series {
        id: "tbf",
        sgs_code: Some(253),
        name: text("TBF, basic financial rate", "TBF, taxa básica financeira"),
        tags: &["taxa básica financeira"],
        is_not: text(
            "not a daily rate: each row covers a whole month; the TR is derived from it",
            "não é uma taxa diária: cada linha cobre um mês inteiro; a TR é calculada a partir dela",
        ),
        license: License::Undeclared,
        evidence: &["rafpyprog/pySGS, 34100ca", "rteoo/bcbpy"],
        starts_on: day(1995, 7, 1),
        plausible: plausible(10, "follows the Selic of a month, at most 4.26% since August 1994"),
        ..RATE_OF_MONTH_AHEAD
    },
    Series {
        id: "savings",
        sgs_code: Some(195),
        name: text("Savings account yield, deposits since 2012-05-04", "Poupança, depósitos a partir de 04.05.2012"),
        tags: &["poupança", "caderneta", "rendimento"],
        is_not: text(
            "not the yield of older deposits (`savings-old`); each row covers a whole month",
            "não é o rendimento de depósitos anteriores (`savings-old`); cada linha cobre um mês inteiro",
        ),
        evidence: &["dataset 195-depositos-de-poupanca-a-partir-de-04052012---rentabilidade-no-periodo"],
        starts_on: day(2012, 5, 4),
        plausible: plausible(2, "0.5% plus TR at most, and 0.12% when the Selic target was 2%"),
        ..SAVINGS
    },
    Series {
        id: "savings-old",
        sgs_code: Some(25),
        name: text("Savings account yield, deposits until 2012-05-03", "Poupança, depósitos até 03.05.2012"),
        tags: &["poupança", "caderneta", "poupança antiga"],
        is_not: text(
            "not the yield of deposits made since 2012-05-04 (`savings`); each row covers a whole month",
            "não é o rendimento de depósitos desde 04.05.2012 (`savings`); cada linha cobre um mês inteiro",
        ),
        license: License::OpenDatabase,
        evidence: &[
            "dataset of series 25, \"Depósitos de poupança até 03.05.2012\", in SidneyBissoli/bcb-br-mcp, 12f6c4ed",
            "rafpyprog/pySGS, 34100ca",
        ],
        starts_on: day(1991, 2, 1),
        plausible: plausible(75, "0.5% plus TR, which was 51.7526% for the month from 1994-05-30"),
        ..SAVINGS
    },
];
