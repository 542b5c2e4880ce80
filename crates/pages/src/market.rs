//! Market data for the pages: a series or an exchange rate, read from the snapshot.

use std::ops::Range;

use chrono::{DateTime, Days, NaiveDate, Utc};
use vintem_domain::catalog_search::{CatalogSearch, MatchRank};
use vintem_domain::dates::sao_paulo_date;
use vintem_domain::lang::Lang;
use vintem_domain::series::{self, DatedValue, FX_SCHEDULE, Frequency, Series, SeriesGroup};
use vintem_domain::{Currency, CurrencyPair, Dataset, DateRange, Decimal, Quote};
use vintem_snapshot::{LiveSnapshot, PairRates, SeriesValues, Snapshot};

use crate::chart::{SvgCurve, draw_curve, lowest_and_highest};
use crate::formatting::{format_decimal, format_period};

/// A series or an exchange rate. Its ID in URLs is that of the series, such as `selic`, or a pair such as `usd-brl`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SeriesOrRate {
    Series(&'static Series),
    ExchangeRate(Currency),
}

impl SeriesOrRate {
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        series::served_series().map(Self::Series).chain(Currency::ALL.map(Self::ExchangeRate))
    }

    pub(crate) fn from_id(id: &str) -> Option<Self> {
        Self::all().find(|subject| subject.id() == id)
    }

    pub(crate) fn id(self) -> String {
        match self {
            Self::Series(series) => series.id.to_owned(),
            Self::ExchangeRate(currency) => currency.series_id().to_owned(),
        }
    }

    pub(crate) fn name(self, lang: Lang) -> &'static str {
        match self {
            Self::Series(series) => series.name.in_lang(lang),
            Self::ExchangeRate(currency) => currency.series_name().in_lang(lang),
        }
    }

    pub(crate) fn unit(self, lang: Lang) -> String {
        match (self, lang) {
            (Self::Series(series), _) => series.unit.in_lang(lang).to_owned(),
            (Self::ExchangeRate(currency), Lang::En) => format!("BRL per {}", currency.code()),
            (Self::ExchangeRate(currency), Lang::Pt) => format!("BRL por {}", currency.code()),
        }
    }

    pub(crate) const fn frequency(self) -> Frequency {
        match self {
            Self::Series(series) => series.frequency,
            Self::ExchangeRate(_) => FX_SCHEDULE.frequency,
        }
    }

    pub(crate) const fn group(self) -> SeriesGroup {
        match self {
            Self::Series(series) => series.group,
            Self::ExchangeRate(_) => SeriesGroup::ExchangeRates,
        }
    }

    /// `None` if a search does not find it.
    pub(crate) fn rank(self, search: &CatalogSearch) -> Option<MatchRank> {
        match self {
            Self::Series(series) => search.rank_series(series),
            Self::ExchangeRate(currency) => search.rank_currency(currency),
        }
    }

    /// The datasets that it comes from; for a computed series, those of its source series.
    pub(crate) fn datasets(self) -> Vec<Dataset> {
        match self {
            Self::Series(series) => series::source_series(series).into_iter().map(Dataset::Series).collect(),
            Self::ExchangeRate(_) => vec![Dataset::Fx],
        }
    }

    /// The path of its values in the API.
    pub(crate) fn api_path(self) -> String {
        match self {
            Self::Series(series) => format!("/api/v1/market/series/{}", series.id),
            Self::ExchangeRate(currency) => format!("/api/v1/market/fx?pair={}-BRL", currency.code()),
        }
    }

    pub(crate) fn values(self, snapshot: &Snapshot) -> Option<MarketValues<'_>> {
        match self {
            Self::Series(series) => snapshot.series(series).map(MarketValues::Series),
            Self::ExchangeRate(currency) => {
                snapshot.fx().map(|fx| MarketValues::ExchangeRates(fx.pair_rates(CurrencyPair::Published(currency))))
            }
        }
    }

    /// Whether newer data is overdue.
    pub(crate) fn is_stale(self, live: &LiveSnapshot, snapshot: &Snapshot, now: DateTime<Utc>) -> bool {
        self.datasets().into_iter().any(|dataset| live.is_stale(snapshot, dataset, now))
    }
}

/// The values of a series or an exchange rate, oldest first.
pub(crate) enum MarketValues<'s> {
    Series(&'s SeriesValues),
    ExchangeRates(PairRates<'s>),
}

impl MarketValues<'_> {
    pub(crate) fn range(&self, days: DateRange) -> Range<usize> {
        match self {
            Self::Series(values) => values.range(days),
            Self::ExchangeRates(rates) => rates.range(days),
        }
    }

    /// For an exchange rate, the sell rate.
    pub(crate) fn get(&self, index: usize) -> Option<DatedValue> {
        match self {
            Self::Series(values) => Some(values.get(index)),
            Self::ExchangeRates(_) => self.quote(index).map(|(date, quote)| (date, quote.sell)),
        }
    }

    pub(crate) fn quote(&self, index: usize) -> Option<(NaiveDate, Quote)> {
        match self {
            Self::Series(_) => None,
            Self::ExchangeRates(rates) => rates.get(index),
        }
    }

    /// The last day of the period of a rate, if the series has periods.
    pub(crate) fn period_end(&self, index: usize) -> Option<NaiveDate> {
        match self {
            Self::Series(values) => values.period_end(index),
            Self::ExchangeRates(_) => None,
        }
    }

    /// The date of a value for readers, which says whether the value may still grow.
    pub(crate) fn date_label(&self, index: usize, frequency: Frequency, lang: Lang) -> String {
        let Some((date, _)) = self.get(index) else { return String::new() };
        let period = format_period(date, frequency, lang);
        let is_provisional = matches!(self, Self::Series(values) if values.is_provisional(index));
        match lang {
            _ if !is_provisional => period,
            Lang::En => format!("{period} (provisional)"),
            Lang::Pt => format!("{period} (provisório)"),
        }
    }

    pub(crate) fn points(&self, days: DateRange) -> Vec<DatedValue> {
        self.range(days).filter_map(|index| self.get(index)).collect()
    }
}

/// The newest value of a series or an exchange rate, its last change, and a curve of its last year.
pub(crate) struct Indicator {
    pub(crate) id: String,
    pub(crate) name: &'static str,
    pub(crate) value: String,
    pub(crate) unit: String,
    pub(crate) change: String,
    pub(crate) date: NaiveDate,
    pub(crate) date_label: String,
    pub(crate) stale: bool,
    pub(crate) sparkline: SvgCurve,
    /// The curve in words, for readers who cannot see it.
    pub(crate) sparkline_description: String,
}

const SPARKLINE_WIDTH: u32 = 240;
const SPARKLINE_HEIGHT: u32 = 56;

/// `None` if there is no value yet.
pub(crate) fn build_indicator(
    subject: SeriesOrRate,
    live: &LiveSnapshot,
    now: DateTime<Utc>,
    lang: Lang,
) -> Option<Indicator> {
    let snapshot = live.get()?;
    let today = sao_paulo_date(now);
    let values = subject.values(&snapshot)?;
    let newest = values.range(DateRange::ALL.capped_at(today)).next_back()?;
    let (date, value) = values.get(newest)?;
    let points = values.points(DateRange { from: date - Days::new(365), to: date });

    Some(Indicator {
        id: subject.id(),
        name: subject.name(lang),
        value: format_decimal(value, lang),
        unit: subject.unit(lang),
        change: describe_change(subject, &values, newest, lang),
        date,
        date_label: values.date_label(newest, subject.frequency(), lang),
        stale: subject.is_stale(live, &snapshot, now),
        sparkline: draw_curve(&points, SPARKLINE_WIDTH, SPARKLINE_HEIGHT),
        sparkline_description: describe_curve(subject, &points, lang),
    })
}

/// The change from the last different value: in percentage points for rates, in percent for amounts and prices. Balances,
/// which may be negative, have a difference.
fn describe_change(subject: SeriesOrRate, values: &MarketValues<'_>, newest: usize, lang: Lang) -> String {
    let Some((_, value)) = values.get(newest) else { return String::new() };
    let previous = (0..newest).rev().filter_map(|index| values.get(index)).find(|(_, earlier)| *earlier != value);
    let Some((date, before)) = previous else { return String::new() };

    let arrow = if value > before { "▲" } else { "▼" };
    let difference = match subject {
        SeriesOrRate::Series(series) if series.unit.is_percentage() => {
            format!("{} p.p.", format_decimal((value - before).abs(), lang))
        }
        SeriesOrRate::Series(series) if series.plausible.min < 0 => format_decimal((value - before).abs(), lang),
        SeriesOrRate::Series(_) | SeriesOrRate::ExchangeRate(_) => {
            let percent = (value - before).checked_div(before).unwrap_or_default() * Decimal::ONE_HUNDRED;
            format!("{}%", format_decimal(percent.abs().round_dp(2), lang))
        }
    };

    let before = format_decimal(before, lang);
    let when = format_period(date, subject.frequency(), lang);
    match (lang, subject.frequency().months()) {
        (Lang::En, Some(_)) => format!("{arrow} {difference}, from {before} in {when}"),
        (Lang::En, None) => format!("{arrow} {difference}, from {before} on {when}"),
        (Lang::Pt, _) => format!("{arrow} {difference}, ante {before} em {when}"),
    }
}

/// A curve in words, for readers who cannot see it.
pub(crate) fn describe_curve(subject: SeriesOrRate, points: &[DatedValue], lang: Lang) -> String {
    let (Some(first), Some(last)) = (points.first(), points.last()) else { return String::new() };
    let Some((low, high)) = lowest_and_highest(points) else { return String::new() };

    let format_point =
        |(date, value): &DatedValue| (format_decimal(*value, lang), format_period(*date, subject.frequency(), lang));
    let (low, low_day) = format_point(&low);
    let (high, high_day) = format_point(&high);
    let (_, from) = format_point(first);
    let (_, to) = format_point(last);
    match lang {
        Lang::En => format!("{from} to {to}: lowest {low} ({low_day}), highest {high} ({high_day})."),
        Lang::Pt => format!("De {from} a {to}: mínimo {low} ({low_day}), máximo {high} ({high_day})."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_series_and_rate_is_found_by_its_id() {
        for subject in SeriesOrRate::all() {
            assert_eq!(SeriesOrRate::from_id(&subject.id()), Some(subject));
        }
        assert_eq!(SeriesOrRate::from_id("usd-brl"), Some(SeriesOrRate::ExchangeRate(Currency::Usd)));
        assert_eq!(SeriesOrRate::from_id("check-usd-sell"), None);
    }
}
