//! `vintem init`: writes a `.env` file with generated secrets.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;

use anyhow::{Context, bail};
use clap::Args;

use crate::env_file::ENV_FILE;

/// Every setting with its explanation. The secrets are empty.
const TEMPLATE: &str = include_str!("../../../../.env.example");

#[derive(Debug, Args)]
pub struct InitCommand {
    /// PostgreSQL database to use
    #[arg(long, default_value = "postgres://postgres@127.0.0.1:5432/vintem")]
    database_url: String,
}

impl InitCommand {
    pub fn run(&self) -> anyhow::Result<()> {
        let text = fill_template(&self.database_url, &random_secret(), &random_secret());

        // Readable by its owner alone, because it contains the secrets.
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(ENV_FILE);
        let mut file = match file {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                bail!("{ENV_FILE} already exists and was not changed. Delete it to write a new one with new secrets.")
            }
            Err(error) => bail!("{ENV_FILE} cannot be written: {error}"),
        };
        file.write_all(text.as_bytes()).with_context(|| format!("{ENV_FILE} cannot be written"))?;

        println!("Wrote {ENV_FILE} with new secrets. Keep a copy: API keys and webhooks depend on them.");
        println!("Next: vintem up --demo");
        Ok(())
    }
}

fn fill_template(database_url: &str, key_pepper: &str, secret_key: &str) -> String {
    let values =
        [("VINTEM_DATABASE_URL", database_url), ("VINTEM_KEY_PEPPER", key_pepper), ("VINTEM_SECRET_KEY", secret_key)];
    let fill_line = |line: &str| {
        let name = line.split('=').next().unwrap_or_default();
        match values.iter().find(|(variable, _)| *variable == name) {
            // Quoted, because a password may contain characters with a meaning in the file.
            Some((variable, value)) => format!("{variable}='{value}'\n"),
            None => format!("{line}\n"),
        }
    };
    TEMPLATE.lines().map(fill_line).collect()
}

/// 32 random bytes, in hexadecimal.
fn random_secret() -> String {
    rand::random::<[u8; 32]>().iter().map(|byte| format!("{byte:02x}")).collect()
}
