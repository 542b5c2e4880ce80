//! Secrets in files: `VINTEM_KEY_PEPPER_FILE` names a file that holds the value of `VINTEM_KEY_PEPPER`, and so on for
//! every secret setting. Container platforms mount secrets as files.

use std::ffi::{OsStr, OsString};

use anyhow::{Context, bail};
use clap::{Arg, Command};

/// The options for all secrets of this command that come from files. The command line takes precedence. A secret in the
/// environment as well as in a file is an error, because one of them is likely to be outdated.
pub fn options_from_files(
    root: &Command,
    arguments: &[OsString],
    variable: impl Fn(&str) -> Option<OsString>,
) -> anyhow::Result<Vec<OsString>> {
    let mut options = Vec::new();
    for argument in secret_arguments(root, arguments) {
        let (Some(name), Some(option)) = (argument.get_env().and_then(OsStr::to_str), argument.get_long()) else {
            continue;
        };
        let Some(file) = variable(&format!("{name}_FILE")).filter(|file| !file.is_empty()) else { continue };
        if variable(name).is_some_and(|value| !value.is_empty()) {
            bail!("{name} and {name}_FILE are both set. Remove one of them.");
        }
        if is_given(arguments, option) {
            continue;
        }

        let text = std::fs::read_to_string(&file)
            .with_context(|| format!("{name}_FILE: {} cannot be read", file.to_string_lossy()))?;
        // Editors end a file with a line break, which is no part of the secret.
        options.push(format!("--{option}={}", text.trim_end_matches(['\r', '\n'])).into());
    }
    Ok(options)
}

/// The secret settings of the command that the arguments name. Those are the ones whose values help does not show.
fn secret_arguments<'c>(root: &'c Command, arguments: &[OsString]) -> impl Iterator<Item = &'c Arg> {
    let mut command = root;
    for word in arguments.iter().skip(1).filter_map(|word| word.to_str()) {
        match command.find_subcommand(word) {
            Some(subcommand) => command = subcommand,
            None => break,
        }
    }
    command.get_arguments().filter(|argument| argument.is_hide_env_values_set())
}

fn is_given(arguments: &[OsString], option: &str) -> bool {
    let flag = format!("--{option}");
    let words = arguments.iter().filter_map(|word| word.to_str());
    words.into_iter().any(|word| word == flag || word.strip_prefix(&flag).is_some_and(|rest| rest.starts_with('=')))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root() -> Command {
        let secret = Arg::new("pepper").long("pepper").env("PEPPER").hide_env_values(true);
        let other = Arg::new("listen").long("listen").env("LISTEN");
        Command::new("test").subcommand(Command::new("keys").subcommand(Command::new("create").args([secret, other])))
    }

    fn options(arguments: &[&str], variables: &[(&str, &str)]) -> anyhow::Result<Vec<OsString>> {
        let arguments: Vec<OsString> = arguments.iter().map(Into::into).collect();
        let variable = |name: &str| {
            variables.iter().find(|(variable, _)| *variable == name).map(|(_, value)| OsString::from(value))
        };
        options_from_files(&root(), &arguments, variable)
    }

    #[test]
    fn a_secret_comes_from_its_file_unless_it_is_given() {
        let file = std::env::temp_dir().join(format!("vintem-secret-{}", std::process::id()));
        std::fs::write(&file, "a b'c\n").unwrap();
        let path = file.to_str().unwrap();
        let create = ["test", "keys", "create"];

        assert_eq!(options(&create, &[("PEPPER_FILE", path)]).unwrap(), ["--pepper=a b'c"]);
        assert!(options(&create, &[]).unwrap().is_empty());
        assert!(options(&create, &[("LISTEN_FILE", path)]).unwrap().is_empty(), "not a secret");
        assert!(options(&["test"], &[("PEPPER_FILE", path)]).unwrap().is_empty(), "not a setting of this command");
        let given = ["test", "keys", "create", "--pepper=x"];
        assert!(options(&given, &[("PEPPER_FILE", path)]).unwrap().is_empty());
        let both = options(&create, &[("PEPPER_FILE", path), ("PEPPER", "x")]).unwrap_err();
        assert_eq!(both.to_string(), "PEPPER and PEPPER_FILE are both set. Remove one of them.");

        std::fs::remove_file(&file).unwrap();
        let missing = options(&create, &[("PEPPER_FILE", path)]).unwrap_err();
        assert_eq!(missing.to_string(), format!("PEPPER_FILE: {path} cannot be read"));
    }
}
