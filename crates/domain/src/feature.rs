//! The features that plans differ in, and how the plan list and the pricing page describe them.

use crate::lang::LocalizedText;
use crate::plan::PlanConfig;

/// The feature that a route belongs to, as the plan list and the pricing page show it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Feature {
    /// Open to everyone and not listed as a feature of any plan: pages, plans, health.
    Service,
    Market,
    Calendar,
    Companies,
    Search,
    Filings,
    Statements,
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
    const ALL: [Self; 12] = [
        Self::Market,
        Self::Calendar,
        Self::Companies,
        Self::Search,
        Self::Filings,
        Self::Statements,
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
            Self::Service => LocalizedText::new("Plans, status and documentation", "Planos, status e documentação"),
            Self::Market => LocalizedText::new(
                "Market data with full history and accumulated rates: Selic, CDI, IPCA, exchange rates",
                "Dados de mercado com histórico completo e taxas acumuladas: Selic, CDI, IPCA e câmbio",
            ),
            Self::Calendar => LocalizedText::new(
                "Business days and holidays of banks and the exchange (B3)",
                "Dias úteis e feriados dos bancos e da bolsa (B3)",
            ),
            Self::Companies => LocalizedText::new(
                "Companies: list, filters, search and lookup by CVM code, CNPJ or ticker",
                "Companhias: lista, filtros, busca e consulta por código CVM, CNPJ ou ticker",
            ),
            Self::Search => {
                LocalizedText::new("Search across companies and filings", "Busca unificada em companhias e documentos")
            }
            Self::Filings => LocalizedText::new(
                "Filings since 2003: list, filters, full-text search and filings by company",
                "Documentos desde 2003: lista, filtros, busca textual e consulta por companhia",
            ),
            Self::Statements => LocalizedText::new(
                "Financial statements as filed, in every archived version: balance sheets, income statements and cash flows",
                "Demonstrações financeiras como entregues, em todas as versões arquivadas: balanços, resultados e fluxos de caixa",
            ),
            Self::History => LocalizedText::new(
                "Historical data: values as known on a past date (as_of), revisions and filing versions",
                "Dados históricos: valores conhecidos em uma data passada (as_of), revisões e versões de documentos",
            ),
            Self::Export => LocalizedText::new(
                "Bulk export: every dataset as CSV, NDJSON and Parquet files",
                "Exportação em massa: todos os conjuntos de dados em arquivos CSV, NDJSON e Parquet",
            ),
            Self::Events => LocalizedText::new(
                "Events: an ordered feed with a resumable cursor",
                "Eventos: um feed ordenado, com cursor para continuar de onde você parou",
            ),
            Self::Webhooks => LocalizedText::new(
                "Webhooks: signed and filtered, with retries for more than a day, a delivery log and replay",
                "Webhooks: assinados, com filtros, novas tentativas por mais de um dia, registro de entregas e reenvio",
            ),
            Self::Support => LocalizedText::new("Priority support", "Suporte prioritário"),
            Self::Csv => LocalizedText::new(
                "CSV output for every list, with an option for Brazilian spreadsheets; up to 1,000,000 filings per request",
                "Todas as listas em CSV, com opção para planilhas brasileiras; até 1.000.000 de documentos por requisição",
            ),
        }
    }

    pub const fn missing_description(self) -> LocalizedText {
        match self {
            Self::Service => LocalizedText::new("No service", "Sem serviço"),
            Self::Market => LocalizedText::new("No market data", "Sem dados de mercado"),
            Self::Calendar => LocalizedText::new("No business-day calendar", "Sem calendário de dias úteis"),
            Self::Companies => LocalizedText::new("No companies", "Sem companhias"),
            Self::Search => LocalizedText::new("No search", "Sem busca"),
            Self::Filings => LocalizedText::new("No filings", "Sem documentos"),
            Self::Statements => LocalizedText::new("No financial statements", "Sem demonstrações financeiras"),
            Self::History => LocalizedText::new("No historical data", "Sem dados históricos"),
            Self::Export => LocalizedText::new("No bulk export", "Sem exportação em massa"),
            Self::Csv => LocalizedText::new("No CSV output", "Sem CSV"),
            Self::Events => LocalizedText::new("No events", "Sem eventos"),
            Self::Webhooks => LocalizedText::new("No webhooks", "Sem webhooks"),
            Self::Support => LocalizedText::new("No priority support", "Sem suporte prioritário"),
        }
    }
}
