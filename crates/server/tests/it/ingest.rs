//! Ingestion, from the stand-ins of the upstreams to what is served.

use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Days, NaiveDate, Utc};
use serde_json::{Value, json};
use vintem_domain::{ManualClock, Plan};
use vintem_ingest::fetch::{RetryPolicy, UpstreamAddresses};
use vintem_ingest::ingestor::{Ingestor, NoopReporter, RunReport, parse_source_names};
use vintem_ingest::source::DataSource;
use vintem_testkit::upstreams::{FakeUpstreamOptions, FakeUpstreams, Fault, IpeRow, UpstreamService};
use vintem_testkit::{TestDatabase, TestReplica, wait_until};

use crate::{TestResult, friday};

/// Tries as often as in earnest, without the waits.
pub const FAST_RETRY: RetryPolicy = RetryPolicy {
    max_attempts: 3,
    initial_backoff: Duration::from_millis(2),
    max_backoff: Duration::from_millis(5),
    total_time_budget: Duration::from_secs(60),
    attempt_timeout: Duration::from_secs(20),
};

/// Enough for most: series of each frequency, companies and filings. Bulletins are half a million rows.
const BASIC_SOURCES: [&str; 6] = ["selic", "cdi", "selic-daily", "ipca", "companies", "ipe"];

/// Upstreams, a database, and what fills the one from the other.
pub struct IngestHarness {
    pub upstreams: FakeUpstreams,
    clock: Arc<ManualClock>,
    ingestor: Ingestor,
    database: TestDatabase,
}

impl IngestHarness {
    async fn new() -> anyhow::Result<Self> {
        Self::with_options(FakeUpstreamOptions { ipe_rows_per_year: 60, ..FakeUpstreamOptions::default() }, FAST_RETRY)
            .await
    }

    pub async fn with_options(options: FakeUpstreamOptions, patience: RetryPolicy) -> anyhow::Result<Self> {
        let (upstreams, database) = (FakeUpstreams::start(options)?, TestDatabase::create_empty().await?);
        let clock = Arc::new(ManualClock::new(friday()));
        let ingestor = build_ingestor(&upstreams, &database, &clock, patience)?;
        Ok(Self { upstreams, clock, ingestor, database })
    }

    pub async fn ingest(&self, sources: &[&str]) -> anyhow::Result<RunReport> {
        let names: Vec<String> = sources.iter().map(|name| (*name).to_owned()).collect();
        Ok(self.ingestor.run(&parse_source_names(&names)?, None, &NoopReporter).await?)
    }

    /// The same with another patience.
    pub async fn ingest_with_retry_policy(&self, patience: RetryPolicy, source: &str) -> anyhow::Result<RunReport> {
        let ingestor = build_ingestor(&self.upstreams, &self.database, &self.clock, patience)?;
        Ok(ingestor.run(&parse_source_names(&[source.to_owned()])?, None, &NoopReporter).await?)
    }

    /// One source of each shape; nothing may fail.
    pub async fn ingest_basic_sources(&self) -> anyhow::Result<RunReport> {
        let report = self.ingest(&BASIC_SOURCES).await?;
        anyhow::ensure!(report.failures.is_empty(), "{:#?}", report.failures);
        Ok(report)
    }

    /// Some time passes, here and there.
    pub fn advance_days(&self, days: u64) {
        let now = vintem_domain::Clock::now(&*self.clock) + Days::new(days) + chrono::Duration::minutes(1);
        self.clock.set(now);
        self.upstreams.set_today(vintem_domain::dates::sao_paulo_date(now));
    }

    async fn stored_events(&self) -> anyhow::Result<Vec<(String, Value)>> {
        let mut connection = self.database.connect().await?;
        let rows: Vec<(String, String)> = sqlx::query_as("select type, subject::text from event order by sequence")
            .fetch_all(&mut connection)
            .await?;
        rows.into_iter().map(|(kind, subject)| Ok((kind, serde_json::from_str(&subject)?))).collect()
    }

    /// Files that were set aside whole.
    pub async fn quarantined_file_count(&self) -> anyhow::Result<i64> {
        let mut connection = self.database.connect().await?;
        Ok(sqlx::query_scalar("select count(*) from quarantine where line = 0").fetch_one(&mut connection).await?)
    }

    pub async fn start_replica(&self) -> anyhow::Result<(TestReplica, String)> {
        let replica =
            TestReplica::start_with_high_limits(&self.database, vintem_domain::Clock::now(&*self.clock)).await?;
        let (_, key) = replica.create_key(Plan::Platinum).await?;
        Ok((replica, key))
    }
}

fn build_ingestor(
    upstreams: &FakeUpstreams,
    database: &TestDatabase,
    clock: &Arc<ManualClock>,
    patience: RetryPolicy,
) -> anyhow::Result<Ingestor> {
    let addresses =
        UpstreamAddresses { sgs: upstreams.sgs_url(), ptax: upstreams.ptax_url(), cvm: upstreams.cvm_url() };
    let clock: Arc<dyn vintem_domain::Clock> = clock.clone();
    Ok(Ingestor::with_retry_policies(
        database.open_store()?,
        clock,
        &addresses,
        "https://example.com",
        patience,
        patience,
    )?)
}

fn parse_date(text: &str) -> NaiveDate {
    text.parse().expect("a day")
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_database_is_filled_and_served() -> TestResult {
    let world = IngestHarness::new().await?;
    let report = world.ingest(&[]).await?;
    assert!(report.failures.is_empty(), "{:#?}", report.failures);
    println!("rows: {}", report.rows);
    println!("appended: {}", report.appended);
    let (replica, key) = world.start_replica().await?;
    let status: Value = replica.get("/api/v1/status").await?.json().await?;
    for source in status["sources"].as_array().expect("a list") {
        assert!(source["rows"].as_u64() > Some(0), "{source}");
        assert!(source["last_success_at"].is_string() && source["stale"] == json!(false), "{source}");
    }
    assert_eq!((&status["synthetic"], &status["status"]), (&json!(false), &json!("ok")));
    let overview = replica.get("/api/v1/market/overview").await?;
    assert_eq!(overview.headers().get("x-data-source"), None);
    assert!(overview.headers().contains_key("x-data-as-of") && !overview.headers().contains_key("x-data-stale"));
    let filings: Value = replica.get_with_key("/api/v1/filings?limit=1", &key).await?.json().await?;
    let company = filings["data"][0]["company_id"].as_str().expect("text");
    assert_eq!(replica.get_with_key(&format!("/api/v1/companies/{company}"), &key).await?.status(), 200);
    // Every series that says the same as another does say the same.
    assert!(report.cross_checks.len() >= 4, "{:?}", report.cross_checks);
    for check in &report.cross_checks {
        assert_eq!(check.differing_values, 0, "{check:?}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn upstreams_get_one_request_at_a_time_and_conditional_ones_later() -> TestResult {
    let world = IngestHarness::new().await?;
    world.ingest(&[]).await?;
    for upstream in [UpstreamService::Sgs, UpstreamService::Ptax, UpstreamService::Cvm] {
        assert_eq!(world.upstreams.max_in_flight(upstream), 1, "{upstream:?}");
        for seen in world.upstreams.requests_to(upstream) {
            let agent = seen.header("user-agent").unwrap_or_default();
            assert_eq!(agent, format!("vintem/{} (+https://example.com)", vintem_domain::VERSION));
        }
    }
    world.upstreams.clear_requests();
    world.advance_days(0);
    let again = world.ingest(&["cvm"]).await?;
    assert_eq!((again.appended, again.bytes), (0, 0), "what we have does not come again");
    let seen = world.upstreams.requests_to(UpstreamService::Cvm);
    let held: Vec<_> = seen.iter().filter(|seen| seen.header("if-none-match").is_some()).collect();
    assert!(held.len() > 20 && held.iter().all(|seen| seen.status == Some(304)), "{held:?}");
    // What is not there yet cannot be held.
    assert!(seen.iter().all(|seen| matches!(seen.status, Some(304 | 404))), "{seen:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_load_emits_no_events_and_later_changes_emit_one_each() -> TestResult {
    let world = IngestHarness::new().await?;
    world.ingest_basic_sources().await?;
    assert_eq!(world.stored_events().await?, [], "the first filling");
    world.advance_days(0);
    world.ingest_basic_sources().await?;
    assert_eq!(world.stored_events().await?, [], "the same again");

    // One new filing, one new rate, one changed company, one revised value.
    let company = world.upstreams.companies()[0].clone();
    let filing = IpeRow::material_fact(
        &company.cnpj,
        &company.name,
        company.code,
        parse_date("2026-11-13"),
        99_000_001,
        "Uma aquisição",
    );
    world.upstreams.add_filing(filing)?;
    world.upstreams.override_sgs_value(11, parse_date("2026-11-12"), "0.099999");
    let renamed = rename_company(&world.upstreams.registry(), &company.name);
    world.upstreams.set_registry(renamed);
    world.advance_days(1);
    for _ in 0..3 {
        let report = world.ingest(&["ipe", "companies", "selic-daily", "selic"]).await?;
        assert!(report.failures.is_empty(), "{:#?}", report.failures);
    }
    let mut events = world.stored_events().await?;
    events.sort_by(|one, other| one.0.cmp(&other.0));
    let kinds: Vec<&str> = events.iter().map(|(kind, _)| kind.as_str()).collect();
    assert_eq!(kinds, ["company.updated", "filing.published", "rate.published", "series.revised"], "{events:#?}");
    assert_eq!(events[1].1, json!({"filing": "99000001"}));
    assert_eq!(events[2].1, json!({"series": "selic", "date": "2026-11-14"}));
    assert_eq!((&events[3].1["date"], &events[3].1["new"]), (&json!("2026-11-12"), &json!("0.099999")));
    Ok(())
}

/// The registry with this company called otherwise, of the same length.
fn rename_company(registry: &[u8], name: &str) -> Vec<u8> {
    let name: Vec<u8> = name.chars().map(|character| u8::try_from(u32::from(character)).unwrap_or(b'?')).collect();
    let mut other = name.clone();
    other[0] = if other[0] == b'Z' { b'Y' } else { b'Z' };
    let mut changed = registry.to_vec();
    let places: Vec<usize> =
        registry.windows(name.len()).enumerate().filter(|(_, part)| *part == name).map(|(at, _)| at).collect();
    for at in places {
        changed[at..at + name.len()].copy_from_slice(&other);
    }
    changed
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upstream_outage_marks_data_stale_until_it_ends() -> TestResult {
    let world = IngestHarness::new().await?;
    world.ingest_basic_sources().await?;
    let (replica, key) = world.start_replica().await?;
    let paths = ["/api/v1/market/ipca", "/api/v1/market/cdi", "/api/v1/filings", "/api/v1/companies"];
    let ask = |path: &'static str| replica.get_with_key(path, &key);
    let as_of = ask("/api/v1/market/cdi").await?.headers()["x-data-as-of"].clone();
    world.upstreams.set_fault("/", Some(Fault::Unavailable { retry_after: Some("1".into()) }));
    // From a Friday to the second Monday after, so that five business days have no rate: the Friday between is none.
    for _ in 0..10 {
        world.advance_days(1);
        replica.clock.set(vintem_domain::Clock::now(&*world.clock));
        let report = world.ingest(&["cdi", "companies"]).await?;
        assert_eq!((report.appended, report.failures.len()), (0, 2), "{:#?}", report.failures);
        for path in paths {
            assert_eq!(ask(path).await?.status(), 200, "{path}");
        }
    }
    let stale = ask("/api/v1/market/cdi").await?;
    assert_eq!((&stale.headers()["x-data-stale"], &stale.headers()["x-data-as-of"]), (&"true".parse()?, &as_of));
    assert_eq!(stale.json::<Value>().await?["stale"], json!(true));
    assert_eq!(replica.get("/health").await?.json::<Value>().await?["status"], "degraded");
    wait_until("the registry is stale as well", Duration::from_secs(5), || async {
        ask("/api/v1/companies").await.is_ok_and(|answer| answer.headers().contains_key("x-data-stale"))
    })
    .await;

    world.upstreams.clear_faults();
    world.ingest_basic_sources().await?;
    wait_until("all is well again, one cycle later", Duration::from_secs(10), || async {
        for path in ["/api/v1/market/cdi", "/api/v1/companies"] {
            if !ask(path).await.is_ok_and(|answer| !answer.headers().contains_key("x-data-stale")) {
                return false;
            }
        }
        true
    })
    .await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn retry_after_from_an_upstream_is_honored() -> TestResult {
    let world = IngestHarness::new().await?;
    for fault in
        [Fault::TooManyRequests { retry_after: Some("1".into()) }, Fault::Unavailable { retry_after: Some("1".into()) }]
    {
        world.upstreams.clear_requests();
        world.upstreams.set_fault("/", Some(fault.for_next_requests(1)));
        let report = world.ingest(&["ipca"]).await?;
        assert!(report.failures.is_empty(), "{:#?}", report.failures);
        let seen = world.upstreams.requests_to(UpstreamService::Sgs);
        let waited = seen[1].received_at.duration_since(seen[0].received_at);
        assert!(waited >= Duration::from_secs(1), "{waited:?}");
    }
    // A wait that is longer than the patience is for the next run.
    world.upstreams.set_fault("/", Some(Fault::TooManyRequests { retry_after: Some("3600".into()) }));
    world.upstreams.clear_requests();
    let report = world.ingest(&["ipca"]).await?;
    assert!(report.failures[0].2.contains("come again in 3600 s"), "{:#?}", report.failures);
    assert_eq!(world.upstreams.requests_to(UpstreamService::Sgs).len(), 1);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn windows_that_are_too_wide_are_halved() -> TestResult {
    let world = IngestHarness::new().await?;
    world.upstreams.set_fault("bcdata.sgs.12/", Some(Fault::WindowTooWide { with_200: false }.for_next_requests(2)));
    world.upstreams.set_fault("bcdata.sgs.11/", Some(Fault::WindowTooWide { with_200: true }.for_next_requests(2)));
    let report = world.ingest(&["cdi-daily", "selic-daily"]).await?;
    assert!(report.failures.is_empty(), "{:#?}", report.failures);
    let store = world.database.open_store()?;
    for id in ["cdi-daily", "selic-daily"] {
        assert!(store.current_observations(id).await?.len() > 9_000, "{id}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_company_is_marked_absent_after_two_files_but_never_many_at_once() -> TestResult {
    let world = IngestHarness::new().await?;
    world.ingest_basic_sources().await?;
    let whole = world.upstreams.registry();
    let lines: Vec<&[u8]> = whole.split_inclusive(|byte| *byte == b'\n').collect();
    let without = |gone: usize, note: &str| -> Vec<u8> {
        let mut file: Vec<u8> = lines[..lines.len() - gone].concat();
        // Another file each time: its auditor is called otherwise.
        let at = file.iter().rposition(|byte| *byte == b';').expect("a field");
        file.splice(at..at, note.bytes());
        file
    };
    let registered = || async {
        let mut connection = world.database.connect().await?;
        let count: i64 = sqlx::query_scalar(
            "select count(*)
             from (select distinct on (cvm_code) absent from company_version order by cvm_code, known_at desc) company
             where not absent",
        )
        .fetch_one(&mut connection)
        .await?;
        anyhow::Ok(count)
    };
    let before = registered().await?;
    for (turn, expected) in [(1, before), (2, before - 1), (3, before - 1)] {
        world.upstreams.set_registry(without(1, &"x".repeat(turn)));
        world.advance_days(1);
        world.ingest(&["companies"]).await?;
        assert_eq!(registered().await?, expected, "after {turn} files without it");
    }
    // Many at once: not believed, however often.
    for turn in 4..7 {
        world.upstreams.set_registry(without(lines.len() / 11, &"x".repeat(turn)));
        world.advance_days(1);
        world.ingest(&["companies"]).await?;
        assert_eq!(registered().await?, before - 1);
    }
    // And what comes back is back.
    world.upstreams.set_registry(whole.clone());
    world.advance_days(1);
    world.ingest(&["companies"]).await?;
    assert_eq!(registered().await?, before);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn file_order_and_repetition_do_not_change_what_is_stored() -> TestResult {
    // All sources, of each enough that there are several years, and few enough that bulletins are not half a million.
    let since = Some(parse_date("2024-01-01"));
    let mut sources = parse_source_names(&[])?;
    let straight = IngestHarness::new().await?;
    let report = straight.ingestor.run(&sources, since, &NoopReporter).await?;
    assert!(report.failures.is_empty(), "{:#?}", report.failures);
    let expected = straight.database.checksum().await?;

    let crossed = IngestHarness::new().await?;
    sources.reverse();
    // Years come newest first; where the newer ones fail, the oldest is there before them.
    for year in ["_2025.zip", "_2026.zip"] {
        crossed.upstreams.set_fault(year, Some(Fault::Status(500)));
    }
    for source in &sources {
        let report = crossed.ingestor.run(&[*source], since, &NoopReporter).await?;
        assert!(report.failures.iter().all(|(_, part, _)| part != "2024"), "{:#?}", report.failures);
        assert_eq!(
            report.failures.len(),
            if matches!(source, DataSource::Filings(_)) { 2 } else { 0 },
            "{}",
            source.id()
        );
    }
    assert_ne!(crossed.database.checksum().await?, expected);
    crossed.upstreams.clear_faults();
    for turn in 0..3 {
        for source in &sources {
            // A part that was never seen comes as a whole each time.
            if turn > 0 {
                crossed.database.reset_source_parts().await?;
            }
            crossed.advance_days(0);
            let report = crossed.ingestor.run(&[*source], since, &NoopReporter).await?;
            assert!(report.failures.is_empty(), "{:#?}", report.failures);
            assert!(turn == 0 || report.appended == 0, "{} in turn {turn}: {report:#?}", source.id());
        }
    }
    assert_eq!(crossed.database.checksum().await?, expected);
    println!("sources: {}", sources.len());
    println!("checksum: {expected}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn two_concurrent_workers_store_what_one_would() -> TestResult {
    let alone = IngestHarness::new().await?;
    alone.ingest_basic_sources().await?;
    let world = IngestHarness::new().await?;
    let second = build_ingestor(&world.upstreams, &world.database, &world.clock, FAST_RETRY)?;
    let sources = parse_source_names(&BASIC_SOURCES.map(str::to_owned))?;
    let (one, other) =
        tokio::join!(world.ingestor.run(&sources, None, &NoopReporter), second.run(&sources, None, &NoopReporter));
    let (one, other) = (one?, other?);
    assert!(one.failures.is_empty() && other.failures.is_empty(), "{one:#?} {other:#?}");
    assert_eq!(world.database.checksum().await?, alone.database.checksum().await?);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_older_file_is_loaded_as_history_without_events() -> TestResult {
    let world = IngestHarness::new().await?;
    world.ingest_basic_sources().await?;
    let company = world.upstreams.companies()[0].clone();
    let older = rename_company(&world.upstreams.registry(), &company.name);
    let known_at: DateTime<Utc> = "2024-06-01T00:00:00Z".parse()?;
    let companies = DataSource::from_id("companies").expect("a source");
    let report = world.ingestor.load_file(companies, "cad_cia_aberta.csv", &older, known_at).await?;
    assert!(report.appended > 0);
    assert_eq!(world.stored_events().await?, []);
    let (replica, key) = world.start_replica().await?;
    let body: Value = replica.get_with_key(&format!("/api/v1/companies/{}", company.code), &key).await?.json().await?;
    assert_eq!(body["former_names"].as_array().map(Vec::len), Some(1), "{body}");
    Ok(())
}
