//! The data sources. Fetching, schedule, freshness and the command line are derived from them.

use chrono::{DateTime, Datelike, Days, NaiveDate, NaiveTime, TimeDelta, Utc, Weekday};
use vintem_domain::dates::{sao_paulo_date, sao_paulo_offset_seconds};
use vintem_domain::series::{CROSS_CHECK_SERIES, Frequency, PUBLISHED_SERIES, Series};
use vintem_domain::{Currency, CvmDataset, Dataset};

/// The host that data comes from. Each host gets one request at a time; the three run in parallel.
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
pub enum DataSource {
    Series(&'static Series),
    Fx,
    Companies,
    Filings(CvmDataset),
}

/// The unit that is fetched and loaded in one step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SourcePart {
    Series(&'static Series),
    Currency(Currency),
    Registry,
    FilingYear(CvmDataset, i32),
}

impl SourcePart {
    pub fn id(self) -> String {
        match self {
            Self::Series(series) => series.id.to_owned(),
            Self::Currency(currency) => currency.code().to_owned(),
            Self::Registry => "registry".to_owned(),
            Self::FilingYear(_, year) => year.to_string(),
        }
    }
}

impl DataSource {
    /// In load order: small sources that are requested most come first.
    pub fn all() -> impl Iterator<Item = Self> {
        let series = PUBLISHED_SERIES.iter().chain(&CROSS_CHECK_SERIES).map(Self::Series);
        series.chain([Self::Fx, Self::Companies]).chain(CvmDataset::ALL.map(Self::Filings))
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

    /// The parts to fetch. Yearly files come newest first, so that the data people look at is available early.
    pub fn parts(self, today: NaiveDate, since: Option<NaiveDate>) -> Vec<SourcePart> {
        match self {
            Self::Series(series) => vec![SourcePart::Series(series)],
            Self::Fx => Currency::ALL.map(SourcePart::Currency).into(),
            Self::Companies => vec![SourcePart::Registry],
            Self::Filings(set) => {
                let first_year = since.map_or(first_filing_year(set), |since| since.year().max(first_filing_year(set)));
                (first_year..=today.year()).rev().map(|year| SourcePart::FilingYear(set, year)).collect()
            }
        }
    }

    /// The next scheduled fetch after this moment. Times are in São Paulo time.
    pub fn next_fetch_at(self, after: DateTime<Utc>) -> DateTime<Utc> {
        let (times, weekdays_only): (&[(u32, u32)], bool) = match self {
            // In the evening for a rate decision of the day, and each morning.
            Self::Series(Series { frequency: Frequency::Daily, .. }) => (&[(8, 10), (20, 10)], false),
            // The day's rate is published in the evening or the next morning.
            Self::Series(Series { frequency: Frequency::BusinessDaily, .. }) => (&[(8, 20), (20, 20)], true),
            // Published at 09:00, around the 10th of the month.
            Self::Series(_) => (&[(9, 10), (12, 10)], true),
            // Bulletins appear at 10:00, 11:00, 12:00 and 13:00; the last one is the day's rate.
            Self::Fx => (&[(10, 20), (11, 20), (12, 20), (13, 30), (15, 0)], true),
            Self::Companies => (&[(7, 30)], false),
            // Rewritten weekly, on no fixed weekday.
            Self::Filings(_) => (&[(8, 45)], false),
        };

        let mut day = sao_paulo_date(after);
        loop {
            let is_fetch_day = !weekdays_only || !matches!(day.weekday(), Weekday::Sat | Weekday::Sun);
            let times_of_day = times.iter().map(|(hour, minute)| sao_paulo_time_to_utc(day, *hour, *minute));
            if let Some(next) = times_of_day.filter(|time| is_fetch_day && *time > after).min() {
                return next;
            }
            day = day + Days::new(1);
        }
    }
}

const fn first_filing_year(set: CvmDataset) -> i32 {
    match set {
        CvmDataset::Ipe => 2003,
        CvmDataset::Itr => 2011,
        CvmDataset::Dfp | CvmDataset::Fre | CvmDataset::Fca => 2010,
    }
}

fn sao_paulo_time_to_utc(day: NaiveDate, hour: u32, minute: u32) -> DateTime<Utc> {
    let time = NaiveTime::from_hms_opt(hour, minute, 0).unwrap_or_default();
    day.and_time(time).and_utc() - TimeDelta::seconds(i64::from(sao_paulo_offset_seconds(day)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_utc(text: &str) -> DateTime<Utc> {
        DateTime::parse_from_rfc3339(text).unwrap().to_utc()
    }

    #[test]
    fn source_ids_round_trip() {
        for source in DataSource::all() {
            assert_eq!(DataSource::from_id(source.id()), Some(source));
        }
    }

    #[test]
    fn yearly_parts_come_newest_first() {
        let today = NaiveDate::from_ymd_opt(2026, 11, 13).unwrap();
        let parts = DataSource::Filings(CvmDataset::Ipe).parts(today, None);
        assert_eq!((parts.len(), parts[0].id().as_str(), parts[23].id().as_str()), (24, "2026", "2003"));
        assert_eq!(DataSource::Filings(CvmDataset::Ipe).parts(today, today.with_ordinal(1)).len(), 1);
    }

    #[test]
    fn business_day_series_are_not_fetched_on_weekends() {
        let cdi = DataSource::from_id("cdi").unwrap();
        assert_eq!(cdi.next_fetch_at(parse_utc("2026-11-13T18:00:00Z")), parse_utc("2026-11-13T23:20:00Z"));
        assert_eq!(cdi.next_fetch_at(parse_utc("2026-11-13T23:20:00Z")), parse_utc("2026-11-16T11:20:00Z"));
        assert_eq!(DataSource::Fx.next_fetch_at(parse_utc("2026-11-13T13:00:00Z")), parse_utc("2026-11-13T13:20:00Z"));
        assert_eq!(
            DataSource::Companies.next_fetch_at(parse_utc("2026-11-14T18:00:00Z")),
            parse_utc("2026-11-15T10:30:00Z")
        );
    }
}
