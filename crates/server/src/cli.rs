//! The command line: one subcommand per file of `commands`.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use clap_complete::Shell;
use vintem_domain::series::switch_off;

use crate::commands::{demo, doctor, health, ingest, init, keys, migrate, serve, status, work};
use crate::describe_error;
use crate::env_file::load_env_file;
use crate::secret_files::options_from_files;
use crate::settings::CatalogSettings;
use crate::traces::finish_export;
use crate::usage_error::{BadSetting, SettingProblem, bad_settings, describe_bad_settings};

/// Brazilian financial data as an API
#[derive(Debug, Parser)]
#[command(name = "vintem", version, about, disable_help_subcommand = true)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    catalog: CatalogSettings,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Write a .env file with generated secrets
    Init(init::InitCommand),
    /// Run everything in one process: migrate, serve, fetch new data, build exports and deliver webhooks
    Up(serve::UpCommand),
    /// Serve the API and the pages
    Serve(serve::ServeCommand),
    /// Build bulk export files, publish events and deliver webhooks
    Work(work::WorkCommand),
    /// Create or update the database schema
    Migrate(migrate::MigrateCommand),
    /// Fetch new data from the central bank and the regulator; the first run fetches the whole history
    Ingest(ingest::IngestCommand),
    /// Fill an empty database with synthetic data, or remove that data
    Demo(demo::DemoCommand),
    /// Create, list and manage API keys
    Keys(keys::KeysCommand),
    /// Check the settings, the services they point to and the freshness of the data
    Doctor(doctor::DoctorCommand),
    /// Check whether the replica on this machine is ready; the exit code says it
    Health(health::HealthCommand),
    /// Show how fresh the data is, what could not be fetched, and when it is tried again
    Status(status::StatusCommand),
    /// Print a shell completion script
    Completions {
        /// Shell to print the script for
        shell: Shell,
    },
}

impl Cli {
    /// Reads the settings from `.env`, the environment and the command line. On failure, prints the cause and returns the
    /// exit code.
    pub fn from_command_line() -> Result<Self, ExitCode> {
        let env_file = load_env_file();
        let mut arguments: Vec<OsString> = std::env::args_os().collect();
        let secret_options = options_from_files(&Self::command(), &arguments, |name| std::env::var_os(name));
        let files = env_file.and(secret_options).map(|options| arguments.extend(options));
        let parsed = Self::parse_arguments(arguments);

        // Help must work whatever the files contain.
        let is_help = parsed.as_ref().is_err_and(|error| !error.use_stderr());
        if let (Err(error), false) = (files, is_help) {
            eprintln!("error: {}", describe_error(&error));
            return Err(ExitCode::FAILURE);
        }
        parsed.map_err(|error| {
            let root = Self::command();
            let settings = bad_settings(&root, &error);
            if settings.is_empty() {
                error.exit();
            }
            eprintln!("error: {}", describe_bad_settings(&root, &error, &settings));
            ExitCode::from(USAGE_ERROR)
        })
    }

    fn parse_arguments(mut arguments: Vec<OsString>) -> Result<Self, clap::Error> {
        let is_doctor = arguments.get(1).is_some_and(|command| command == "doctor");
        let mut found: Vec<BadSetting> = Vec::new();
        loop {
            let error = match Self::try_parse_from(&arguments) {
                Ok(mut cli) => {
                    if let Command::Doctor(doctor) = &mut cli.command {
                        doctor.bad_settings = found;
                    }
                    return Ok(cli);
                }
                Err(error) => error,
            };

            let settings = bad_settings(&Self::command(), &error);
            let is_new = settings.iter().any(|setting| !found.contains(setting));
            if !is_doctor || !is_new {
                return Err(error);
            }
            // The doctor reports bad settings along with its other checks, so it continues with placeholders for them.
            for setting in settings {
                arguments.push(format!("--{}={}", setting.option, stand_in(&setting)).into());
                found.push(setting);
            }
        }
    }

    pub async fn run(self) -> anyhow::Result<()> {
        switch_off(&self.catalog.disabled_series.0);
        let result = self.command.run().await;
        finish_export().await;
        result
    }
}

impl Command {
    async fn run(self) -> anyhow::Result<()> {
        match self {
            Self::Init(command) => command.run(),
            Self::Up(command) => command.run().await,
            Self::Serve(command) => command.run().await,
            Self::Work(command) => command.run().await,
            Self::Ingest(command) => command.run().await,
            Self::Migrate(command) => command.run().await,
            Self::Demo(command) => command.run().await,
            Self::Keys(command) => command.run().await,
            Self::Doctor(command) => command.run().await,
            Self::Health(command) => command.run().await,
            Self::Status(command) => command.run().await,
            Self::Completions { shell } => {
                clap_complete::generate(shell, &mut Cli::command(), "vintem", &mut std::io::stdout());
                Ok(())
            }
        }
    }
}

/// The exit code that clap uses for command-line errors.
const USAGE_ERROR: u8 = 2;

/// A placeholder that clap can parse.
fn stand_in(setting: &BadSetting) -> &str {
    match &setting.problem {
        SettingProblem::Missing => "",
        SettingProblem::Invalid { default, .. } => default.as_deref().unwrap_or_default(),
    }
}
