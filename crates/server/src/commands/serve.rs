//! `vintem serve` and `vintem up`

use std::sync::Arc;

use anyhow::Context;
use clap::Args;
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;
use vintem_domain::{SystemClock, VERSION};

use crate::replica::{self, REDIS_PREFIX};
use crate::settings::ServeSettings;

#[derive(Debug, Args)]
pub struct ServeCommand {
    #[command(flatten)]
    settings: ServeSettings,

    /// What is logged, e.g. `info` or `warn,vintem_api=debug`
    #[arg(long, env = "VINTEM_LOG", default_value = "info,sqlx=warn")]
    log: String,
}

/// What is done before serving.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Before {
    Nothing,
    Migrate,
}

impl ServeCommand {
    pub async fn run(self, before: Before) -> anyhow::Result<()> {
        let filter = EnvFilter::try_new(&self.log).context("VINTEM_LOG cannot be read")?;
        tracing_subscriber::fmt()
            .json()
            .flatten_event(true)
            .with_writer(std::io::stderr)
            .with_env_filter(filter)
            .init();
        // Before anything is announced, so that no signal finds the default that kills.
        let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        if before == Before::Migrate {
            self.settings.database.open()?.migrate().await.context("the database was not migrated")?;
        }
        let replica = replica::start(&self.settings, REDIS_PREFIX, Arc::new(SystemClock)).await?;
        tracing::info!(
            version = VERSION,
            address = %replica.address,
            admin_address = %replica.admin_address,
            "listening"
        );
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tracing::info!("stopping");
        replica.stop().await;
        Ok(())
    }
}
