//! `vintem work`: builds the bulk export, publishes events, and delivers webhooks.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use clap::Args;
use tokio::sync::watch;
use vintem_api::TaskHealth;
use vintem_domain::{Clock, SystemClock};
use vintem_snapshot::LiveSnapshot;
use vintem_store::Store;

use super::serve::ShutdownSignals;
use super::wait_for_unusable_schema;
use crate::background;
use crate::http_server::ServerPhase;
use crate::operator::metrics::metrics_handle;
use crate::operator::{AdminPort, open_admin_port};
use crate::settings::{AdminTokenSettings, DatabaseSettings, DirectorySettings, LogSettings, WebhookSettings};
use crate::supervision::spawn_supervised;
use crate::worker::{Worker, build_changed_exports};

#[derive(Debug, Args)]
pub struct WorkCommand {
    #[command(flatten)]
    database: DatabaseSettings,

    #[command(flatten)]
    directories: DirectorySettings,

    #[command(flatten)]
    webhooks: WebhookSettings,

    /// Address of /livez, /readyz and /metrics [default: none]. Keep it private
    #[arg(long, env = "VINTEM_WORK_ADMIN_LISTEN", value_name = "ADDRESS")]
    admin_listen: Option<SocketAddr>,

    #[command(flatten)]
    admin_token: AdminTokenSettings,

    #[command(flatten)]
    log: LogSettings,

    /// Build the bulk export files that are due, then exit
    #[arg(long)]
    once: bool,
}

impl WorkCommand {
    pub async fn run(self) -> anyhow::Result<()> {
        self.log.init_logging()?;
        let mut signals = ShutdownSignals::new()?;
        let directory = self.directories.export_directory();
        let store = self.database.open_store()?;
        // A hardened container may have no directory for temporary files.
        let live_snapshot = directory.clone().map_or_else(LiveSnapshot::default, LiveSnapshot::with_scratch_directory);
        let live_snapshot = Arc::new(live_snapshot);

        if self.once {
            return build_exports_once(&store, &live_snapshot, directory).await;
        }

        metrics_handle();
        let (phase, phase_changes) = watch::channel(ServerPhase::Serving);
        let notifications = Arc::new(background::Notifications::default());
        let health = Arc::new(TaskHealth::default());
        let follow = (store.clone(), live_snapshot.clone(), notifications.clone());
        let mut tasks = vec![
            spawn_supervised("notifications", &health, follow.clone(), |(store, _, notifications)| {
                background::listen_for_notifications(store, notifications)
            }),
            spawn_supervised("snapshot", &health, follow, |(store, snapshot, notifications)| {
                background::refresh_snapshot(store, snapshot, notifications)
            }),
            spawn_supervised("compaction", &health, live_snapshot.clone(), background::compact_layers),
            spawn_supervised("partitions", &health, store.clone(), background::maintain_partitions),
        ];
        if let Some(address) = self.admin_listen {
            let port = AdminPort {
                role: "work",
                store: store.clone(),
                token: self.admin_token.admin_token,
                phase: phase_changes,
                live_snapshot: Some(live_snapshot.clone()),
                replica: None,
            };
            let (admin_address, _tasks) = open_admin_port(address, &health, port)?;
            tracing::info!(%admin_address, "listening");
        }
        if directory.is_none() {
            tracing::info!("bulk export is off: neither VINTEM_EXPORT_DIR nor VINTEM_DATA_DIR is set");
        }
        let worker = Worker { store: store.clone(), live_snapshot, notifications, health };
        let (stop, stopping) = watch::channel(false);
        let deliveries = worker.spawn_deliveries(&self.webhooks, stopping)?;
        tasks.extend(worker.spawn_publisher_and_exports(directory));

        tracing::info!("worker started");
        let problem = tokio::select! {
            _ = signals.wait() => None,
            problem = wait_for_unusable_schema(&store) => Some(problem),
        };
        tracing::info!("stopping");

        phase.send_replace(ServerPhase::Stopping);
        tasks.iter().for_each(tokio::task::JoinHandle::abort);
        stop.send_replace(true);
        deliveries.await.context("the webhook dispatcher failed")?;
        store.close().await;
        problem.map_or(Ok(()), |problem| Err(problem.into()))
    }
}

async fn build_exports_once(
    store: &Store,
    live_snapshot: &LiveSnapshot,
    directory: Option<PathBuf>,
) -> anyhow::Result<()> {
    let directory = directory.context("There is no export directory. Set VINTEM_EXPORT_DIR or VINTEM_DATA_DIR.")?;
    store.check_schema().await?;
    live_snapshot.refresh(store).await.context("the data could not be read")?;
    let snapshot = live_snapshot.get().context("The database has no data yet. Run `vintem ingest` first.")?;
    anyhow::ensure!(
        !live_snapshot.lacks_statements(),
        "Statements cannot be written to a local file; see the log for the cause. The export files stay as they are."
    );
    let report =
        tokio::task::spawn_blocking(move || build_changed_exports(&snapshot, &directory, SystemClock.now())).await??;
    anyhow::ensure!(
        report.failed_datasets.is_empty(),
        "Export files of {} could not be built; see the log for the cause",
        report.failed_datasets.join(", ")
    );
    println!(
        "Built export files for {} datasets; postponed {} that were built less than an hour ago.",
        report.built_datasets.len(),
        report.postponed_count
    );
    Ok(())
}
