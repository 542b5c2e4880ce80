//! Interest rates.

use crate::series::base::{BEFORE_THE_DAY, EVENING, MONTHLY, day, plausible, release, text};
use crate::series::{Accumulation, Frequency, License, PlausibleRange, Publisher, Release, Series, Shape};
use crate::unit::Unit;

/// An annual rate of each business day.
const ANNUAL_RATE: Series = Series {
    unit: Unit::PercentPerYear,
    basis: text("annual rate, 252 business days", "taxa anual, 252 dias úteis"),
    plausible: plausible(0, 100_000_000, "follows from daily rates of up to 5.4%"),
    ..DAILY_RATE
};

/// The rate of one business day.
const DAILY_RATE: Series = Series {
    unit: Unit::PercentPerDay,
    basis: text("rate for one business day", "taxa de um dia útil"),
    is_not: text(
        "not an annual rate: compound it over business days",
        "não é uma taxa anual: capitalize-a pelos dias úteis",
    ),
    frequency: Frequency::BusinessDaily,
    release: Release::Daily(EVENING),
    decimals: 6,
    plausible: plausible(0, 10, "3.626% on 1990-02-19 was the highest rate of a day"),
    accumulation: Accumulation::OwnValues,
    ..MONTHLY
};

pub static SERIES: [Series; 9] = [
    Series {
        id: "selic",
        sgs_code: Some(432),
        name: text("Selic target set by Copom", "Meta Selic definida pelo Copom"),
        tags: &["interest rate", "taxa básica", "juros", "copom"],
        is_not: text(
            "not the effective rate of the day's trades (`selic-effective`), and not the yield of a government bond",
            "não é a taxa efetiva dos negócios do dia (`selic-effective`) nem a taxa de um título público",
        ),
        evidence: &["dataset 432-taxa-de-juros---meta-selic-definida-pelo-copom"],
        frequency: Frequency::Daily,
        release: Release::InAdvance(BEFORE_THE_DAY),
        starts_on: day(1999, 3, 5),
        decimals: 2,
        plausible: plausible(0, 100, "45% in 1999 was its highest value"),
        accumulation: Accumulation::DailyTwin("selic-daily"),
        ..ANNUAL_RATE
    },
    Series {
        id: "cdi",
        sgs_code: Some(4389),
        name: text("CDI, annualized", "CDI, anualizado"),
        tags: &["interbank", "DI", "CDB"],
        is_not: text(
            "not the rate of a CDB, which pays a percentage of the CDI",
            "não é a taxa de um CDB, que paga um percentual do CDI",
        ),
        publisher: Publisher::B3,
        license: License::Undeclared,
        evidence: &[
            "equals 12, annualized, on all days compared",
            "two public programs that call it CDI anualizado base 252",
        ],
        starts_on: day(1986, 3, 6),
        decimals: 2,
        accumulation: Accumulation::DailyTwin("cdi-daily"),
        gap_fill_series: Some("cdi-daily"),
        ..ANNUAL_RATE
    },
    Series {
        id: "selic-effective",
        sgs_code: Some(1178),
        name: text("Effective Selic, annualized", "Selic efetiva, anualizada"),
        tags: &["selic over"],
        is_not: text("not the Copom target (`selic`)", "não é a meta do Copom (`selic`)"),
        evidence: &["dataset 1178-taxa-de-juros---selic-anualizada-base-252"],
        starts_on: day(1986, 6, 4),
        decimals: 2,
        accumulation: Accumulation::DailyTwin("selic-daily"),
        ..ANNUAL_RATE
    },
    Series {
        id: "selic-daily",
        sgs_code: Some(11),
        name: text("Effective Selic, daily rate", "Selic efetiva, taxa diária"),
        tags: &["selic over"],
        evidence: &["dataset 11-taxa-de-juros---selic"],
        starts_on: day(1986, 6, 4),
        ..DAILY_RATE
    },
    Series {
        id: "cdi-daily",
        sgs_code: Some(12),
        name: text("CDI, daily rate", "CDI, taxa diária"),
        tags: &["interbank", "DI"],
        publisher: Publisher::B3,
        license: License::Undeclared,
        evidence: &["rteoo/bcbpy", "equals 11 on every day since 2018-10-01"],
        starts_on: day(1986, 3, 6),
        plausible: plausible(0, 10, "3.970667% on 1994-02-11 was the highest rate of a day"),
        ..DAILY_RATE
    },
    Series {
        id: "selic-month",
        sgs_code: Some(4390),
        name: text("Selic accumulated in the month", "Selic acumulada no mês"),
        tags: &["selic mensal", "tax debts", "débitos tributários"],
        is_not: text(
            "too coarse to compound: only two decimals, unlike `selic-daily`; the current month is provisional",
            "não serve para capitalizar: só tem duas casas, ao contrário de `selic-daily`; o mês em curso é provisório",
        ),
        evidence: &["dataset 4390-taxa-de-juros---selic-acumulada-no-mes"],
        starts_on: day(1986, 8, 1),
        ..ACCUMULATED_IN_MONTH
    },
    Series {
        id: "cdi-month",
        sgs_code: Some(4391),
        name: text("CDI accumulated in the month", "CDI acumulado no mês"),
        tags: &["CDI mensal"],
        is_not: text(
            "too coarse to compound: only two decimals, unlike `cdi-daily`; the current month is provisional",
            "não serve para capitalizar: só tem duas casas, ao contrário de `cdi-daily`; o mês em curso é provisório",
        ),
        publisher: Publisher::B3,
        license: License::Undeclared,
        evidence: &["rteoo/bcbpy", "investash/dados-economicos"],
        starts_on: day(1986, 8, 1),
        accumulation: Accumulation::Refused { instead: Some("cdi-daily") },
        ..ACCUMULATED_IN_MONTH
    },
    Series {
        id: "tjlp",
        sgs_code: Some(256),
        name: text("TJLP, long-term interest rate", "TJLP, taxa de juros de longo prazo"),
        tags: &["BNDES"],
        unit: Unit::PercentPerYear,
        basis: text("annual rate of a quarter, given for each month", "taxa anual do trimestre, informada em cada mês"),
        is_not: text(
            "not a monthly rate, and not the TLP, which replaced it for new loans in 2018",
            "não é uma taxa mensal, nem a TLP, que a substituiu em novos contratos desde 2018",
        ),
        publisher: Publisher::Cmn,
        license: License::Undeclared,
        evidence: &["rafpyprog/pySGS, 34100ca", "rteoo/bcbpy"],
        release: release(0, 1, (9, 0), 10),
        starts_on: day(1994, 12, 1),
        plausible: plausible(0, 40, "between 4.39% in 2021 and about 25% in 1995"),
        ..MONTHLY
    },
    Series {
        id: "legal-rate",
        sgs_code: Some(29543),
        name: text("Legal interest rate, monthly", "Taxa legal, mensal"),
        tags: &["court debts", "débitos judiciais", "juros de mora", "Lei 14.905/2024", "civil code"],
        basis: text(
            "Selic of the previous month deflated by that month's IPCA-15, never below zero; simple interest",
            "Selic do mês anterior deflacionada pelo IPCA-15 do mesmo mês, nunca negativa; juros simples",
        ),
        is_not: text(
            "not compounded: the rates of the months are added up (Resolution CMN 5,171/2024)",
            "não é capitalizada: as taxas dos meses são somadas (Resolução CMN 5.171/2024)",
        ),
        license: License::Undeclared,
        evidence: &[
            "fabiobarretoadvogado/CalculosJuridicos",
            "24 months of it equal max(Selic factor / IPCA-15 factor − 1, 0) of the month before",
        ],
        release: release(0, 1, (9, 0), 10),
        starts_on: day(2024, 8, 1),
        decimals: 6,
        plausible: PlausibleRange {
            min: 0,
            max: 5,
            may_jump: true,
            reason: "at most 1.5% so far; zero when inflation exceeds the Selic, as in March 2025",
        },
        accumulation: Accumulation::SimpleInterest,
        ..MONTHLY
    },
];

/// Grows every business day of its month.
const ACCUMULATED_IN_MONTH: Series = Series {
    basis: text("daily rates compounded over the month", "taxas diárias capitalizadas no mês"),
    shape: Shape::RunningMonth,
    release: Release::RunningMonth(EVENING),
    plausible: PlausibleRange {
        min: 0,
        max: 125,
        may_jump: true,
        reason: "82.04% in February 1990 was the highest month; the current month begins near zero",
    },
    accumulation: Accumulation::Refused { instead: Some("selic-daily") },
    ..MONTHLY
};
