//! The units of series: a stable code and a localized text.

use crate::lang::{Lang, LocalizedText};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    PercentPerYear,
    PercentPerMonth,
    PercentPerDay,
    PercentInTwelveMonths,
    PercentSinceJanuary,
    /// From the date of a row until the end of its period.
    PercentInPeriod,
    Percent,
    PercentOfGdp,
    PercentOfIncome,
    PercentOfPortfolio,
    /// The basis of the series says what is 100.
    Index,
    Jobs,
    Brl,
    BrlThousand,
    BrlMillion,
    UsdMillion,
    BrlPerUsd,
    BrlPerEur,
}

impl Unit {
    /// Stable, and the same in every language.
    pub const fn code(self) -> &'static str {
        match self {
            Self::PercentPerYear => "percent_per_year",
            Self::PercentPerMonth => "percent_per_month",
            Self::PercentPerDay => "percent_per_day",
            Self::PercentInTwelveMonths => "percent_in_12_months",
            Self::PercentSinceJanuary => "percent_since_january",
            Self::PercentInPeriod => "percent_in_period",
            Self::Percent => "percent",
            Self::PercentOfGdp => "percent_of_gdp",
            Self::PercentOfIncome => "percent_of_income",
            Self::PercentOfPortfolio => "percent_of_portfolio",
            Self::Index => "index",
            Self::Jobs => "jobs",
            Self::Brl => "brl",
            Self::BrlThousand => "brl_thousand",
            Self::BrlMillion => "brl_million",
            Self::UsdMillion => "usd_million",
            Self::BrlPerUsd => "brl_per_usd",
            Self::BrlPerEur => "brl_per_eur",
        }
    }

    pub const fn text(self) -> LocalizedText {
        match self {
            Self::PercentPerYear => LocalizedText::new("% p.a.", "% a.a."),
            Self::PercentPerMonth => LocalizedText::new("% per month", "% ao mês"),
            Self::PercentPerDay => LocalizedText::new("% per day", "% ao dia"),
            Self::PercentInTwelveMonths => LocalizedText::new("% in 12 months", "% em 12 meses"),
            Self::PercentSinceJanuary => LocalizedText::new("% year to date", "% no ano"),
            Self::PercentInPeriod => LocalizedText::new("% in the period", "% no período"),
            Self::Percent => LocalizedText::new("%", "%"),
            Self::PercentOfGdp => LocalizedText::new("% of GDP", "% do PIB"),
            Self::PercentOfIncome => LocalizedText::new("% of income", "% da renda"),
            Self::PercentOfPortfolio => LocalizedText::new("% of loans", "% da carteira"),
            Self::Index => LocalizedText::new("index", "índice"),
            Self::Jobs => LocalizedText::new("jobs", "empregos"),
            Self::Brl => LocalizedText::new("BRL", "R$"),
            Self::BrlThousand => LocalizedText::new("BRL thousand", "R$ mil"),
            Self::BrlMillion => LocalizedText::new("BRL million", "R$ milhões"),
            Self::UsdMillion => LocalizedText::new("USD million", "US$ milhões"),
            Self::BrlPerUsd => LocalizedText::new("BRL per USD", "BRL por USD"),
            Self::BrlPerEur => LocalizedText::new("BRL per EUR", "BRL por EUR"),
        }
    }

    pub const fn in_lang(self, lang: Lang) -> &'static str {
        self.text().in_lang(lang)
    }

    /// Whether values are amounts in reais. Amounts from before the real are in another currency.
    pub const fn is_in_reais(self) -> bool {
        matches!(self, Self::Brl | Self::BrlThousand | Self::BrlMillion)
    }

    /// Whether a difference of values is given in percentage points.
    pub const fn is_percentage(self) -> bool {
        !matches!(
            self,
            Self::Index
                | Self::Jobs
                | Self::Brl
                | Self::BrlThousand
                | Self::BrlMillion
                | Self::UsdMillion
                | Self::BrlPerUsd
        )
    }
}
