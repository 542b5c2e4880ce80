//! Cores and components of the IPCA.

use super::inflation::MONTHLY_CHANGE;
use crate::series::base::{BEFORE_THE_DAY, MONTHLY, day, plausible, release, text};
use crate::series::{Frequency, License, Publisher, Release, Series, SeriesGroup};
use crate::unit::Unit;

/// The central bank computes them from the IPCA, and publishes them a day later.
const OF_IPCA: Series = Series {
    group: SeriesGroup::InflationDetails,
    publisher: Publisher::Bcb,
    license: License::OpenDatabase,
    release: release(1, 11, (9, 0), 5),
    starts_on: day(1991, 1, 1),
    plausible: plausible(
        -8,
        75,
        "the IPCA itself reached 47% in June 1994; tax cuts on energy lowered administered prices by 4% in July 2022",
    ),
    ..MONTHLY_CHANGE
};

pub static SERIES: [Series; 10] = [
    Series {
        id: "ipca-core-ex0",
        sgs_code: Some(11427),
        name: text("IPCA core EX0, monthly change", "IPCA, núcleo EX0, variação mensal"),
        tags: &["core inflation", "núcleo"],
        is_not: text(
            "leaves out administered prices and food at home",
            "exclui preços monitorados e alimentação no domicílio",
        ),
        evidence: &[
            "dataset 11427-indice-nacional-de-precos-ao-consumidor---amplo-ipca---nucleo-por-exclusao---sem-monitorados-",
        ],
        starts_on: day(1996, 1, 1),
        ..OF_IPCA
    },
    Series {
        id: "ipca-core-ex1",
        sgs_code: Some(16121),
        name: text("IPCA core EX1, monthly change", "IPCA, núcleo EX1, variação mensal"),
        tags: &["core inflation", "núcleo"],
        is_not: text(
            "leaves out most food at home and fuels; the portal's title still says \"ex2\"",
            "exclui a maior parte da alimentação no domicílio e os combustíveis; o título no portal ainda diz \"ex2\"",
        ),
        evidence: &["dataset 16121-indice-nacional-de-precos-ao-consumidor---amplo-ipca---nucleo-por-exclusao---ex2"],
        ..OF_IPCA
    },
    Series {
        id: "ipca-core-ex3",
        sgs_code: Some(27839),
        name: text("IPCA core EX3, monthly change", "IPCA, núcleo EX3, variação mensal"),
        tags: &["core inflation", "núcleo", "underlying services", "serviços subjacentes"],
        is_not: text(
            "only underlying services and underlying industrial goods",
            "apenas serviços subjacentes e bens industriais subjacentes",
        ),
        license: License::Undeclared,
        evidence: &[
            "PythonicCafe/mercados",
            "nelson16silva/wavcoreinf",
            "MagnumJulio/python_tools, rebuilt from IBGE's items",
        ],
        starts_on: day(2006, 7, 1),
        ..OF_IPCA
    },
    Series {
        id: "ipca-core-ma",
        sgs_code: Some(11426),
        name: text("IPCA core MA, monthly change", "IPCA, núcleo MA, variação mensal"),
        tags: &["core inflation", "núcleo", "trimmed means", "médias aparadas"],
        is_not: text(
            "trimmed means without smoothing; the smoothed version is `ipca-core-ms`",
            "médias aparadas sem suavização; a versão suavizada é `ipca-core-ms`",
        ),
        evidence: &[
            "dataset 11426-indice-nacional-de-precos-ao-consumidor---amplo-ipca---nucleo-medias-aparadas-sem-suavizacao",
        ],
        starts_on: day(2001, 1, 1),
        ..OF_IPCA
    },
    Series {
        id: "ipca-core-ms",
        sgs_code: Some(4466),
        name: text("IPCA core MS, monthly change", "IPCA, núcleo MS, variação mensal"),
        tags: &["core inflation", "núcleo", "trimmed means", "médias aparadas"],
        is_not: text(
            "trimmed means; spreads the changes of rarely adjusted items over twelve months, unlike `ipca-core-ma`",
            "médias aparadas; dilui em doze meses os itens de reajuste pouco frequente, ao contrário de `ipca-core-ma`",
        ),
        evidence: &[
            "dataset 4466-indice-nacional-de-precos-ao-consumidor-amplo-ipca---nucleo-medias-aparadas-com-suavizacao",
        ],
        starts_on: day(1996, 1, 1),
        ..OF_IPCA
    },
    Series {
        id: "ipca-core-dp",
        sgs_code: Some(16122),
        name: text("IPCA core DP, monthly change", "IPCA, núcleo DP, variação mensal"),
        tags: &["core inflation", "núcleo", "double weighting", "dupla ponderação"],
        is_not: text(
            "weights items by their share and by how little they fluctuate",
            "pondera os itens pelo peso no IPCA e também pela menor volatilidade",
        ),
        evidence: &["dataset 16122-indice-nacional-de-precos-ao-consumidor---amplo-ipca---nucleo-de-dupla-ponderacao"],
        starts_on: day(1995, 1, 1),
        ..OF_IPCA
    },
    Series {
        id: "ipca-administered",
        sgs_code: Some(4449),
        name: text("IPCA, administered prices, monthly change", "IPCA, preços monitorados, variação mensal"),
        tags: &["monitored prices", "energia", "combustíveis"],
        is_not: text(
            "only prices set by contract or by public authorities",
            "apenas preços definidos por contrato ou por órgão público",
        ),
        evidence: &["dataset 4449-indice-nacional-de-precos-ao-consumidor-amplo-ipca---precos-monitorados---total"],
        ..OF_IPCA
    },
    Series {
        id: "ipca-free",
        sgs_code: Some(11428),
        name: text("IPCA, free prices, monthly change", "IPCA, preços livres, variação mensal"),
        tags: &["market prices", "itens livres"],
        is_not: text(
            "all prices except the administered ones (`ipca-administered`)",
            "todos os preços, menos os monitorados (`ipca-administered`)",
        ),
        evidence: &["dataset 11428-indice-nacional-de-precos-ao-consumidor---amplo-ipca---itens-livres"],
        ..OF_IPCA
    },
    Series {
        id: "ipca-services",
        sgs_code: Some(10844),
        name: text("IPCA, services, monthly change", "IPCA, serviços, variação mensal"),
        tags: &["services", "serviços"],
        is_not: text(
            "not the underlying services of core EX3 (`ipca-core-ex3`)",
            "não são os serviços subjacentes do núcleo EX3 (`ipca-core-ex3`)",
        ),
        evidence: &["dataset 10844-indice-de-precos-ao-consumidor-amplo-ipca---servicos"],
        ..OF_IPCA
    },
    Series {
        id: "inflation-target",
        sgs_code: Some(13521),
        name: text("Inflation target", "Meta para a inflação"),
        tags: &["CMN", "IPCA"],
        unit: Unit::PercentPerYear,
        basis: text("center of the target for the year", "centro da meta para o ano"),
        is_not: text("not the tolerance interval around it", "não é o intervalo de tolerância em torno dela"),
        publisher: Publisher::Cmn,
        license: License::Undeclared,
        evidence: &["investash/dados-economicos", "PythonicCafe/mercados"],
        group: SeriesGroup::InflationDetails,
        frequency: Frequency::Annual,
        release: Release::InAdvance(BEFORE_THE_DAY),
        starts_on: day(1999, 1, 1),
        plausible: plausible(0, 15, "between 3% and 8% so far"),
        ..MONTHLY
    },
];
