//! Money supply.

use crate::series::base::{MONTHLY, day, plausible, text};
use crate::series::{License, Series, SeriesGroup};
use crate::unit::Unit;

const MONEY: Series = Series {
    group: SeriesGroup::Money,
    unit: Unit::BrlThousand,
    basis: text("balance at the end of the month", "saldo no fim do mês"),
    starts_on: day(2001, 12, 1),
    decimals: 0,
    plausible: plausible(10_000_000, 250_000_000_000, "M1 was at least 75 billion reais, and M4 15.8 trillion in 2026"),
    tags: &["money supply", "meios de pagamento", "liquidez"],
    ..MONTHLY
};

pub static SERIES: [Series; 5] = [
    Series {
        id: "monetary-base",
        sgs_code: Some(1788),
        name: text("Monetary base", "Base monetária restrita"),
        tags: &["M0", "base monetária"],
        is_not: text(
            "thousands of reais, not millions; not the extended base (1833)",
            "em milhares de reais, não em milhões; não é a base ampliada (1833)",
        ),
        evidence: &[
            "dataset 1788-sgs, \"Base monetária restrita (saldo em final de período)\" in SidneyBissoli/bcb-br-mcp, 12f6c4ed",
        ],
        starts_on: day(1994, 7, 1),
        plausible: plausible(1_000_000, 10_000_000_000, "432,655,492 in August 2026"),
        ..MONEY
    },
    Series {
        id: "m1",
        sgs_code: Some(27791),
        name: text("Money supply M1", "Meios de pagamento M1"),
        is_not: text(
            "thousands of reais, not millions; not comparable with the series discontinued in 2018",
            "em milhares de reais, não em milhões; não é comparável à série encerrada em 2018",
        ),
        evidence: &[
            "dataset of series 27791, \"M1 (saldo em final de período) - Novo\", in SidneyBissoli/bcb-br-mcp, 12f6c4ed",
        ],
        starts_on: day(2002, 1, 1),
        ..MONEY
    },
    Series {
        id: "m2",
        sgs_code: Some(27810),
        name: text("Money supply M2", "Meios de pagamento M2"),
        is_not: text(
            "thousands of reais, not millions; includes M1 (`m1`)",
            "em milhares de reais, não em milhões; inclui o M1 (`m1`)",
        ),
        license: License::Undeclared,
        evidence: &["cafla19791-tech/SEC--data-analysys", "two more public scripts that call it M2"],
        ..MONEY
    },
    Series {
        id: "m3",
        sgs_code: Some(27813),
        name: text("Money supply M3", "Meios de pagamento M3"),
        is_not: text(
            "thousands of reais, not millions; includes M2 (`m2`)",
            "em milhares de reais, não em milhões; inclui o M2 (`m2`)",
        ),
        license: License::Undeclared,
        evidence: &["cafla19791-tech/SEC--data-analysys", "a public index of macro series that calls it M3"],
        ..MONEY
    },
    Series {
        id: "m4",
        sgs_code: Some(27815),
        name: text("Money supply M4", "Meios de pagamento M4"),
        is_not: text(
            "thousands of reais, not millions; includes M3 (`m3`)",
            "em milhares de reais, não em milhões; inclui o M3 (`m3`)",
        ),
        evidence: &["dataset 27815-sgs, \"Meios de pagamento amplos - M4\" in SidneyBissoli/bcb-br-mcp, 12f6c4ed"],
        ..MONEY
    },
];
