//! `vintem serve` serves the API and the pages; `vintem up` also runs the worker and the ingestion.

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use vintem_domain::{Clock, SystemClock, VERSION};
use vintem_ingest::ingestor::Ingestor;
use vintem_ingest::scheduler::run_on_schedule;

use super::migrate::migrate;
use super::{demo, wait_for_unusable_schema};
use crate::replica::{self, REDIS_PREFIX, Replica};
use crate::settings::{LogSettings, ServeSettings, UpstreamSettings};
use crate::worker::Worker;

const READINESS_POLL_INTERVAL: Duration = Duration::from_millis(50);

#[derive(Debug, Args)]
pub struct ServeCommand {
    #[command(flatten)]
    settings: ServeSettings,

    #[command(flatten)]
    log: LogSettings,
}

/// `vintem up`: all roles in one process.
#[derive(Debug, Args)]
pub struct UpCommand {
    #[command(flatten)]
    serve: ServeCommand,

    #[command(flatten)]
    upstreams: UpstreamSettings,

    /// Serve the stored data without fetching from the publishers
    #[arg(long)]
    no_ingest: bool,

    /// Load demo data first if the database has none
    #[arg(long)]
    demo: bool,
}

impl UpCommand {
    pub async fn run(self) -> anyhow::Result<()> {
        self.serve.log.init_logging()?;
        let signals = ShutdownSignals::new()?;
        let store = self.serve.settings.database.open_store()?;
        migrate(&store).await?;
        if self.demo && !store.has_synthetic_data().await? {
            demo::load_demo_data(&store, &demo::default_size()).await?;
        }

        let (stop, stopping) = watch::channel(false);
        // Real data must not be mixed with synthetic data, so a demo does not ingest.
        let is_demo = store.has_synthetic_data().await?;
        let ingestion = (!self.no_ingest && !is_demo).then(|| {
            let clock: Arc<dyn Clock> = Arc::new(SystemClock);
            let addresses = self.upstreams.upstream_addresses();
            let ingestor = Ingestor::new(store, clock.clone(), &addresses, &self.serve.settings.contact.contact);
            ingestor.map(|ingestor| tokio::spawn(async move { run_on_schedule(&ingestor, &clock, stopping).await }))
        });
        let ingestion = ingestion.transpose()?;

        self.serve.serve_until_stopped(signals, true).await?;

        stop.send_replace(true);
        if let Some(ingestion) = ingestion {
            ingestion.await?;
        }
        Ok(())
    }
}

impl ServeCommand {
    pub async fn run(self) -> anyhow::Result<()> {
        self.log.init_logging()?;
        self.serve_until_stopped(ShutdownSignals::new()?, false).await
    }

    async fn serve_until_stopped(self, mut signals: ShutdownSignals, with_worker: bool) -> anyhow::Result<()> {
        let mut replica = tokio::select! {
            replica = replica::start_replica(&self.settings, REDIS_PREFIX, Arc::new(SystemClock)) => replica?,
            _ = signals.wait() => return Ok(()),
        };

        let mut tasks = Vec::new();
        let mut deliveries = None;
        let (stop, stopping) = watch::channel(false);
        if with_worker {
            // A store of its own: background work may wait longer for Postgres than a request.
            let worker = Worker {
                store: self.settings.database.open_store()?,
                live_snapshot: replica.snapshot(),
                notifications: replica.notifications(),
                health: replica.task_health(),
            };
            deliveries = Some(worker.spawn_deliveries(&self.settings.webhooks, stopping)?);
            tasks = worker.spawn_publisher_and_exports(self.settings.directories.export_directory());
        }

        tracing::info!(
            version = VERSION,
            address = %replica.address,
            admin_address = %replica.admin_address,
            "listening"
        );
        let schema_store = self.settings.database.open_store()?;
        let ready_until_signal = async {
            announce_readiness(&replica, &self.settings.public_url).await;
            std::future::pending().await
        };
        let stopped = tokio::select! {
            never = ready_until_signal => never,
            signal = signals.wait() => Ok(signal),
            problem = wait_for_unusable_schema(&schema_store) => Err(problem),
        };
        schema_store.close().await;
        // Nobody balances the load of a process that was started by hand. A second signal ends the wait.
        if matches!(stopped, Ok(StopSignal::Terminate)) {
            tracing::info!(seconds = self.settings.drain_seconds, "no longer ready; requests are still answered");
            tokio::select! {
                () = replica.leave() => {}
                _ = signals.wait() => {}
            }
        }
        tracing::info!("stopping");

        tasks.iter().for_each(tokio::task::JoinHandle::abort);
        stop.send_replace(true);
        replica.stop().await;
        if let Some(deliveries) = deliveries {
            deliveries.await.context("the webhook dispatcher failed")?;
        }
        stopped.map(|_| ()).map_err(Into::into)
    }
}

/// Prints one line for the person at the terminal once requests are answered with data.
async fn announce_readiness(replica: &Replica, public_url: &str) {
    let live_snapshot = replica.snapshot();
    let snapshot = loop {
        match live_snapshot.get() {
            Some(snapshot) => break snapshot,
            None => tokio::time::sleep(READINESS_POLL_INTERVAL).await,
        }
    };
    let data = if snapshot.is_synthetic() {
        " (demo data)"
    } else if snapshot.states().is_empty() {
        " (no data yet)"
    } else {
        ""
    };
    let url = if public_url.is_empty() { format!("http://{}", replica.address) } else { public_url.to_owned() };
    // Nobody may be reading any more, which must not stop the service.
    let _ = writeln!(std::io::stdout(), "Vintém is ready at {url}{data}");
    tracing::info!(url, "ready");
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopSignal {
    /// From whatever runs the process.
    Terminate,
    /// From the keyboard.
    Interrupt,
}

/// SIGTERM and SIGINT. Created before the process announces anything, so that no signal hits the default handler, which
/// kills the process.
pub struct ShutdownSignals {
    terminate: Signal,
    interrupt: Signal,
}

impl ShutdownSignals {
    pub fn new() -> std::io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    pub async fn wait(&mut self) -> StopSignal {
        tokio::select! {
            _ = self.terminate.recv() => StopSignal::Terminate,
            _ = self.interrupt.recv() => StopSignal::Interrupt,
        }
    }
}
