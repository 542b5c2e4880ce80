//! Price indices: their monthly changes.

use crate::series::base::{MONTHLY, day, plausible, release, text};
use crate::series::{Accumulation, License, Publisher, Release, Series, SeriesGroup};
use crate::unit::Unit;

/// The change of a price index from the previous month.
pub(super) const MONTHLY_CHANGE: Series = Series {
    group: SeriesGroup::Inflation,
    basis: text("change from the previous month", "variação em relação ao mês anterior"),
    publisher: Publisher::Ibge,
    license: License::Undeclared,
    release: WITH_IPCA,
    plausible: plausible(-5, 130, "the highest months were February and March 1990, with up to 84%"),
    accumulation: Accumulation::OwnValues,
    ..MONTHLY
};

/// IBGE publishes the IPCA on about the tenth.
pub(super) const WITH_IPCA: Release = release(1, 10, (9, 0), 5);
const MID_MONTH: Release = release(0, 26, (9, 0), 5);
const WITH_IGP_DI: Release = release(1, 8, (8, 0), 5);
/// The general indices of FGV.
const IGP: Series = Series { publisher: Publisher::Fgv, ..MONTHLY_CHANGE };

pub static SERIES: [Series; 12] = [
    Series {
        id: "ipca",
        sgs_code: Some(433),
        name: text("IPCA, monthly change", "IPCA, variação mensal"),
        tags: &["inflation", "inflação", "consumer prices"],
        is_not: text(
            "not the index level, and not the 12-month change (`ipca-12m`)",
            "não é o número-índice nem a variação em 12 meses (`ipca-12m`)",
        ),
        evidence: &["rafpyprog/pySGS, 34100ca", "rteoo/bcbpy"],
        starts_on: day(1980, 1, 1),
        ..MONTHLY_CHANGE
    },
    Series {
        id: "ipca-15",
        sgs_code: Some(7478),
        name: text("IPCA-15, monthly change", "IPCA-15, variação mensal"),
        tags: &["inflation", "inflação", "preview", "prévia"],
        is_not: text(
            "not the IPCA: its month runs from the 16th to the 15th, and it is published two weeks earlier",
            "não é o IPCA: seu mês vai do dia 16 ao dia 15 e ele sai duas semanas antes",
        ),
        evidence: &["PythonicCafe/mercados", "rteoo/bcbpy"],
        release: MID_MONTH,
        starts_on: day(2000, 5, 1),
        ..MONTHLY_CHANGE
    },
    Series {
        id: "ipca-e",
        sgs_code: Some(10764),
        name: text("IPCA-E, monthly change", "IPCA-E, variação mensal"),
        tags: &["court debts", "débitos judiciais", "precatórios"],
        is_not: text(
            "not the quarterly IPCA-E of IBGE: these are its monthly changes, equal to the IPCA-15 since May 2000",
            "não é o IPCA-E trimestral do IBGE: são as variações mensais dele, iguais às do IPCA-15 desde maio de 2000",
        ),
        evidence: &["PythonicCafe/mercados", "rteoo/bcbpy"],
        release: MID_MONTH,
        starts_on: day(1992, 1, 1),
        ..MONTHLY_CHANGE
    },
    Series {
        id: "inpc",
        sgs_code: Some(188),
        name: text("INPC, monthly change", "INPC, variação mensal"),
        tags: &["inflation", "inflação", "wages", "salários", "benefícios do INSS"],
        is_not: text(
            "not the IPCA: it covers households that earn one to five minimum wages",
            "não é o IPCA: abrange famílias com renda de um a cinco salários mínimos",
        ),
        evidence: &["investash/dados-economicos", "rteoo/bcbpy"],
        starts_on: day(1979, 4, 1),
        ..MONTHLY_CHANGE
    },
    Series {
        id: "igp-m",
        sgs_code: Some(189),
        name: text("IGP-M, monthly change", "IGP-M, variação mensal"),
        tags: &["rent", "aluguel", "contratos", "wholesale prices"],
        is_not: text(
            "not the IGP-DI (`igp-di`), which covers the calendar month; the month of IGP-M runs from the 21st to the 20th",
            "não é o IGP-DI (`igp-di`), que cobre o mês civil; o mês do IGP-M vai do dia 21 ao dia 20",
        ),
        evidence: &[
            "SGS's own page of series 189, saved in lhemerly/cvm-reavaliacao-imobilizado",
            "PythonicCafe/mercados",
        ],
        release: release(0, 29, (8, 0), 5),
        starts_on: day(1989, 6, 1),
        ..IGP
    },
    Series {
        id: "igp-di",
        sgs_code: Some(190),
        name: text("IGP-DI, monthly change", "IGP-DI, variação mensal"),
        tags: &["contratos", "wholesale prices"],
        is_not: text(
            "not the IGP-M (`igp-m`), whose month runs from the 21st to the 20th",
            "não é o IGP-M (`igp-m`), cujo mês vai do dia 21 ao dia 20",
        ),
        evidence: &["rafpyprog/pySGS, 34100ca", "investash/dados-economicos"],
        release: WITH_IGP_DI,
        starts_on: day(1944, 2, 1),
        plausible: plausible(
            -20,
            130,
            "up to 84% in March 1990; the first decades are wide, because nobody has checked them",
        ),
        ..IGP
    },
    Series {
        id: "igp-10",
        sgs_code: Some(7447),
        name: text("IGP-10, monthly change", "IGP-10, variação mensal"),
        tags: &["preview", "prévia"],
        is_not: text(
            "not the IGP-M (`igp-m`): its month runs from the 11th to the 10th",
            "não é o IGP-M (`igp-m`): seu mês vai do dia 11 ao dia 10",
        ),
        evidence: &[
            "SGS's own page of series 7447, saved in lhemerly/cvm-reavaliacao-imobilizado",
            "rafpyprog/pySGS, 34100ca",
        ],
        release: release(0, 17, (8, 0), 5),
        starts_on: day(1994, 9, 1),
        ..IGP
    },
    Series {
        id: "incc-m",
        sgs_code: Some(7456),
        name: text("INCC-M, monthly change", "INCC-M, variação mensal"),
        tags: &["construction", "construção", "imóvel na planta", "property"],
        is_not: text(
            "not the INCC-DI (`incc-di`), which covers the calendar month; property contracts usually name INCC-M",
            "não é o INCC-DI (`incc-di`), que cobre o mês civil; contratos de imóveis costumam usar o INCC-M",
        ),
        evidence: &[
            "SGS's own page of series 7456, saved in lhemerly/cvm-reavaliacao-imobilizado",
            "SGS's own CSV of it, saved there",
        ],
        release: release(0, 27, (8, 0), 5),
        starts_on: day(1994, 9, 1),
        ..IGP
    },
    Series {
        id: "incc-di",
        sgs_code: Some(192),
        name: text("INCC-DI, monthly change", "INCC-DI, variação mensal"),
        tags: &["construction", "construção"],
        is_not: text(
            "not the INCC-M (`incc-m`), although several projects mislabel it as such",
            "não é o INCC-M (`incc-m`), embora vários projetos o chamem assim",
        ),
        evidence: &[
            "SGS's own title \"National Index of Building Costs (INCC)\" in rafpyprog/pySGS",
            "lhemerly/cvm-reavaliacao-imobilizado",
        ],
        release: WITH_IGP_DI,
        starts_on: day(1944, 2, 1),
        plausible: plausible(
            -20,
            130,
            "up to 84% in March 1990; the first decades are wide, because nobody has checked them",
        ),
        ..IGP
    },
    Series {
        id: "ipc-fipe",
        sgs_code: Some(193),
        name: text("IPC-Fipe, monthly change", "IPC-Fipe, variação mensal"),
        tags: &["São Paulo", "inflation", "inflação"],
        is_not: text(
            "not a national index: it covers the city of São Paulo",
            "não é um índice nacional: abrange o município de São Paulo",
        ),
        publisher: Publisher::Fipe,
        evidence: &["investash/dados-economicos", "rteoo/bcbpy"],
        release: release(1, 5, (9, 0), 5),
        starts_on: day(1939, 2, 1),
        plausible: plausible(-10, 130, "79.11% in March 1990, and -5.41% in October 1948"),
        ..MONTHLY_CHANGE
    },
    Series {
        id: "ipc-br",
        sgs_code: Some(191),
        name: text("IPC-Br (IPC-DI), monthly change", "IPC-Br (IPC-DI), variação mensal"),
        tags: &["FGV", "consumer prices", "preços ao consumidor"],
        is_not: text(
            "not the weekly IPC-S, and not IBGE's IPCA (`ipca`)",
            "não é o IPC-S semanal nem o IPCA do IBGE (`ipca`)",
        ),
        evidence: &["rafpyprog/pySGS, 34100ca", "investash/dados-economicos"],
        release: WITH_IGP_DI,
        starts_on: day(1990, 1, 1),
        ..IGP
    },
    Series {
        id: "ipca-12m",
        sgs_code: Some(13522),
        name: text("IPCA, 12-month change", "IPCA, variação em 12 meses"),
        tags: &["inflation", "inflação", "acumulado"],
        unit: Unit::PercentInTwelveMonths,
        basis: text("change from the same month a year earlier", "variação em relação ao mesmo mês do ano anterior"),
        is_not: text("not the monthly change (`ipca`)", "não é a variação mensal (`ipca`)"),
        evidence: &["rteoo/bcbpy", "chained months of 433 reproduce it within 0.0052"],
        starts_on: day(1980, 12, 1),
        plausible: plausible(-10, 100_000, "6,821% in April 1990 was the highest value"),
        accumulation: Accumulation::Refused { instead: Some("ipca") },
        ..MONTHLY_CHANGE
    },
];
