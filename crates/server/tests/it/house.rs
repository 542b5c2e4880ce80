//! That the house stays as it was laid out: the direction of dependencies, and that files and tables agree.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use vintem_domain::VERSION;
use vintem_domain::route::{Charge, ROUTES};

use crate::Outcome;

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// Which crates each may know. What is not listed may not be used.
const DIRECTION: [(&str, &[&str]); 9] = [
    ("domain", &[]),
    ("store", &["domain"]),
    ("meter", &["domain"]),
    ("ingest", &["domain", "store"]),
    ("snapshot", &["domain", "store"]),
    ("api", &["domain", "store", "meter", "snapshot"]),
    ("pages", &["domain"]),
    ("server", &["domain", "store", "meter", "ingest", "snapshot", "api", "pages"]),
    ("testkit", &["domain", "store", "ingest", "api", "server"]),
];

#[test]
fn dependencies_point_one_way() -> Outcome {
    let allowed: BTreeMap<&str, &[&str]> = DIRECTION.into();
    let mut crates = BTreeSet::new();
    for entry in std::fs::read_dir(root().join("crates"))? {
        let folder = entry?.file_name().into_string().expect("names of crates are plain");
        let manifest = std::fs::read_to_string(root().join("crates").join(&folder).join("Cargo.toml"))?;
        let dependencies = manifest.split("\n[").find(|section| section.starts_with("dependencies]")).unwrap_or("");
        for line in dependencies.lines() {
            let Some(used) = line.strip_prefix("vintem-").and_then(|line| line.split(['.', ' ', '=']).next()) else {
                continue;
            };
            assert!(
                allowed.get(folder.as_str()).is_some_and(|list| list.contains(&used)),
                "{folder} may not use {used}"
            );
        }
        crates.insert(folder);
    }
    assert_eq!(crates, allowed.keys().map(|name| (*name).to_owned()).collect());
    Ok(())
}

#[test]
fn the_description_names_every_route_with_its_plan_and_no_other() -> Outcome {
    let yaml = std::fs::read_to_string(root().join("openapi.yaml"))?;
    let paths = yaml.split("\npaths:\n").nth(1).expect("paths").split("\ncomponents:").next().expect("a part");
    let mut described = BTreeSet::new();
    let (mut path, mut method, mut operation) = ("", "", "");
    for line in paths.lines() {
        let indent = line.len() - line.trim_start().len();
        let word = line.trim().trim_end_matches(':');
        match indent {
            2 => path = word,
            4 if matches!(word, "get" | "post") => method = word,
            6 => {
                if let Some(id) = line.trim().strip_prefix("operationId: ") {
                    operation = id;
                }
                if let Some(plan) = line.trim().strip_prefix("x-required-plan: ") {
                    described.insert((path, method, plan));
                    assert!(
                        ROUTES.iter().any(|route| route.operation == operation && route.path == path),
                        "{operation}"
                    );
                }
            }
            _ => {}
        }
    }
    let is_described = |path: &str| {
        path.starts_with("/api/") || ["/health", "/pricing", "/docs", "/docs/openapi.yaml", "/docs/openapi.json"].contains(&path)
    };
    let served = ROUTES.iter().filter(|route| is_described(route.path)).map(|route| {
        let method = match route.method {
            vintem_domain::route::Method::Get => "get",
            vintem_domain::route::Method::Post => "post",
        };
        (route.path, method, route.plan.id())
    });
    assert_eq!(described, served.collect());
    assert!(yaml.contains(&format!("\n  version: {VERSION}\n")), "the file has another version");
    Ok(())
}

#[test]
fn only_pages_and_health_take_nothing_of_the_quota() {
    for route in ROUTES {
        assert_eq!(route.charge == Charge::Quota, route.path.starts_with("/api/v1/"), "{}", route.path);
    }
}

#[tokio::test]
async fn the_example_names_every_setting() -> Outcome {
    let example = std::fs::read_to_string(root().join(".env.example"))?;
    let (_, help, _) = vintem_testkit::run_vintem(crate::binary(), "", &["serve", "--help"]).await?;
    let settings: BTreeSet<&str> = help
        .split(|character: char| !character.is_ascii_uppercase() && character != '_')
        .filter(|word| word.starts_with("VINTEM_"))
        .collect();
    let named: BTreeSet<&str> = example
        .split(|character: char| !character.is_ascii_uppercase() && character != '_')
        .filter(|word| word.starts_with("VINTEM_"))
        .collect();
    assert!(settings.len() > 10);
    assert_eq!(settings, named);
    Ok(())
}
