//! `vintem migrate`: updates the database schema.

use clap::Args;
use vintem_store::Store;
use vintem_store::diagnosis::DatabaseProblem;
use vintem_store::migrations::{SCHEMA_VERSION, SchemaChange};

use crate::settings::DatabaseSettings;

#[derive(Debug, Args)]
pub struct MigrateCommand {
    #[command(flatten)]
    database: DatabaseSettings,
}

impl MigrateCommand {
    pub async fn run(self) -> anyhow::Result<()> {
        let change = migrate(&self.database.open_store()?).await?;
        println!("{}", describe(change));
        Ok(())
    }
}

/// Fails at once, with the cause, if the database cannot be reached or is too new for this version.
pub async fn migrate(store: &Store) -> anyhow::Result<SchemaChange> {
    match store.check_schema().await {
        Ok(()) | Err(DatabaseProblem::NoSchema | DatabaseProblem::OldSchema { .. }) => Ok(store.migrate().await?),
        Err(problem) => Err(problem.into()),
    }
}

fn describe(SchemaChange { before, after }: SchemaChange) -> String {
    match before {
        0 => format!("Created the tables (schema version {after})."),
        before if before > SCHEMA_VERSION => {
            format!("The schema is newer than this version of Vintém and supports it (version {after}).")
        }
        before if before == after => format!("The schema is up to date (version {after})."),
        before => format!("Updated the schema from version {before} to {after}."),
    }
}
