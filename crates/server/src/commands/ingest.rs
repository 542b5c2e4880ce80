//! `vintem ingest`: loads data from the upstreams once, on a schedule, or from a file.

use std::io::IsTerminal;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use anyhow::{Context, bail};
use chrono::{NaiveDate, NaiveTime, Utc};
use clap::Args;
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use tokio::sync::watch;
use vintem_domain::{Clock, SystemClock};
use vintem_ingest::ingestor::{Ingestor, PartOutcome, ProgressReporter, RunReport, parse_source_names};
use vintem_ingest::scheduler::run_on_schedule;
use vintem_ingest::source::{DataSource, Upstream};
use vintem_ingest::upstreams::PartError;
use vintem_store::Store;
use vintem_store::sources::CrossCheck;

use crate::background;
use crate::commands::serve::ShutdownSignals;
use crate::http_server::ServerPhase;
use crate::operator::metrics::metrics_handle;
use crate::operator::{AdminPort, open_admin_port};
use crate::settings::{AdminTokenSettings, ContactSettings, DatabaseSettings, LogSettings, UpstreamSettings};

#[derive(Debug, Args)]
#[command(after_help = sources_help())]
pub struct IngestCommand {
    #[command(flatten)]
    database: DatabaseSettings,

    #[command(flatten)]
    upstreams: UpstreamSettings,

    #[command(flatten)]
    contact: ContactSettings,

    /// Address of /livez, /readyz and /metrics with --watch [default: none]. Keep it private
    #[arg(long, env = "VINTEM_INGEST_ADMIN_LISTEN", value_name = "ADDRESS")]
    admin_listen: Option<SocketAddr>,

    #[command(flatten)]
    admin_token: AdminTokenSettings,

    #[command(flatten)]
    log: LogSettings,

    /// Sources to fetch [default: all]
    sources: Vec<String>,

    /// Fetch data again, starting from this date
    #[arg(long, value_name = "DATE")]
    since: Option<NaiveDate>,

    /// Keep running and fetch each source on its schedule
    #[arg(long, conflicts_with_all = ["sources", "since", "file"])]
    watch: bool,

    /// Load an archived file instead of fetching; needs exactly one source
    #[arg(long, requires = "known_at")]
    file: Option<PathBuf>,

    /// Date on which the contents of the file became known
    #[arg(long, value_name = "DATE", requires = "file")]
    known_at: Option<NaiveDate>,
}

fn sources_help() -> String {
    let ids: Vec<&str> = DataSource::all().map(DataSource::id).collect();
    format!("Sources: {}. Groups of sources: sgs, ptax, cvm, filings, statements", ids.join(", "))
}

impl IngestCommand {
    pub async fn run(self) -> anyhow::Result<()> {
        let store = self.database.open_migrated_store().await?;
        refuse_demo_database(&store).await?;
        // Loads write events, whether or not a replica runs that adds their partitions.
        store.maintain_partitions(Utc::now().date_naive()).await?;
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let upstreams = &self.upstreams;
        let ingestor =
            Ingestor::new(store.clone(), clock.clone(), &upstreams.upstream_addresses(), &self.contact.contact)?;

        if self.watch {
            self.log.init_logging()?;
            metrics_handle();
            let mut signals = ShutdownSignals::new()?;
            let (stop_sender, stop) = watch::channel(false);
            let (phase, phase_changes) = watch::channel(ServerPhase::Serving);
            if let Some(address) = self.admin_listen {
                let port = AdminPort {
                    role: "ingest",
                    store: store.clone(),
                    token: self.admin_token.admin_token,
                    phase: phase_changes,
                    live_snapshot: None,
                    replica: None,
                };
                let (admin_address, _tasks) = open_admin_port(address, &Arc::default(), port)?;
                tracing::info!(%admin_address, "listening");
            }
            tokio::spawn(background::maintain_partitions(store));
            tokio::spawn(async move {
                signals.wait().await;
                phase.send_replace(ServerPhase::Stopping);
                stop_sender.send_replace(true);
            });
            run_on_schedule(&ingestor, &clock, stop).await;
            return Ok(());
        }

        let sources = parse_source_names(&self.sources)?;
        match (&self.file, self.known_at) {
            (Some(file), Some(known_at)) => load_file(&ingestor, &sources, file, known_at).await,
            _ => run_ingestion(&ingestor, &sources, self.since).await,
        }
    }
}

/// Runs before anything is fetched. Otherwise the load would fail only after the first download.
async fn refuse_demo_database(store: &Store) -> anyhow::Result<()> {
    if store.has_synthetic_data().await? {
        bail!(
            "The database contains demo data, which cannot be mixed with real data. Use another database, or remove \
             the demo data with: vintem demo --remove"
        );
    }
    Ok(())
}

async fn run_ingestion(ingestor: &Ingestor, sources: &[DataSource], since: Option<NaiveDate>) -> anyhow::Result<()> {
    let started = Instant::now();
    let is_terminal = std::io::stderr().is_terminal();
    let bars = BarReporter::default();
    let lines = LineReporter;
    let reporter: &dyn ProgressReporter = if is_terminal { &bars } else { &lines };
    let report = ingestor.run(sources, since, reporter).await?;
    let seconds = started.elapsed().as_secs_f64().max(0.001);

    for alert in &report.alerts {
        println!("ALERT {alert}");
    }
    for check in &report.cross_checks {
        println!("CHECK {}", format_cross_check(check));
    }
    println!(
        "Fetched {} parts ({:.1} MB) in {seconds:.1} s: {} rows read, {} new or changed, {} quarantined ({:.0} rows/s).",
        report.parts,
        report.bytes as f64 / 1e6,
        report.rows,
        report.appended,
        report.quarantined,
        report.rows as f64 / seconds
    );
    fail_if_incomplete(&report)
}

/// Says what is left, and who fetches it when.
fn fail_if_incomplete(report: &RunReport) -> anyhow::Result<()> {
    let failed = report.failures.len();
    match (failed, report.skipped_parts) {
        (0, 0) => Ok(()),
        (failed, 0) => bail!(
            "{failed} of {} parts failed. What is stored of them is unchanged. `vintem up` and `vintem ingest --watch` \
             retry each of them later and later, up to once a day; or run this command again.",
            report.parts
        ),
        (failed, skipped) => bail!(
            "{failed} parts failed, and {skipped} were not tried because their host does not answer. What is stored of \
             them is unchanged. `vintem up` and `vintem ingest --watch` go on as soon as it answers; or run this command \
             again."
        ),
    }
}

async fn load_file(
    ingestor: &Ingestor,
    sources: &[DataSource],
    file: &PathBuf,
    known_at: NaiveDate,
) -> anyhow::Result<()> {
    let [source] = sources else { bail!("--file needs exactly one source, not {}", sources.len()) };
    let bytes = std::fs::read(file).with_context(|| format!("{} cannot be read", file.display()))?;
    let name = file.file_name().and_then(|name| name.to_str()).unwrap_or("file");
    let known_at = known_at.and_time(NaiveTime::MIN).and_utc();
    if known_at > Utc::now() {
        bail!("--known-at must not be in the future");
    }

    let report = ingestor.load_file(*source, name, &bytes, known_at).await?;
    println!("{} rows read, {} new or changed, {} quarantined.", report.rows, report.appended, report.quarantined());
    Ok(())
}

pub fn format_cross_check(check: &CrossCheck) -> String {
    let worst = check
        .worst_date
        .map_or(String::new(), |date| format!("; the largest difference is {} on {date}", check.largest_difference));
    format!("{}: {} of {} values differ{worst}", check.id, check.differing_values, check.compared_values)
}

/// Reports progress on a terminal, with a bar for each upstream.
struct BarReporter {
    multi_progress: MultiProgress,
    bars: Mutex<Vec<(Upstream, ProgressBar)>>,
    rows_and_bytes: Mutex<(u64, u64)>,
}

impl Default for BarReporter {
    fn default() -> Self {
        Self { multi_progress: MultiProgress::new(), bars: Mutex::default(), rows_and_bytes: Mutex::default() }
    }
}

impl BarReporter {
    fn bar_for(&self, upstream: Upstream) -> ProgressBar {
        let mut bars = self.bars.lock().expect("never held across a panic");
        if let Some((_, bar)) = bars.iter().find(|(bar_upstream, _)| *bar_upstream == upstream) {
            return bar.clone();
        }

        let bar = self.multi_progress.add(ProgressBar::new(0));
        if let Ok(style) = ProgressStyle::with_template("{prefix:9} {bar:30} {pos}/{len} {msg} {eta} left") {
            bar.set_style(style);
        }
        bar.set_prefix(upstream.name());
        bars.push((upstream, bar.clone()));
        bar
    }
}

impl ProgressReporter for BarReporter {
    fn on_upstream_started(&self, upstream: Upstream, parts: usize) {
        self.bar_for(upstream).set_length(parts as u64);
    }

    fn on_part_finished(&self, source: DataSource, part: &str, outcome: &PartOutcome) {
        let bar = self.bar_for(source.upstream());
        match outcome {
            PartOutcome::Succeeded(report) => {
                let mut totals = self.rows_and_bytes.lock().expect("never held across a panic");
                *totals = (totals.0 + report.rows, totals.1 + report.bytes);
                let (rows, bytes) = *totals;
                bar.set_message(format!("{} {part}, {rows} rows, {:.1} MB in total", source.id(), bytes as f64 / 1e6));
            }
            PartOutcome::Failed { .. } => self.print(&describe_outcome(source, part, outcome)),
            PartOutcome::NotPublishedYet | PartOutcome::FetchedElsewhere => {}
        }
        bar.inc(1);
    }

    fn on_upstream_down(&self, upstream: Upstream, error: &PartError, skipped_parts: usize) {
        self.bar_for(upstream).abandon();
        self.print(&describe_outage(upstream, error, skipped_parts));
    }
}

impl BarReporter {
    /// Above the bars.
    fn print(&self, line: &str) {
        // A terminal that is gone shows no progress either.
        let _ = self.multi_progress.println(line);
    }
}

/// Reports progress without a terminal, with a line for each part.
struct LineReporter;

impl ProgressReporter for LineReporter {
    fn on_upstream_started(&self, upstream: Upstream, parts: usize) {
        println!("{}: {parts} parts to fetch", upstream.name());
    }

    fn on_part_finished(&self, source: DataSource, part: &str, outcome: &PartOutcome) {
        println!("{}", describe_outcome(source, part, outcome));
    }

    fn on_upstream_down(&self, upstream: Upstream, error: &PartError, skipped_parts: usize) {
        println!("{}", describe_outage(upstream, error, skipped_parts));
    }
}

fn describe_outcome(source: DataSource, part: &str, outcome: &PartOutcome) -> String {
    let source = source.id();
    match outcome {
        PartOutcome::Succeeded(report) if report.unchanged => format!("{source} {part}: nothing new"),
        PartOutcome::Succeeded(report) => format!(
            "{source} {part}: {} rows read, {} new or changed, {} quarantined, {:.1} MB",
            report.rows,
            report.appended,
            report.quarantined(),
            report.bytes as f64 / 1e6
        ),
        PartOutcome::NotPublishedYet => format!("{source} {part}: not published yet"),
        PartOutcome::FetchedElsewhere => format!("{source} {part}: fetched by another process"),
        PartOutcome::Failed { error, .. } => format!("FAIL  {source} {part}: {error}"),
    }
}

fn describe_outage(upstream: Upstream, error: &PartError, skipped_parts: usize) -> String {
    format!("FAIL  {} does not answer; {skipped_parts} parts were not tried: {error}", upstream.name())
}
