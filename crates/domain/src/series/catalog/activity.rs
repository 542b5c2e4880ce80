//! Economic activity, jobs and wages.

use crate::series::base::{LATE_NEXT_MONTH, MONTHLY, day, plausible, release, text};
use crate::series::{Frequency, License, Publisher, Series, SeriesGroup, Shape};
use crate::unit::Unit;

const ACTIVITY: Series = Series { group: SeriesGroup::Activity, ..MONTHLY };

/// The central bank's activity index. Each release estimates its whole history again.
const IBC_BR: Series = Series {
    unit: Unit::Index,
    release: release(2, 17, (9, 0), 10),
    shape: Shape::Reestimated,
    starts_on: day(2003, 1, 1),
    plausible: plausible(20, 400, "70 to 115 on the bases used so far; leaves room for another base year"),
    ..ACTIVITY
};

pub static SERIES: [Series; 7] = [
    Series {
        id: "ibc-br",
        sgs_code: Some(24363),
        name: text("IBC-Br, activity index", "IBC-Br, índice de atividade econômica"),
        tags: &["GDP", "PIB", "monthly GDP"],
        basis: text("index without seasonal adjustment", "índice sem ajuste sazonal"),
        is_not: text(
            "not GDP, and not comparable from month to month: use `ibc-br-sa` for that",
            "não é o PIB nem serve para comparar meses consecutivos: para isso, use `ibc-br-sa`",
        ),
        evidence: &["dataset 24363-indice-de-atividade-economica-do-banco-central---ibc-br"],
        ..IBC_BR
    },
    Series {
        id: "ibc-br-sa",
        sgs_code: Some(24364),
        name: text("IBC-Br, activity index, seasonally adjusted", "IBC-Br com ajuste sazonal"),
        tags: &["GDP", "PIB", "monthly GDP"],
        basis: text("seasonally adjusted index", "índice com ajuste sazonal"),
        is_not: text(
            "not GDP; every release changes all of its months",
            "não é o PIB; cada divulgação altera todos os meses",
        ),
        evidence: &["dataset 24364-indice-de-atividade-economica-do-banco-central-ibc-br---com-ajuste-sazonal"],
        ..IBC_BR
    },
    Series {
        id: "gdp-quarterly-sa",
        sgs_code: Some(22109),
        name: text(
            "Quarterly GDP, volume index, seasonally adjusted",
            "PIB trimestral dessazonalizado, índice de volume",
        ),
        tags: &["GDP", "PIB"],
        unit: Unit::Index,
        basis: text("seasonally adjusted, 1995 = 100", "com ajuste sazonal, 1995 = 100"),
        is_not: text(
            "not a growth rate; not household consumption (22110), as some catalogs wrongly say",
            "não é uma taxa de crescimento nem, como alguns catálogos dizem por engano, o consumo das famílias (22110)",
        ),
        publisher: Publisher::Ibge,
        license: License::Undeclared,
        evidence: &["SGS's own list of names, saved in viniciusoike/realestatebr", "rteoo/bcbpy"],
        frequency: Frequency::Quarterly,
        release: release(3, 4, (9, 0), 10),
        shape: Shape::Reestimated,
        starts_on: day(1995, 1, 1),
        plausible: plausible(50, 500, "100 in 1995 and about 198 in 2026"),
        ..ACTIVITY
    },
    Series {
        id: "gdp-monthly",
        sgs_code: Some(4380),
        name: text("Monthly GDP, current prices", "PIB mensal, valores correntes"),
        tags: &["GDP", "PIB"],
        unit: Unit::BrlMillion,
        basis: text("estimate of the month at current prices", "estimativa do mês a preços correntes"),
        is_not: text(
            "not the IBC-Br (`ibc-br`), for which it is often mistaken",
            "não é o IBC-Br (`ibc-br`), com o qual costuma ser confundido",
        ),
        license: License::Undeclared,
        evidence: &[
            "three public scripts that name it \"PIB mensal - valores correntes (R$ milhões)\"",
            "its twelve-month sum gives series 20622 from 20539",
        ],
        shape: Shape::Reestimated,
        starts_on: day(1994, 7, 1),
        plausible: plausible(1_000, 10_000_000, "about 1,100,000 in 2026; 30,000 in 1994"),
        ..ACTIVITY
    },
    Series {
        id: "unemployment",
        sgs_code: Some(24369),
        name: text("Unemployment rate (PNAD Contínua)", "Taxa de desocupação (PNAD Contínua)"),
        tags: &["jobs", "desemprego", "labor market"],
        unit: Unit::Percent,
        basis: text(
            "share of the labor force in the three months ending in the month",
            "parcela da força de trabalho no trimestre móvel encerrado no mês",
        ),
        is_not: text(
            "not the rate of one month: consecutive values share two of their three months",
            "não é a taxa de um só mês: valores consecutivos têm dois dos três meses em comum",
        ),
        publisher: Publisher::Ibge,
        license: License::Undeclared,
        evidence: &["SGS's own list of names, saved in viniciusoike/realestatebr", "rteoo/bcbpy"],
        release: LATE_NEXT_MONTH,
        starts_on: day(2012, 3, 1),
        decimals: 1,
        plausible: plausible(1, 30, "between 5% and 15% so far"),
        ..ACTIVITY
    },
    Series {
        id: "formal-jobs",
        sgs_code: Some(28763),
        name: text("Formal jobs, stock (Novo Caged)", "Empregos formais, estoque (Novo Caged)"),
        tags: &["Caged", "employment", "emprego formal"],
        unit: Unit::Jobs,
        decimals: 0,
        basis: text("stock at the end of the month", "estoque no fim do mês"),
        is_not: text("not the month's hires minus separations", "não é o saldo de admissões e demissões do mês"),
        publisher: Publisher::LaborMinistry,
        license: License::Undeclared,
        evidence: &[
            "SGS's own list of names, saved in viniciusoike/realestatebr",
            "a public package of macro series that calls it estoque_caged",
        ],
        starts_on: day(1992, 1, 1),
        plausible: plausible(5_000_000, 100_000_000, "48.2 million in August 2026"),
        ..ACTIVITY
    },
    Series {
        id: "minimum-wage",
        sgs_code: Some(1619),
        name: text("Minimum wage", "Salário mínimo"),
        tags: &["wages", "salários"],
        unit: Unit::Brl,
        basis: text("monthly wage in force", "valor mensal em vigor"),
        is_not: text("not the regional minimum wages of some states", "não é o piso regional de alguns estados"),
        publisher: Publisher::LaborMinistry,
        license: License::Undeclared,
        evidence: &[
            "SGS's own column \"1619 - Salário mínimo - u.m.c.\" in a saved export",
            "three public programs that use it so",
        ],
        release: release(0, 5, (9, 0), 26),
        starts_on: day(1994, 7, 1),
        plausible: plausible(50, 20_000, "R$ 64.79 in July 1994, R$ 1,621 in 2026"),
        ..ACTIVITY
    },
];
