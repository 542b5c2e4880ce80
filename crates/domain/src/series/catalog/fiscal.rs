//! Public debt, and the deficit of the public sector. All of them move when the GDP is revised.

use crate::series::base::{MONTHLY, day, plausible, text};
use crate::series::{Series, SeriesGroup, Shape};
use crate::unit::Unit;

const FISCAL: Series =
    Series { group: SeriesGroup::Fiscal, unit: Unit::PercentOfGdp, shape: Shape::Reestimated, ..MONTHLY };

pub static SERIES: [Series; 4] = [
    Series {
        id: "net-debt",
        sgs_code: Some(4513),
        name: text("Net public debt", "Dívida líquida do setor público"),
        tags: &["DLSP", "public debt", "dívida pública"],
        basis: text("consolidated public sector, end of the month", "setor público consolidado, fim do mês"),
        is_not: text("not the gross debt (`gross-debt`)", "não é a dívida bruta (`gross-debt`)"),
        evidence: &["dataset 4513-divida-liquida-do-setor-publico--pib---total---setor-publico-consolidado"],
        starts_on: day(2001, 12, 1),
        plausible: plausible(5, 200, "between 30% in 2014 and 68% in 2026"),
        ..FISCAL
    },
    Series {
        id: "gross-debt",
        sgs_code: Some(13762),
        name: text("Gross general government debt", "Dívida bruta do governo geral"),
        tags: &["DBGG", "public debt", "dívida pública"],
        basis: text(
            "general government, method in use since 2008, end of the month",
            "governo geral, metodologia usada desde 2008, fim do mês",
        ),
        is_not: text(
            "not the net debt (`net-debt`), and not the method used until 2007 (4537)",
            "não é a dívida líquida (`net-debt`) nem a metodologia usada até 2007 (4537)",
        ),
        evidence: &["dataset 13762-divida-bruta-do-governo-geral--pib---metodologia-utilizada-a-partir-de-2008"],
        starts_on: day(2006, 12, 1),
        plausible: plausible(20, 250, "between 51% in 2013 and 87% in 2020"),
        ..FISCAL
    },
    Series {
        id: "primary-balance",
        sgs_code: Some(5793),
        name: text("Primary deficit, 12 months (plus = deficit)", "Déficit primário em 12 meses (positivo = déficit)"),
        tags: &["NFSP", "deficit", "primary balance", "resultado primário"],
        basis: text(
            "borrowing requirement of the consolidated public sector without interest; plus is a deficit",
            "necessidade de financiamento do setor público consolidado, sem juros; positivo é déficit",
        ),
        is_not: text(
            "plus is a deficit, minus a surplus; not the central government alone",
            "positivo é déficit, negativo é superávit; não é só o governo central",
        ),
        evidence: &[
            "dataset 5793-nfsp-sem-desvalorizacao-cambial--pib---fluxo-acumulado-em-12-meses---resultado-primario---tota",
        ],
        starts_on: day(2002, 11, 1),
        plausible: plausible(-15, 25, "between -4.08% in 2005 and 9.24% in 2020"),
        ..FISCAL
    },
    Series {
        id: "nominal-balance",
        sgs_code: Some(5727),
        name: text("Nominal deficit, 12 months (plus = deficit)", "Déficit nominal em 12 meses (positivo = déficit)"),
        tags: &["NFSP", "deficit", "nominal balance", "resultado nominal"],
        basis: text(
            "borrowing requirement of the consolidated public sector with interest; plus is a deficit",
            "necessidade de financiamento do setor público consolidado, com juros; positivo é déficit",
        ),
        is_not: text(
            "plus is a deficit; includes interest, unlike `primary-balance`",
            "positivo é déficit; inclui juros, ao contrário de `primary-balance`",
        ),
        evidence: &[
            "dataset 5727-nfsp-sem-desvalorizacao-cambial--pib---fluxo-acumulado-em-12-meses---resultado-nominal---total",
        ],
        starts_on: day(2002, 11, 1),
        plausible: plausible(-10, 40, "between 1.32% in 2008 and 13.48% in 2020"),
        ..FISCAL
    },
];
