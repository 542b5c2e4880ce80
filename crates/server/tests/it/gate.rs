//! The gate: every route, with every identity, in every spelling that might lead round it.

use std::net::SocketAddr;

use http::StatusCode;
use vintem_domain::Plan;
use vintem_domain::route::{Charge, GatedOption, Method, OPTIONS, ROUTES, route};
use vintem_testkit::{TestDatabase, TestReplica, exchange};

use crate::{Outcome, friday};

/// How a path is written, and whether it still is that path.
type Spelling = (&'static str, fn(&str) -> String, bool);

const SPELLINGS: [Spelling; 12] = [
    ("as it is", |path| path.to_owned(), true),
    ("trailing slash", |path| format!("{path}/"), false),
    ("doubled slash", |path| path.replacen("/v1/", "/v1//", 1), false),
    ("leading double slash", |path| format!("/{path}"), false),
    ("upper case", |path| path.to_uppercase(), false),
    ("encoded letter", |path| path.replacen("/v1/", "/v%31/", 1), false),
    ("encoded dot segment", |path| path.replacen("/v1/", "/v1/%2e/", 1), false),
    ("encoded slash", |path| path.replacen("/v1/", "/v1%2f", 1), false),
    ("parent by encoded dots", |path| path.replacen("/v1/", "/v1/market/%2e%2e/", 1), false),
    ("parent by an encoded slash", |path| path.replacen("/v1/", "/v1/market/..%2f", 1), false),
    ("matrix parameter", |path| format!("{path};a=b"), false),
    ("backslash", |path| path.replacen("/v1/", "/v1%5c", 1), false),
];

/// Headers by which some servers let themselves be told another path or method.
const DETOURS: [(&str, &str); 4] = [
    ("X-Original-URL", "/api/v1/market/selic"),
    ("X-Rewrite-URL", "/api/v1/market/selic"),
    ("X-HTTP-Method-Override", "GET"),
    ("X-Forwarded-Prefix", "/api/v1/market"),
];

async fn status_of(address: SocketAddr, method: &str, path: &str, key: Option<&str>) -> anyhow::Result<u16> {
    let mut head =
        format!("{method} {path}?q=a HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Length: 0\r\n");
    for (name, value) in DETOURS {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    if let Some(key) = key {
        head.push_str(&format!("X-API-Key: {key}\r\n"));
    }
    Ok(exchange(address, format!("{head}\r\n").as_bytes()).await?.status)
}

fn takes(route: Method, method: &str) -> bool {
    route.name() == method || (route == Method::Get && method == "HEAD")
}

/// Nobody, and a key of every plan.
async fn identities(replica: &TestReplica) -> anyhow::Result<Vec<(Plan, Option<String>)>> {
    let mut identities = vec![(Plan::Free, None)];
    for plan in Plan::ALL {
        identities.push((plan, Some(replica.create_key(plan).await?.1)));
    }
    Ok(identities)
}

/// How an option is asked for, and whether it still is that option.
type OptionSpelling = (&'static str, fn(&GatedOption) -> bool);

const OPTION_SPELLINGS: [OptionSpelling; 11] = [
    ("{name}={value}", |_| true),
    ("limit=1&{name}={value}", |_| true),
    ("{name}=", |option| option.value.is_none()),
    ("{name}", |option| option.value.is_none()),
    ("{encoded name}={value}", |_| true),
    ("{name}={encoded value}", |_| true),
    ("{name}={value}&{name}=another", |_| true),
    ("{name}=another&{name}={value}", |_| true),
    ("{upper}={value}", |_| false),
    ("{name}[]={value}", |_| false),
    ("limit={name}={value}", |_| false),
];

/// A path with something in the place of its parameters.
fn filled(path: &str, id: &str) -> String {
    path.replace("{id}", id)
        .replace("{file}", "selic.csv.gz")
        .replace("{delivery}", "1")
        .replace("{guide}", "quickstart")
}

/// The same with its first letter encoded.
fn encoded(text: &str) -> String {
    format!("%{:02x}{}", text.as_bytes()[0], &text[1..])
}

#[tokio::test(flavor = "multi_thread")]
async fn no_spelling_of_an_option_leads_round_the_gate() -> Outcome {
    let database = TestDatabase::demo(friday()).await?;
    let replica = TestReplica::start_roomy(&database, friday()).await?;
    let identities = identities(&replica).await?;
    let (mut cases, mut mismatches) = (0, Vec::new());
    for option in OPTIONS {
        let (name, value) = (option.parameter, option.value.unwrap_or("2026-01-01"));
        for operation in option.operations {
            let route = route(operation);
            for (plan, key) in &identities {
                for (spelling, is_the_option) in OPTION_SPELLINGS {
                    let query = spelling
                        .replace("{name}", name)
                        .replace("{value}", value)
                        .replace("{encoded name}", &encoded(name))
                        .replace("{encoded value}", &encoded(value))
                        .replace("{upper}", &name.to_uppercase());
                    let path = format!("{}?{query}", route.path.replace("{id}", "ipca"));
                    let status = status_with(&replica, &path, key.as_deref(), None).await?;
                    let required = if is_the_option(option) { option.plan.max(route.plan) } else { route.plan };
                    cases += 1;
                    if (status == 403) != (*plan < required) {
                        mismatches.push(format!("{operation}?{query} on {}: {status}", plan.id()));
                    }
                }
            }
        }
    }
    println!("cases: {cases}");
    println!("mismatches: {}", mismatches.len());
    assert!(mismatches.is_empty(), "{mismatches:#?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn who_prefers_csv_takes_the_plan_of_csv() -> Outcome {
    let database = TestDatabase::demo(friday()).await?;
    let replica = TestReplica::start_roomy(&database, friday()).await?;
    let csv = OPTIONS.iter().find(|option| option.value == Some("csv")).expect("an option");
    let mut mismatches = Vec::new();
    for route in ROUTES.iter().filter(|route| route.method == Method::Get && route.charge == Charge::Quota) {
        let path = filled(route.path, "ipca");
        let has_csv = csv.operations.contains(&route.operation);
        for (plan, key) in identities(&replica).await? {
            for (query, accept, is_asked) in [
                ("", "text/csv", true),
                ("?format=json", "text/csv", false),
                ("?limit=1", "application/json;q=0.5, text/csv", true),
                ("", "text/csv, application/json", false),
                ("", "*/*", false),
            ] {
                let status = status_with(&replica, &format!("{path}{query}"), key.as_deref(), Some(accept)).await?;
                let required = if is_asked && has_csv { csv.plan } else { route.plan };
                if (status == 403) != (plan < required) {
                    mismatches.push(format!("{path}{query} with {accept} on {}: {status}", plan.id()));
                }
            }
        }
    }
    assert!(mismatches.is_empty(), "{mismatches:#?}");
    Ok(())
}

async fn status_with(
    replica: &TestReplica,
    path: &str,
    key: Option<&str>,
    accept: Option<&str>,
) -> anyhow::Result<StatusCode> {
    let mut request = replica.http.get(replica.url(path));
    for (name, value) in [("X-API-Key", key), ("Accept", accept)] {
        if let Some(value) = value {
            request = request.header(name, value);
        }
    }
    Ok(replica.send(request).await?.status())
}

#[tokio::test(flavor = "multi_thread")]
async fn no_spelling_leads_round_the_gate() -> Outcome {
    let database = TestDatabase::demo(friday()).await?;
    let replica = TestReplica::start_roomy(&database, friday()).await?;
    let identities = identities(&replica).await?;
    let (mut cases, mut mismatches) = (0, Vec::new());
    for route in ROUTES.iter().filter(|route| route.charge == Charge::Quota) {
        let path = filled(route.path, "99999999");
        for (plan, key) in &identities {
            for method in ["GET", "HEAD", "POST", "PATCH", "DELETE"] {
                for (spelling, write, is_the_path) in SPELLINGS {
                    let taken = ROUTES.iter().any(|other| other.path == route.path && takes(other.method, method));
                    // Methods that hardly any path takes are tried in all spellings only where one does.
                    if !is_the_path && !taken && ["PATCH", "DELETE"].contains(&method) {
                        continue;
                    }
                    // What rotates or revokes its key has one of its own: the others are still needed.
                    let own = match key {
                        Some(_) if taken && ["POST", "DELETE"].contains(&method) => {
                            Some(replica.create_key(*plan).await?.1)
                        }
                        key => key.clone(),
                    };
                    let status = status_of(replica.replica.address, method, &write(&path), own.as_deref()).await?;
                    let may = *plan >= route.plan;
                    let as_expected = match (is_the_path, taken) {
                        (true, true) if may => status != 403 && status != 405,
                        (true, true) => status == 403,
                        (true, false) => status == 405,
                        // Another path: nothing is there, or it is some other route's to refuse. Never an answer.
                        (false, _) => (403..=405).contains(&status) || (may && status == 400),
                    };
                    cases += 1;
                    if !as_expected {
                        mismatches.push(format!("{method} {path} {spelling} on {}: {status}", plan.id()));
                    }
                }
            }
        }
    }
    println!("cases: {cases}");
    println!("mismatches: {}", mismatches.len());
    assert!(mismatches.is_empty(), "{mismatches:#?}");
    Ok(())
}
