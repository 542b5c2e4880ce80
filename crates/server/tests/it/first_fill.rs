//! A first fill on a day on which everything goes wrong that can, and the day after.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use serde_json::json;
use vintem_domain::series::{cross_check_series, published_series};
use vintem_domain::{Clock, Currency, ManualClock};
use vintem_ingest::scheduler::HostLoop;
use vintem_ingest::source::{DataSource, Upstream};
use vintem_testkit::upstreams::{FakeUpstreamOptions, Fault, IpeRow, UpstreamService};
use vintem_testkit::{QuietClock, http_client_builder};

use crate::TestResult;
use crate::ingest::{FAST_RETRY, IngestHarness, parse_date};

/// How soon the newest values must be there.
const MAX_TIME_TO_NEWEST: Duration = Duration::from_secs(60);
/// For how long CVM does not answer at first.
const CVM_OUTAGE: TimeDelta = TimeDelta::minutes(10);
/// Bytes from CVM for each byte of a file that changed.
const MAX_BYTE_RATIO: f64 = 1.2;

/// The loops of all hosts, driven by a clock that jumps to what is due next.
struct SimulatedSchedule<'i> {
    clock: &'i ManualClock,
    hosts: Vec<(HostLoop<'i>, DateTime<Utc>)>,
}

impl<'i> SimulatedSchedule<'i> {
    fn new(harness: &'i IngestHarness) -> Self {
        let clock: Arc<dyn Clock> = harness.clock.clone();
        let start = |upstream| (HostLoop::new(&harness.ingestor, &clock, upstream), harness.clock.now());
        Self { clock: &harness.clock, hosts: Upstream::ALL.map(start).into() }
    }

    /// Runs what is due next, unless it is after this moment. Returns whether there was something.
    async fn step_until(&mut self, end: DateTime<Utc>) -> anyhow::Result<bool> {
        let (host, due) = self.hosts.iter_mut().min_by_key(|(_, due)| *due).expect("three hosts");
        if *due > end {
            self.clock.set(end);
            return Ok(false);
        }
        self.clock.set((*due).max(self.clock.now()));
        *due = host.step().await?;
        Ok(true)
    }

    async fn run_until(&mut self, end: DateTime<Utc>) -> TestResult {
        while self.step_until(end).await? {}
        Ok(())
    }
}

async fn has_newest_values(harness: &IngestHarness) -> anyhow::Result<bool> {
    let store = harness.database.open_store()?;
    for series in published_series().chain(cross_check_series()) {
        let newest = store.observation_dates(series.id).await?.last().copied();
        if newest.is_none_or(|newest| series.schedule().is_stale(newest, parse_date("2026-11-13"))) {
            return Ok(false);
        }
    }
    let closing_dates = store.closing_dates().await?;
    Ok(closing_dates.iter().all(|(_, dates)| dates.last() == Some(&parse_date("2026-11-13"))))
}

/// Source and part of everything that is not loaded.
async fn missing_parts(harness: &IngestHarness) -> anyhow::Result<BTreeSet<String>> {
    let sources: Vec<DataSource> = DataSource::all().collect();
    let parts = harness.ingestor.plan(&sources, &Default::default()).await?;
    let missing = parts.iter().filter(|planned| planned.state.backfilled_at.is_none());
    // Files that are not published yet are no failure.
    let missing = missing.filter(|planned| planned.state.failure.is_some() || planned.state.checked_at.is_none());
    Ok(missing.map(|planned| format!("{} {}", planned.source.id(), planned.part.id())).collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_that_can_be_loaded_is_loaded_whatever_goes_wrong() -> TestResult {
    let options = FakeUpstreamOptions { ipe_rows_per_year: 300, ..FakeUpstreamOptions::default() };
    let harness = IngestHarness::with_options(options, FAST_RETRY).await?;
    let upstreams = &harness.upstreams;
    // A year of filings stays broken, a decade of a series is refused, a year of a currency is garbage.
    upstreams.set_fault("ipe_cia_aberta_2008.zip", Some(Fault::TruncatedZip { tenths: 5 }));
    for window_end in ["31/12/1991", "31/12/1994", "31/12/1997"] {
        upstreams.set_fault(
            &format!(
                "bcdata.sgs.12/dados?formato=json&dataInicial=22/11/{}&dataFinal={window_end}",
                window_end[6..].parse::<i32>()? - 3
            ),
            Some(Fault::HtmlWith200),
        );
    }
    upstreams.set_fault("'GBP'&@dataInicial='12-22-2002'", Some(Fault::ReplaceBody(b"{\"value\":[{}]}".to_vec())));
    upstreams.set_fault("itr_cia_aberta", Some(Fault::SlowBody { bytes_per_second: 2_000_000 }));
    upstreams.set_fault("/dados/CIA_ABERTA/", Some(Fault::Unavailable { retry_after: None }));

    let started = QuietClock::start();
    let started_at = harness.clock.now();
    let mut schedule = SimulatedSchedule::new(&harness);
    let mut steps = 0;
    while steps % 10 > 0 || !has_newest_values(&harness).await? {
        steps += 1;
        assert!(schedule.step_until(started_at + TimeDelta::minutes(1)).await?, "the newest values are missing");
        assert!(started.elapsed() < MAX_TIME_TO_NEWEST, "the newest values are missing");
    }
    println!("newest_values_seconds: {:.1}", started.elapsed().as_secs_f64());

    schedule.run_until(started_at + CVM_OUTAGE).await?;
    upstreams.set_fault("/dados/CIA_ABERTA/", None);
    schedule.run_until(started_at + TimeDelta::hours(2)).await?;
    let missing = missing_parts(&harness).await?;
    let expected = ["cdi-daily 1989", "cdi-daily 1992", "cdi-daily 1995", "fx GBP-2003", "ipe 2008"];
    assert_eq!(missing, expected.map(str::to_owned).into());
    let currencies = harness.database.open_store()?.closing_dates().await?;
    assert_eq!(currencies.len(), Currency::ALL.len());
    println!("first_fill_seconds: {:.1}", started.elapsed().as_secs_f64());

    // On Sunday all current files are written again, and one has a new filing.
    upstreams.set_fault("itr_cia_aberta", None);
    schedule.run_until("2026-11-15T03:00:00Z".parse()?).await?;
    let company = upstreams.companies()[0].clone();
    let sunday = parse_date("2026-11-15");
    let number = 99_000_001;
    upstreams.add_filing(IpeRow::material_fact(&company.cnpj, &company.name, company.code, sunday, number, "Nova"))?;
    upstreams.set_today(sunday);
    upstreams.clear_requests();
    let bytes_before = harness.ingestor.received_bytes(Upstream::Cvm);
    schedule.run_until("2026-11-16T03:00:00Z".parse()?).await?;

    let pulled = harness.ingestor.received_bytes(Upstream::Cvm) - bytes_before;
    let changed = bytes_of_changed_files(&harness).await?;
    println!("bytes_changed: {changed}");
    println!("bytes_pulled: {pulled}");
    assert!(pulled as f64 <= MAX_BYTE_RATIO * changed as f64, "{pulled} of {changed}");
    let events = harness.stored_events().await?;
    assert!(events.contains(&("filing.published".to_owned(), json!({"filing": number.to_string()}))), "{events:#?}");
    Ok(())
}

/// The size of all files that CVM sent, or sent parts of.
async fn bytes_of_changed_files(harness: &IngestHarness) -> anyhow::Result<u64> {
    let requests = harness.upstreams.requests_to(UpstreamService::Cvm);
    let sent = requests.iter().filter(|request| matches!(request.status, Some(200 | 206)));
    let paths: BTreeSet<String> = sent.map(|request| request.path_and_query.clone()).collect();
    let http = http_client_builder().build()?;
    let mut bytes = 0;
    for path in &paths {
        let response = http.get(format!("{}{path}", harness.upstreams.cvm_url())).send().await?;
        bytes += response.bytes().await?.len() as u64;
    }
    Ok(bytes)
}
