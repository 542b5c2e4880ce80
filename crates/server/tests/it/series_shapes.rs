//! Every series of the catalog from the fake central bank to the API: its dates, the ends of its periods, its provisional
//! values, its revisions and its events.

use std::collections::BTreeMap;

use chrono::{Datelike, NaiveDate};
use serde_json::Value;
use vintem_domain::DateRange;
use vintem_domain::dates::{month_start, same_day_next_month, sao_paulo_date};
use vintem_domain::series::{Shape, find_series, published_series};

use crate::ingest::{IngestHarness, parse_date};
use crate::{TestResult, friday};

fn date_of(row: &Value, field: &str) -> Option<NaiveDate> {
    row[field].as_str().map(parse_date)
}

#[tokio::test(flavor = "multi_thread")]
async fn every_series_is_served_in_its_shape() -> TestResult {
    let harness = IngestHarness::new().await?;
    let ids: Vec<&str> = published_series().map(|series| series.id).collect();
    let report = harness.ingest(&ids).await?;
    assert!(report.failures.is_empty(), "{:#?}", report.failures);

    let (replica, key) = harness.start_replica().await?;
    let today = sao_paulo_date(friday());
    for series in published_series() {
        let path = format!("/api/v1/market/series/{}?limit=20000&order=asc&from=1994-07-01", series.id);
        let answer: Value = replica.get_with_key(&path, &key).await?.json().await?;
        let rows = answer["data"].as_array().expect("a list of values");
        let dates: Vec<NaiveDate> = rows.iter().filter_map(|row| date_of(row, "date")).collect();
        let (Some(first), Some(last)) = (dates.first(), dates.last()) else { panic!("{} has no values", series.id) };

        // The fake's calendar of banks differs on a few days of the past.
        if series.frequency != vintem_domain::series::Frequency::BusinessDaily {
            let expected = series.frequency.expected_dates(DateRange { from: *first, to: *last });
            assert_eq!(dates, expected, "{}", series.id);
        }
        assert!(*last <= today && !series.schedule().is_stale(*last, today), "{} ends on {last}", series.id);
        assert_eq!(answer["stale"], false, "{}", series.id);

        for (row, date) in rows.iter().zip(&dates) {
            let period_end = (series.shape == Shape::Period).then(|| same_day_next_month(*date));
            assert_eq!(date_of(row, "period_end"), period_end, "{} {row}", series.id);
            let is_running = series.shape == Shape::RunningMonth && *date == month_start(today);
            assert_eq!(row.get("provisional").is_some(), is_running, "{} {row}", series.id);
        }
    }

    // Amounts in an earlier currency are not served as reais.
    let all = replica.get_with_key("/api/v1/market/series/minimum-wage?order=asc&limit=1", &key).await?;
    assert_eq!(all.json::<Value>().await?["data"][0]["date"], "1994-07-01");
    // Of two periods that begin on a day, the month counts.
    let path = "/api/v1/market/series/tr?from=2024-10-01&to=2024-10-01";
    let tr: Value = replica.get_with_key(path, &key).await?.json().await?;
    assert_eq!((&tr["total"], &tr["data"][0]["period_end"]), (&1.into(), &"2024-11-01".into()), "{tr}");
    let zero = replica.get_with_key("/api/v1/market/series/tr/current?on=2020-05-05", &key).await?;
    assert!(zero.text().await?.contains("\"value\":0.0000,"), "zero keeps its digits");

    // Spreadsheets get the same columns.
    for (id, column) in [("tr", "period_end"), ("selic-month", "provisional")] {
        let csv = replica.get_with_key(&format!("/api/v1/market/series/{id}?format=csv&limit=1"), &key).await?;
        let header = csv.text().await?.lines().next().unwrap_or_default().to_owned();
        assert!(header.ends_with(&format!(",unit_code,{column}")), "{header}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_month_is_provisional_and_silent_until_it_is_over() -> TestResult {
    let harness = IngestHarness::new().await?;
    harness.ingest(&["selic-month"]).await?;
    let november = "2026-11-01";
    let current = async |harness: &IngestHarness| -> anyhow::Result<Value> {
        let (replica, key) = harness.start_replica().await?;
        Ok(replica.get_with_key("/api/v1/market/series/selic-month/current", &key).await?.json().await?)
    };
    let first = current(&harness).await?;
    assert_eq!((&first["date"], &first["provisional"]), (&november.into(), &true.into()), "{first}");

    harness.advance_days(7);
    harness.ingest(&["selic-month"]).await?;
    let second = current(&harness).await?;
    assert!(second["value"].as_f64() > first["value"].as_f64(), "{second}");
    assert_eq!(second["provisional"], true);
    assert_eq!(harness.stored_events().await?, [], "no event while the month runs");

    // The month ends on a Monday; the rate of that day may be late.
    harness.advance_days(11);
    harness.ingest(&["selic-month"]).await?;
    assert_eq!(harness.stored_events().await?, [], "no event on December 1");
    harness.advance_days(1);
    harness.ingest(&["selic-month"]).await?;
    let events = harness.stored_events().await?;
    assert_eq!(events.len(), 1, "{events:?}");
    assert_eq!((events[0].0.as_str(), &events[0].1["date"]), ("rate.published", &november.into()));

    let (replica, key) = harness.start_replica().await?;
    let path = "/api/v1/market/series/selic-month/current?on=2026-11-30";
    let last: Value = replica.get_with_key(path, &key).await?.json().await?;
    assert_eq!((&last["date"], last.get("provisional")), (&november.into(), None), "{last}");
    let path = "/api/v1/market/series/selic-month/revisions";
    let revisions: Value = replica.get_with_key(path, &key).await?.json().await?;
    assert_eq!(revisions["total"], 0, "growing is no revision: {revisions}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_history_that_is_estimated_again_is_one_event() -> TestResult {
    let harness = IngestHarness::new().await?;
    harness.ingest(&["ibc-br-sa", "gdp-quarterly-sa"]).await?;

    // The next months of both are released by then.
    harness.advance_days(25);
    harness.ingest(&["ibc-br-sa", "gdp-quarterly-sa"]).await?;
    let mut kinds: BTreeMap<(String, String), Vec<Value>> = BTreeMap::new();
    for (kind, subject) in harness.stored_events().await? {
        let series = subject["series"].as_str().unwrap_or_default().to_owned();
        kinds.entry((series, kind)).or_default().push(subject);
    }
    for id in ["ibc-br-sa", "gdp-quarterly-sa"] {
        let of_kind = |kind: &str| kinds.get(&(id.to_owned(), kind.to_owned())).cloned().unwrap_or_default();
        assert_eq!(of_kind("rate.published").len(), 1, "{kinds:?}");
        let revised = of_kind("series.revised");
        assert_eq!(revised.len(), 1, "{kinds:?}");

        let revisions = &revised[0]["revisions"];
        let starts_on = find_series(id).expect("in the table of series").starts_on;
        assert!(revisions["count"].as_u64() > Some(40), "{revisions}");
        assert!(date_of(revisions, "from").is_some_and(|from| from.year() <= starts_on.year() + 1), "{revisions}");
        assert_eq!(revisions["to"], revised[0]["date"], "{revisions}");
    }
    Ok(())
}
