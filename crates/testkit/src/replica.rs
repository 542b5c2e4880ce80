//! A complete replica inside the test process, with a clock that the test controls.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use chrono::{DateTime, Utc};
use clap::Parser;
use vintem_api::{Pepper, generate_key};
use vintem_deliver::export::BuildReport;
use vintem_deliver::webhook::WebhookDispatcher;
use vintem_domain::{Clock, ManualClock, Plan};
use vintem_server::replica::{Replica, start_replica};
use vintem_server::settings::{ServeSettings, WebhookSettings};
use vintem_server::worker::{build_changed_exports, build_dispatcher, publish_pending_events};
use vintem_store::keys::NewKey;
use vintem_store::{Store, Timeouts};

use crate::database::TestDatabase;
use crate::openapi_spec::{ObservedResponse, OpenApiSpec};
use crate::test_servers::redis_url;
use crate::wait_until;

/// The pepper of all tests.
pub const TEST_PEPPER: &str = "a pepper for tests, long enough to be taken";

/// The key that encrypts webhook secrets in all tests.
pub const TEST_SECRET_KEY: &str = "a secret key for tests, long enough to be taken";

/// How long a request waits for PostgreSQL or Redis, except in tests about that timeout. The most that the setting allows:
/// on a busy machine a new connection alone can take seconds.
pub const TEST_BUDGET_MS: &str = "10000";

/// The product's default PostgreSQL timeout, for tests about it.
pub const DEFAULT_POSTGRES_BUDGET_FLAGS: [&str; 2] = ["--postgres-budget-ms", "500"];

/// Limits that no test reaches.
pub const HIGH_LIMIT_FLAGS: [&str; 6] = [
    "--limit-free=10000000",
    "--limit-bronze=10000000",
    "--limit-gold=10000000",
    "--limit-platinum=10000000",
    "--register-per-day=100000",
    "--key-lookups-per-minute=10000000",
];

#[derive(Debug, Parser)]
struct ServeSettingsParser {
    #[command(flatten)]
    serve: ServeSettings,
}

/// Parses the settings of a replica on free ports, with these flags added.
pub fn parse_serve_settings(database_url: &str, redis_url: &str, flags: &[&str]) -> anyhow::Result<ServeSettings> {
    let mut arguments = vec!["test", "--database-url", database_url, "--redis-url", redis_url];
    arguments.extend(["--key-pepper", TEST_PEPPER, "--secret-key", TEST_SECRET_KEY]);
    arguments.extend(["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"]);

    // Many parallel tests make PostgreSQL and Redis slow; that must not make a replica degrade.
    for budget in ["--redis-budget-ms", "--postgres-budget-ms"] {
        if !flags.contains(&budget) {
            arguments.extend([budget, TEST_BUDGET_MS]);
        }
    }
    // Webhook receivers in tests are on loopback.
    if !flags.contains(&"--webhook-allow") {
        arguments.extend(["--webhook-allow", "127.0.0.0/8"]);
    }
    arguments.extend(flags);
    Ok(ServeSettingsParser::try_parse_from(arguments)?.serve)
}

#[derive(Debug, Default)]
pub struct TestReplicaOptions<'a> {
    /// Further flags of `vintem serve`.
    pub flags: &'a [&'a str],
    /// The prefix of all keys in Redis; random unless replicas have to share one.
    pub redis_prefix: Option<&'a str>,
}

pub struct TestReplica {
    pub replica: Replica,
    /// Created by the first `build_exports`.
    export_dir: PathBuf,
    pub clock: Arc<ManualClock>,
    pub http: reqwest::Client,
    database_url: String,
    redis_prefix: String,
    openapi_spec: OpenApiSpec,
    webhook_settings: WebhookSettings,
}

impl Drop for TestReplica {
    fn drop(&mut self) {
        // An error is normal: most tests build no exports.
        let _ = std::fs::remove_dir_all(&self.export_dir);
        if let Err(error) = delete_redis_keys(&self.redis_prefix) {
            eprintln!("keys of {} were left in Redis: {error}", self.redis_prefix);
        }
    }
}

/// A prefix that no other test uses.
pub fn random_redis_prefix() -> String {
    format!("test:{:016x}:", rand::random::<u64>())
}

fn delete_redis_keys(prefix: &str) -> redis::RedisResult<()> {
    let mut redis = redis::Client::open(redis_url())?.get_connection()?;
    let mut cursor = 0u64;
    loop {
        let (next, keys): (u64, Vec<String>) = redis::cmd("SCAN")
            .arg(cursor)
            .arg("MATCH")
            .arg(format!("{prefix}*"))
            .arg("COUNT")
            .arg(1000)
            .query(&mut redis)?;
        for key in keys {
            redis::cmd("DEL").arg(key).exec(&mut redis)?;
        }
        if next == 0 {
            return Ok(());
        }
        cursor = next;
    }
}

/// Creates a key as an operator does, with [`TEST_PEPPER`]; returns its id and the key.
pub async fn create_key(store: &Store, plan: Plan) -> anyhow::Result<(i64, String)> {
    let pepper = Pepper::new(TEST_PEPPER).expect("long enough");
    let key = generate_key();

    let row = store
        .create_key(&NewKey { secret: pepper.new_secret(&key), plan, name: "Teste", email: "teste@example.com" })
        .await?;
    Ok((row.id, key.reveal().to_owned()))
}

impl TestReplica {
    /// Serves this database with the clock at `now`, and waits until the replica is ready.
    pub async fn start(database: &TestDatabase, now: DateTime<Utc>) -> anyhow::Result<Self> {
        Self::start_with_options(database, now, TestReplicaOptions::default()).await
    }

    /// Uses limits that no test reaches.
    pub async fn start_with_high_limits(database: &TestDatabase, now: DateTime<Utc>) -> anyhow::Result<Self> {
        Self::start_with_options(database, now, TestReplicaOptions { flags: &HIGH_LIMIT_FLAGS, redis_prefix: None })
            .await
    }

    pub async fn start_with_options(
        database: &TestDatabase,
        now: DateTime<Utc>,
        options: TestReplicaOptions<'_>,
    ) -> anyhow::Result<Self> {
        let export_dir = std::env::temp_dir().join(format!("vintem-exports-{:016x}", rand::random::<u64>()));
        let export_dir_text = export_dir.to_str().context("a name of plain characters")?;
        let flags = [&["--export-dir", export_dir_text], options.flags].concat();
        let settings = parse_serve_settings(&database.url(), &redis_url(), &flags)?;
        let redis_prefix = options.redis_prefix.map_or_else(random_redis_prefix, str::to_owned);

        let clock = Arc::new(ManualClock::new(now));
        let replica = start_replica(&settings, &redis_prefix, clock.clone()).await?;
        wait_until("the replica is ready", Duration::from_secs(30), || async { replica.is_ready() }).await;

        // A redirect is a response like any other; following it would hide it.
        let http = crate::http_client_builder().redirect(reqwest::redirect::Policy::none()).build()?;
        let openapi_spec = OpenApiSpec::load_project_spec()?;
        Ok(Self {
            replica,
            export_dir,
            clock,
            http,
            database_url: database.url(),
            redis_prefix,
            openapi_spec,
            webhook_settings: settings.webhooks,
        })
    }

    /// Builds the bulk export files from the served snapshot, as `vintem work` does.
    pub fn build_exports(&self) -> anyhow::Result<BuildReport> {
        let snapshot = self.replica.snapshot().get().context("the replica is ready")?;
        Ok(build_changed_exports(&snapshot, &self.export_dir, self.clock.now())?)
    }

    /// Publishes all events whose rows are served, as `vintem work` does, and returns their number.
    pub async fn publish_events(&self) -> anyhow::Result<u64> {
        let store = self.replica.store();
        let live_snapshot = self.replica.snapshot();
        let mut published = 0;
        loop {
            match publish_pending_events(&store, &live_snapshot, self.clock.now()).await? {
                0 => return Ok(published),
                count => published += count,
            }
        }
    }

    /// The webhook dispatcher of `vintem work`, on the test's clock.
    pub fn webhook_dispatcher(&self) -> anyhow::Result<WebhookDispatcher> {
        build_dispatcher(self.open_store()?, &self.webhook_settings, self.clock.clone())
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.replica.address)
    }

    pub async fn get(&self, path: &str) -> anyhow::Result<reqwest::Response> {
        self.send(self.http.get(self.url(path))).await
    }

    pub async fn get_with_key(&self, path: &str, key: &str) -> anyhow::Result<reqwest::Response> {
        self.send(self.http.get(self.url(path)).header("X-API-Key", key)).await
    }

    /// Sends a request and validates the response against `openapi.yaml`, whatever the test itself checks.
    pub async fn send(&self, request: reqwest::RequestBuilder) -> anyhow::Result<reqwest::Response> {
        let observed = self.send_unchecked(request).await?;
        let violations = self.openapi_spec.validate_response(&observed);
        anyhow::ensure!(violations.is_empty(), "{}", violations.join("; "));

        let mut response = http::Response::builder().status(observed.status).body(observed.body)?;
        *response.headers_mut() = observed.headers;
        Ok(response.into())
    }

    /// Sends a request without validating the response.
    pub async fn send_unchecked(&self, request: reqwest::RequestBuilder) -> anyhow::Result<ObservedResponse> {
        let request = request.build()?;
        let method = request.method().to_string();
        let path = request.url().path().to_owned();

        let response = self.http.execute(request).await?;
        let status = response.status().as_u16();
        let headers = response.headers().clone();
        Ok(ObservedResponse { method, path, status, headers, body: response.bytes().await?.into() })
    }

    pub async fn create_key(&self, plan: Plan) -> anyhow::Result<(i64, String)> {
        create_key(&self.open_store()?, plan).await
    }

    /// Waits until the served snapshot matches the database.
    pub async fn wait_for_current_snapshot(&self) -> anyhow::Result<()> {
        let store = self.open_store()?;
        let expected = store.dataset_states().await?;
        wait_until("the snapshot is the newest", Duration::from_secs(10), || async {
            self.replica.served_dataset_states() == expected
        })
        .await;
        Ok(())
    }

    /// Creates a key, revokes it and waits until the replica rejects it.
    pub async fn create_revoked_key(&self) -> anyhow::Result<String> {
        let (id, key) = self.create_key(Plan::Platinum).await?;
        self.open_store()?.revoke_key(id).await?;
        // Revocation takes at most a second. `/health` is polled because pages don't count against a quota.
        wait_until("the key is revoked", Duration::from_secs(2), || async {
            self.get_with_key("/health", &key).await.is_ok_and(|response| response.status() == 401)
        })
        .await;
        Ok(key)
    }

    pub fn open_store(&self) -> anyhow::Result<Store> {
        Ok(Store::open(&self.database_url, 2, Timeouts::for_workers())?)
    }
}
