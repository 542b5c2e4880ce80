//! The sources: one line each, from which fetching, schedule, freshness and the command line follow.

use chrono::{DateTime, Datelike, Days, NaiveDate, NaiveTime, TimeDelta, Utc, Weekday};
use vintem_domain::dates::{sao_paulo_day, sao_paulo_offset_seconds};
use vintem_domain::series::{CHECK_SERIES, Frequency, SERIES, Series};
use vintem_domain::{Currency, Dataset, FilingSet};

/// Whose data it is, by the host it comes from: each is asked one thing at a time, the three side by side.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Upstream {
    Sgs,
    Ptax,
    Cvm,
}

impl Upstream {
    pub const ALL: [Self; 3] = [Self::Sgs, Self::Ptax, Self::Cvm];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Sgs => "BCB SGS",
            Self::Ptax => "BCB PTAX",
            Self::Cvm => "CVM",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Source {
    Series(&'static Series),
    Fx,
    Companies,
    Filings(FilingSet),
}

/// What is fetched and loaded at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    Series(&'static Series),
    Currency(Currency),
    Registry,
    Year(FilingSet, i32),
}

impl Part {
    pub fn id(self) -> String {
        match self {
            Self::Series(series) => series.id.to_owned(),
            Self::Currency(currency) => currency.code().to_owned(),
            Self::Registry => "registry".to_owned(),
            Self::Year(_, year) => year.to_string(),
        }
    }
}

impl Source {
    /// In the order in which they are filled: what is small and asked for most comes first.
    pub fn all() -> impl Iterator<Item = Self> {
        let series = SERIES.iter().chain(&CHECK_SERIES).map(Self::Series);
        series.chain([Self::Fx, Self::Companies]).chain(FilingSet::ALL.map(Self::Filings))
    }

    pub fn id(self) -> &'static str {
        match self {
            Self::Series(series) => series.id,
            Self::Fx => "fx",
            Self::Companies => "companies",
            Self::Filings(set) => set.id(),
        }
    }

    pub fn from_id(id: &str) -> Option<Self> {
        Self::all().find(|source| source.id() == id)
    }

    pub const fn dataset(self) -> Dataset {
        match self {
            Self::Series(series) => Dataset::Series(series),
            Self::Fx => Dataset::Fx,
            Self::Companies => Dataset::Companies,
            Self::Filings(_) => Dataset::Filings,
        }
    }

    pub const fn upstream(self) -> Upstream {
        match self {
            Self::Series(_) => Upstream::Sgs,
            Self::Fx => Upstream::Ptax,
            Self::Companies | Self::Filings(_) => Upstream::Cvm,
        }
    }

    /// What there is to fetch; of yearly files the newest first, so that what people look at is there early.
    pub fn parts(self, today: NaiveDate, since: Option<NaiveDate>) -> Vec<Part> {
        match self {
            Self::Series(series) => vec![Part::Series(series)],
            Self::Fx => Currency::ALL.map(Part::Currency).into(),
            Self::Companies => vec![Part::Registry],
            Self::Filings(set) => {
                let first = since.map_or(first_year(set), |since| since.year().max(first_year(set)));
                (first..=today.year()).rev().map(|year| Part::Year(set, year)).collect()
            }
        }
    }

    /// When to ask again after this moment. Times are São Paulo's.
    pub fn next_ask(self, after: DateTime<Utc>) -> DateTime<Utc> {
        let (times, weekdays_only): (&[(u32, u32)], bool) = match self {
            // On the evening of a decision, and each morning.
            Self::Series(Series { frequency: Frequency::Daily, .. }) => (&[(8, 10), (20, 10)], false),
            // The day's rate comes in the evening or the next morning.
            Self::Series(Series { frequency: Frequency::BusinessDaily, .. }) => (&[(8, 20), (20, 20)], true),
            // Published at nine, on about the tenth.
            Self::Series(_) => (&[(9, 10), (12, 10)], true),
            // A bulletin at ten, eleven, noon and one; the last is the day's rate.
            Self::Fx => (&[(10, 20), (11, 20), (12, 20), (13, 30), (15, 0)], true),
            Self::Companies => (&[(7, 30)], false),
            // Rewritten weekly, on no day that could be relied on.
            Self::Filings(_) => (&[(8, 45)], false),
        };
        let mut day = sao_paulo_day(after);
        loop {
            let is_due = !weekdays_only || !matches!(day.weekday(), Weekday::Sat | Weekday::Sun);
            let moments = times.iter().map(|(hour, minute)| sao_paulo_moment(day, *hour, *minute));
            if let Some(next) = moments.filter(|moment| is_due && *moment > after).min() {
                return next;
            }
            day = day + Days::new(1);
        }
    }
}

const fn first_year(set: FilingSet) -> i32 {
    match set {
        FilingSet::Ipe => 2003,
        FilingSet::Itr => 2011,
        FilingSet::Dfp | FilingSet::Fre | FilingSet::Fca => 2010,
    }
}

fn sao_paulo_moment(day: NaiveDate, hour: u32, minute: u32) -> DateTime<Utc> {
    let time = NaiveTime::from_hms_opt(hour, minute, 0).unwrap_or_default();
    day.and_time(time).and_utc() - TimeDelta::seconds(i64::from(sao_paulo_offset_seconds(day)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> DateTime<Utc> {
        DateTime::parse_from_rfc3339(text).unwrap().to_utc()
    }

    #[test]
    fn ids_lead_back_to_sources() {
        for source in Source::all() {
            assert_eq!(Source::from_id(source.id()), Some(source));
        }
    }

    #[test]
    fn years_come_newest_first() {
        let today = NaiveDate::from_ymd_opt(2026, 11, 13).unwrap();
        let parts = Source::Filings(FilingSet::Ipe).parts(today, None);
        assert_eq!((parts.len(), parts[0].id().as_str(), parts[23].id().as_str()), (24, "2026", "2003"));
        assert_eq!(Source::Filings(FilingSet::Ipe).parts(today, today.with_ordinal(1)).len(), 1);
    }

    #[test]
    fn rates_of_business_days_are_not_asked_for_on_weekends() {
        let cdi = Source::from_id("cdi").unwrap();
        assert_eq!(cdi.next_ask(at("2026-11-13T18:00:00Z")), at("2026-11-13T23:20:00Z"));
        assert_eq!(cdi.next_ask(at("2026-11-13T23:20:00Z")), at("2026-11-16T11:20:00Z"));
        assert_eq!(Source::Fx.next_ask(at("2026-11-13T13:00:00Z")), at("2026-11-13T13:20:00Z"));
        assert_eq!(Source::Companies.next_ask(at("2026-11-14T18:00:00Z")), at("2026-11-15T10:30:00Z"));
    }
}
