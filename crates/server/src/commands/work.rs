//! `vintem work`: builds the bulk export, publishes events, and delivers webhooks.

use std::sync::Arc;

use anyhow::Context;
use clap::Args;
use tokio::sync::watch;
use vintem_domain::{Clock, SystemClock};
use vintem_snapshot::LiveSnapshot;

use super::serve::ShutdownSignals;
use crate::background;
use crate::settings::{DatabaseSettings, DirectorySettings, LogSettings, WebhookSettings};
use crate::worker::{
    build_changed_exports, build_dispatcher, run_event_publisher, run_export_builder, run_webhook_dispatcher,
};

#[derive(Debug, Args)]
pub struct WorkCommand {
    #[command(flatten)]
    database: DatabaseSettings,

    #[command(flatten)]
    directories: DirectorySettings,

    #[command(flatten)]
    webhooks: WebhookSettings,

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
        let live_snapshot = Arc::new(LiveSnapshot::default());

        if self.once {
            let directory =
                directory.context("There is no export directory. Set VINTEM_EXPORT_DIR or VINTEM_DATA_DIR.")?;
            store.check_schema().await?;
            live_snapshot.refresh(&store).await.context("the data could not be read")?;
            let snapshot = live_snapshot.get().context("The database has no data yet. Run `vintem ingest` first.")?;
            let report =
                tokio::task::spawn_blocking(move || build_changed_exports(&snapshot, &directory, SystemClock.now()))
                    .await??;
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
            return Ok(());
        }

        let notifications = Arc::new(background::Notifications::default());
        let clock = Arc::new(SystemClock);
        let dispatcher = build_dispatcher(store.clone(), &self.webhooks, clock.clone())?;
        let (stop, stopping) = watch::channel(false);
        let deliveries = tokio::spawn(run_webhook_dispatcher(dispatcher, notifications.clone(), stopping));
        let mut tasks = vec![
            tokio::spawn(background::listen_for_notifications(store.clone(), notifications.clone())),
            tokio::spawn(background::refresh_snapshot(store.clone(), live_snapshot.clone(), notifications)),
            tokio::spawn(background::compact_layers(live_snapshot.clone())),
            tokio::spawn(run_event_publisher(store.clone(), live_snapshot.clone(), clock.clone())),
        ];
        match directory {
            Some(directory) => tasks.push(tokio::spawn(run_export_builder(live_snapshot, directory, clock))),
            None => {
                tracing::info!("bulk export is off: neither VINTEM_EXPORT_DIR nor VINTEM_DATA_DIR is set");
            }
        }

        tracing::info!("worker started");
        signals.wait().await;
        tracing::info!("stopping");

        tasks.iter().for_each(tokio::task::JoinHandle::abort);
        stop.send_replace(true);
        deliveries.await.context("the webhook dispatcher failed")?;
        store.close().await;
        Ok(())
    }
}
