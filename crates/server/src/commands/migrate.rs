//! `vintem migrate`: updates the database schema.

use anyhow::Context;
use clap::Args;

use crate::settings::DatabaseSettings;

#[derive(Debug, Args)]
pub struct MigrateCommand {
    #[command(flatten)]
    database: DatabaseSettings,
}

impl MigrateCommand {
    pub async fn run(self) -> anyhow::Result<()> {
        self.database.open_store()?.migrate().await.context("the database was not migrated")
    }
}
