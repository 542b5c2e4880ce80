//! The command line: one subcommand per file of `commands`.

use clap::{Parser, Subcommand};

use crate::commands::{demo, doctor, ingest, keys, migrate, serve, work};

/// Brazilian financial data as an API that people trust.
#[derive(Debug, Parser)]
#[command(name = "vintem", version, about, disable_help_subcommand = true)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Bring the database to this version's schema, serve, work, and keep asking the publishers, all in one process
    Up(serve::UpCommand),
    /// Serve the API and the pages
    Serve(serve::ServeCommand),
    /// Make the files of the bulk export, publish events, and deliver them to webhooks
    Work(work::WorkCommand),
    /// Bring the database to this version's schema
    Migrate(migrate::MigrateCommand),
    /// Ask the central bank and the regulator for what is new, or for everything the first time
    Ingest(ingest::IngestCommand),
    /// Fill an empty database with synthetic data, or take that data away
    Demo(demo::DemoCommand),
    /// Create, list, move and revoke API keys
    Keys(keys::KeysCommand),
    /// Check the settings and what they point to
    Doctor(doctor::DoctorCommand),
}

impl Cli {
    pub async fn run(self) -> anyhow::Result<()> {
        match self.command {
            Command::Up(command) => command.run().await,
            Command::Serve(command) => command.run().await,
            Command::Work(command) => command.run().await,
            Command::Ingest(command) => command.run().await,
            Command::Migrate(command) => command.run().await,
            Command::Demo(command) => command.run().await,
            Command::Keys(command) => command.run().await,
            Command::Doctor(command) => command.run().await,
        }
    }
}
