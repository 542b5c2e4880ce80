//! Ingestion, from the fake upstreams to the served data.

use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Days, NaiveDate, Utc};
use serde_json::{Value, json};
use vintem_domain::{Clock, ManualClock, Plan};
use vintem_ingest::fetch::{RetryPolicy, UpstreamAddresses};
use vintem_ingest::ingestor::{Ingestor, NoopReporter, RunReport, parse_source_names};
use vintem_ingest::source::DataSource;
use vintem_testkit::upstreams::{FakeUpstreamOptions, FakeUpstreams, Fault, IpeRow, UpstreamService};
use vintem_testkit::{TestDatabase, TestReplica, wait_until};

use crate::{TestResult, friday};

/// As many attempts as in production, without the waits.
pub const FAST_RETRY: RetryPolicy = RetryPolicy {
    max_attempts: 3,
    initial_backoff: Duration::from_millis(2),
    max_backoff: Duration::from_millis(5),
    total_time_budget: Duration::from_secs(60),
    attempt_timeout: Duration::from_secs(20),
};

/// Enough for most tests: series of each frequency, companies and filings. Exchange-rate bulletins are left out because
/// they are half a million rows.
const BASIC_SOURCES: [&str; 6] = ["selic", "cdi", "selic-daily", "ipca", "companies", "ipe"];

/// Fake upstreams, a database, and an ingestor between them.
pub struct IngestHarness {
    pub upstreams: FakeUpstreams,
    pub clock: Arc<ManualClock>,
    pub ingestor: Ingestor,
    pub database: TestDatabase,
}

impl IngestHarness {
    pub async fn new() -> anyhow::Result<Self> {
        Self::with_options(FakeUpstreamOptions { ipe_rows_per_year: 60, ..FakeUpstreamOptions::default() }, FAST_RETRY)
            .await
    }

    pub async fn with_options(options: FakeUpstreamOptions, retry_policy: RetryPolicy) -> anyhow::Result<Self> {
        let upstreams = FakeUpstreams::start(options)?;
        let database = TestDatabase::create_empty().await?;
        let clock = Arc::new(ManualClock::new(friday()));
        let ingestor = build_ingestor(&upstreams, &database, &clock, retry_policy)?;
        Ok(Self { upstreams, clock, ingestor, database })
    }

    pub async fn ingest(&self, sources: &[&str]) -> anyhow::Result<RunReport> {
        let names: Vec<String> = sources.iter().map(|name| (*name).to_owned()).collect();
        Ok(self.ingestor.run(&parse_source_names(&names)?, None, &NoopReporter).await?)
    }

    /// Ingests one source with another retry policy.
    pub async fn ingest_with_retry_policy(&self, retry_policy: RetryPolicy, source: &str) -> anyhow::Result<RunReport> {
        let ingestor = build_ingestor(&self.upstreams, &self.database, &self.clock, retry_policy)?;
        Ok(ingestor.run(&parse_source_names(&[source.to_owned()])?, None, &NoopReporter).await?)
    }

    /// Ingests one source of each kind and expects no failure.
    pub async fn ingest_basic_sources(&self) -> anyhow::Result<RunReport> {
        let report = self.ingest(&BASIC_SOURCES).await?;
        anyhow::ensure!(report.failures.is_empty(), "{:#?}", report.failures);
        Ok(report)
    }

    /// Advances the clock, and the date of the upstreams with it. One minute is added, so that 0 days still moves time.
    pub fn advance_days(&self, days: u64) {
        let now = self.clock.now() + Days::new(days) + chrono::Duration::minutes(1);
        self.clock.set(now);
        self.upstreams.set_today(vintem_domain::dates::sao_paulo_date(now));
    }

    pub async fn stored_events(&self) -> anyhow::Result<Vec<(String, Value)>> {
        let mut connection = self.database.connect().await?;
        let rows: Vec<(String, String)> = sqlx::query_as("select type, subject::text from event order by sequence")
            .fetch_all(&mut connection)
            .await?;

        rows.into_iter().map(|(kind, subject)| Ok((kind, serde_json::from_str(&subject)?))).collect()
    }

    /// The number of quarantined files.
    pub async fn quarantined_file_count(&self) -> anyhow::Result<i64> {
        let mut connection = self.database.connect().await?;
        Ok(sqlx::query_scalar("select count(*) from quarantine where line = 0").fetch_one(&mut connection).await?)
    }

    pub async fn start_replica(&self) -> anyhow::Result<(TestReplica, String)> {
        let replica = TestReplica::start_with_high_limits(&self.database, self.clock.now()).await?;
        let (_, key) = replica.create_key(Plan::Platinum).await?;
        Ok((replica, key))
    }
}

pub fn build_ingestor<C: Clock>(
    upstreams: &FakeUpstreams,
    database: &TestDatabase,
    clock: &Arc<C>,
    retry_policy: RetryPolicy,
) -> anyhow::Result<Ingestor> {
    let addresses =
        UpstreamAddresses { sgs: upstreams.sgs_url(), ptax: upstreams.ptax_url(), cvm: upstreams.cvm_url() };
    let clock: Arc<dyn Clock> = clock.clone();
    Ok(Ingestor::with_retry_policies(
        database.open_store()?,
        clock,
        &addresses,
        "https://example.com",
        retry_policy,
        retry_policy,
    )?)
}

pub fn parse_date(text: &str) -> NaiveDate {
    text.parse().expect("a day")
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_database_is_filled_and_served() -> TestResult {
    let harness = IngestHarness::new().await?;
    let report = harness.ingest(&[]).await?;
    assert!(report.failures.is_empty(), "{:#?}", report.failures);
    println!("rows: {}", report.rows);
    println!("appended: {}", report.appended);

    let (replica, key) = harness.start_replica().await?;
    let status: Value = replica.get("/api/v1/status").await?.json().await?;
    for source in status["sources"].as_array().expect("a list") {
        assert!(source["rows"].as_u64() > Some(0), "{source}");
        assert!(source["last_success_at"].is_string() && source["stale"] == json!(false), "{source}");
    }

    assert_eq!(status["synthetic"], json!(false));
    // A busy machine may keep it from its backends for a moment.
    wait_until("the status is ok", Duration::from_secs(10), || async {
        let Ok(response) = replica.get("/api/v1/status").await else { return false };
        response.json::<Value>().await.is_ok_and(|status| status["status"] == "ok")
    })
    .await;

    let overview = replica.get("/api/v1/market/overview").await?;
    assert_eq!(overview.headers().get("x-data-source"), None);
    assert!(overview.headers().contains_key("x-data-as-of") && !overview.headers().contains_key("x-data-stale"));

    let filings: Value = replica.get_with_key("/api/v1/filings?limit=1", &key).await?.json().await?;
    let company = filings["data"][0]["company_id"].as_str().expect("text");
    assert_eq!(replica.get_with_key(&format!("/api/v1/companies/{company}"), &key).await?.status(), 200);

    // Series that repeat another one agree with it.
    assert!(report.cross_checks.len() >= 4, "{:?}", report.cross_checks);
    for check in &report.cross_checks {
        assert_eq!(check.differing_values, 0, "{check:?}");
    }

    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn upstreams_get_one_request_at_a_time_and_conditional_ones_later() -> TestResult {
    let harness = IngestHarness::new().await?;
    harness.ingest(&[]).await?;

    for upstream in [UpstreamService::Sgs, UpstreamService::Ptax, UpstreamService::Cvm] {
        assert_eq!(harness.upstreams.max_in_flight(upstream), 1, "{upstream:?}");
        for request in harness.upstreams.requests_to(upstream) {
            let agent = request.header("user-agent").unwrap_or_default();
            assert_eq!(agent, format!("vintem/{} (+https://example.com)", vintem_domain::VERSION));
        }
    }

    harness.upstreams.clear_requests();
    harness.advance_days(0);

    let second_run = harness.ingest(&["cvm"]).await?;
    assert_eq!((second_run.appended, second_run.bytes), (0, 0), "what we have does not come again");

    let requests = harness.upstreams.requests_to(UpstreamService::Cvm);
    let conditional: Vec<_> = requests.iter().filter(|request| request.header("if-none-match").is_some()).collect();
    assert!(conditional.len() > 20 && conditional.iter().all(|request| request.status == Some(304)), "{conditional:?}");

    // A file that does not exist yet has no ETag to send.
    assert!(requests.iter().all(|request| matches!(request.status, Some(304 | 404))), "{requests:?}");

    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_load_emits_no_events_and_later_changes_emit_one_each() -> TestResult {
    let harness = IngestHarness::new().await?;
    harness.ingest_basic_sources().await?;
    assert_eq!(harness.stored_events().await?, [], "the first filling");

    harness.advance_days(0);
    harness.ingest_basic_sources().await?;
    assert_eq!(harness.stored_events().await?, [], "the same again");

    // One new filing, one new rate, one changed company, one revised value.
    let company = harness.upstreams.companies()[0].clone();
    let filing = IpeRow::material_fact(
        &company.cnpj,
        &company.name,
        company.code,
        parse_date("2026-11-13"),
        99_000_001,
        "Uma aquisição",
    );
    harness.upstreams.add_filing(filing)?;
    harness.upstreams.override_sgs_value(11, parse_date("2026-11-12"), "0.099999");
    let renamed = rename_company(&harness.upstreams.registry(), &company.name);
    harness.upstreams.set_registry(renamed);

    harness.advance_days(1);
    for _ in 0..3 {
        let report = harness.ingest(&["ipe", "companies", "selic-daily", "selic"]).await?;
        assert!(report.failures.is_empty(), "{:#?}", report.failures);
    }

    let mut events = harness.stored_events().await?;
    events.sort_by(|one, other| one.0.cmp(&other.0));

    let kinds: Vec<&str> = events.iter().map(|(kind, _)| kind.as_str()).collect();
    assert_eq!(kinds, ["company.updated", "filing.published", "rate.published", "series.revised"], "{events:#?}");
    assert_eq!(events[1].1, json!({"filing": "99000001"}));
    assert_eq!(events[2].1, json!({"series": "selic", "date": "2026-11-14"}));
    assert_eq!((&events[3].1["date"], &events[3].1["new"]), (&json!("2026-11-12"), &json!("0.099999")));

    Ok(())
}

/// The registry with this company under another name of the same length.
fn rename_company(registry: &[u8], name: &str) -> Vec<u8> {
    let name: Vec<u8> = name.chars().map(|character| u8::try_from(u32::from(character)).unwrap_or(b'?')).collect();
    let mut new_name = name.clone();
    new_name[0] = if new_name[0] == b'Z' { b'Y' } else { b'Z' };

    let mut changed = registry.to_vec();
    let positions: Vec<usize> =
        registry.windows(name.len()).enumerate().filter(|(_, part)| *part == name).map(|(at, _)| at).collect();

    for at in positions {
        changed[at..at + name.len()].copy_from_slice(&new_name);
    }

    changed
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upstream_outage_marks_data_stale_until_it_ends() -> TestResult {
    let harness = IngestHarness::new().await?;
    harness.ingest_basic_sources().await?;
    let (replica, key) = harness.start_replica().await?;

    let paths = ["/api/v1/market/ipca", "/api/v1/market/cdi", "/api/v1/filings", "/api/v1/companies"];
    let get = |path: &'static str| replica.get_with_key(path, &key);
    let as_of = get("/api/v1/market/cdi").await?.headers()["x-data-as-of"].clone();
    harness.upstreams.set_fault("/", Some(Fault::Unavailable { retry_after: Some("1".into()) }));

    // From a Friday to the Monday ten days later, so that five business days have no rate: the Friday between is a
    // holiday.
    for _ in 0..10 {
        harness.advance_days(1);
        replica.clock.set(harness.clock.now());
        let report = harness.ingest(&["cdi", "companies"]).await?;
        assert_eq!((report.appended, report.failures.len()), (0, 2), "{:#?}", report.failures);
        for path in paths {
            assert_eq!(get(path).await?.status(), 200, "{path}");
        }
    }

    let stale = get("/api/v1/market/cdi").await?;
    assert_eq!((&stale.headers()["x-data-stale"], &stale.headers()["x-data-as-of"]), (&"true".parse()?, &as_of));
    assert_eq!(stale.json::<Value>().await?["stale"], json!(true));
    assert_eq!(replica.get("/health").await?.json::<Value>().await?["status"], "degraded");

    wait_until("the registry is stale as well", Duration::from_secs(5), || async {
        get("/api/v1/companies").await.is_ok_and(|response| response.headers().contains_key("x-data-stale"))
    })
    .await;

    harness.upstreams.clear_faults();
    harness.ingest_basic_sources().await?;
    wait_until("all is well again, one cycle later", Duration::from_secs(10), || async {
        for path in ["/api/v1/market/cdi", "/api/v1/companies"] {
            if !get(path).await.is_ok_and(|response| !response.headers().contains_key("x-data-stale")) {
                return false;
            }
        }
        true
    })
    .await;

    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unusual_change_shows_until_the_publisher_takes_it_back() -> TestResult {
    let harness = IngestHarness::new().await?;
    harness.ingest_basic_sources().await?;
    let (replica, _) = harness.start_replica().await?;
    let alerts = async || -> anyhow::Result<Value> {
        replica.replica.snapshot().refresh_sources(&harness.database.open_store()?).await?;
        let status: Value = replica.get("/api/v1/status").await?.json().await?;
        let sources = status["sources"].as_array().expect("a list");
        let filings = sources.iter().find(|source| source["id"] == "filings").expect("filings");
        Ok(filings["alerts"].clone())
    };
    assert_eq!(alerts().await?, json!([]));

    let with_column = Fault::transform_zip_member(|table| {
        let lines = table.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        let changed = lines.enumerate().map(|(number, line)| {
            let field: &[u8] = if number == 0 { b";Hora_Entrega\r\n" } else { b";09:00\r\n" };
            [line.trim_ascii_end(), field].concat()
        });
        changed.collect::<Vec<_>>().concat()
    });
    harness.upstreams.set_fault("ipe_cia_aberta_2026.zip", Some(with_column));
    harness.advance_days(1);
    let report = harness.ingest(&["ipe"]).await?;
    assert!(report.failures.is_empty(), "{:#?}", report.failures);
    let planted = json!([
        {"source": "ipe", "part": "2026", "message": "there are additional columns: \"Hora_Entrega\""}
    ]);
    assert_eq!(alerts().await?, planted);

    // The same file again changes nothing.
    harness.ingest(&["ipe"]).await?;
    assert_eq!(alerts().await?, planted);

    harness.upstreams.clear_faults();
    harness.advance_days(7);
    harness.ingest(&["ipe"]).await?;
    assert_eq!(alerts().await?, json!([]));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn retry_after_from_an_upstream_is_honored() -> TestResult {
    let harness = IngestHarness::new().await?;
    for fault in
        [Fault::TooManyRequests { retry_after: Some("1".into()) }, Fault::Unavailable { retry_after: Some("1".into()) }]
    {
        harness.upstreams.clear_requests();
        harness.upstreams.set_fault("/", Some(fault.for_next_requests(1)));
        let report = harness.ingest(&["ipca"]).await?;
        assert!(report.failures.is_empty(), "{:#?}", report.failures);

        let requests = harness.upstreams.requests_to(UpstreamService::Sgs);
        let waited = requests[1].received_at.duration_since(requests[0].received_at);
        assert!(waited >= Duration::from_secs(1), "{waited:?}");
    }

    // A wait beyond the time budget is left to the next run.
    harness.upstreams.set_fault("/", Some(Fault::TooManyRequests { retry_after: Some("3600".into()) }));
    harness.upstreams.clear_requests();
    let report = harness.ingest(&["ipca"]).await?;
    assert!(report.failures[0].2.contains("retry in 3600 s"), "{:#?}", report.failures);
    assert_eq!(harness.upstreams.requests_to(UpstreamService::Sgs).len(), 1);

    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn windows_that_are_too_wide_are_halved() -> TestResult {
    let harness = IngestHarness::new().await?;
    harness.upstreams.set_fault("bcdata.sgs.12/", Some(Fault::WindowTooWide { with_200: false }.for_next_requests(2)));
    harness.upstreams.set_fault("bcdata.sgs.11/", Some(Fault::WindowTooWide { with_200: true }.for_next_requests(2)));

    let report = harness.ingest(&["cdi-daily", "selic-daily"]).await?;
    assert!(report.failures.is_empty(), "{:#?}", report.failures);

    let store = harness.database.open_store()?;
    for id in ["cdi-daily", "selic-daily"] {
        assert!(store.current_observations(id).await?.len() > 9_000, "{id}");
    }

    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_company_is_marked_absent_after_two_files_but_never_many_at_once() -> TestResult {
    let harness = IngestHarness::new().await?;
    harness.ingest_basic_sources().await?;
    let full_registry = harness.upstreams.registry();
    let lines: Vec<&[u8]> = full_registry.split_inclusive(|byte| *byte == b'\n').collect();

    let registry_without = |missing: usize, suffix: &str| -> Vec<u8> {
        let mut file: Vec<u8> = lines[..lines.len() - missing].concat();
        // Each file must differ from the last one, so the last auditor's name changes.
        let at = file.iter().rposition(|byte| *byte == b';').expect("a field");
        file.splice(at..at, suffix.bytes());
        file
    };

    let count_registered = || async {
        let mut connection = harness.database.connect().await?;
        let count: i64 = sqlx::query_scalar(
            "select count(*)
             from (select distinct on (cvm_code) absent from company_version order by cvm_code, known_at desc) company
             where not absent",
        )
        .fetch_one(&mut connection)
        .await?;
        anyhow::Ok(count)
    };

    let before = count_registered().await?;
    for (file_number, expected) in [(1, before), (2, before - 1), (3, before - 1)] {
        harness.upstreams.set_registry(registry_without(1, &"x".repeat(file_number)));
        harness.advance_days(1);
        harness.ingest(&["companies"]).await?;
        assert_eq!(count_registered().await?, expected, "after {file_number} files without it");
    }

    // Many missing at once: rejected, however often the file comes.
    for file_number in 4..7 {
        harness.upstreams.set_registry(registry_without(lines.len() / 11, &"x".repeat(file_number)));
        harness.advance_days(1);
        harness.ingest(&["companies"]).await?;
        assert_eq!(count_registered().await?, before - 1);
    }

    // A company that returns is registered again.
    harness.upstreams.set_registry(full_registry.clone());
    harness.advance_days(1);
    harness.ingest(&["companies"]).await?;
    assert_eq!(count_registered().await?, before);

    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn file_order_and_repetition_do_not_change_what_is_stored() -> TestResult {
    // All sources, with enough history for several years and little enough that bulletins are not half a million rows.
    let since = Some(parse_date("2024-01-01"));
    let mut sources = parse_source_names(&[])?;

    let in_order = IngestHarness::new().await?;
    let report = in_order.ingestor.run(&sources, since, &NoopReporter).await?;
    assert!(report.failures.is_empty(), "{:#?}", report.failures);
    let expected = in_order.database.checksum().await?;

    let reordered = IngestHarness::new().await?;
    sources.reverse();

    // Years are fetched newest first. While the newer ones fail, the oldest is loaded before them.
    for year in ["_2025.zip", "_2026.zip"] {
        reordered.upstreams.set_fault(year, Some(Fault::Status(500)));
    }
    for source in &sources {
        let report = reordered.ingestor.run(&[*source], since, &NoopReporter).await?;
        assert!(report.failures.iter().all(|(_, part, _)| part != "2024"), "{:#?}", report.failures);
        assert_eq!(
            report.failures.len(),
            if matches!(source, DataSource::Filings(_) | DataSource::Statements(_)) { 2 } else { 0 },
            "{}",
            source.id()
        );
    }

    assert_ne!(reordered.database.checksum().await?, expected);

    reordered.upstreams.clear_faults();
    for pass in 0..3 {
        for source in &sources {
            // Without recorded parts, every file is loaded as a whole again.
            if pass > 0 {
                reordered.database.reset_source_parts().await?;
            }

            reordered.advance_days(0);
            let report = reordered.ingestor.run(&[*source], since, &NoopReporter).await?;
            assert!(report.failures.is_empty(), "{:#?}", report.failures);
            assert!(pass == 0 || report.appended == 0, "{} in turn {pass}: {report:#?}", source.id());
        }
    }

    assert_eq!(reordered.database.checksum().await?, expected);
    println!("sources: {}", sources.len());
    println!("checksum: {expected}");

    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn documents_that_share_a_number_have_ids_of_their_own() -> TestResult {
    let harness = IngestHarness::new().await?;
    let company = harness.upstreams.companies()[0].clone();
    let ballot = |number: u64, doc_type: &str, subject: &str| {
        let day = parse_date("2026-10-01");
        let row = IpeRow::material_fact(&company.cnpj, &company.name, company.code, day, number, subject);
        IpeRow { category: "Assembleia".to_owned(), doc_type: doc_type.to_owned(), ..row }
    };
    let stored_ids = || async {
        let mut connection = harness.database.connect().await?;
        let rows: Vec<(String, String)> = sqlx::query_as(
            "select id, doc_type from filing_version where id ~ '^99000[0-9]{3}(-|$)' and not absent order by id",
        )
        .fetch_all(&mut connection)
        .await?;
        anyhow::Ok(rows)
    };

    // Sixty documents under two meetings each, the second one first, and one document alone.
    for number in 0..60 {
        harness.upstreams.add_filing(ballot(99_000_000 + number, "AGE", ""))?;
        harness.upstreams.add_filing(ballot(99_000_000 + number, "AGO", ""))?;
    }
    harness.upstreams.add_filing(ballot(99_000_090, "AGO", ""))?;
    let report = harness.ingest(&["ipe"]).await?;
    assert!(report.failures.is_empty(), "{:#?}", report.failures);
    let first_ids = stored_ids().await?;
    assert_eq!(first_ids.len(), 121, "{first_ids:?}");
    let numbers = first_ids.iter().filter(|(id, _)| id.len() == 8).count();
    assert_eq!((numbers, first_ids[1].0.len()), (61, 8 + 1 + 8), "one of each pair has the number alone");

    // Later files change no id: another document now has the number of a stored one.
    harness.upstreams.add_filing(ballot(99_000_090, "AGE", ""))?;
    harness.advance_days(1);
    let report = harness.ingest(&["ipe"]).await?;
    assert_eq!((report.failures.len(), report.appended), (0, 1), "{report:#?}");
    let ids = stored_ids().await?;
    assert!(first_ids.iter().all(|id| ids.contains(id)), "{ids:?}");
    let late = ids.iter().find(|id| id.0.starts_with("99000090-")).expect("an id with a hash");
    assert_eq!(late.1, "AGE", "the one stored first keeps its number");

    // Each of them can be read.
    let (replica, key) = harness.start_replica().await?;
    for id in ["99000090", &late.0, &ids[0].0, &ids[1].0] {
        let body: Value = replica.get_with_key(&format!("/api/v1/filings/{id}"), &key).await?.json().await?;
        assert_eq!(body["id"], json!(id), "{body}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn years_without_versions_are_loaded() -> TestResult {
    let harness = IngestHarness::new().await?;
    let report = harness.ingest(&["ipe"]).await?;
    assert!(report.failures.is_empty(), "{:#?}", report.failures);

    let mut connection = harness.database.connect().await?;
    let (filings, without_version): (i64, i64) = sqlx::query_as(
        "select count(*), count(*) filter (where version = 0)
         from filing_version
         where delivered_on between '2010-01-01' and '2014-12-31'",
    )
    .fetch_one(&mut connection)
    .await?;
    assert!(filings > 5 * 50 && without_version == filings, "{without_version} of {filings}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn two_concurrent_workers_store_what_one_would() -> TestResult {
    let single = IngestHarness::new().await?;
    single.ingest_basic_sources().await?;

    let harness = IngestHarness::new().await?;
    let second = build_ingestor(&harness.upstreams, &harness.database, &harness.clock, FAST_RETRY)?;
    let sources = parse_source_names(&BASIC_SOURCES.map(str::to_owned))?;

    let (first_report, second_report) =
        tokio::join!(harness.ingestor.run(&sources, None, &NoopReporter), second.run(&sources, None, &NoopReporter));

    let first_report = first_report?;
    let second_report = second_report?;
    assert!(
        first_report.failures.is_empty() && second_report.failures.is_empty(),
        "{first_report:#?} {second_report:#?}"
    );
    assert_eq!(harness.database.checksum().await?, single.database.checksum().await?);

    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_older_file_is_loaded_as_history_without_events() -> TestResult {
    let harness = IngestHarness::new().await?;
    harness.ingest_basic_sources().await?;
    let company = harness.upstreams.companies()[0].clone();
    let older = rename_company(&harness.upstreams.registry(), &company.name);

    let known_at: DateTime<Utc> = "2024-06-01T00:00:00Z".parse()?;
    let companies = DataSource::from_id("companies").expect("a source");

    let report = harness.ingestor.load_file(companies, "cad_cia_aberta.csv", &older, known_at).await?;
    assert!(report.appended > 0);
    assert_eq!(harness.stored_events().await?, []);

    let (replica, key) = harness.start_replica().await?;
    let body: Value = replica.get_with_key(&format!("/api/v1/companies/{}", company.code), &key).await?.json().await?;
    assert_eq!(body["former_names"].as_array().map(Vec::len), Some(1), "{body}");

    Ok(())
}
