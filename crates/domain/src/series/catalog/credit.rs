//! Credit of the financial system.

use crate::series::base::{MONTHLY, day, plausible, release, text};
use crate::series::{License, Series, SeriesGroup, Shape};
use crate::unit::Unit;

const CREDIT: Series = Series { group: SeriesGroup::Credit, ..MONTHLY };

const OUTSTANDING: Series = Series {
    unit: Unit::BrlMillion,
    basis: text("balance at the end of the month", "saldo no fim do mês"),
    starts_on: day(2007, 3, 1),
    decimals: 0,
    plausible: plausible(10_000, 60_000_000, "7,372,243 in July 2026; grows with the economy"),
    ..CREDIT
};

const RATE: Series = Series {
    unit: Unit::PercentPerYear,
    basis: text("average of new loans in the month, per year", "média das concessões do mês, ao ano"),
    starts_on: day(2011, 3, 1),
    plausible: plausible(5, 150, "between 18% and 40% so far"),
    ..CREDIT
};

const ARREARS: Series = Series {
    unit: Unit::PercentOfPortfolio,
    basis: text("loans in arrears for more than 90 days", "operações com atraso superior a 90 dias"),
    starts_on: day(2011, 3, 1),
    plausible: plausible(0, 25, "between 2.1% and 5.9% so far"),
    ..CREDIT
};

/// Needs the income of households, which takes a month longer.
const OF_HOUSEHOLD_INCOME: Series = Series { release: release(2, 28, (8, 30), 15), ..CREDIT };

pub static SERIES: [Series; 10] = [
    Series {
        id: "credit-total",
        sgs_code: Some(20539),
        name: text("Outstanding credit, total", "Saldo de crédito, total"),
        tags: &["loans", "empréstimos"],
        is_not: text(
            "the stock of all loans, not the new loans of the month",
            "não são as concessões do mês, mas o saldo de todas as operações",
        ),
        evidence: &["dataset 20539-saldo-da-carteira-de-credito---total"],
        starts_on: day(1994, 7, 1),
        ..OUTSTANDING
    },
    Series {
        id: "credit-companies",
        sgs_code: Some(20540),
        name: text("Outstanding credit, companies", "Saldo de crédito, pessoas jurídicas"),
        tags: &["loans", "empréstimos"],
        is_not: text(
            "not credit to households (`credit-households`)",
            "não é o crédito a pessoas físicas (`credit-households`)",
        ),
        evidence: &["dataset of series 20540, \"Pessoas jurídicas - Total\", in SidneyBissoli/bcb-br-mcp, 12f6c4ed"],
        ..OUTSTANDING
    },
    Series {
        id: "credit-households",
        sgs_code: Some(20541),
        name: text("Outstanding credit, households", "Saldo de crédito, pessoas físicas"),
        tags: &["loans", "empréstimos"],
        is_not: text(
            "not credit to companies (`credit-companies`)",
            "não é o crédito a pessoas jurídicas (`credit-companies`)",
        ),
        evidence: &["dataset of series 20541, \"Pessoas físicas - Total\", in SidneyBissoli/bcb-br-mcp, 12f6c4ed"],
        ..OUTSTANDING
    },
    Series {
        id: "credit-to-gdp",
        sgs_code: Some(20622),
        name: text("Outstanding credit, share of GDP", "Saldo de crédito em relação ao PIB"),
        tags: &["loans", "GDP", "PIB"],
        unit: Unit::PercentOfGdp,
        basis: text("balance over the GDP of twelve months", "saldo sobre o PIB de doze meses"),
        is_not: text("not an amount (`credit-total`)", "não é um valor em reais (`credit-total`)"),
        license: License::Undeclared,
        evidence: &["genarolins1975/scrutiniums", "equals 20539 over the twelve-month GDP (4382)"],
        shape: Shape::Reestimated,
        starts_on: day(2002, 1, 1),
        plausible: plausible(5, 150, "between 24% and 56% so far"),
        ..CREDIT
    },
    Series {
        id: "credit-rate",
        sgs_code: Some(20714),
        name: text("Average interest rate on loans, total", "Taxa média de juros das operações de crédito, total"),
        tags: &["loans", "juros", "empréstimos"],
        is_not: text("an annual rate, not the monthly one (25433)", "é uma taxa ao ano, não ao mês (25433)"),
        evidence: &["dataset 20714-taxa-media-de-juros-das-operacoes-de-credito---total"],
        ..RATE
    },
    Series {
        id: "credit-rate-households",
        sgs_code: Some(20716),
        name: text(
            "Average interest rate on loans, households",
            "Taxa média de juros das operações de crédito, pessoas físicas",
        ),
        tags: &["loans", "juros", "empréstimos"],
        is_not: text(
            "includes earmarked loans: the rate that newspapers quote (20740) leaves them out and is higher",
            "inclui crédito direcionado: a taxa citada na imprensa (20740) o exclui e é mais alta",
        ),
        evidence: &["dataset 20716-taxa-media-de-juros-das-operacoes-de-credito---pessoas-fisicas---total"],
        ..RATE
    },
    Series {
        id: "default-total",
        sgs_code: Some(21082),
        name: text("Loans in arrears, total", "Inadimplência, total"),
        tags: &["default rate", "inadimplência"],
        is_not: text(
            "accounting rules changed in January 2025, so earlier values are not fully comparable",
            "as regras contábeis mudaram em janeiro de 2025; valores anteriores não são totalmente comparáveis",
        ),
        evidence: &["dataset 21082-inadimplencia-da-carteira-de-credito---total"],
        ..ARREARS
    },
    Series {
        id: "default-households",
        sgs_code: Some(21084),
        name: text("Loans in arrears, households", "Inadimplência, pessoas físicas"),
        tags: &["default rate", "inadimplência"],
        is_not: text(
            "does not include companies (21083); accounting rules changed in January 2025",
            "não inclui pessoas jurídicas (21083); as regras contábeis mudaram em janeiro de 2025",
        ),
        evidence: &["dataset 21084-inadimplencia-da-carteira-de-credito---pessoas-fisicas---total"],
        ..ARREARS
    },
    Series {
        id: "household-debt",
        sgs_code: Some(29037),
        name: text("Household debt, share of annual income", "Endividamento das famílias em relação à renda"),
        tags: &["debt", "endividamento"],
        unit: Unit::PercentOfIncome,
        basis: text("debt over the income of twelve months", "dívida sobre a renda de doze meses"),
        is_not: text(
            "a stock: the monthly burden is `household-debt-service`",
            "é um estoque: o peso mensal é `household-debt-service`",
        ),
        evidence: &[
            "dataset 29037-endividamento-das-familias-com-o-sistema-financeiro-nacional-em-relacao-a-renda-acumulada-dos",
        ],
        starts_on: day(2005, 1, 1),
        plausible: plausible(5, 100, "at most 49.9% so far"),
        ..OF_HOUSEHOLD_INCOME
    },
    Series {
        id: "household-debt-service",
        sgs_code: Some(29034),
        name: text(
            "Household debt service, share of monthly income",
            "Comprometimento de renda com o serviço da dívida",
        ),
        tags: &["debt", "comprometimento de renda"],
        unit: Unit::PercentOfIncome,
        basis: text(
            "interest and principal over monthly income, seasonally adjusted",
            "juros e principal sobre a renda mensal, com ajuste sazonal",
        ),
        is_not: text(
            "not the debt itself (`household-debt`); every release changes all of its months",
            "não é a dívida em si (`household-debt`); cada divulgação altera todos os meses",
        ),
        evidence: &[
            "dataset 29034-comprometimento-de-renda-das-familias-com-o-servico-da-divida-com-o-sistema-financeiro-nacion",
        ],
        shape: Shape::Reestimated,
        starts_on: day(2005, 3, 1),
        plausible: plausible(5, 70, "at most 30.2% so far"),
        ..OF_HOUSEHOLD_INCOME
    },
];
