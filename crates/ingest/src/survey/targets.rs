//! What a survey asks for: something of every decade of every series and currency, and every year of filings.

use chrono::{Datelike, Days, NaiveDate};
use vintem_domain::dates::DateRange;
use vintem_domain::series::{Frequency, cross_check_series, published_series};
use vintem_domain::{Currency, CvmDataset, Series};

use crate::source::{DataSource, FIRST_BULLETIN_DATE, SourcePart, Upstream};

/// One request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SurveyTarget {
    SeriesWindow(&'static Series, DateRange),
    CurrencyYear(Currency, i32),
    Registry,
    FilingYear(i32),
}

impl SurveyTarget {
    pub fn source(self) -> DataSource {
        match self {
            Self::SeriesWindow(series, _) => DataSource::Series(series),
            Self::CurrencyYear(..) => DataSource::Fx,
            Self::Registry => DataSource::Companies,
            Self::FilingYear(_) => DataSource::Filings(CvmDataset::Ipe),
        }
    }

    /// `cdi 2015-06-01..2015-06-30`, `fx USD-2019`, `ipe 2014`
    pub fn name(self) -> String {
        let source = self.source().id();
        match self {
            Self::SeriesWindow(_, window) => format!("{source} {}..{}", window.from, window.to),
            Self::CurrencyYear(currency, year) => format!("{source} {}-{year}", currency.code()),
            Self::Registry => source.to_owned(),
            Self::FilingYear(year) => format!("{source} {year}"),
        }
    }
}

/// All targets of a host, in the order in which they are asked for.
pub fn survey_targets(upstream: Upstream, today: NaiveDate) -> Vec<SurveyTarget> {
    match upstream {
        Upstream::Sgs => {
            published_series().chain(cross_check_series()).flat_map(|s| series_windows(s, today)).collect()
        }
        Upstream::Ptax => Currency::ALL.into_iter().flat_map(|currency| currency_years(currency, today)).collect(),
        Upstream::Cvm => {
            let years = DataSource::Filings(CvmDataset::Ipe).parts(today).into_iter().filter_map(|part| match part {
                SourcePart::FilingYear(_, year) => Some(SurveyTarget::FilingYear(year)),
                _ => None,
            });
            std::iter::once(SurveyTarget::Registry).chain(years).collect()
        }
    }
}

/// A window of each decade since the series began: the first days of its middle, and the last days until today.
fn series_windows(series: &'static Series, today: NaiveDate) -> impl Iterator<Item = SurveyTarget> {
    let span = Days::new(match series.frequency {
        Frequency::Daily | Frequency::BusinessDaily | Frequency::Anniversaries => 30,
        Frequency::Weekly(_) => 60,
        Frequency::Monthly => 365,
        Frequency::Quarterly => 2 * 365,
        Frequency::Annual => 5 * 365,
    });
    let starts_on = series.starts_on.max(series.served_since());
    let decades = (starts_on.year() / 10..=today.year() / 10).map(|decade| decade * 10);
    decades.filter_map(move |decade| {
        let is_current = decade == today.year() / 10 * 10;
        let from = if is_current { today - span } else { NaiveDate::from_ymd_opt(decade + 5, 1, 2)?.max(starts_on) };
        let window = DateRange { from: from.max(starts_on), to: (from + span).min(today) };
        (window.from <= window.to).then_some(SurveyTarget::SeriesWindow(series, window))
    })
}

/// The last year of each decade with bulletins.
fn currency_years(currency: Currency, today: NaiveDate) -> impl Iterator<Item = SurveyTarget> {
    let first_year = if currency == Currency::Eur { 1999 } else { FIRST_BULLETIN_DATE.year() };
    let decades = first_year / 10..=today.year() / 10;
    decades.map(move |decade| SurveyTarget::CurrencyYear(currency, (decade * 10 + 9).min(today.year())))
}

#[cfg(test)]
mod tests {
    use vintem_domain::series::find_series;

    use super::*;

    fn names(targets: impl Iterator<Item = SurveyTarget>) -> Vec<String> {
        targets.map(SurveyTarget::name).collect()
    }

    #[test]
    fn every_decade_is_asked_for() {
        let today = "2026-11-19".parse().unwrap();
        assert_eq!(
            names(series_windows(find_series("cdi").unwrap(), today)),
            [
                "cdi 1986-03-06..1986-04-05",
                "cdi 1995-01-02..1995-02-01",
                "cdi 2005-01-02..2005-02-01",
                "cdi 2015-01-02..2015-02-01",
                "cdi 2026-10-20..2026-11-19",
            ]
        );
        assert_eq!(
            names(currency_years(Currency::Eur, today)),
            ["fx EUR-1999", "fx EUR-2009", "fx EUR-2019", "fx EUR-2026"]
        );
        let cvm = survey_targets(Upstream::Cvm, today);
        assert_eq!((cvm.len(), cvm[0], cvm[24].name().as_str()), (25, SurveyTarget::Registry, "ipe 2003"));
    }
}
