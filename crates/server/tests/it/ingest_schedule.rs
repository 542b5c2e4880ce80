//! The parts of a source fail, wait and are announced each on their own, and each host has a loop of its own.

use std::sync::Arc;
use std::time::{Duration, Instant};

use chrono::{DateTime, Days, NaiveDate, TimeDelta, Utc};
use rand::RngExt;
use serde_json::{Value, json};
use tokio::sync::watch;
use vintem_domain::calendar::Calendar;
use vintem_domain::{Clock, ManualClock};
use vintem_ingest::fetch::RetryPolicy;
use vintem_ingest::ingestor::{NoopReporter, RunReport};
use vintem_ingest::scheduler::{HostLoop, run_on_schedule};
use vintem_ingest::source::{DataSource, Upstream};
use vintem_testkit::upstreams::{FakeUpstreamOptions, Fault, IpeRow, StallAt, UpstreamService};
use vintem_testkit::{parse_env_var, wait_until};

use crate::ingest::{FAST_RETRY, IngestHarness, build_ingestor, parse_date};
use crate::{TestResult, friday};

/// A value is served this soon after its publication.
const MAX_ARRIVAL_DELAY: TimeDelta = TimeDelta::minutes(5);

fn failed_parts(report: &RunReport) -> Vec<String> {
    report.failures.iter().map(|(source, part, _)| format!("{} {part}", source.id())).collect()
}

fn host_loop<'h>(harness: &'h IngestHarness, upstream: Upstream, sources: &[&str]) -> HostLoop<'h> {
    let clock: Arc<dyn Clock> = harness.clock.clone();
    let sources = sources.iter().filter_map(|id| DataSource::from_id(id)).collect();
    HostLoop::with_sources(&harness.ingestor, &clock, upstream, sources)
}

/// Runs all parts that are due, without moving the clock.
async fn run_due_parts(host: &mut HostLoop<'_>, clock: &ManualClock) -> anyhow::Result<DateTime<Utc>> {
    loop {
        let next = host.step().await?;
        if next > clock.now() {
            return Ok(next);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_year_that_stays_broken_silences_no_other() -> TestResult {
    let harness = IngestHarness::new().await?;
    harness.upstreams.set_fault("ipe_cia_aberta_2010.zip", Some(Fault::HtmlWith200));
    let report = harness.ingest(&["ipe"]).await?;
    assert_eq!(failed_parts(&report), ["ipe 2010"]);

    let company = harness.upstreams.companies()[0].clone();
    let day = parse_date("2026-11-13");
    harness.upstreams.add_filing(IpeRow::material_fact(
        &company.cnpj,
        &company.name,
        company.code,
        day,
        99_000_001,
        "Uma aquisição",
    ))?;
    harness.advance_days(1);
    harness.ingest(&["ipe"]).await?;
    let published = [("filing.published".to_owned(), json!({"filing": "99000001"}))];
    assert_eq!(harness.stored_events().await?, published);

    let (replica, _) = harness.start_replica().await?;
    let status: Value = replica.get("/api/v1/status").await?.json().await?;
    let sources = status["sources"].as_array().expect("a list");
    let filings = sources.iter().find(|source| source["id"] == "filings").expect("filings");
    assert_eq!(
        (&filings["failing_parts"][0]["source"], &filings["failing_parts"][0]["part"]),
        (&json!("ipe"), &json!("2010"))
    );
    assert!(filings["failing_parts"][0]["next_attempt_at"].is_string(), "{filings}");

    // Once it can be read, it is history.
    harness.upstreams.clear_faults();
    harness.advance_days(0);
    let report = harness.ingest(&["ipe"]).await?;
    assert!(report.failures.is_empty() && report.appended > 50, "{report:#?}");
    assert_eq!(harness.stored_events().await?, published);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rejected_file_is_not_downloaded_again_until_it_changes() -> TestResult {
    let harness = IngestHarness::new().await?;
    let without_header = Fault::transform_zip_member(|member| member[1..].to_vec());
    harness.upstreams.set_fault("ipe_cia_aberta_2026.zip", Some(without_header));
    let first = harness.ingest(&["ipe"]).await?;
    assert_eq!(failed_parts(&first), ["ipe 2026"]);

    harness.advance_days(1);
    let second = harness.ingest(&["ipe"]).await?;
    assert_eq!((failed_parts(&second), second.bytes), (vec!["ipe 2026".to_owned()], 0), "{second:#?}");
    assert_eq!(second.failures[0].2, first.failures[0].2, "the same problem");
    assert_eq!(harness.quarantined_file_count().await?, 1);

    harness.upstreams.clear_faults();
    harness.advance_days(1);
    assert!(harness.ingest(&["ipe"]).await?.failures.is_empty());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_window_leaves_everything_else_loaded() -> TestResult {
    let harness = IngestHarness::new().await?;
    // The windows end with these days: three years of a series, a year of a currency.
    harness.upstreams.set_fault("31/12/1991", Some(Fault::HtmlWith200));
    harness.upstreams.set_fault("'USD'&@dataInicial='12-22-2024'", Some(Fault::HtmlWith200));
    let report = harness.ingest(&["cdi"]).await?;
    assert_eq!(failed_parts(&report), ["cdi 1989"]);
    let dates = harness.database.open_store()?.observation_dates("cdi").await?;
    assert_eq!(dates.last(), Some(&parse_date("2026-11-13")));
    assert!(dates[0] < parse_date("1987-01-01") && !dates.contains(&parse_date("1990-06-01")), "{:?}", dates[0]);

    // Of the exchange rates, two years of each currency: one of the twenty parts fails.
    let mut ptax = host_loop(&harness, Upstream::Ptax, &["fx"]);
    for _ in 0..20 {
        ptax.step().await?;
    }
    for (currency, dates) in harness.database.open_store()?.closing_dates().await? {
        assert_eq!(dates.last(), Some(&parse_date("2026-11-13")), "{}", currency.code());
        let has_2025 = dates.contains(&parse_date("2025-06-02"));
        assert_eq!(has_2025, currency.code() != "USD", "{}", currency.code());
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_year_that_begins_is_news() -> TestResult {
    let options = FakeUpstreamOptions {
        today: parse_date("2026-12-30"),
        ipe_rows_per_year: 2_000,
        ipe_years: 2026..=2027,
        ..FakeUpstreamOptions::default()
    };
    let harness = IngestHarness::with_options(options, FAST_RETRY).await?;
    harness.clock.set("2026-12-30T15:00:00Z".parse()?);
    harness.ingest(&["ipe"]).await?;
    assert_eq!(harness.stored_events().await?, []);

    // The first file of the year is there on its second Sunday.
    harness.clock.set("2027-01-11T15:00:00Z".parse()?);
    harness.upstreams.set_today(parse_date("2027-01-11"));
    harness.ingest(&["ipe"]).await?;
    let filings_of_2027: i64 =
        sqlx::query_scalar("select count(*) from filing_version where delivered_on >= '2027-01-01'")
            .fetch_one(&mut harness.database.connect().await?)
            .await?;
    let events = harness.stored_events().await?.len();
    assert!(filings_of_2027 > 10 && i64::try_from(events)? >= filings_of_2027, "{events} of {filings_of_2027}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn unchanged_tables_of_a_changed_archive_are_not_downloaded() -> TestResult {
    // Once from a server that sends ranges, once from one that does not: the same rows arrive.
    let mut reports = Vec::new();
    for sends_ranges in [true, false] {
        let options = FakeUpstreamOptions { companies: 1_400, ..FakeUpstreamOptions::default() };
        let harness = IngestHarness::with_options(options, FAST_RETRY).await?;
        harness.upstreams.set_sends_ranges(sends_ranges);
        let first = harness.ingest(&["itr"]).await?;
        // On Sunday the archives of several years are written again, most of them with the same tables.
        harness.advance_days(2);
        let second = harness.ingest(&["itr"]).await?;
        assert!(first.failures.is_empty() && second.failures.is_empty(), "{first:#?} {second:#?}");
        println!("bytes_with_ranges_{sends_ranges}: {} {}", first.bytes, second.bytes);
        reports.push((first, second));
    }
    let [(first, second), (first_whole, second_whole)] = &reports[..] else { unreachable!("two of them") };
    assert_eq!(
        (first.rows, first.appended, second.appended),
        (first_whole.rows, first_whole.appended, second_whole.appended)
    );
    assert!(first.bytes <= first_whole.bytes && second.bytes < second_whole.bytes, "{second:#?} {second_whole:#?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_download_is_resumed() -> TestResult {
    let harness = IngestHarness::new().await?;
    let registry_bytes = harness.upstreams.registry().len() as u64;
    harness.upstreams.set_fault("cad_cia_aberta.csv", Some(Fault::CutBody.for_next_requests(1)));
    let report = harness.ingest(&["companies"]).await?;
    assert!(report.failures.is_empty() && report.appended > 100, "{report:#?}");
    assert_eq!(harness.ingestor.received_bytes(Upstream::Cvm), registry_bytes, "nothing comes twice");

    // The next attempt fails as well, and another file comes in between.
    let harness = IngestHarness::new().await?;
    harness.upstreams.set_fault("cad_cia_aberta.csv", Some(Fault::CutBody.for_next_requests(1)));
    let single_attempt = RetryPolicy { max_attempts: 1, ..FAST_RETRY };
    let ingestor = build_ingestor(&harness.upstreams, &harness.database, &harness.clock, single_attempt)?;
    let run = async |source: &str| {
        let sources: Vec<DataSource> = DataSource::from_id(source).into_iter().collect();
        ingestor.run(&sources, None, &NoopReporter).await
    };
    assert_eq!(run("companies").await?.failures.len(), 1);
    harness.upstreams.set_fault("cad_cia_aberta.csv", Some(Fault::Status(500).for_next_requests(1)));
    assert_eq!(run("companies").await?.failures.len(), 1);
    assert!(run("fca").await?.failures.is_empty());
    let before = ingestor.received_bytes(Upstream::Cvm);
    assert!(run("companies").await?.appended > 100);
    assert!(ingestor.received_bytes(Upstream::Cvm) - before < registry_bytes, "the first half is there already");

    // So slowly that no attempt lasts until the end.
    let slow = IngestHarness::new().await?;
    let bytes_per_second = slow.upstreams.registry().len();
    slow.upstreams.set_fault("cad_cia_aberta.csv", Some(Fault::SlowBody { bytes_per_second }));
    let impatient = RetryPolicy { attempt_timeout: Duration::from_millis(500), ..FAST_RETRY };
    let report = slow.ingest_with_retry_policy(impatient, "companies").await?;
    assert!(report.failures.is_empty() && report.appended > 100, "{report:#?}");
    Ok(())
}

/// Runs faster than time.
#[derive(Debug)]
struct FastClock {
    started: Instant,
    factor: u32,
}

impl Clock for FastClock {
    fn now(&self) -> DateTime<Utc> {
        friday() + self.started.elapsed() * self.factor
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_is_silent_delays_no_other() -> TestResult {
    let harness = IngestHarness::new().await?;
    // CVM never answers. SGS is down for the first requests.
    harness.upstreams.set_fault("/dados/CIA_ABERTA/", Some(Fault::Stall(StallAt::Head)));
    let down = Fault::Unavailable { retry_after: None }.for_next_requests(2 * FAST_RETRY.max_attempts);
    harness.upstreams.set_fault("/dados/serie/", Some(down));

    let clock = Arc::new(FastClock { started: Instant::now(), factor: 30 });
    let ingestor = build_ingestor(&harness.upstreams, &harness.database, &clock, FAST_RETRY)?;
    let (stop, stopping) = watch::channel(false);
    let schedule = tokio::spawn(async move {
        let clock: Arc<dyn Clock> = clock;
        run_on_schedule(&ingestor, &clock, stopping).await;
    });

    let store = harness.database.open_store()?;
    wait_until("the newest values of all series and currencies", Duration::from_secs(60), || async {
        let today = parse_date("2026-11-13");
        let Ok(newest) = store.newest_dates(today).await else { return false };
        newest.len() >= 8
            && store
                .closing_dates()
                .await
                .is_ok_and(|currencies| currencies.iter().all(|(_, dates)| dates.last() == Some(&today)))
    })
    .await;
    stop.send_replace(true);
    schedule.await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_rows_are_asked_for_again() -> TestResult {
    let harness = IngestHarness::new().await?;
    // SGS leaves out the first rows of every response, and two days in the middle: one long ago, one in current years.
    let drop_rows = |body: Vec<u8>| -> Vec<u8> {
        let text = String::from_utf8_lossy(&body).into_owned();
        let mut rows: Vec<&str> = text.trim_matches(['[', ']']).split_inclusive("},").collect();
        if rows.len() > 10 {
            rows.drain(..3);
        }
        rows.retain(|row| !row.contains("05/03/2013") && !row.contains("06/03/2025"));
        format!("[{}]", rows.concat().trim_end_matches(',')).into_bytes()
    };
    harness.upstreams.set_fault("bcdata.sgs.4389/", Some(Fault::transform_body(drop_rows)));
    let mut sgs = host_loop(&harness, Upstream::Sgs, &["cdi"]);
    run_due_parts(&mut sgs, &harness.clock).await?;

    let store = harness.database.open_store()?;
    let missing = || async {
        let dates = store.observation_dates("cdi").await?;
        let expected =
            Calendar::Settlement.business_days(vintem_domain::DateRange { from: dates[0], to: dates[dates.len() - 1] });
        anyhow::Ok(expected.filter(|day| dates.binary_search(day).is_err()).collect::<Vec<NaiveDate>>())
    };
    let missing_at_first = missing().await?;
    assert!(missing_at_first.contains(&parse_date("2013-03-05")), "{missing_at_first:?}");
    let later: Vec<_> = missing_at_first.iter().filter(|day| **day > parse_date("2013-03-05")).collect();
    assert_eq!(later, [&parse_date("2025-03-06")], "windows overlap");

    // The next day.
    harness.upstreams.clear_faults();
    harness.advance_days(1);
    run_due_parts(&mut sgs, &harness.clock).await?;
    let missing = missing().await?;
    assert!(!missing.iter().any(|day| ["2013-03-05", "2025-03-06"].map(parse_date).contains(day)), "{missing:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_is_down_for_26_hours_is_asked_gently_and_caught_up_with() -> TestResult {
    let harness = IngestHarness::new().await?;
    let mut cvm = host_loop(&harness, Upstream::Cvm, &["companies", "ipe"]);
    run_due_parts(&mut cvm, &harness.clock).await?;

    harness.upstreams.set_fault("/dados/CIA_ABERTA/", Some(Fault::Unavailable { retry_after: None }));
    let company = harness.upstreams.companies()[0].clone();
    let saturday = parse_date("2026-11-14");
    let number = 99_000_001;
    let filing = IpeRow::material_fact(&company.cnpj, &company.name, company.code, saturday, number, "Fato");
    harness.upstreams.add_filing(filing)?;
    harness.upstreams.set_today(saturday);
    harness.upstreams.clear_requests();
    let outage_ends_at = harness.clock.now() + TimeDelta::hours(26);
    while harness.clock.now() < outage_ends_at {
        let next = cvm.step().await?;
        harness.clock.set(next.max(harness.clock.now()));
    }
    let requests = harness.upstreams.requests_to(UpstreamService::Cvm).len();
    println!("requests_in_26_hours: {requests}");
    assert!((12..26 * 13).contains(&requests), "about one in five minutes, not {requests}");

    harness.upstreams.clear_faults();
    harness.clock.set(harness.clock.now() + TimeDelta::minutes(5));
    run_due_parts(&mut cvm, &harness.clock).await?;
    let events = harness.stored_events().await?;
    assert!(events.contains(&("filing.published".to_owned(), json!({"filing": number.to_string()}))), "{events:#?}");
    Ok(())
}

/// `VINTEM_ARRIVAL_DAYS` days, each with its rate at a random minute. CVM does not answer on any of them.
#[tokio::test(flavor = "multi_thread")]
async fn a_rate_is_served_within_minutes_of_its_publication() -> TestResult {
    let days: usize = parse_env_var("VINTEM_ARRIVAL_DAYS").unwrap_or(3);
    let first_day = parse_date("2026-11-16");
    // Only what the test adds is published after this day.
    let options = FakeUpstreamOptions {
        today: parse_date("2026-11-13"),
        ipe_rows_per_year: 20,
        ..FakeUpstreamOptions::default()
    };
    let harness = IngestHarness::with_options(options, FAST_RETRY).await?;
    harness.upstreams.set_fault("/dados/CIA_ABERTA/", Some(Fault::Unavailable { retry_after: None }));
    let mut sgs = host_loop(&harness, Upstream::Sgs, &["selic-daily"]);
    let mut cvm = host_loop(&harness, Upstream::Cvm, &["companies", "ipe"]);
    let mut cvm_due = harness.clock.now();
    run_due_parts(&mut sgs, &harness.clock).await?;

    let store = harness.database.open_store()?;
    let source = DataSource::from_id("selic-daily").expect("a source");
    let newest_date = async |day| anyhow::Ok(store.newest_dates(day).await?.get(&source.dataset()).copied());
    let mut slowest = TimeDelta::zero();
    let mut requests = 0;
    let range = vintem_domain::DateRange { from: first_day, to: first_day + Days::new(2 * days as u64 + 10) };
    for day in Calendar::Settlement.business_days(range).take(days) {
        let expected_at = source.expected_at(day - Days::new(1)).expect("a daily series");
        let published_at = expected_at + TimeDelta::minutes(rand::rng().random_range(0..18 * 60));
        let mut is_published = false;
        let served_at = loop {
            let next = sgs.step().await?;
            requests += u32::from(next <= harness.clock.now());
            if is_published && newest_date(day).await? == Some(day) {
                break harness.clock.now();
            }
            if cvm_due <= harness.clock.now() {
                cvm_due = cvm.step().await?;
            }
            let next = next.max(harness.clock.now());
            if !is_published && next >= published_at {
                assert!(newest_date(day).await? < Some(day), "{day} was served before it was published");
                harness.upstreams.override_sgs_value(11, day, "0.055131");
                is_published = true;
            }
            harness.clock.set(next);
        };
        slowest = slowest.max(served_at - published_at);
    }

    println!("days: {days}");
    println!("polls_a_day: {}", requests / u32::try_from(days)?);
    println!("slowest_arrival_seconds: {}", slowest.num_seconds());
    assert!(slowest <= MAX_ARRIVAL_DELAY, "{slowest}");
    Ok(())
}
