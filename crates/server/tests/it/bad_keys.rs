//! The cost of bad keys: malformed keys cause no query, guesses cause a limited number of lookups, and response times
//! do not reveal why a key was refused.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use http::HeaderValue;
use sqlx::{Connection, PgConnection, Row};
use vintem_domain::ApiKey;
use vintem_testkit::timed_requests::run_concurrently;
use vintem_testkit::{
    DedicatedPostgres, DedicatedRedis, HIGH_LIMIT_FLAGS, ServerProcess, TestDatabase, TestReplica, TestReplicaOptions,
    create_key_by_cli, http_client_builder, parse_env_var, run_vintem,
};

use crate::{TestResult, friday, vintem_binary};

const SELIC_PATH: &str = "/api/v1/market/selic/current";

/// A server process on its own PostgreSQL and Redis, which count the statements and commands they run.
struct InstrumentedService {
    process: ServerProcess,
    postgres: DedicatedPostgres,
    redis: DedicatedRedis,
    http: reqwest::Client,
}

/// Calls by statement.
type StatementCounts = HashMap<String, i64>;

impl InstrumentedService {
    async fn start(flags: &[&str]) -> anyhow::Result<Self> {
        let postgres = DedicatedPostgres::start_with_options("-c shared_preload_libraries=pg_stat_statements")?;
        let redis = DedicatedRedis::start()?;
        let database = Self::database_url(&postgres);

        for command in [&["migrate"][..], &["demo", "--filings", "1000"]] {
            let (status, _, error) = run_vintem(vintem_binary(), &database, command).await?;
            anyhow::ensure!(status.success(), "{command:?}: {error}");
        }

        let mut connection = PgConnection::connect(&database).await?;
        sqlx::raw_sql("create extension pg_stat_statements").execute(&mut connection).await?;

        let process = ServerProcess::start(vintem_binary(), &database, &redis.url(), flags)?;

        Ok(Self { process, postgres, redis, http: http_client_builder().build()? })
    }

    fn database_url(postgres: &DedicatedPostgres) -> String {
        format!("{}/postgres", postgres.url())
    }

    async fn statement_counts(&self) -> anyhow::Result<StatementCounts> {
        let mut connection = PgConnection::connect(&Self::database_url(&self.postgres)).await?;
        let rows = sqlx::query("select query, sum(calls)::bigint as calls from pg_stat_statements group by query")
            .fetch_all(&mut connection)
            .await?;

        rows.iter().map(|row| Ok((row.try_get("query")?, row.try_get("calls")?))).collect()
    }

    /// Calls since `before`, by statement.
    async fn statement_counts_since(&self, before: &StatementCounts) -> anyhow::Result<StatementCounts> {
        let now = self.statement_counts().await?;
        Ok(now
            .into_iter()
            .map(|(query, calls)| (calls - before.get(&query).unwrap_or(&0), query))
            .map(swap_pair)
            .collect())
    }

    /// Calls of the Redis script that admits requests.
    fn admission_script_calls(&self) -> anyhow::Result<u64> {
        let stats: String = self.redis.run_command(&["INFO", "commandstats"])?;
        let calls = |line: &str| line.strip_prefix("cmdstat_evalsha:calls=")?.split(',').next()?.parse().ok();
        Ok(stats.lines().find_map(calls).unwrap_or(0))
    }

    async fn get_status(&self, key: HeaderValue) -> anyhow::Result<u16> {
        Ok(self.http.get(self.process.url(SELIC_PATH)).header("X-API-Key", key).send().await?.status().as_u16())
    }
}

fn swap_pair<A, B>((a, b): (A, B)) -> (B, A) {
    (b, a)
}

/// A key that fails to parse, in most cases by very little.
fn malformed_key() -> HeaderValue {
    let key = vintem_api::generate_key().reveal().to_owned();
    let mut bytes = key.clone().into_bytes();
    match rand::random_range(0..8) {
        0 => bytes.truncate(rand::random_range(0..47)),
        1 => bytes.extend_from_slice(b"0"),
        2 => bytes[rand::random_range(0..4)] = b'x',
        3 => bytes[rand::random_range(4..47)] = b'-',
        4 => bytes[rand::random_range(4..47)] = 0xe9,
        5 => bytes = (0..47).map(|_| rand::random_range(b'!'..=b'~')).collect(),
        6 => bytes[3..].reverse(),
        // Another character of the alphabet: only the checksum reveals it.
        _ => {
            let at = rand::random_range(4..47);
            bytes[at] = if bytes[at] == b'a' { b'b' } else { b'a' };
        }
    }

    if std::str::from_utf8(&bytes).ok().and_then(ApiKey::parse).is_some() {
        return malformed_key();
    }

    HeaderValue::from_bytes(&bytes).unwrap_or(HeaderValue::from_static(""))
}

/// `just bad-keys` runs this with a hundred thousand keys.
#[tokio::test(flavor = "multi_thread")]
async fn malformed_keys_cause_no_database_query() -> TestResult {
    let count = parse_env_var("VINTEM_BAD_KEYS").unwrap_or(5_000);
    let service = InstrumentedService::start(&HIGH_LIMIT_FLAGS).await?;

    // The replica runs statements of its own, once a second. Unknown but well-formed keys show which statement looks up
    // a key.
    const GUESS_COUNT: usize = 200;
    let before = service.statement_counts().await?;
    let started = Instant::now();
    let unknown = |_| HeaderValue::from_str(vintem_api::generate_key().reveal()).expect("plain text");
    let statuses = run_concurrently(GUESS_COUNT, 8, |index| service.get_status(unknown(index))).await?;
    assert!(statuses.iter().all(|status| *status == 401), "{statuses:?}");

    let lookups: Vec<String> = service
        .statement_counts_since(&before)
        .await?
        .into_iter()
        .filter(|(_, calls)| *calls >= GUESS_COUNT as i64)
        .map(|(query, _)| query)
        .collect();
    assert_eq!(lookups.len(), 1, "one statement looks a key up: {lookups:?}, {:?}", started.elapsed());

    let before = service.statement_counts().await?;
    let started = Instant::now();
    let statuses = run_concurrently(count, 16, |_| service.get_status(malformed_key())).await?;
    let seconds = started.elapsed().as_secs() + 1;

    let not_401 = statuses.iter().filter(|status| **status != 401).count();
    let calls_by_statement = service.statement_counts_since(&before).await?;
    let lookup_count: i64 = lookups.iter().map(|query| calls_by_statement.get(query).unwrap_or(&0)).sum();
    let busiest =
        calls_by_statement.iter().max_by_key(|(_, calls)| **calls).map(|(query, calls)| (*calls, query.clone()));

    println!("malformed_keys: {count}");
    println!("statement_of_the_replica_itself_at_most: {}", busiest.as_ref().map_or(0, |(calls, _)| *calls));
    println!("statements: {lookup_count}");

    assert_eq!(not_401, 0, "all are refused by 401");
    assert_eq!(lookup_count, 0);

    // No other statement grows with them either: the replica's own statements run a few times a second.
    assert!(busiest.as_ref().is_some_and(|(calls, _)| *calls <= 10 * seconds as i64), "{busiest:?} in {seconds} s");

    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_guesses_from_one_address_are_thirty_times_401_and_then_429() -> TestResult {
    let database = TestDatabase::create_demo(friday()).await?;
    let options = TestReplicaOptions { flags: &["--limit-window-seconds=3600"], redis_prefix: None };
    let replica = TestReplica::start_with_options(&database, friday(), options).await?;
    let guess = |_| {
        let request =
            replica.http.get(replica.url(SELIC_PATH)).header("X-API-Key", vintem_api::generate_key().reveal());
        async move { anyhow::Ok(request.send().await?.status().as_u16()) }
    };
    // One after another, as long as there are lookups: a guess without one would overtake those that wait for theirs.
    let mut statuses = run_concurrently(30, 1, guess).await?;
    statuses.extend(run_concurrently(970, 8, guess).await?);

    let mut counts = BTreeMap::<u16, usize>::new();
    statuses.iter().for_each(|status| *counts.entry(*status).or_default() += 1);
    println!("guesses: {counts:?}");
    assert_eq!(counts, BTreeMap::from([(401, 30), (429, 970)]));

    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn guessed_keys_of_one_address_cause_thirty_lookups_a_minute() -> TestResult {
    // No rate limit: only the lookups themselves are limited.
    let service = InstrumentedService::start(&["--limit-free=10000000"]).await?;
    let before = service.statement_counts().await?;
    let unknown = |_| HeaderValue::from_str(vintem_api::generate_key().reveal()).expect("plain text");
    let statuses = run_concurrently(1_000, 8, |index| service.get_status(unknown(index))).await?;

    let mut counts = BTreeMap::<u16, usize>::new();
    statuses.iter().for_each(|status| *counts.entry(*status).or_default() += 1);
    let lookups: i64 = service
        .statement_counts_since(&before)
        .await?
        .into_iter()
        .filter(|(query, _)| query.contains("api_key") && query.contains("hmac = $1"))
        .map(|(_, calls)| calls)
        .sum();
    println!("lookups: {lookups}");
    // An unknown key that was not looked up may be valid, so it gets 503 and not 401. The minute may end meanwhile.
    assert!((30..=60).contains(&lookups), "{lookups}");
    assert_eq!(counts.get(&401).copied().unwrap_or(0) as i64, lookups, "{counts:?}");
    assert_eq!(counts.values().sum::<usize>() - counts[&401], counts[&503], "{counts:?}");
    Ok(())
}

/// The largest accepted relative difference between the medians.
const MAX_MEDIAN_DIFFERENCE: f64 = 0.05;

/// An unknown key, a revoked key and a key of an insufficient plan are refused by the same work: no statement, one
/// Redis call. `just bad-keys` also compares their response times; beside other tests the times would only show the
/// load of the machine.
#[tokio::test(flavor = "multi_thread")]
async fn unknown_revoked_and_wrong_plan_keys_are_refused_at_the_same_cost() -> TestResult {
    let samples: Option<usize> = parse_env_var("VINTEM_TIMED_KEYS");
    let count = samples.unwrap_or(500);
    let compares_times = samples.is_some();

    let service = InstrumentedService::start(&HIGH_LIMIT_FLAGS).await?;
    let database = InstrumentedService::database_url(&service.postgres);

    let (_, other_plan) = create_key_by_cli(vintem_binary(), &database, "free").await?;
    let (id, revoked) = create_key_by_cli(vintem_binary(), &database, "free").await?;
    run_vintem(vintem_binary(), &database, &["keys", "revoke", &id.to_string()]).await?;

    let unknown = vintem_api::generate_key().reveal().to_owned();
    let kinds = [("unknown", &unknown, 401), ("revoked", &revoked, 401), ("other_plan", &other_plan, 403)];

    let send = |key: &str| {
        let request = service.http.get(service.process.url("/api/v1/filings")).header("X-API-Key", key);
        async move {
            let sent_at = Instant::now();
            let response = request.send().await?;
            let status = response.status().as_u16();
            response.bytes().await?;
            anyhow::Ok((status, sent_at.elapsed()))
        }
    };

    for (name, key, status) in kinds {
        vintem_testkit::wait_until(name, Duration::from_secs(5), || async {
            send(key).await.is_ok_and(|(seen, _)| seen == status)
        })
        .await;
    }

    let statements = service.statement_counts().await?;
    let calls = service.admission_script_calls()?;

    let started = Instant::now();
    let mut times: [Vec<Duration>; 3] = Default::default();
    for round in 0..count {
        // In another order each round, so that no kind always follows the same other kind.
        for position in 0..3 {
            let kind = (round + if round % 2 == 0 { position } else { 3 - position }) % 3;
            let (name, key, expected) = kinds[kind];
            let (status, time) = send(key).await?;
            anyhow::ensure!(status == expected, "{name}: {status}");
            times[kind].push(time);
        }
    }

    let seconds = started.elapsed().as_secs() + 1;
    let busiest = service.statement_counts_since(&statements).await?.into_values().max().unwrap_or(0);
    let calls = service.admission_script_calls()? - calls;

    let medians = times.map(|mut times| {
        times.sort_unstable();
        times[times.len() / 2].as_secs_f64() * 1e6
    });
    let fastest = medians.iter().copied().fold(f64::MAX, f64::min);
    let slowest = medians.iter().copied().fold(0.0, f64::max);
    let median_difference = slowest / fastest - 1.0;

    println!("samples_each: {count}");
    for ((name, _, _), median) in kinds.iter().zip(medians) {
        println!("{name}_median_microseconds: {median:.1}");
    }

    println!("busiest_statement: {busiest}");
    println!("script_calls: {calls}");
    println!("medians_apart: {:.1} %", median_difference * 100.0);

    // The absence of a key is cached for ten seconds, so it is looked up again now and then.
    assert!(busiest <= 10 * seconds as i64, "a statement was run {busiest} times in {seconds} s");
    assert!(calls >= 3 * count as u64, "{calls} calls for {} requests", 3 * count);
    assert!(
        !compares_times || median_difference <= MAX_MEDIAN_DIFFERENCE,
        "medians lie {:.1} % apart",
        median_difference * 100.0
    );

    Ok(())
}
