//! What a publisher changes without a word is noticed, and forgotten once it is as before: blank columns, days with few
//! rows, late values, and values that disagree with others.

use std::collections::BTreeMap;
use std::time::Duration;

use chrono::{Days, NaiveDate, TimeDelta};
use vintem_domain::Calendar;
use vintem_domain::dates::{DateRange, sao_paulo_instant};
use vintem_ingest::ingestor::{NoopReporter, RunReport, parse_source_names};
use vintem_testkit::upstreams::{FakeUpstreamOptions, Fault};
use vintem_testkit::wait_until;

use crate::TestResult;
use crate::ingest::{FAST_RETRY, IngestHarness, parse_date};

const IPE_ARCHIVE: &str = "ipe_cia_aberta_2026.zip";
/// Of a row in the file of filings.
const SUBJECT_FIELD: usize = 7;
const DELIVERED_ON_FIELD: usize = 8;

impl IngestHarness {
    /// The alerts of a source, as operators see them.
    async fn alerts(&self, source: &str) -> anyhow::Result<Vec<String>> {
        let states = self.database.open_store()?.source_states().await?;
        let alerts = states.into_iter().filter(|state| state.source == source).flat_map(|state| state.alerts);
        Ok(alerts.map(|alert| alert.alert).collect())
    }

    async fn ingest_since(&self, sources: &[&str], since: NaiveDate) -> anyhow::Result<RunReport> {
        let names: Vec<String> = sources.iter().map(|name| (*name).to_owned()).collect();
        let report = self.ingestor.run(&parse_source_names(&names)?, Some(since), &NoopReporter).await?;
        anyhow::ensure!(report.failures.is_empty(), "{:#?}", report.failures);
        Ok(report)
    }

    /// How many values each check found to differ, of the checks that found any.
    async fn differing_checks(&self) -> anyhow::Result<BTreeMap<String, u64>> {
        let checks = self.ingestor.run_cross_checks().await?;
        let differing = checks.into_iter().filter(|check| check.differing_values > 0);
        Ok(differing.map(|check| (check.id, check.differing_values)).collect())
    }
}

/// The lines of the file of filings, changed or left out.
fn change_filings(change: impl Fn(&mut Vec<String>) -> bool + Send + Sync + 'static) -> Fault {
    Fault::transform_zip_member(move |table| {
        let mut changed = Vec::new();
        for (number, line) in table.split_inclusive(|byte| *byte == b'\n').enumerate() {
            // ISO-8859-1
            let text: String = line.iter().map(|byte| char::from(*byte)).collect();
            let mut fields: Vec<String> = text.split(';').map(str::to_owned).collect();
            if number == 0 || change(&mut fields) {
                changed.extend(
                    fields.join(";").chars().map(|character| u8::try_from(u32::from(character)).unwrap_or(b'?')),
                );
            }
        }
        changed
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_column_that_became_blank_is_reported_until_it_is_filled_again() -> TestResult {
    let options = FakeUpstreamOptions { ipe_rows_per_year: 600, ..FakeUpstreamOptions::default() };
    let harness = IngestHarness::with_options(options, FAST_RETRY).await?;
    harness.ingest(&["ipe"]).await?;
    assert_eq!(harness.alerts("ipe").await?, [""; 0]);

    harness.upstreams.set_fault(
        IPE_ARCHIVE,
        Some(change_filings(|fields| {
            fields[SUBJECT_FIELD].clear();
            true
        })),
    );
    harness.advance_days(7);
    harness.ingest(&["ipe"]).await?;
    let alerts = harness.alerts("ipe").await?;
    assert!(
        alerts.iter().any(|alert| alert.starts_with("Assunto is blank in 100 % of the rows, usually in ")),
        "{alerts:?}"
    );

    harness.upstreams.clear_faults();
    harness.advance_days(7);
    harness.ingest(&["ipe"]).await?;
    assert_eq!(harness.alerts("ipe").await?, [""; 0]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn days_with_few_filings_are_reported_until_there_are_as_many_as_usual() -> TestResult {
    let options = FakeUpstreamOptions { ipe_rows_per_year: 20_000, ..FakeUpstreamOptions::default() };
    let this_year = parse_date("2026-01-01");
    let harness = IngestHarness::with_options(options, FAST_RETRY).await?;
    harness.ingest_since(&["ipe"], this_year).await?;
    assert_eq!(harness.alerts("ipe").await?, [""; 0]);

    // Of the next days, only the filings of the first document types arrive.
    harness.upstreams.set_fault(
        IPE_ARCHIVE,
        Some(change_filings(|fields| {
            fields[DELIVERED_ON_FIELD].as_str() <= "2026-11-13" || fields[0].ends_with("-00")
        })),
    );
    harness.advance_days(13);
    harness.ingest_since(&["ipe"], this_year).await?;
    let alerts = harness.alerts("ipe").await?;
    assert!(alerts.iter().any(|alert| alert.starts_with("the last 3 business days have at most ")), "{alerts:?}");

    harness.upstreams.clear_faults();
    harness.advance_days(1);
    harness.ingest_since(&["ipe"], this_year).await?;
    assert_eq!(harness.alerts("ipe").await?, [""; 0]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn days_with_fewer_bulletins_are_reported_until_there_are_as_many_as_usual() -> TestResult {
    let harness = IngestHarness::new().await?;
    let since = parse_date("2026-11-01");
    harness.ingest_since(&["fx"], since).await?;
    assert_eq!(harness.alerts("fx").await?, [""; 0]);

    harness.upstreams.set_fault(
        "'CHF'",
        Some(Fault::transform_body(|body| {
            let mut page: serde_json::Value = serde_json::from_slice(&body).expect("JSON");
            page["value"].as_array_mut().expect("a list").retain(|bulletin| {
                let published_at = bulletin["dataHoraCotacao"].as_str().expect("text");
                published_at < "2026-11-14" || bulletin["tipoBoletim"] == "Fechamento"
            });
            page.to_string().into_bytes()
        })),
    );
    harness.advance_days(7);
    harness.ingest_since(&["fx"], since).await?;
    assert_eq!(
        harness.alerts("fx").await?,
        ["the last 3 business days have at most 1 rows each, usually 5"],
        "of the franc alone"
    );

    harness.upstreams.clear_faults();
    harness.advance_days(0);
    harness.ingest_since(&["fx"], since).await?;
    assert_eq!(harness.alerts("fx").await?, [""; 0]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn values_that_arrive_hours_later_than_usual_are_reported_until_they_arrive_as_before() -> TestResult {
    let harness = IngestHarness::new().await?;
    harness.ingest(&["cdi"]).await?;
    let range = DateRange { from: parse_date("2026-11-16"), to: parse_date("2026-12-11") };

    // Of fourteen values, three in a row arrive late.
    for (number, day) in Calendar::Settlement.business_days(range).take(14).enumerate() {
        let is_late = (8..11).contains(&number);
        let arrives_at = sao_paulo_instant(day, if is_late { (23, 30) } else { (20, 30) });
        for now in [arrives_at - TimeDelta::minutes(30), arrives_at] {
            harness.clock.set(now);
            harness.upstreams.set_today(if now < arrives_at { day - Days::new(1) } else { day });
            let report = harness.ingest(&["cdi"]).await?;
            assert!(report.failures.is_empty(), "{:#?}", report.failures);
        }
        let alerts = harness.alerts("cdi").await?;
        if number == 10 {
            let alert = "the last 3 values arrived at least 330 minutes after they were expected, usually 150";
            assert_eq!(alerts, [alert]);
        } else {
            assert_eq!(alerts, [""; 0], "{day}");
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn every_cross_check_finds_a_planted_difference_and_agrees_again_without_it() -> TestResult {
    let harness = IngestHarness::new().await?;
    let sources = [
        "selic",
        "cdi",
        "selic-effective",
        "selic-daily",
        "cdi-daily",
        "selic-month",
        "cdi-month",
        "ipca",
        "ipca-12m",
        "check-usd-sell",
        "check-usd-buy",
        "check-eur-21619",
        "check-eur-21620",
        "fx",
    ];
    let since = parse_date("2025-01-01");
    harness.ingest_since(&sources, since).await?;
    let checks = harness.ingestor.run_cross_checks().await?;
    assert!(checks.iter().all(|check| check.compared_values >= 10), "{checks:#?}");
    assert_eq!(harness.differing_checks().await?, BTreeMap::new());

    let (replica, key) = harness.start_replica().await?;
    let is_disputed = async |path: String| {
        let answer: serde_json::Value = replica.get_with_key(&path, &key).await.ok()?.json().await.ok()?;
        Some(answer["data"].get(0)?.get("disputed") == Some(&serde_json::Value::Bool(true)))
    };

    // The check, the series that it marks, the source, its code, a date and a value that cannot be right.
    for (check, marked, source, code, date, value) in [
        ("cdi-from-daily", &["cdi", "cdi-daily"][..], "cdi", 4389, "2026-11-05", "14.00"),
        ("selic-from-daily", &["selic-effective", "selic-daily"], "selic-effective", 1178, "2026-11-05", "14.50"),
        ("selic-near-target", &["selic-effective", "selic"], "selic", 432, "2026-11-05", "25.00"),
        ("cdi-month-from-daily", &["cdi-month"], "cdi-month", 4391, "2026-09-01", "1.99"),
        ("selic-month-from-daily", &["selic-month"], "selic-month", 4390, "2026-09-01", "1.99"),
        ("ipca-12m-from-months", &["ipca-12m"], "ipca-12m", 13522, "2026-09-01", "9.99"),
        ("usd-sell", &["usd-brl"], "check-usd-sell", 1, "2026-11-05", "5.9999"),
        ("usd-buy", &["usd-brl"], "check-usd-buy", 10813, "2026-11-05", "5.9998"),
        ("eur-sell", &["eur-brl"], "check-eur-21619", 21619, "2026-11-05", "6.9999"),
        ("eur-buy", &["eur-brl"], "check-eur-21620", 21620, "2026-11-05", "6.9998"),
    ] {
        let series_paths = marked.iter().map(|id| format!("/api/v1/market/series/{id}?from={date}&to={date}"));
        // The inverse is computed from it.
        let inverses = marked.iter().filter_map(|id| {
            let currency = id.strip_suffix("-brl")?.to_uppercase();
            Some(format!("/api/v1/market/fx?pair=BRL/{currency}&from={date}&to={date}"))
        });
        let paths: Vec<String> = series_paths.chain(inverses).collect();
        let date = parse_date(date);
        let store = harness.database.open_store()?;
        let before = store.current_observations(source).await?.into_iter().find(|row| row.date == date);
        let before = before.expect("it is loaded").value.to_string();

        for (value, is_planted) in [(value, true), (&*before, false)] {
            harness.upstreams.override_sgs_value(code, date, value);
            harness.advance_days(0);
            harness.ingest_since(&[source], since).await?;
            let differing = harness.differing_checks().await?;
            assert_eq!(differing.get(check), is_planted.then_some(&1), "{check}: {differing:?}");
            assert!(is_planted || differing.is_empty(), "{check}: {differing:?}");
            for path in &paths {
                wait_until(&format!("{path} is disputed: {is_planted}"), Duration::from_secs(10), || async {
                    is_disputed(path.clone()).await == Some(is_planted)
                })
                .await;
            }
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rate_that_contradicts_its_parity_is_found() -> TestResult {
    let harness = IngestHarness::new().await?;
    let since = parse_date("2026-11-01");
    // The franc's rates of one day are half a percent too high.
    harness.upstreams.set_fault(
        "'CHF'",
        Some(Fault::transform_body(|body| {
            let mut page: serde_json::Value = serde_json::from_slice(&body).expect("JSON");
            for bulletin in page["value"].as_array_mut().expect("a list") {
                let is_of_day = bulletin["dataHoraCotacao"].as_str().is_some_and(|time| time.starts_with("2026-11-05"));
                for side in ["cotacaoCompra", "cotacaoVenda"].into_iter().filter(|_| is_of_day) {
                    let rate = bulletin[side].as_f64().expect("a number");
                    bulletin[side] = serde_json::json!((rate * 1.005 * 10_000.0).round() / 10_000.0);
                }
            }
            page.to_string().into_bytes()
        })),
    );
    harness.ingest_since(&["fx"], since).await?;
    assert_eq!(harness.differing_checks().await?, BTreeMap::from([("chf-from-parity".to_owned(), 1)]));

    harness.upstreams.clear_faults();
    harness.advance_days(0);
    harness.ingest_since(&["fx"], since).await?;
    assert_eq!(harness.differing_checks().await?, BTreeMap::new());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_business_day_without_a_value_differs_from_the_calendar_until_it_has_one() -> TestResult {
    let harness = IngestHarness::new().await?;
    harness.upstreams.set_fault(
        "bcdata.sgs.4389/",
        Some(Fault::transform_body(|body| {
            let rows: Vec<serde_json::Value> = serde_json::from_slice(&body).expect("JSON");
            let others: Vec<_> = rows.into_iter().filter(|row| row["data"] != "05/11/2026").collect();
            serde_json::to_vec(&others).expect("JSON")
        })),
    );
    harness.ingest(&["cdi"]).await?;
    assert_eq!(harness.differing_checks().await?, BTreeMap::from([("calendar-cdi".to_owned(), 1)]));

    harness.upstreams.clear_faults();
    harness.advance_days(1);
    harness.ingest(&["cdi"]).await?;
    assert_eq!(harness.differing_checks().await?, BTreeMap::new());
    Ok(())
}
