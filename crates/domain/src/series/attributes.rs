//! What else an entry of the table says about a series: its group, its publisher, and under which terms it is released.

use crate::lang::LocalizedText;

/// The subject of a series. The catalog and the pages list series by group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SeriesGroup {
    Interest,
    Savings,
    Inflation,
    InflationDetails,
    Activity,
    Credit,
    External,
    Money,
    Fiscal,
    ExchangeRates,
}

impl SeriesGroup {
    pub const ALL: [Self; 10] = [
        Self::Interest,
        Self::Savings,
        Self::Inflation,
        Self::InflationDetails,
        Self::Activity,
        Self::Credit,
        Self::External,
        Self::Money,
        Self::Fiscal,
        Self::ExchangeRates,
    ];

    pub const fn id(self) -> &'static str {
        match self {
            Self::Interest => "interest",
            Self::Savings => "savings",
            Self::Inflation => "inflation",
            Self::InflationDetails => "inflation-details",
            Self::Activity => "activity",
            Self::Credit => "credit",
            Self::External => "external",
            Self::Money => "money",
            Self::Fiscal => "fiscal",
            Self::ExchangeRates => "exchange-rates",
        }
    }

    pub fn from_id(id: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|group| group.id() == id)
    }

    pub const fn name(self) -> LocalizedText {
        match self {
            Self::Interest => LocalizedText::new("Interest rates", "Juros"),
            Self::Savings => LocalizedText::new("TR and savings accounts", "TR e poupança"),
            Self::Inflation => LocalizedText::new("Inflation and price indices", "Inflação e índices de preços"),
            Self::InflationDetails => {
                LocalizedText::new("IPCA: cores, components and target", "IPCA: núcleos, componentes e meta")
            }
            Self::Activity => LocalizedText::new("Activity and jobs", "Atividade e emprego"),
            Self::Credit => LocalizedText::new("Credit", "Crédito"),
            Self::External => LocalizedText::new("External sector", "Setor externo"),
            Self::Money => LocalizedText::new("Money supply", "Moeda"),
            Self::Fiscal => LocalizedText::new("Public debt and deficit", "Dívida pública e resultado fiscal"),
            Self::ExchangeRates => LocalizedText::new("Exchange rates", "Câmbio"),
        }
    }
}

/// Who computes the values. The central bank redistributes those of the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Publisher {
    Bcb,
    Cmn,
    Ibge,
    Fgv,
    Fipe,
    B3,
    LaborMinistry,
    /// Computed here from published series.
    Vintem,
}

impl Publisher {
    pub const fn name(self) -> LocalizedText {
        match self {
            Self::Bcb => LocalizedText::new("Central Bank of Brazil (BCB)", "Banco Central do Brasil (BCB)"),
            Self::Cmn => LocalizedText::new("National Monetary Council (CMN)", "Conselho Monetário Nacional (CMN)"),
            Self::Ibge => LocalizedText::new("IBGE", "IBGE"),
            Self::Fgv => LocalizedText::new("FGV IBRE", "FGV IBRE"),
            Self::Fipe => LocalizedText::new("Fipe", "Fipe"),
            Self::B3 => LocalizedText::new("B3", "B3"),
            Self::LaborMinistry => {
                LocalizedText::new("Ministry of Labor (MTE)", "Ministério do Trabalho e Emprego (MTE)")
            }
            Self::Vintem => LocalizedText::new("Vintém", "Vintém"),
        }
    }
}

/// The terms under which the data may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum License {
    /// Declared by the central bank's open data portal, or by CVM's.
    OpenDatabase,
    /// The central bank's portal has no dataset of it.
    Undeclared,
    /// Computed from series with terms of their own.
    OfInputs,
}

impl License {
    /// As the catalog and exports state it.
    pub const fn id(self) -> &'static str {
        match self {
            Self::OpenDatabase => "ODbL-1.0",
            Self::Undeclared => "redistributed through SGS, no open license declared",
            Self::OfInputs => "that of the series it is computed from",
        }
    }

    pub const fn text(self) -> LocalizedText {
        match self {
            Self::OpenDatabase => {
                LocalizedText::new("Open Database License (ODbL 1.0)", "Open Database License (ODbL 1.0)")
            }
            Self::Undeclared => LocalizedText::new(
                "redistributed through SGS, no open license declared",
                "redistribuída pelo SGS, sem licença aberta declarada",
            ),
            Self::OfInputs => {
                LocalizedText::new("that of the series it is computed from", "a das séries de que é calculada")
            }
        }
    }
}
