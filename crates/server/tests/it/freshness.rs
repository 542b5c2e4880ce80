//! Whether data is late or stale, on every minute of a month in which values arrive at random minutes, compared with a plain
//! model that shares no code with the schedules.

use std::collections::BTreeMap;

use chrono::{DateTime, Datelike, Days, NaiveDate, NaiveTime, TimeDelta, Utc, Weekday};
use vintem_domain::series::find_series;
use vintem_domain::{Currency, DataOrigin, Dataset};
use vintem_snapshot::LiveSnapshot;
use vintem_store::load::{BulletinKind, NewBulletin, NewFetch, Observation};
use vintem_testkit::TestDatabase;

use crate::TestResult;
use crate::ingest::parse_date;

/// The holidays of banks in the month and the days around it.
const HOLIDAYS: [&str; 4] = ["2026-10-12", "2026-11-02", "2026-11-20", "2026-12-25"];
const FIRST_DAY: &str = "2026-11-01";
const DAYS: u64 = 30;
/// São Paulo has no daylight saving time in 2026.
const UTC_OFFSET: TimeDelta = TimeDelta::hours(-3);

/// How a dataset is published, in the words of `docs/upstreams.md`.
struct Model {
    id: &'static str,
    /// The dates with a value.
    dates: Vec<NaiveDate>,
    /// When each of them is expected, in São Paulo.
    expected_at: fn(NaiveDate) -> (NaiveDate, (u32, u32)),
    /// The first day on which a missing value counts as overdue, by the day on which it was expected.
    stale_from: fn(NaiveDate) -> NaiveDate,
}

fn is_business_day(day: NaiveDate) -> bool {
    !matches!(day.weekday(), Weekday::Sat | Weekday::Sun) && !HOLIDAYS.contains(&day.to_string().as_str())
}

fn business_day_after(day: NaiveDate, count: usize) -> NaiveDate {
    let mut business_days = day.iter_days().skip(1).filter(|day| is_business_day(*day));
    business_days.nth(count - 1).expect("there are more")
}

fn business_days() -> Vec<NaiveDate> {
    parse_date("2026-10-20").iter_days().take(60).filter(|day| is_business_day(*day)).collect()
}

fn models() -> [Model; 4] {
    [
        Model {
            id: "fx",
            dates: business_days(),
            expected_at: |day| (day, (13, 5)),
            stale_from: |expected| business_day_after(expected, 1),
        },
        Model {
            id: "selic-daily",
            dates: business_days(),
            expected_at: |day| (day, (18, 0)),
            stale_from: |expected| business_day_after(expected, 2),
        },
        Model {
            id: "reserves-daily",
            dates: business_days(),
            expected_at: |day| (day, (18, 0)),
            stale_from: |expected| business_day_after(expected, 4),
        },
        // Of October, on about November 10, with five days of grace.
        Model {
            id: "ipca",
            dates: vec![parse_date("2026-09-01"), parse_date("2026-10-01"), parse_date("2026-11-01")],
            expected_at: |month| (NaiveDate::from_ymd_opt(2026, month.month() + 1, 10).expect("a day"), (9, 0)),
            stale_from: |expected| expected + Days::new(6),
        },
    ]
}

impl Model {
    fn dataset(&self) -> Dataset {
        if self.id == "fx" { Dataset::Fx } else { Dataset::Series(find_series(self.id).expect("a series")) }
    }

    /// When the value of a date arrives: mostly within two hours, sometimes days later, sometimes early.
    fn arrives_at(&self, date: NaiveDate) -> DateTime<Utc> {
        let (day, (hour, minute)) = (self.expected_at)(date);
        let expected = to_utc(day, hour, minute);
        let delay = match rand::random_range(0..10) {
            0 => TimeDelta::minutes(rand::random_range(-120..0)),
            1 => TimeDelta::minutes(rand::random_range(0..10 * 24 * 60)),
            2 => TimeDelta::minutes(rand::random_range(0..3 * 24 * 60)),
            _ => TimeDelta::minutes(rand::random_range(0..120)),
        };
        expected + delay
    }

    /// Late and stale, given the newest date that has arrived.
    fn judge(&self, newest: NaiveDate, now: DateTime<Utc>) -> (bool, bool) {
        let next = *self.dates.iter().find(|date| **date > newest).expect("there are more");
        let (day, (hour, minute)) = (self.expected_at)(next);
        let today = (now + UTC_OFFSET).date_naive();
        (now >= to_utc(day, hour, minute), today >= (self.stale_from)(day))
    }
}

fn to_utc(day: NaiveDate, hour: u32, minute: u32) -> DateTime<Utc> {
    day.and_time(NaiveTime::from_hms_opt(hour, minute, 0).expect("a time")).and_utc() - UTC_OFFSET
}

async fn load_value(database: &TestDatabase, dataset: Dataset, date: NaiveDate, at: DateTime<Utc>) -> TestResult {
    let fetch = NewFetch::without_response(format!("test:{}-{date}", dataset.id()), at, [1; 32]);
    let mut load = database.open_store()?.begin_load(dataset, DataOrigin::Real, &fetch).await?;
    match dataset {
        Dataset::Series(series) => load.append_observations(series, &[Observation::new(date, "1.5".parse()?)]).await?,
        _ => {
            let bulletin = NewBulletin {
                currency: Currency::Usd,
                date,
                kind: BulletinKind::Closing,
                published_at: date.and_time(NaiveTime::from_hms_opt(13, 5, 0).expect("a time")),
                quote_currency: "BRL".to_owned(),
                buy: "5.1".parse()?,
                sell: "5.2".parse()?,
                parity: None,
            };
            load.append_bulletins(&[bulletin]).await?;
        }
    }
    load.commit().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn late_and_stale_are_right_on_every_minute_of_a_month() -> TestResult {
    let start = to_utc(parse_date(FIRST_DAY), 0, 0);
    let end = start + TimeDelta::days(DAYS as i64);
    let models = models();
    let database = TestDatabase::create_empty().await?;

    // What is there at the start arrived just before.
    let mut arrivals: BTreeMap<DateTime<Utc>, Vec<(usize, NaiveDate)>> = BTreeMap::new();
    for (index, model) in models.iter().enumerate() {
        for date in &model.dates {
            let at = model.arrives_at(*date).max(start);
            arrivals.entry(at).or_default().push((index, *date));
        }
    }
    // The first minute needs a value of each.
    for (index, model) in models.iter().enumerate() {
        arrivals.entry(start).or_default().push((index, model.dates[0]));
    }

    let live = LiveSnapshot::default();
    let store = database.open_store()?;
    let mut newest: BTreeMap<usize, NaiveDate> = BTreeMap::new();
    let mut now = start;
    let mut judged = BTreeMap::new();
    while now < end {
        if let Some(arrived) = arrivals.remove(&now) {
            for (index, date) in arrived {
                load_value(&database, models[index].dataset(), date, now).await?;
                let newest = newest.entry(index).or_insert(date);
                *newest = (*newest).max(date);
            }
            live.refresh(&store).await?;
        }

        let snapshot = live.get().expect("it was loaded");
        for (index, model) in models.iter().enumerate() {
            let freshness = live.freshness(&snapshot, model.dataset(), now);
            let today = (now + UTC_OFFSET).date_naive();
            // A value of a later day is not served yet.
            let newest = newest[&index];
            assert!(newest <= today, "{} has {newest} on {today}", model.id);
            let expected = model.judge(newest, now);
            assert_eq!((freshness.late, freshness.stale), expected, "{} at {now}, newest {newest}", model.id);
            *judged.entry((model.id, expected)).or_insert(0) += 1;
        }
        now += TimeDelta::minutes(1);
    }
    println!("{judged:?}");
    for id in ["fx", "selic-daily"] {
        assert!(judged.contains_key(&(id, (false, false))) && judged.contains_key(&(id, (true, false))), "{judged:?}");
    }
    Ok(())
}
