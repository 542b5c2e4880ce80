//! The response cache: a cached response equals a fresh one, and expires as soon as it could differ.

use std::io::Read;
use std::time::Duration;

use anyhow::Context;
use chrono::Duration as Span;
use http::Method;
use rand::rngs::StdRng;
use rand::seq::{IndexedRandom, SliceRandom};
use rand::{RngExt, SeedableRng};
use serde_json::Value;
use vintem_domain::route::{HttpMethod, ROUTES, Route};
use vintem_domain::{DataOrigin, Dataset, Decimal, Plan, series};
use vintem_store::load::{NewFetch, Observation};
use vintem_testkit::{HIGH_LIMIT_FLAGS, TestDatabase, TestReplica, TestReplicaOptions, wait_until};

use crate::{TestResult, friday};

const CURRENT_SELIC: &str = "/api/v1/market/selic/current";

/// Headers that belong to one request.
const CALLER_HEADERS: [&str; 5] = ["date", "x-ratelimit-remaining", "x-ratelimit-reset", "ratelimit", "x-request-id"];

/// Read routes that are never answered from the cache: they depend on the caller, on files, or on the moment.
const UNCACHED_OPERATIONS: [&str; 11] = [
    "list_revisions",
    "list_exports",
    "get_export",
    "list_events",
    "list_webhooks",
    "get_webhook",
    "list_deliveries",
    "get_usage",
    "get_key",
    "get_status",
    "get_health",
];

const REQUESTS_PER_ROUTE: usize = 12;

/// A replica with limits that no test reaches.
async fn start_unlimited_replica(database: &TestDatabase) -> anyhow::Result<TestReplica> {
    TestReplica::start_with_high_limits(database, friday()).await
}

/// One of two replicas over the same data, of which one may cache.
async fn start_comparable_replica(database: &TestDatabase, cache_mib: &str) -> anyhow::Result<TestReplica> {
    let cache_flag = format!("--response-cache-mib={cache_mib}");
    let flags = [&HIGH_LIMIT_FLAGS[..], &["--public-url=https://api.example.com", &cache_flag]].concat();
    TestReplica::start_with_options(database, friday(), TestReplicaOptions { flags: &flags, ..Default::default() })
        .await
}

/// Values for a query parameter, among them some that not every route accepts.
fn sample_values(param: &str) -> &'static [&'static str] {
    match param {
        "limit" => &["1", "7", "100", "3000"],
        "offset" => &["0", "3", "40"],
        "format" => &["json", "csv", "csv"],
        "locale" => &["en", "pt-BR"],
        "download" => &["0", "1"],
        "pair" => &["USD/BRL", "EUR%2FUSD", "BRL/USD"],
        "from" => &["2024-01-02", "2026-10-01", "2026-11"],
        "to" => &["2026-10-30", "2026-11-13", "2031-01-01"],
        "order" => &["asc", "desc"],
        "on" | "date" | "as_of" => &["2026-11-12", "2026-10-05", "2025-12-31"],
        "numbers" => &["string", "number"],
        "provenance" | "facets" | "highlight" | "detail" | "comparatives" => &["true", "false"],
        "statement" => &["income", "cash-flow"],
        "scope" => &["best", "individual", "all"],
        "period" => &["annual", "quarter", "ytd"],
        "layout" => &["rows", "table"],
        "version" => &["1", "2"],
        "chart" => &["bank", "insurer"],
        "updated_since" => &["2026-01-01", "2027-01-01T00:00:00Z"],
        "year" => &["2025", "2026"],
        "amount" => &["1000", "2.50"],
        "percent" => &["100", "110.5"],
        "spread" => &["1.5"],
        "side" => &["buy", "sell", "mid"],
        "ids" => &["selic,cdi", "ipca,usd-brl"],
        "align" => &["day", "month"],
        "calendar" => &["settlement", "exchange"],
        "days" => &["3", "-20"],
        "group" => &["inflation", "fiscal"],
        "day" => &["15", "31"],
        "q" | "name" => &["banco", "petr%C3%B3leo", "ata+assembleia", "%22fato%20relevante%22"],
        "status" => &["ATIVO"],
        "sector" => &["Bancos"],
        "state" => &["SP"],
        "ticker" => &["PETR", "PETR4"],
        "company_id" | "code" => &["9512"],
        "cnpj" => &["33.000.167/0001-01"],
        "category" => &["Fato Relevante", "Assembleia"],
        "type" => &["Ata"],
        unknown => panic!("give a sample of {unknown}"),
    }
}

/// Parameters that a route cannot do without.
fn required_params(operation: &str) -> &'static [&'static str] {
    match operation {
        "compare_series" => &["ids"],
        "convert_currency" => &["pair", "amount"],
        "list_business_days" => &["from", "to"],
        "add_business_days" => &["date", "days"],
        "list_holidays" | "get_holidays_ics" => &["year"],
        "check_day" => &["date"],
        "resolve_company" => &["name"],
        "search" | "search_companies" | "search_filings" => &["q"],
        operation if operation.starts_with("accumulate_") => &["from", "to"],
        _ => &[],
    }
}

/// A request as it goes to both replicas.
#[derive(Debug, Clone)]
struct RandomRequest {
    is_head: bool,
    path: String,
    headers: Vec<(&'static str, String)>,
}

struct RequestGenerator {
    random: StdRng,
    keys: Vec<String>,
    company_ids: Vec<String>,
    filing_ids: Vec<String>,
}

impl RequestGenerator {
    fn pick<'v, T: ?Sized>(&mut self, values: &[&'v T]) -> &'v T {
        values.choose(&mut self.random).expect("there are values")
    }

    /// What the path may name. Every route answers for the first.
    fn ids(&self, route: &Route) -> Vec<String> {
        match route.path {
            path if path.contains("/companies/{id}") => self.company_ids.clone(),
            path if path.contains("/filings/{id}") => self.filing_ids.clone(),
            _ => ["selic", "cdi-daily", "ipca", "usd-brl", "real-selic"].map(str::to_owned).into(),
        }
    }

    fn generate(&mut self, route: &Route, seen_etags: &[String]) -> RandomRequest {
        let ids = self.ids(route);
        let id = ids.choose(&mut self.random).expect("there are ids");
        let path = route.path.replace("{id}", id);

        let mut params: Vec<&str> = route.param_names().filter(|_| self.random.random_bool(0.25)).collect();
        params.extend(required_params(route.operation));
        params.sort_unstable();
        params.dedup();
        params.shuffle(&mut self.random);
        let mut query: Vec<String> =
            params.into_iter().map(|name| format!("{name}={}", self.pick(sample_values(name)))).collect();
        if self.random.random_bool(0.2) {
            query.push(format!("utm_source={}", self.random.random_range(0..100)));
        }

        let mut headers = vec![("Accept-Language", self.pick(&["en", "pt-BR"]).to_owned())];
        let encoding = self.pick(&["", "gzip", "br", "zstd", "gzip, deflate, br, zstd", "identity", "gzip;q=0"]);
        let accept = self.pick(&["*/*", "application/json", "text/csv", "text/csv, application/json;q=0.5"]);
        headers.extend([("Accept-Encoding", encoding.to_owned()), ("Accept", accept.to_owned())]);
        // One request in five has no key.
        if let Some(key) = self.keys.get(self.random.random_range(0..self.keys.len() + 1)) {
            headers.push(("X-API-Key", key.clone()));
        }
        match self.random.random_range(0..6) {
            0 => headers.push(("If-None-Match", "*".to_owned())),
            1 => headers.push(("If-None-Match", "W/\"0123456789abcdef\"".to_owned())),
            2 | 3 => headers.extend(seen_etags.choose(&mut self.random).map(|etag| ("If-None-Match", etag.clone()))),
            _ => {}
        }
        RandomRequest { is_head: self.random.random_bool(0.1), path: format!("{path}?{}", query.join("&")), headers }
    }
}

/// What must not depend on the cache: status, headers without those of the caller, and the decoded body.
type ComparedResponse = (u16, Vec<(String, String)>, Vec<u8>);

async fn send_random(replica: &TestReplica, request: &RandomRequest) -> anyhow::Result<ComparedResponse> {
    let method = if request.is_head { Method::HEAD } else { Method::GET };
    let builder = replica.http.request(method, replica.url(&request.path));
    let builder = request.headers.iter().fold(builder, |builder, (name, value)| builder.header(*name, value));
    let response = replica.send_unchecked(builder).await?;

    let is_problem = response.status >= 400;
    let mut headers: Vec<(String, String)> = response
        .headers
        .iter()
        .filter(|(name, _)| !CALLER_HEADERS.contains(&name.as_str()))
        .map(|(name, value)| (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned()))
        .collect();
    headers.sort();
    let encoding = response.headers.get("content-encoding").and_then(|value| value.to_str().ok());
    // A problem has its own request ID.
    let body = if is_problem { Vec::new() } else { decode_body(encoding, response.body)? };
    Ok((response.status, headers, body))
}

pub fn decode_body(encoding: Option<&str>, body: Vec<u8>) -> anyhow::Result<Vec<u8>> {
    let mut decoded = Vec::new();
    match encoding {
        _ if body.is_empty() => {}
        None => decoded = body,
        Some("gzip") => drop(flate2::read::GzDecoder::new(&*body).read_to_end(&mut decoded)?),
        Some("br") => drop(brotli::Decompressor::new(&*body, 4096).read_to_end(&mut decoded)?),
        Some("zstd") => decoded = zstd::stream::decode_all(&*body)?,
        Some(other) => anyhow::bail!("unexpected encoding {other}"),
    }
    Ok(decoded)
}

/// Loads a new value of a series, and waits until both replicas serve it.
async fn load_selic(database: &TestDatabase, replicas: [&TestReplica; 2], turn: u8) -> TestResult {
    let selic = series::find_series("selic").expect("the series is there");
    let fetched_at = friday() + Span::seconds(i64::from(turn) + 1);
    let fetch = NewFetch::without_response(format!("test:load-{turn}"), fetched_at, [turn; 32]);
    let value = Decimal::new(1000 + i64::from(turn), 2);
    let store = database.open_store()?;
    let mut load = store.begin_load(Dataset::Series(selic), DataOrigin::Synthetic, &fetch).await?;
    load.append_observations(selic, &[Observation::new(friday().date_naive(), value)]).await?;
    load.commit().await?;
    for replica in replicas {
        replica.wait_for_current_snapshot().await?;
    }
    Ok(())
}

/// How many responses of an operation came from the cache.
async fn cache_hits(replica: &TestReplica, operation: &str) -> anyhow::Result<u64> {
    let metrics = replica.http.get(format!("http://{}/metrics", replica.replica.admin_address)).send().await?;
    let label = format!("route=\"{operation}\"");
    let text = metrics.text().await?;
    let mut lines = text.lines().filter(|line| line.starts_with("vintem_response_cache_total"));
    let line = lines.find(|line| line.contains(&label) && line.contains("result=\"hit\""));
    Ok(line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).unwrap_or(0))
}

#[tokio::test(flavor = "multi_thread")]
async fn every_response_equals_that_of_a_service_without_a_cache() -> TestResult {
    let database = TestDatabase::create_demo(friday()).await?;
    let cached = start_comparable_replica(&database, "64").await?;
    let uncached = start_comparable_replica(&database, "0").await?;
    let mut keys = Vec::new();
    for plan in Plan::ALL {
        keys.push(cached.create_key(plan).await?.1);
    }
    let ids = async |path: &str, field: &str| -> anyhow::Result<Vec<String>> {
        let body: Value = cached.get_with_key(path, &keys[3]).await?.json().await?;
        let rows = body["data"].as_array().context("a list")?;
        Ok(rows.iter().filter_map(|row| row[field].as_str().map(str::to_owned)).collect())
    };
    let company_ids = ids("/api/v1/companies?limit=3", "id").await?;
    let filing_ids = ids("/api/v1/filings?limit=3", "id").await?;

    let seed: u64 = rand::random();
    println!("seed: {seed}");
    let mut generator = RequestGenerator { random: StdRng::seed_from_u64(seed), keys, company_ids, filing_ids };
    let is_cacheable = |route: &&Route| {
        route.is_api() && route.method == HttpMethod::Get && !UNCACHED_OPERATIONS.contains(&route.operation)
    };
    let routes: Vec<&Route> = ROUTES.iter().filter(is_cacheable).collect();

    let mut seen_etags = Vec::new();
    let mut earlier: Vec<RandomRequest> = Vec::new();
    for turn in 0..REQUESTS_PER_ROUTE {
        for route in &routes {
            // Some requests come again, after a load or as those of another caller.
            let mut request = match earlier.choose(&mut generator.random) {
                Some(request) if generator.random.random_bool(0.3) => request.clone(),
                _ => generator.generate(route, &seen_etags),
            };
            if generator.random.random_bool(0.3) {
                request.headers.retain(|(name, _)| *name != "X-API-Key");
                request.headers.push(("X-API-Key", generator.keys[3].clone()));
            }

            let expected = send_random(&uncached, &request).await?;
            for _ in 0..2 {
                let response = send_random(&cached, &request).await?;
                assert_eq!(response, expected, "{request:?}");
            }
            seen_etags.extend(expected.1.into_iter().filter(|(name, _)| name == "etag").map(|(_, etag)| etag));
            earlier.push(request);
        }
        if turn % 4 == 3 {
            load_selic(&database, [&cached, &uncached], turn as u8).await?;
        }
    }

    // Requests that anybody sends are answered from the cache, whatever the caller's plan.
    for route in routes {
        let path = route.path.replace("{id}", &generator.ids(route)[0]);
        let query: Vec<String> =
            required_params(route.operation).iter().map(|name| format!("{name}={}", sample_values(name)[1])).collect();
        let path = format!("{path}?{}", query.join("&"));
        let hits_before = cache_hits(&cached, route.operation).await?;
        for key in [2, 3, 3] {
            let response = cached.get_with_key(&path, &generator.keys[key]).await?;
            assert_eq!(response.status(), 200, "{path}");
        }
        let hits = cache_hits(&cached, route.operation).await? - hits_before;
        assert!(hits >= 2, "{}: {hits} of 3 came from the cache", route.operation);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn cached_responses_have_their_own_remaining_quota_and_request_id() -> TestResult {
    let database = TestDatabase::create_demo(friday()).await?;
    let replica = TestReplica::start(&database, friday()).await?;
    let (_, key) = replica.create_key(Plan::Gold).await?;

    let mut remaining = Vec::new();
    let mut ids = Vec::new();
    for _ in 0..5 {
        let response = replica.get_with_key(CURRENT_SELIC, &key).await?;
        remaining.push(response.headers()["x-ratelimit-remaining"].to_str()?.parse::<u32>()?);
        ids.push(response.headers()["x-request-id"].clone());
    }

    assert!(remaining.windows(2).all(|pair| pair[1] == pair[0] - 1), "{remaining:?}");

    ids.sort_by(|one, other| one.as_bytes().cmp(other.as_bytes()));
    ids.dedup();
    assert_eq!(ids.len(), 5);

    let (_, other) = replica.create_key(Plan::Gold).await?;
    let response = replica.get_with_key(CURRENT_SELIC, &other).await?;
    assert_eq!(response.headers()["x-ratelimit-remaining"], *(remaining[0]).to_string());

    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cached_response_expires_at_midnight_and_on_a_load() -> TestResult {
    let database = TestDatabase::create_demo(friday()).await?;
    let replica = start_unlimited_replica(&database).await?;
    let current = || async {
        let body: Value = replica.get(CURRENT_SELIC).await?.json().await?;
        anyhow::Ok((body["value"].to_string(), body["stale"] == true))
    };

    let (before, _) = current().await?;
    assert_eq!(current().await?, (before.clone(), false));

    replica.clock.set(friday() + Span::days(14));
    assert_eq!(current().await?, (before.clone(), true), "two weeks later nothing newer has come");
    replica.clock.set(friday());
    assert_eq!(current().await?, (before.clone(), false));

    let selic = series::find_series("selic").expect("the series is there");
    let fetch = NewFetch::without_response("test:kept".to_owned(), friday() + Span::seconds(1), [7; 32]);
    let store = database.open_store()?;
    let mut load = store.begin_load(Dataset::Series(selic), DataOrigin::Synthetic, &fetch).await?;
    load.append_observations(selic, &[Observation::new(friday().date_naive(), "99.25".parse()?)]).await?;
    load.commit().await?;

    wait_until("the new value is served", Duration::from_secs(10), || async {
        current().await.is_ok_and(|(value, _)| value == "99.25")
    })
    .await;

    Ok(())
}
