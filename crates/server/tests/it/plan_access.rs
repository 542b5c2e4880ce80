//! Plan access: every route with every plan, in every spelling that might bypass the check.

use std::net::SocketAddr;

use http::StatusCode;
use vintem_domain::Plan;
use vintem_domain::route::{GATED_PARAMETERS, GatedParameter, HttpMethod, ROUTES, RateLimitKind};
use vintem_testkit::{RawResponse, TestDatabase, TestReplica, send_raw_request};

use crate::{TestResult, friday};

/// A name, and how the path is written.
type PathSpelling = (&'static str, fn(&str) -> String);

/// The spelling that is redirected to the path itself.
const TRAILING_SLASH: &str = "trailing slash";

const PATH_SPELLINGS: [PathSpelling; 12] = [
    ("as it is", |path| path.to_owned()),
    (TRAILING_SLASH, |path| format!("{path}/")),
    ("doubled slash", |path| path.replacen("/v1/", "/v1//", 1)),
    ("leading double slash", |path| format!("/{path}")),
    ("upper case", |path| path.to_uppercase()),
    ("encoded letter", |path| path.replacen("/v1/", "/v%31/", 1)),
    ("encoded dot segment", |path| path.replacen("/v1/", "/v1/%2e/", 1)),
    ("encoded slash", |path| path.replacen("/v1/", "/v1%2f", 1)),
    ("parent by encoded dots", |path| path.replacen("/v1/", "/v1/market/%2e%2e/", 1)),
    ("parent by an encoded slash", |path| path.replacen("/v1/", "/v1/market/..%2f", 1)),
    ("matrix parameter", |path| format!("{path};a=b")),
    ("backslash", |path| path.replacen("/v1/", "/v1%5c", 1)),
];

/// Headers that make some servers use another path or method.
const OVERRIDE_HEADERS: [(&str, &str); 4] = [
    ("X-Original-URL", "/api/v1/market/selic"),
    ("X-Rewrite-URL", "/api/v1/market/selic"),
    ("X-HTTP-Method-Override", "GET"),
    ("X-Forwarded-Prefix", "/api/v1/market"),
];

async fn send_with_overrides(
    address: SocketAddr,
    method: &str,
    path: &str,
    key: Option<&str>,
) -> anyhow::Result<RawResponse> {
    let mut head =
        format!("{method} {path}?_=1 HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Length: 0\r\n");
    for (name, value) in OVERRIDE_HEADERS {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    if let Some(key) = key {
        head.push_str(&format!("X-API-Key: {key}\r\n"));
    }

    send_raw_request(address, format!("{head}\r\n").as_bytes()).await
}

fn accepts_method(route: HttpMethod, method: &str) -> bool {
    route.as_str() == method || (route == HttpMethod::Get && method == "HEAD")
}

/// No key, and a key of every plan.
async fn create_plan_keys(replica: &TestReplica) -> anyhow::Result<Vec<(Plan, Option<String>)>> {
    let mut identities = vec![(Plan::Free, None)];
    for plan in Plan::ALL {
        identities.push((plan, Some(replica.create_key(plan).await?.1)));
    }
    Ok(identities)
}

/// How an option is written in the query, and for which options it still counts.
type OptionSpelling = (&'static str, fn(&GatedParameter) -> bool);

const OPTION_SPELLINGS: [OptionSpelling; 11] = [
    ("{name}={value}", |_| true),
    ("_=1&{name}={value}", |_| true),
    ("{name}=", |option| option.value.is_none()),
    ("{name}", |option| option.value.is_none()),
    ("{encoded name}={value}", |_| true),
    ("{name}={encoded value}", |_| true),
    ("{name}={value}&{name}=another", |_| true),
    ("{name}=another&{name}={value}", |_| true),
    ("{upper}={value}", |_| false),
    ("{name}[]={value}", |_| false),
    ("_={name}={value}", |_| false),
];

/// The path with its parameters filled in.
fn fill_path_parameters(path: &str, id: &str) -> String {
    path.replace("{id}", id)
        .replace("{file}", "selic.csv.gz")
        .replace("{delivery}", "1")
        .replace("{guide}", "quickstart")
}

/// Percent-encodes the first letter.
fn encode_first_letter(text: &str) -> String {
    format!("%{:02x}{}", text.as_bytes()[0], &text[1..])
}

#[tokio::test(flavor = "multi_thread")]
async fn no_spelling_of_an_option_bypasses_its_plan() -> TestResult {
    let database = TestDatabase::create_demo(friday()).await?;
    let replica = TestReplica::start_with_high_limits(&database, friday()).await?;
    let identities = create_plan_keys(&replica).await?;

    let mut cases = 0;
    let mut mismatches = Vec::new();

    for option in GATED_PARAMETERS {
        let name = option.name;
        let value = option.value.unwrap_or("2026-01-01");
        for route in option.routes() {
            for (plan, key) in &identities {
                for (spelling, is_the_option) in OPTION_SPELLINGS {
                    let query = spelling
                        .replace("{name}", name)
                        .replace("{value}", value)
                        .replace("{encoded name}", &encode_first_letter(name))
                        .replace("{encoded value}", &encode_first_letter(value))
                        .replace("{upper}", &name.to_uppercase());

                    let path = format!("{}?{query}", route.path.replace("{id}", "ipca"));
                    let status = get_status(&replica, &path, key.as_deref(), None).await?;

                    let required = if is_the_option(option) { option.plan.max(route.plan) } else { route.plan };
                    cases += 1;
                    if (status == 403) != (*plan < required) {
                        mismatches.push(format!("{}?{query} on {}: {status}", route.operation, plan.id()));
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
async fn an_accept_header_for_csv_requires_the_csv_plan() -> TestResult {
    let database = TestDatabase::create_demo(friday()).await?;
    let replica = TestReplica::start_with_high_limits(&database, friday()).await?;
    let csv = GATED_PARAMETERS.iter().find(|option| option.value == Some("csv")).expect("an option");
    let mut mismatches = Vec::new();

    for route in
        ROUTES.iter().filter(|route| route.method == HttpMethod::Get && route.rate_limit == RateLimitKind::Quota)
    {
        let path = fill_path_parameters(route.path, "ipca");
        let has_csv = route.takes_param(csv.name);
        for (plan, key) in create_plan_keys(&replica).await? {
            for (query, accept, is_requested) in [
                ("", "text/csv", true),
                ("?format=json", "text/csv", false),
                ("?_=1", "application/json;q=0.5, text/csv", true),
                ("", "text/csv, application/json", false),
                ("", "*/*", false),
            ] {
                let status = get_status(&replica, &format!("{path}{query}"), key.as_deref(), Some(accept)).await?;
                let required = if is_requested && has_csv { csv.plan } else { route.plan };
                if (status == 403) != (plan < required) {
                    mismatches.push(format!("{path}{query} with {accept} on {}: {status}", plan.id()));
                }
            }
        }
    }

    assert!(mismatches.is_empty(), "{mismatches:#?}");

    Ok(())
}

async fn get_status(
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
async fn no_spelling_of_a_path_bypasses_its_plan() -> TestResult {
    let database = TestDatabase::create_demo(friday()).await?;
    let replica = TestReplica::start_with_high_limits(&database, friday()).await?;
    let identities = create_plan_keys(&replica).await?;

    let mut cases = 0;
    let mut mismatches = Vec::new();

    for route in ROUTES.iter().filter(|route| route.rate_limit == RateLimitKind::Quota) {
        let path = fill_path_parameters(route.path, "99999999");
        for (plan, key) in &identities {
            for method in ["GET", "HEAD", "POST", "PATCH", "DELETE"] {
                for (spelling, respell) in PATH_SPELLINGS {
                    let spelled_path = respell(&path);
                    let is_the_path = spelled_path == path;
                    let is_method_accepted =
                        ROUTES.iter().any(|other| other.path == route.path && accepts_method(other.method, method));

                    // Few paths accept these methods, so all spellings are tried only on those that do.
                    if !is_the_path && !is_method_accepted && ["PATCH", "DELETE"].contains(&method) {
                        continue;
                    }

                    // A request that may rotate or revoke its key uses a key of its own, because the others are
                    // still needed.
                    let case_key = match key {
                        Some(_) if is_method_accepted && ["POST", "DELETE"].contains(&method) => {
                            Some(replica.create_key(*plan).await?.1)
                        }
                        key => key.clone(),
                    };

                    let address = replica.replica.address;
                    let response = send_with_overrides(address, method, &spelled_path, case_key.as_deref()).await?;
                    let status = response.status;
                    let has_access = *plan >= route.plan;
                    let as_expected = match (is_the_path, is_method_accepted) {
                        // The redirect gives no data, and the path that it leads to checks the plan.
                        (false, true) if spelling == TRAILING_SLASH => {
                            let location = format!("{path}?_=1");
                            status == 308
                                && response.body.is_empty()
                                && response.header("location") == Some(location.as_str())
                        }
                        (true, true) if has_access => status != 403 && status != 405,
                        (true, true) => status == 403,
                        (true, false) => status == 405,
                        // Another path: it does not exist, or another route rejects it. It never succeeds.
                        (false, _) => (403..=405).contains(&status) || (has_access && status == 400),
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
