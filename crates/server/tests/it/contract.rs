//! `openapi.yaml` and the service are compared in both directions: every operation is called with every identity, and
//! the responses must match the file exactly, with nothing missing and nothing undocumented.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use vintem_domain::feature::Feature;
use vintem_domain::route::{GATED_PARAMETERS, ROUTES, Route};
use vintem_domain::{Plan, VERSION};
use vintem_testkit::{ObservedResponse, OpenApiSpec, SpecOperation, TestDatabase, TestReplica, TestReplicaOptions};

use crate::{TestResult, friday};

/// A caller: anonymous, a key of each plan, an unknown key, or a revoked key.
#[derive(Debug, Clone)]
struct TestIdentity {
    name: &'static str,
    key: Option<String>,
    /// `None` for keys that are not valid.
    plan: Option<Plan>,
}

/// Everything observed about the service.
#[derive(Default)]
struct ContractEvidence {
    responses: Vec<ObservedResponse>,
    /// Operation and identity → plan and status of a plain request.
    plain_statuses: BTreeMap<(String, &'static str), (Option<Plan>, u16)>,
    /// Operation → the parameters that it rejects when given twice, and not as unknown.
    known_parameters: BTreeMap<String, BTreeSet<String>>,
    /// Parameters that an operation accepts without taking any notice.
    ignored_parameters: Vec<String>,
    /// Operation → the JSON body of a plain request on the highest plan.
    plain_bodies: BTreeMap<String, Value>,
    /// Operations times the parameters of the whole API.
    parameter_combinations: usize,
    identity_count: usize,
}

#[tokio::test(flavor = "multi_thread")]
async fn every_operation_matches_openapi_and_openapi_is_complete() -> TestResult {
    let description = OpenApiSpec::load_project_spec()?;
    let evidence = collect_evidence(&description).await?;
    let mut differences = find_differences(&description, &evidence)?;
    differences.extend(evidence.responses.iter().flat_map(|response| description.validate_response(response)));

    println!("operations: {}", description.operations()?.len());
    println!("identities: {}", evidence.identity_count);
    println!("answers_validated: {}", evidence.responses.len());
    let former_fields = find_former_fields(&evidence)?;
    println!("former_fields: {former_fields}");
    println!("parameter_combinations: {}", evidence.parameter_combinations);
    println!("ignored_parameters: {}", evidence.ignored_parameters.len());
    println!("differences: {}", differences.len());

    assert!(evidence.ignored_parameters.is_empty(), "{:#?}", evidence.ignored_parameters);

    assert!(differences.is_empty(), "{differences:#?}");

    // The comparison itself is tested: it must notice everything that is removed from the file.
    let mut copies = 0;
    for (removed, document) in documents_with_one_removal(&description)? {
        assert!(
            !find_differences(&OpenApiSpec::new(document)?, &evidence)?.is_empty(),
            "not noticed: {removed} taken away"
        );
        copies += 1;
    }

    println!("poorer_copies_noticed: {copies}");
    assert!(copies > 100);

    Ok(())
}

#[test]
fn openapi_has_the_version_of_the_binary() -> TestResult {
    assert_eq!(OpenApiSpec::load_project_spec()?.document()["info"]["version"], VERSION);
    Ok(())
}

/// Counts the fields of the examples in the description of version 0.3.0, all of which must still be in the answers.
/// Fields of rows are compared if the answer has rows.
fn find_former_fields(evidence: &ContractEvidence) -> anyhow::Result<usize> {
    let former: BTreeMap<String, Vec<String>> = serde_json::from_str(include_str!("former_fields.json"))?;
    let mut missing = Vec::new();
    let mut found = 0;
    for (operation, fields) in &former {
        let body = evidence.plain_bodies.get(operation).unwrap_or(&Value::Null);
        for field in fields {
            match has_field(body, field) {
                Some(true) => found += 1,
                // Only derived rates have it, and the pair of a plain request is published.
                Some(false) if operation == "list_fx" && field == "data[].derived" => {}
                Some(false) => missing.push(format!("{operation}: {field}")),
                None => {}
            }
        }
    }

    assert!(missing.is_empty(), "{missing:#?}");
    assert!(found > 600, "{found}");
    Ok(found)
}

/// Whether a value has a field such as `data[].series.id`; `None` if it lies in the rows of an empty list.
fn has_field(value: &Value, path: &str) -> Option<bool> {
    let Some((name, rest)) = path.split_once('.').or(Some((path, ""))) else { return Some(true) };
    let (name, is_list) = name.strip_suffix("[]").map_or((name, false), |name| (name, true));
    let Some(field) = value.get(name) else { return Some(false) };
    let inner = match (is_list, field) {
        (true, Value::Array(rows)) => rows.first()?,
        (true, _) => return Some(false),
        (false, field) => field,
    };
    if rest.is_empty() { Some(true) } else { has_field(inner, rest) }
}

/// The differences between the file, the route table and the observed parameters and statuses.
fn find_differences(description: &OpenApiSpec, evidence: &ContractEvidence) -> anyhow::Result<Vec<String>> {
    let mut differences = Vec::new();
    let operations = description.operations()?;

    for route in ROUTES.iter().filter(|route| is_in_openapi(route)) {
        let Some(operation) = operations.iter().find(|operation| operation.id == route.operation) else {
            differences.push(format!("{} is in no file", route.operation));
            continue;
        };

        let matches_route = operation.path == route.path
            && operation.method == route.method.as_str()
            && operation.plan == route.plan.id();
        if !matches_route
            || operation.statuses != documented_statuses(route)
            || operation.gated_parameters != gated_parameters(route.operation)
        {
            differences.push(format!("{operation:?} is not {route:?} with {:?}", documented_statuses(route)));
        }
    }

    for operation in &operations {
        if !ROUTES.iter().any(|route| is_in_openapi(route) && route.operation == operation.id) {
            differences.push(format!("{} is no route", operation.id));
        }

        if evidence.known_parameters.get(&operation.id) != Some(&operation.query_parameters) {
            let known_parameters = evidence.known_parameters.get(&operation.id);
            differences.push(format!(
                "{} knows {known_parameters:?}, the file {:?}",
                operation.id, operation.query_parameters
            ));
        }

        for ((id, identity), (plan, status)) in &evidence.plain_statuses {
            let expected = expected_status(operation, identity, *plan);
            if *id == operation.id && *status != expected {
                differences.push(format!("{id} with {identity} is {status}, by the file {expected}"));
            }
        }
    }

    Ok(differences)
}

fn is_in_openapi(route: &Route) -> bool {
    route.path.starts_with("/api/")
        || ["/health", "/pricing", "/docs", "/docs/openapi.yaml", "/docs/openapi.json"].contains(&route.path)
}

/// The parameters of an operation that require a plan of their own.
fn gated_parameters(operation: &str) -> BTreeMap<String, String> {
    let of_operation =
        GATED_PARAMETERS.iter().filter(|option| option.routes().any(|route| route.operation == operation));
    of_operation.map(|option| (option.name.to_owned(), option.plan.id().to_owned())).collect()
}

/// The statuses that an operation must document, derived from its route.
fn documented_statuses(route: &Route) -> BTreeSet<u16> {
    let mut statuses = BTreeSet::from([400, 401, 429, 500]);
    statuses.insert(success_status(route.operation));
    // An index has no data, so it has no ETag either.
    let has_etag = ![Feature::Service, Feature::Webhooks].contains(&route.feature)
        && !["list_events", "get_market_index"].contains(&route.operation);
    if has_etag {
        statuses.insert(304);
    }
    if route.operation == "list_events" {
        statuses.insert(410);
    }

    if route.plan > Plan::Free || !gated_parameters(route.operation).is_empty() {
        statuses.insert(403);
    }

    if route.operation == "get_export" {
        statuses.extend([206, 416]);
    }

    // `resolve_company` may find no company; a single market value may be requested for a day before the first one.
    let is_single_value =
        route.path.ends_with("/current") || ["list_latest_fx", "convert_currency"].contains(&route.operation);
    if route.path.contains('{') || route.operation == "resolve_company" || is_single_value {
        statuses.insert(404);
    }

    // Only `/health` depends on nothing.
    if route.operation != "get_health" {
        statuses.insert(503);
    }

    statuses
}

/// The status of a successful response.
fn success_status(operation: &str) -> u16 {
    match operation {
        "register_key" | "create_webhook" => 201,
        "test_webhook" | "replay_delivery" => 202,
        "revoke_key" | "delete_webhook" => 204,
        _ => 200,
    }
}

/// Operations that require a key.
const KEY_REQUIRED_OPERATIONS: [&str; 5] = ["get_usage", "get_key", "update_key", "revoke_key", "rotate_key"];

fn expected_status(operation: &SpecOperation, identity: &str, plan: Option<Plan>) -> u16 {
    let Some(plan) = plan else { return 401 };
    match Plan::from_id(&operation.plan) {
        Some(required) if plan < required => 403,
        _ if KEY_REQUIRED_OPERATIONS.contains(&operation.id.as_str()) && identity == "none" => 401,
        _ => success_status(&operation.id),
    }
}

async fn collect_evidence(description: &OpenApiSpec) -> anyhow::Result<ContractEvidence> {
    let database = TestDatabase::create_demo(friday()).await?;
    let replica = TestReplica::start_with_high_limits(&database, friday()).await?;
    replica.build_exports()?;
    let identities = create_identities(&replica).await?;
    let platinum = identities.iter().find(|identity| identity.plan == Some(Plan::Platinum)).cloned().expect("platinum");

    let ids = fetch_known_ids(&replica, platinum.key.as_deref().unwrap_or("")).await?;
    let operations = description.operations()?;
    let parameters: BTreeSet<&String> = operations.iter().flat_map(|operation| &operation.query_parameters).collect();
    let mut evidence = ContractEvidence { identity_count: identities.len(), ..ContractEvidence::default() };

    for operation in &operations {
        let path = ids.iter().fold(operation.path.clone(), |path, (path_prefix, id)| {
            if operation.path.starts_with(path_prefix) { path.replace("{id}", id).replace("{file}", id) } else { path }
        });
        let path = fill_webhook_path(&replica, operation, path, &platinum).await?;

        // Required parameters.
        let query = match operation.id.as_str() {
            "resolve_company" => "name=companhia",
            id if id.starts_with("accumulate_") => "year=2025",
            _ => &operation.required_query,
        };

        for identity in &identities {
            let identity = with_disposable_key(&replica, operation, identity).await?;
            let seen = replica
                .send_unchecked(build_request(&replica, operation, &format!("{path}?{query}"), &identity))
                .await?;

            if identity.plan == Some(Plan::Platinum) && operation.method == "GET" {
                let body = serde_json::from_slice(&seen.body).unwrap_or_default();
                evidence.plain_bodies.insert(operation.id.clone(), body);
            }
            evidence.plain_statuses.insert((operation.id.clone(), identity.name), (identity.plan, seen.status));
            evidence.responses.push(seen);
        }

        if operation.path.starts_with("/api/") {
            let platinum = with_disposable_key(&replica, operation, &platinum).await?;
            for name in &parameters {
                try_parameter(&replica, operation, (&path, query), name, &platinum, &mut evidence).await?;
            }
        }
        evidence.known_parameters.entry(operation.id.clone()).or_default();
        let platinum = with_disposable_key(&replica, operation, &platinum).await?;

        // 304 for a matching ETag, 404 for an unknown id, and HEAD like GET.
        let conditional =
            build_request(&replica, operation, &format!("{path}?{query}"), &platinum).header("If-None-Match", "*");
        evidence.responses.push(replica.send_unchecked(conditional).await?);

        let unknown_path = operation.path.replace("{id}", "99999999").replace("{file}", "nothing.csv.gz");
        evidence.responses.push(
            replica
                .send_unchecked(build_request(&replica, operation, &format!("{unknown_path}?{query}"), &platinum))
                .await?,
        );

        if operation.id == "get_export" {
            for range in ["bytes=10-19", "bytes=999999999-"] {
                let part = build_request(&replica, operation, &path, &platinum).header("Range", range);
                evidence.responses.push(replica.send_unchecked(part).await?);
            }
        }

        if operation.method == "GET" {
            let head = replica
                .http
                .head(replica.url(&format!("{path}?{query}")))
                .header("X-API-Key", platinum.key.clone().unwrap_or_default());
            evidence.responses.push(replica.send_unchecked(head).await?);
        }
    }

    evidence.responses.extend(collect_limited_and_unloaded(&operations).await?);

    Ok(evidence)
}

/// Sends a parameter to an operation, which must refuse it as unknown, or know it: then it refuses it when given twice,
/// and a nonsensical value is refused or changes the answer.
async fn try_parameter(
    replica: &TestReplica,
    operation: &SpecOperation,
    (path, query): (&str, &str),
    name: &str,
    identity: &TestIdentity,
    evidence: &mut ContractEvidence,
) -> anyhow::Result<()> {
    let others = query.split('&').filter(|pair| !pair.starts_with(&format!("{name}="))).collect::<Vec<_>>().join("&");
    let send = async |query: &str| {
        replica.send_unchecked(build_request(replica, operation, &format!("{path}?{query}"), identity)).await
    };
    evidence.parameter_combinations += 1;

    let twice = send(&format!("{others}&{name}=a&{name}=a")).await?;
    let body: Value = serde_json::from_slice(&twice.body).unwrap_or_default();
    let message = body["message"].as_str().unwrap_or_default();
    let is_refused = twice.status == 400 && body["param"] == name && body["docs_url"].is_string();
    let is_unknown = is_refused && message.starts_with(&format!("Unknown parameter `{name}`"));
    evidence.responses.push(twice);

    if !is_refused {
        evidence.ignored_parameters.push(format!("{}: {name} given twice", operation.id));
    } else if !is_unknown {
        evidence.known_parameters.entry(operation.id.clone()).or_default().insert(name.to_owned());

        let plain = send(&others).await?;
        let nonsense = send(&format!("{others}&{name}=zzz")).await?;
        if nonsense.status != 400 && (nonsense.status, &nonsense.body) == (plain.status, &plain.body) {
            evidence.ignored_parameters.push(format!("{}: {name}=zzz changes nothing", operation.id));
        }
        evidence.responses.push(nonsense);
    }

    Ok(())
}

/// The responses of a service without data, and to a caller over its limit.
async fn collect_limited_and_unloaded(operations: &[SpecOperation]) -> anyhow::Result<Vec<ObservedResponse>> {
    let database = TestDatabase::create_empty().await?;
    let flags = ["--limit-platinum=60"];
    let replica =
        TestReplica::start_with_options(&database, friday(), TestReplicaOptions { flags: &flags, redis_prefix: None })
            .await?;

    let (_, key) = replica.create_key(Plan::Platinum).await?;
    let identity = TestIdentity { name: "platinum", key: Some(key), plan: Some(Plan::Platinum) };

    let mut responses = Vec::new();
    for _ in 0..4 {
        for operation in operations {
            let query = if operation.query_parameters.contains("q") { "?q=a" } else { "" };
            let path = format!("{}{query}", operation.path.replace("{id}", "1").replace("{file}", "selic.csv.gz"));
            let identity = with_disposable_key(&replica, operation, &identity).await?;
            responses.push(replica.send_unchecked(build_request(&replica, operation, &path, &identity)).await?);
        }
    }

    for status in [429, 503] {
        assert!(responses.iter().any(|response| response.status == status), "no {status} was seen");
    }

    Ok(responses)
}

async fn create_identities(replica: &TestReplica) -> anyhow::Result<Vec<TestIdentity>> {
    let mut identities = vec![TestIdentity { name: "none", key: None, plan: Some(Plan::Free) }];
    for plan in Plan::ALL {
        let (_, key) = replica.create_key(plan).await?;
        identities.push(TestIdentity { name: plan.id(), key: Some(key), plan: Some(plan) });
    }

    let unknown = vintem_api::generate_key().reveal().to_owned();
    identities.push(TestIdentity { name: "bad key", key: Some(unknown), plan: None });
    identities.push(TestIdentity { name: "revoked key", key: Some(replica.create_revoked_key().await?), plan: None });

    Ok(identities)
}

/// The same identity, with a disposable key for operations that revoke it or use up its webhooks.
async fn with_disposable_key(
    replica: &TestReplica,
    operation: &SpecOperation,
    identity: &TestIdentity,
) -> anyhow::Result<TestIdentity> {
    let mut disposable = identity.clone();
    // `create_webhook` is here because a key has a limited number of webhooks.
    let needs_own_key = ["revoke_key", "rotate_key", "create_webhook"].contains(&operation.id.as_str());
    if let (Some(plan), Some(_), true) = (identity.plan, &identity.key, needs_own_key) {
        disposable.key = Some(replica.create_key(plan).await?.1);
    }

    Ok(disposable)
}

/// Fills in the id of a new webhook and of one of its deliveries. Each operation gets a new webhook, because one of
/// them deletes it.
async fn fill_webhook_path(
    replica: &TestReplica,
    operation: &SpecOperation,
    path: String,
    owner: &TestIdentity,
) -> anyhow::Result<String> {
    if !path.starts_with("/api/v1/webhooks/") {
        return Ok(path);
    }

    let key = owner.key.as_deref().unwrap_or_default();
    let post = async |path: &str, body: Value| -> anyhow::Result<String> {
        let request = replica.http.post(replica.url(path)).header("X-API-Key", key).json(&body);
        let created: Value = replica.send(request).await?.json().await?;
        Ok(created["id"].as_str().unwrap_or_default().to_owned())
    };

    let id = post("/api/v1/webhooks", json!({"url": RECEIVER_URL})).await?;
    let path = path.replace("{id}", &id);
    if operation.id != "replay_delivery" {
        return Ok(path);
    }

    Ok(path.replace("{delivery}", &post(&format!("/api/v1/webhooks/{id}/test"), json!({})).await?))
}

/// Nothing is sent there, because no worker runs.
const RECEIVER_URL: &str = "http://127.0.0.1:9/";

/// Real ids, by the path prefixes that take them.
async fn fetch_known_ids(replica: &TestReplica, key: &str) -> anyhow::Result<[(&'static str, String); 4]> {
    let filing: Value = replica.get_with_key("/api/v1/filings?limit=1", key).await?.json().await?;
    let text = |name: &str| filing["data"][0][name].as_str().unwrap_or_default().to_owned();
    let series = "/api/v1/market/series";
    Ok([
        ("/api/v1/filings", text("id")),
        ("/api/v1/companies", text("company_id")),
        (series, "ipca".to_owned()),
        ("/api/v1/export", "selic.csv.gz".to_owned()),
    ])
}

fn build_request(
    replica: &TestReplica,
    operation: &SpecOperation,
    path: &str,
    identity: &TestIdentity,
) -> reqwest::RequestBuilder {
    let method = operation.method.parse().expect("a method");
    let mut request = replica.http.request(method, replica.url(path));
    request = match operation.id.as_str() {
        "register_key" => request.json(&json!({"name": "Ana", "email": "ana@example.com"})),
        "update_key" => request.json(&json!({"label": "nightly report"})),
        "create_webhook" => request.json(&json!({"url": RECEIVER_URL})),
        "update_webhook" => request.json(&json!({"types": ["filing.published"]})),
        _ => request,
    };

    if let Some(key) = &identity.key {
        request = request.header("X-API-Key", key);
    }

    request
}

/// Copies of the file, each with one operation, parameter, status or plan removed.
fn documents_with_one_removal(description: &OpenApiSpec) -> anyhow::Result<Vec<(String, Value)>> {
    let mut copies = Vec::new();
    for operation in description.operations()? {
        let path = operation.path.as_str();
        let method = operation.method.to_lowercase();
        let mut add_copy = |removed: String, change: &dyn Fn(&mut Value)| {
            let mut document = description.document().clone();
            change(&mut document["paths"][path][&method]);
            copies.push((format!("{}: {removed}", operation.id), document));
        };

        add_copy("the plan".into(), &|operation| operation["x-required-plan"] = Value::Null);

        for status in &operation.statuses {
            add_copy(format!("status {status}"), &|operation| {
                operation["responses"].as_object_mut().expect("responses").remove(&status.to_string());
            });
        }

        for index_from_end in 0..operation.query_parameters.len() {
            add_copy(format!("parameter {index_from_end}"), &|operation| {
                let parameters = operation["parameters"].as_array_mut().expect("parameters");
                // Path parameters come first and are kept.
                let at = parameters.len() - 1 - index_from_end;
                parameters.remove(at);
            });
        }

        let mut document = description.document().clone();
        document["paths"].as_object_mut().expect("paths").remove(path);
        copies.push((format!("{}: all of it", operation.id), document));
    }

    Ok(copies)
}
