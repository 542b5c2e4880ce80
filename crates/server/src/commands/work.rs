//! `vintem work`

use std::sync::Arc;

use anyhow::Context;
use clap::Args;
use tokio::sync::watch;
use vintem_domain::{Clock, SystemClock};
use vintem_snapshot::LiveSnapshot;

use super::serve::Signals;
use crate::follow;
use crate::settings::{DatabaseSettings, DirectorySettings, LogSettings, WebhookSettings};
use crate::work::{dispatcher, keep_delivering, keep_exports, keep_publishing, make_exports};

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

    /// Make the files of the bulk export as they are to be now, and end
    #[arg(long)]
    once: bool,
}

impl WorkCommand {
    pub async fn run(self) -> anyhow::Result<()> {
        self.log.start()?;
        let mut signals = Signals::new()?;
        let directory = self.directories.exports();
        let (store, live) = (self.database.open()?, Arc::new(LiveSnapshot::default()));
        if self.once {
            let directory = directory.context("there is nothing to make: set VINTEM_EXPORT_DIR or VINTEM_DATA_DIR")?;
            live.refresh(&store).await.context("the data could not be read")?;
            let snapshot = live.get().context("there is no data")?;
            let made =
                tokio::task::spawn_blocking(move || make_exports(&snapshot, &directory, SystemClock.now())).await??;
            anyhow::ensure!(made.failed.is_empty(), "files of {} could not be made", made.failed.join(", "));
            println!("files made of {} datasets, {} changed within the hour and wait", made.made.len(), made.waiting);
            return Ok(());
        }
        let (bells, clock) = (Arc::new(follow::Bells::default()), Arc::new(SystemClock));
        let dispatcher = dispatcher(store.clone(), &self.webhooks, clock.clone())?;
        let (stop, stopping) = watch::channel(false);
        let deliveries = tokio::spawn(keep_delivering(dispatcher, bells.clone(), stopping));
        let mut tasks = vec![
            tokio::spawn(follow::listen(store.clone(), bells.clone())),
            tokio::spawn(follow::snapshot(store.clone(), live.clone(), bells)),
            tokio::spawn(follow::compact(live.clone())),
            tokio::spawn(keep_publishing(store.clone(), live.clone(), clock.clone())),
        ];
        match directory {
            Some(directory) => tasks.push(tokio::spawn(keep_exports(live, directory, clock))),
            None => {
                tracing::info!("no files of the export are made: neither VINTEM_EXPORT_DIR nor VINTEM_DATA_DIR is set");
            }
        }
        tracing::info!("working");
        signals.stop().await;
        tracing::info!("stopping");
        tasks.iter().for_each(tokio::task::JoinHandle::abort);
        stop.send_replace(true);
        deliveries.await.context("delivering ended badly")?;
        store.close().await;
        Ok(())
    }
}
