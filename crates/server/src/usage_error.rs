//! Describes command-line errors with the names of environment variables, because operators know settings by those.

use std::error::Error as _;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Command};

/// A setting that is missing or wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadSetting {
    /// The name of the environment variable.
    pub variable: String,
    /// The command-line option for the same setting, without its dashes.
    pub option: String,
    pub problem: SettingProblem,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SettingProblem {
    Missing,
    Invalid { value: String, cause: String, default: Option<String> },
}

impl BadSetting {
    /// What is wrong, and what to do about it.
    pub fn describe(&self) -> String {
        match &self.problem {
            SettingProblem::Missing => {
                "not set. `vintem init` writes a .env file with all required settings".to_owned()
            }
            SettingProblem::Invalid { value, cause, default } => {
                let example = default.as_ref().map_or(String::new(), |default| format!(". The default is {default}"));
                format!("\"{value}\" is not valid: {cause}{example}")
            }
        }
    }
}

/// The settings that a clap error is about. Empty for all other errors, because clap explains those well itself.
pub fn bad_settings(root: &Command, error: &clap::Error) -> Vec<BadSetting> {
    match (error.kind(), error.get(ContextKind::InvalidArg)) {
        (ErrorKind::MissingRequiredArgument, Some(ContextValue::Strings(arguments))) => {
            arguments.iter().filter_map(|argument| missing_setting(root, argument)).collect()
        }
        (ErrorKind::ValueValidation | ErrorKind::InvalidValue, Some(ContextValue::String(argument))) => {
            let Some(ContextValue::String(value)) = error.get(ContextKind::InvalidValue) else { return Vec::new() };
            invalid_setting(root, argument, value, error).into_iter().collect()
        }
        _ => Vec::new(),
    }
}

fn missing_setting(root: &Command, argument: &str) -> Option<BadSetting> {
    let (option, argument) = find_setting(root, argument)?;
    let variable = argument.get_env()?.to_str()?.to_owned();
    Some(BadSetting { variable, option, problem: SettingProblem::Missing })
}

fn invalid_setting(root: &Command, argument: &str, value: &str, error: &clap::Error) -> Option<BadSetting> {
    let (option, argument) = find_setting(root, argument)?;
    let flag = format!("--{option}");
    let is_from_command_line =
        std::env::args().any(|word| word == flag || word.strip_prefix(&flag).is_some_and(|rest| rest.starts_with('=')));
    if is_from_command_line {
        return None;
    }

    let default = argument.get_default_values().first().map(|default| default.to_string_lossy().into_owned());
    let problem = SettingProblem::Invalid {
        value: value.to_owned(),
        cause: error.source().map_or_else(|| "not one of the possible values".to_owned(), ToString::to_string),
        default: default.filter(|default| !default.is_empty()),
    };
    Some(BadSetting { variable: argument.get_env()?.to_str()?.to_owned(), option, problem })
}

/// Finds the argument that clap shows as `--database-url <DATABASE_URL>`.
fn find_setting<'a>(command: &'a Command, shown: &str) -> Option<(String, &'a Arg)> {
    let option = shown.strip_prefix("--")?.split([' ', '=']).next()?;
    let is_setting = |argument: &&Arg| argument.get_long() == Some(option) && argument.get_env().is_some();
    let own = command.get_arguments().find(is_setting).map(|argument| (option.to_owned(), argument));
    own.or_else(|| command.get_subcommands().find_map(|subcommand| find_setting(subcommand, shown)))
}

/// The missing arguments that are not settings, as clap shows them.
fn missing_options<'a>(root: &Command, error: &'a clap::Error) -> Vec<&'a str> {
    match (error.kind(), error.get(ContextKind::InvalidArg)) {
        (ErrorKind::MissingRequiredArgument, Some(ContextValue::Strings(arguments))) => {
            arguments.iter().map(String::as_str).filter(|argument| find_setting(root, argument).is_none()).collect()
        }
        _ => Vec::new(),
    }
}

/// `a, b and c`
fn enumerate(names: &[&str]) -> String {
    match names {
        [most @ .., last] if !most.is_empty() => format!("{} and {last}", most.join(", ")),
        _ => names.concat(),
    }
}

/// One message for everything that the error reports.
pub fn describe_bad_settings(root: &Command, error: &clap::Error, settings: &[BadSetting]) -> String {
    let mut missing = Vec::new();
    let mut lines = Vec::new();
    let options = missing_options(root, error);
    if !options.is_empty() {
        lines.push(format!("Missing options: {}.", options.join(", ")));
    }
    for setting in settings {
        match setting.problem {
            SettingProblem::Missing => missing.push(setting.variable.as_str()),
            SettingProblem::Invalid { .. } => lines.push(format!("{}: {}.", setting.variable, setting.describe())),
        }
    }
    if !missing.is_empty() {
        let (verb, pronoun) = if missing.len() == 1 { ("is", "it") } else { ("are", "them") };
        lines.push(format!(
            "{} {verb} not set. Set {pronoun} in the environment or in a .env file; `vintem init` writes one.",
            enumerate(&missing)
        ));
    }
    lines.join("\n")
}
