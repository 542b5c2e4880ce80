//! The features that plans differ in, and how the plan list and the pricing page describe them.

use crate::lang::LocalizedText;
use crate::plan::PlanConfig;

/// The feature that a route belongs to, as the plan list and the pricing page show it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Feature {
    /// Open to everybody and not a reason to choose a plan: pages, plans, health.
    Service,
    Market,
    Calendar,
    Companies,
    Search,
    Filings,
    History,
    Export,
    Csv,
    Events,
    Webhooks,
    /// Priority support. It has no route; the operator offers it.
    Support,
}

impl Feature {
    /// In display order.
    const ALL: [Self; 11] = [
        Self::Market,
        Self::Calendar,
        Self::Companies,
        Self::Search,
        Self::Filings,
        Self::History,
        Self::Export,
        Self::Csv,
        Self::Events,
        Self::Webhooks,
        Self::Support,
    ];

    /// The features that this installation offers. Others are not listed.
    pub fn available(config: &PlanConfig) -> impl Iterator<Item = Self> {
        let priority_support = config.priority_support;
        Self::ALL.into_iter().filter(move |feature| *feature != Self::Support || priority_support)
    }

    pub const fn description(self) -> LocalizedText {
        match self {
            Self::Service => LocalizedText::new("Plans, status and documentation", "Planos, situação e documentação"),
            Self::Market => LocalizedText::new(
                "Market data with its whole history, also accumulated: Selic, CDI, IPCA, exchange rates",
                "Dados de mercado com todo o histórico, também acumulados: Selic, CDI, IPCA e câmbio",
            ),
            Self::Calendar => {
                LocalizedText::new("Business days of banks and of the exchange", "Dias úteis dos bancos e da bolsa")
            }
            Self::Companies => LocalizedText::new(
                "Companies: list, filters, search and look-up by code, CNPJ or ticker",
                "Companhias: lista, filtros, busca e consulta por código, CNPJ ou ticker",
            ),
            Self::Search => {
                LocalizedText::new("One search over companies and filings", "Uma só busca em companhias e documentos")
            }
            Self::Filings => LocalizedText::new(
                "Filings since 2003: list, filters, full-text search, by company",
                "Documentos desde 2003: lista, filtros, busca textual, por companhia",
            ),
            Self::History => LocalizedText::new(
                "Historical data: what could be known on a day (as_of), revisions, versions of filings",
                "Dados históricos: o que se podia saber em um dia (as_of), revisões, versões de documentos",
            ),
            Self::Export => LocalizedText::new(
                "Bulk export: every dataset as a file, in CSV, NDJSON and Parquet",
                "Exportação em massa: cada conjunto de dados como arquivo, em CSV, NDJSON e Parquet",
            ),
            Self::Events => LocalizedText::new(
                "Events: what is new, in order, to be read on from where one was",
                "Eventos: o que é novo, em ordem, para continuar de onde se parou",
            ),
            Self::Webhooks => LocalizedText::new(
                "Webhooks: signed, filtered, tried again for more than a day, with a log and replay",
                "Webhooks: assinados, com filtros, repetidos por mais de um dia, com registro e reenvio",
            ),
            Self::Support => LocalizedText::new("Priority support", "Suporte prioritário"),
            Self::Csv => LocalizedText::new(
                "Every list as CSV, also as Brazilian spreadsheets read it; up to 1,000,000 filings at once",
                "Todas as listas em CSV, também como as planilhas brasileiras o leem; até 1.000.000 de documentos de uma vez",
            ),
        }
    }

    pub const fn missing_description(self) -> LocalizedText {
        match self {
            Self::Service => LocalizedText::new("No service", "Sem serviço"),
            Self::Market => LocalizedText::new("No market data", "Sem dados de mercado"),
            Self::Calendar => LocalizedText::new("No business days", "Sem dias úteis"),
            Self::Companies => LocalizedText::new("No companies", "Sem companhias"),
            Self::Search => LocalizedText::new("No search", "Sem busca"),
            Self::Filings => LocalizedText::new("No filings", "Sem documentos"),
            Self::History => LocalizedText::new("No historical data", "Sem dados históricos"),
            Self::Export => LocalizedText::new("No bulk export", "Sem exportação em massa"),
            Self::Csv => LocalizedText::new("No CSV of lists", "Sem CSV das listas"),
            Self::Events => LocalizedText::new("No events", "Sem eventos"),
            Self::Webhooks => LocalizedText::new("No webhooks", "Sem webhooks"),
            Self::Support => LocalizedText::new("No priority support", "Sem suporte prioritário"),
        }
    }
}
