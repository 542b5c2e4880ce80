//! The file `.env` in the working directory: settings for people who start the service by hand.

use std::io::ErrorKind;
use std::path::Path;

use anyhow::bail;

pub const ENV_FILE: &str = ".env";

/// Sets the variables in `.env` that are not already set in the environment. Does nothing if there is no such file.
///
/// Must run before any thread starts, because it changes the environment.
pub fn load_env_file() -> anyhow::Result<()> {
    let text = match std::fs::read_to_string(Path::new(ENV_FILE)) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) if error.kind() == ErrorKind::InvalidData => {
            bail!("{ENV_FILE} is not UTF-8 text. Save it as UTF-8.")
        }
        Err(error) => bail!("{ENV_FILE} cannot be read: {error}. Correct its permissions, or move it elsewhere."),
    };
    match dotenvy::from_read(text.as_bytes()) {
        Ok(()) => Ok(()),
        Err(dotenvy::Error::LineParse(line, _)) => bail!("{}", describe_bad_line(&text, &line)),
        Err(error) => bail!("{ENV_FILE} cannot be read: {error}"),
    }
}

/// Names the line by its number, because its text may contain a secret.
fn describe_bad_line(text: &str, bad_line: &str) -> String {
    let first = bad_line.lines().next().unwrap_or_default();
    let number = text.lines().position(|line| line.trim() == first.trim()).map_or(0, |index| index + 1);
    format!("{ENV_FILE}, line {number}: expected NAME=value. Put values with spaces or # in single quotes.")
}
