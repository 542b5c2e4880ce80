//! The data sources and their parts. Fetching, schedule, freshness and the command line are derived from them.

use chrono::{DateTime, Datelike, Days, NaiveDate, TimeDelta, Utc, Weekday};
use vintem_domain::dates::{MAX_DATE, sao_paulo_date, sao_paulo_instant};
use vintem_domain::series::{
    FX_SCHEDULE, Frequency, Release, Schedule, Series, Shape, cross_check_series, published_series,
};
use vintem_domain::{Currency, CvmDataset, Dataset, StatementSet};

/// The API allows ten years of a daily series, but they take twenty seconds, close to its timeout; three years take three
/// seconds. Monthly series have few values.
const DAILY_SPAN_YEARS: i32 = 3;
const MONTHLY_SPAN_YEARS: i32 = 10;

/// The first dollar bulletin. Other currencies begin later, and a year without bulletins is not an error.
pub const FIRST_BULLETIN_DATE: NaiveDate = NaiveDate::from_ymd_opt(1984, 11, 28).expect("a day of the calendar");

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
    Statements(StatementSet),
}

/// The unit that is fetched and loaded in one step, independently of the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SourcePart {
    SeriesYears(&'static Series, YearSpan),
    CurrencyYear(Currency, i32),
    Registry,
    FilingYear(CvmDataset, i32),
    StatementYear(StatementSet, i32),
}

/// Years, both included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct YearSpan {
    pub first: i32,
    pub last: i32,
}

impl SourcePart {
    pub fn id(self) -> String {
        match self {
            Self::SeriesYears(_, span) => span.first.to_string(),
            Self::CurrencyYear(currency, year) => format!("{}-{year}", currency.code()),
            Self::Registry => "registry".to_owned(),
            Self::FilingYear(_, year) | Self::StatementYear(_, year) => year.to_string(),
        }
    }

    /// The registry has no years: it is always the current one.
    fn years(self) -> Option<YearSpan> {
        match self {
            Self::SeriesYears(_, span) => Some(span),
            Self::CurrencyYear(_, year) | Self::FilingYear(_, year) | Self::StatementYear(_, year) => {
                Some(YearSpan { first: year, last: year })
            }
            Self::Registry => None,
        }
    }

    pub fn first_day(self) -> NaiveDate {
        self.years().and_then(|years| NaiveDate::from_ymd_opt(years.first, 1, 1)).unwrap_or(NaiveDate::MIN)
    }

    pub fn last_day(self) -> NaiveDate {
        self.years().and_then(|years| NaiveDate::from_ymd_opt(years.last, 12, 31)).unwrap_or(NaiveDate::MAX)
    }

    /// Whether what is published today belongs here.
    pub fn is_current(self, today: NaiveDate) -> bool {
        (self.first_day()..=self.last_day()).contains(&today)
    }

    /// Whether new data may appear. Files of all years are rewritten now and then.
    pub fn is_open(self, today: NaiveDate) -> bool {
        match self {
            Self::SeriesYears(..) | Self::CurrencyYear(..) => today <= self.last_day() + Days::new(self.overlap_days()),
            Self::Registry | Self::FilingYear(..) | Self::StatementYear(..) => true,
        }
    }

    /// Days before the newest value, or before the part, that are fetched again: to notice revisions, because today's
    /// bulletins appear one by one, and because SGS sometimes leaves out the first rows of a response.
    pub const fn overlap_days(self) -> u64 {
        match self {
            Self::SeriesYears(..) => 40,
            Self::CurrencyYear(..) => 10,
            Self::Registry | Self::FilingYear(..) | Self::StatementYear(..) => 0,
        }
    }

    /// The part before this one, if it is made of years.
    pub fn earlier(self) -> Option<Self> {
        match self {
            Self::SeriesYears(series, YearSpan { first, last }) => {
                let years = last - first + 1;
                let earlier = Self::SeriesYears(series, YearSpan { first: first - years, last: last - years });
                (earlier.last_day() >= series.served_since()).then_some(earlier)
            }
            _ => None,
        }
    }
}

impl DataSource {
    /// In load order: small sources that are requested most come first.
    pub fn all() -> impl Iterator<Item = Self> {
        let series = published_series().chain(cross_check_series()).map(Self::Series);
        let files = CvmDataset::ALL.map(Self::Filings).into_iter().chain(StatementSet::ALL.map(Self::Statements));
        series.chain([Self::Fx, Self::Companies]).chain(files)
    }

    pub fn id(self) -> &'static str {
        match self {
            Self::Series(series) => series.id,
            Self::Fx => "fx",
            Self::Companies => "companies",
            Self::Filings(set) => set.id(),
            Self::Statements(StatementSet::Dfp) => "dfp-statements",
            Self::Statements(StatementSet::Itr) => "itr-statements",
        }
    }

    pub fn from_id(id: &str) -> Option<Self> {
        Self::all().find(|source| source.id() == id)
    }

    /// When its values are published. Files are rewritten on no fixed day.
    pub const fn schedule(self) -> Option<Schedule> {
        match self {
            Self::Series(series) => Some(series.schedule()),
            Self::Fx => Some(FX_SCHEDULE),
            Self::Companies | Self::Filings(_) | Self::Statements(_) => None,
        }
    }

    /// How far from their usual hour values may arrive before it is unusual.
    pub const fn arrival_tolerance(self) -> TimeDelta {
        if self.has_few_values() { TimeDelta::days(3) } else { TimeDelta::hours(2) }
    }

    /// Whether a series has so few values that all of a part are fetched each time, to notice revisions.
    pub const fn has_few_values(self) -> bool {
        matches!(self, Self::Series(series) if series.frequency.months().is_some())
    }

    pub const fn dataset(self) -> Dataset {
        match self {
            Self::Series(series) => Dataset::Series(series),
            Self::Fx => Dataset::Fx,
            Self::Companies => Dataset::Companies,
            Self::Filings(_) => Dataset::Filings,
            Self::Statements(_) => Dataset::Statements,
        }
    }

    pub const fn upstream(self) -> Upstream {
        match self {
            Self::Series(_) => Upstream::Sgs,
            Self::Fx => Upstream::Ptax,
            Self::Companies | Self::Filings(_) | Self::Statements(_) => Upstream::Cvm,
        }
    }

    /// Whether its files are large and nothing waits for them: they are fetched when nothing else is due.
    pub const fn is_bulk(self) -> bool {
        matches!(self, Self::Statements(_))
    }

    /// All parts up to today, newest first, so that the data people look at is available early.
    pub fn parts(self, today: NaiveDate) -> Vec<SourcePart> {
        let this_year = today.year();
        match self {
            // One part, so that a release that estimates all of it again is one load.
            Self::Series(series) if series.shape == Shape::Reestimated => {
                let span = YearSpan { first: series.starts_on.year() - MONTHLY_SPAN_YEARS, last: MAX_DATE.year() };
                vec![SourcePart::SeriesYears(series, span)]
            }
            Self::Series(series) => {
                let years = span_years(series.frequency);
                let span_of = |year: i32| year - year.rem_euclid(years);
                // One span more, because not every series documents its real start.
                let mut first = span_of(series.starts_on.year()) - years;
                if series.served_since() >= series.starts_on {
                    first += years;
                }
                let mut parts = Vec::new();
                while first <= span_of(this_year) {
                    parts.push(SourcePart::SeriesYears(series, YearSpan { first, last: first + years - 1 }));
                    first += years;
                }
                parts.reverse();
                parts
            }
            Self::Fx => {
                let years = (FIRST_BULLETIN_DATE.year()..=this_year).rev();
                years.flat_map(|year| Currency::ALL.map(|currency| SourcePart::CurrencyYear(currency, year))).collect()
            }
            Self::Companies => vec![SourcePart::Registry],
            Self::Filings(set) => {
                (first_filing_year(set)..=this_year).rev().map(|year| SourcePart::FilingYear(set, year)).collect()
            }
            Self::Statements(set) => {
                let years = first_filing_year(set.cvm_dataset())..=this_year;
                years.rev().map(|year| SourcePart::StatementYear(set, year)).collect()
            }
        }
    }

    /// The moment from which the data after `newest` is expected, in São Paulo time. Files have none.
    pub fn expected_at(self, newest: NaiveDate) -> Option<DateTime<Utc>> {
        Some(self.schedule()?.next_expected_at(newest))
    }

    /// The next regular fetch after this moment, whether or not anything is expected. Times are in São Paulo time.
    pub fn next_fetch_at(self, after: DateTime<Utc>) -> DateTime<Utc> {
        let (times, weekdays_only): (&[(u32, u32)], bool) = match self {
            Self::Series(Series { release: Release::InAdvance(_), .. }) => (&[(8, 10), (20, 10)], false),
            Self::Series(Series { release: Release::Daily(_) | Release::RunningMonth(_), .. }) => {
                (&[(8, 20), (20, 20)], true)
            }
            // Publishers shift their days, sometimes to an earlier one.
            Self::Series(_) => (&[(9, 10), (12, 10)], true),
            // Bulletins appear at 10:00, 11:00, 12:00 and 13:00.
            Self::Fx => (&[(10, 20), (11, 20), (12, 20), (13, 30), (15, 0)], true),
            Self::Companies => (&[(7, 30)], false),
            // Rewritten weekly, on no fixed weekday.
            Self::Filings(_) => (&[(8, 45)], false),
            Self::Statements(_) => (&[(9, 30)], false),
        };

        let mut day = sao_paulo_date(after);
        loop {
            let is_fetch_day = !weekdays_only || !matches!(day.weekday(), Weekday::Sat | Weekday::Sun);
            let times_of_day = times.iter().map(|time| sao_paulo_instant(day, *time));
            if let Some(next) = times_of_day.filter(|time| is_fetch_day && *time > after).min() {
                return next;
            }
            day = day + Days::new(1);
        }
    }
}

const fn span_years(frequency: Frequency) -> i32 {
    match frequency.months() {
        Some(_) => MONTHLY_SPAN_YEARS,
        None => DAILY_SPAN_YEARS,
    }
}

const fn first_filing_year(set: CvmDataset) -> i32 {
    match set {
        CvmDataset::Ipe => 2003,
        CvmDataset::Itr => 2011,
        CvmDataset::Dfp | CvmDataset::Fre | CvmDataset::Fca => 2010,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_utc(text: &str) -> DateTime<Utc> {
        DateTime::parse_from_rfc3339(text).unwrap().to_utc()
    }

    fn parse_date(text: &str) -> NaiveDate {
        text.parse().unwrap()
    }

    #[test]
    fn source_ids_round_trip() {
        for source in DataSource::all() {
            assert_eq!(DataSource::from_id(source.id()), Some(source));
        }
    }

    #[test]
    fn parts_come_newest_first_and_cover_all_years() {
        let today = parse_date("2026-11-13");
        for source in DataSource::all().filter(|source| *source != DataSource::Companies) {
            let parts = source.parts(today);
            assert!(parts[0].is_current(today) && parts[0].is_open(today), "{}", source.id());
            assert!(parts.is_sorted_by_key(|part| std::cmp::Reverse(part.first_day())), "{}", source.id());
            let mut ids: Vec<String> = parts.iter().map(|part| part.id()).collect();
            ids.sort();
            ids.dedup();
            assert_eq!(ids.len(), parts.len(), "{}", source.id());
        }

        let ids = |id: &str| -> Vec<String> {
            DataSource::from_id(id).unwrap().parts(today).iter().map(|part| part.id()).collect()
        };
        assert_eq!((ids("ipe").len(), &*ids("ipe")[23]), (24, "2003"));
        assert_eq!(ids("ipca"), ["2020", "2010", "2000", "1990", "1980", "1970"]);
        assert_eq!(
            (&*ids("selic")[0], &*ids("selic")[1], ids("selic").last().unwrap().as_str()),
            ("2025", "2022", "1995")
        );
        assert_eq!((ids("fx").len(), &*ids("fx")[0], &*ids("fx")[429]), (430, "AUD-2026", "USD-1984"));
    }

    #[test]
    fn a_part_stays_open_while_the_days_before_it_are_fetched_again() {
        let part = SourcePart::CurrencyYear(Currency::Usd, 2025);
        assert!(part.is_open(parse_date("2026-01-10")) && !part.is_current(parse_date("2026-01-10")));
        assert!(!part.is_open(parse_date("2026-01-11")));
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

    #[test]
    fn values_are_expected_when_the_calendar_says() {
        let expected = |id: &str, newest: &str| {
            DataSource::from_id(id).unwrap().expected_at(parse_date(newest)).map(|time| time.to_rfc3339())
        };
        assert_eq!(expected("cdi", "2026-11-13").as_deref(), Some("2026-11-16T21:00:00+00:00"));
        assert_eq!(expected("selic", "2026-11-13").as_deref(), Some("2026-11-14T03:05:00+00:00"));
        assert_eq!(expected("ipca", "2026-10-01").as_deref(), Some("2026-12-10T12:00:00+00:00"));
        assert_eq!(expected("fx", "2026-11-13").as_deref(), Some("2026-11-16T16:05:00+00:00"));
        assert_eq!(expected("companies", "2026-11-13"), None);
    }
}
