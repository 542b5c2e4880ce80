//! Reserves, the balance of payments and the real exchange rate.

use crate::series::base::{MONTHLY, SOME_DAYS_LATER, day, plausible, release, text};
use crate::series::{Frequency, License, Release, Series, SeriesGroup, Shape};
use crate::unit::Unit;

const EXTERNAL: Series = Series { group: SeriesGroup::External, unit: Unit::UsdMillion, ..MONTHLY };

/// A monthly flow of the balance of payments, of either sign. Recent years are estimated again at each release.
const FLOW: Series = Series {
    release: release(1, 25, (8, 30), 20),
    shape: Shape::Reestimated,
    starts_on: day(1995, 1, 1),
    decimals: 1,
    ..EXTERNAL
};

const RESERVES: Series = Series {
    decimals: 0,
    plausible: plausible(
        200,
        1_500_000,
        "28,265 in June 2000; at most 390,500 (daily) and 388,092 (monthly) in June 2019",
    ),
    ..EXTERNAL
};

pub static SERIES: [Series; 6] = [
    Series {
        id: "reserves-daily",
        sgs_code: Some(13621),
        name: text("International reserves, daily", "Reservas internacionais, diárias"),
        tags: &["reservas", "dollar", "dólar"],
        basis: text("stock of the day, cash concept", "estoque do dia, conceito caixa"),
        is_not: text(
            "not the liquidity concept (13982), which has differed since November 2024",
            "não é o conceito de liquidez (13982), que é diferente desde novembro de 2024",
        ),
        evidence: &["dataset 13621-reservas-internacionais---conceito-caixa---total---diaria"],
        frequency: Frequency::BusinessDaily,
        release: Release::Daily(SOME_DAYS_LATER),
        starts_on: day(1998, 9, 1),
        ..RESERVES
    },
    Series {
        id: "reserves",
        sgs_code: Some(3546),
        name: text("International reserves, monthly", "Reservas internacionais, mensais"),
        tags: &["reservas", "dollar", "dólar"],
        basis: text("stock at the end of the month", "estoque no fim do mês"),
        is_not: text(
            "not an average; it equals the last day of `reserves-daily` in nearly all months",
            "não é uma média; é igual ao último dia de `reserves-daily` em quase todos os meses",
        ),
        license: License::Undeclared,
        evidence: &[
            "cafla19791-tech/SEC--data-analysys",
            "three public files that quote SGS's name \"Reservas internacionais - Total - mensal\"",
        ],
        release: release(1, 5, (9, 0), 10),
        starts_on: day(1970, 12, 1),
        ..RESERVES
    },
    Series {
        id: "current-account",
        sgs_code: Some(22701),
        name: text("Current account, monthly balance", "Transações correntes, saldo mensal"),
        tags: &["balance of payments", "balanço de pagamentos"],
        basis: text("balance of the month; minus is a deficit", "saldo do mês; negativo é déficit"),
        is_not: text("not the trade balance (`trade-balance`)", "não é a balança comercial (`trade-balance`)"),
        evidence: &["dataset 22701-transacoes-correntes---mensal---saldo"],
        plausible: plausible(-60_000, 60_000, "between -14,126 and 3,403 so far"),
        ..FLOW
    },
    Series {
        id: "trade-balance",
        sgs_code: Some(22707),
        name: text(
            "Trade balance, monthly (balance of payments)",
            "Balança comercial, saldo mensal (balanço de pagamentos)",
        ),
        tags: &["exports", "imports", "exportações", "importações"],
        basis: text("balance of goods of the month; minus is a deficit", "saldo de bens do mês; negativo é déficit"),
        is_not: text(
            "not the customs-based balance of the trade ministry, and not the current account (`current-account`)",
            "não é o saldo do comércio exterior da Secex nem as transações correntes (`current-account`)",
        ),
        evidence: &["dataset 22707-balanca-comercial---balanco-de-pagamentos---mensal---saldo"],
        plausible: plausible(-40_000, 60_000, "between -4,184 and 10,265 so far"),
        ..FLOW
    },
    Series {
        id: "fdi",
        sgs_code: Some(22885),
        name: text("Foreign direct investment, monthly, net", "Investimentos diretos no país, mensal, líquido"),
        tags: &["investment", "IDP", "investimento estrangeiro"],
        basis: text("net inflow of the month", "ingresso líquido do mês"),
        is_not: text("can be negative; heavily revised", "pode ser negativo; sofre grandes revisões"),
        evidence: &["dataset 22885-investimentos-diretos-no-pais---idp---mensal---liquido"],
        plausible: plausible(-60_000, 80_000, "between -5,248 and some 20,000 so far"),
        ..FLOW
    },
    Series {
        id: "reer",
        sgs_code: Some(11752),
        name: text("Real effective exchange rate (IPCA)", "Câmbio real efetivo (IPCA)"),
        tags: &["exchange rate", "câmbio", "competitiveness"],
        unit: Unit::Index,
        basis: text(
            "June 1994 = 100; a rise means a weaker real",
            "junho de 1994 = 100; alta significa real mais fraco",
        ),
        is_not: text(
            "not in dollars per real: a higher index means that the real is worth less",
            "não é em dólares por real: índice maior significa real mais desvalorizado",
        ),
        license: License::Undeclared,
        evidence: &["rteoo/bcbpy", "SGS's own list of names, saved in viniciusoike/realestatebr"],
        release: release(2, 15, (9, 0), 30),
        shape: Shape::Reestimated,
        starts_on: day(1988, 1, 1),
        plausible: plausible(20, 500, "100 in June 1994 by definition"),
        ..EXTERNAL
    },
];
