//! The units of series: a stable code and a localized text.

use crate::lang::{Lang, LocalizedText};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    PercentPerYear,
    PercentPerMonth,
    PercentPerDay,
    PercentInTwelveMonths,
    PercentSinceJanuary,
    BrlPerUsd,
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
            Self::BrlPerUsd => "brl_per_usd",
        }
    }

    pub const fn text(self) -> LocalizedText {
        match self {
            Self::PercentPerYear => LocalizedText::new("% p.a.", "% a.a."),
            Self::PercentPerMonth => LocalizedText::new("% per month", "% ao mês"),
            Self::PercentPerDay => LocalizedText::new("% per day", "% ao dia"),
            Self::PercentInTwelveMonths => LocalizedText::new("% in 12 months", "% em 12 meses"),
            Self::PercentSinceJanuary => LocalizedText::new("% year to date", "% no ano"),
            Self::BrlPerUsd => LocalizedText::new("BRL per USD", "BRL por USD"),
        }
    }

    pub const fn in_lang(self, lang: Lang) -> &'static str {
        self.text().in_lang(lang)
    }
}
