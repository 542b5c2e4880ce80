//! The layout of the project: the direction of dependencies, and that documents agree with the tables in the code.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use vintem_domain::route::{ROUTES, RateLimitKind};

use crate::TestResult;

pub fn workspace_root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// The crates that each crate may depend on. Any other dependency fails the test.
const ALLOWED_DEPENDENCIES: [(&str, &[&str]); 11] = [
    ("domain", &[]),
    ("store", &["domain"]),
    ("meter", &["domain"]),
    ("ingest", &["domain", "store"]),
    ("snapshot", &["domain", "store"]),
    ("deliver", &["domain", "store"]),
    ("api", &["domain", "store", "meter", "snapshot", "deliver"]),
    ("pages", &["domain", "snapshot"]),
    ("server", &["domain", "store", "meter", "ingest", "snapshot", "deliver", "api", "pages"]),
    ("testkit", &["domain", "store", "meter", "ingest", "snapshot", "deliver", "api", "server"]),
    ("bench", &["api", "domain", "store", "meter", "ingest", "snapshot", "testkit"]),
];

#[test]
fn crate_dependencies_point_one_way() -> TestResult {
    let allowed: BTreeMap<&str, &[&str]> = ALLOWED_DEPENDENCIES.into();
    let mut crates = BTreeSet::new();

    for entry in std::fs::read_dir(workspace_root().join("crates"))? {
        let folder = entry?.file_name().into_string().expect("names of crates are plain");
        let manifest = std::fs::read_to_string(workspace_root().join("crates").join(&folder).join("Cargo.toml"))?;
        let dependencies = manifest.split("\n[").find(|section| section.starts_with("dependencies]")).unwrap_or("");

        for line in dependencies.lines() {
            let Some(dependency) = line.strip_prefix("vintem-").and_then(|line| line.split(['.', ' ', '=']).next())
            else {
                continue;
            };
            assert!(
                allowed.get(folder.as_str()).is_some_and(|list| list.contains(&dependency)),
                "{folder} may not use {dependency}"
            );
        }

        crates.insert(folder);
    }

    assert_eq!(crates, allowed.keys().map(|name| (*name).to_owned()).collect());

    Ok(())
}

#[test]
fn only_api_routes_are_charged_to_the_quota() {
    for route in ROUTES {
        assert_eq!(route.rate_limit == RateLimitKind::Quota, route.is_api(), "{}", route.path);
    }
}

#[tokio::test]
async fn env_example_lists_every_setting() -> TestResult {
    let example = std::fs::read_to_string(workspace_root().join(".env.example"))?;
    let mut settings = BTreeSet::new();
    for command in ["up", "work", "ingest"] {
        let (_, help, _) = vintem_testkit::run_vintem(crate::vintem_binary(), "", &[command, "--help"]).await?;
        settings.extend(setting_names(&help).map(str::to_owned));
    }
    let in_example: BTreeSet<String> = setting_names(&example).map(str::to_owned).collect();

    assert!(settings.len() > 10);
    assert_eq!(settings, in_example);

    Ok(())
}

fn setting_names(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|character: char| !character.is_ascii_uppercase() && character != '_');
    words.filter(|word| word.starts_with("VINTEM_"))
}

/// Compares a document with the text that the code has for it. With `VINTEM_WRITE_DOCUMENTS` set it writes it instead.
pub fn check_document(file: &str, expected: &str) -> TestResult {
    let path = workspace_root().join(file);
    if std::env::var_os("VINTEM_WRITE_DOCUMENTS").is_some() {
        std::fs::write(&path, expected)?;
        return Ok(());
    }

    let text = std::fs::read_to_string(&path)?;
    let differing_line = text.lines().zip(expected.lines()).find(|(line, expected_line)| line != expected_line);
    assert!(text == expected, "{file} is out of date, first in {differing_line:?}: run `just documents`");

    Ok(())
}
