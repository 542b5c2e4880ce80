//! A whole replica within the test's process, with a clock that the test holds.

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

/// What the secrets of webhooks are sealed under in all tests.
pub const TEST_SECRET_KEY: &str = "a secret key for tests, long enough to be taken";

/// What a request of a test waits for an engine, unless the test is about just that.
pub const TEST_BUDGET_MS: &str = "5000";

/// What a request waits for PostgreSQL where nobody says otherwise: for tests that are about that.
pub const DEFAULT_POSTGRES_BUDGET_FLAGS: [&str; 2] = ["--postgres-budget-ms", "500"];

/// Limits that no test reaches.
pub const HIGH_LIMIT_FLAGS: [&str; 5] = [
    "--limit-free=10000000",
    "--limit-bronze=10000000",
    "--limit-gold=10000000",
    "--limit-platinum=10000000",
    "--register-per-day=100000",
];

#[derive(Debug, Parser)]
struct ServeSettingsParser {
    #[command(flatten)]
    serve: ServeSettings,
}

/// The settings of a replica on free ports, as if these flags had been given.
pub fn parse_serve_settings(database_url: &str, redis_url: &str, flags: &[&str]) -> anyhow::Result<ServeSettings> {
    let mut line = vec!["test", "--database-url", database_url, "--redis-url", redis_url];
    line.extend(["--key-pepper", TEST_PEPPER, "--secret-key", TEST_SECRET_KEY]);
    line.extend(["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"]);
    // Many tests at once keep the engines waiting for the processor: that is no reason to go on without them.
    for budget in ["--redis-budget-ms", "--postgres-budget-ms"] {
        if !flags.contains(&budget) {
            line.extend([budget, TEST_BUDGET_MS]);
        }
    }
    // Receivers of webhooks are on loopback.
    if !flags.contains(&"--webhook-allow") {
        line.extend(["--webhook-allow", "127.0.0.0/8"]);
    }
    line.extend(flags);
    Ok(ServeSettingsParser::try_parse_from(line)?.serve)
}

/// What a test may want otherwise.
#[derive(Debug, Default)]
pub struct TestReplicaOptions<'a> {
    /// Further flags of `vintem serve`.
    pub flags: &'a [&'a str],
    /// What all keys in Redis begin with; of its own unless replicas are to share.
    pub redis_prefix: Option<&'a str>,
}

pub struct TestReplica {
    pub replica: Replica,
    /// Where its exports are, once they are made.
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
        // Most tests make none.
        let _ = std::fs::remove_dir_all(&self.export_dir);
        if let Err(error) = delete_redis_keys(&self.redis_prefix) {
            eprintln!("keys of {} were left in Redis: {error}", self.redis_prefix);
        }
    }
}

/// A prefix that no other test has.
pub fn random_redis_prefix() -> String {
    format!("test:{:016x}:", rand::random::<u64>())
}

/// Deletes everything under a prefix.
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

/// A key as the operator makes it, under the pepper of all tests: its id, and itself.
pub async fn create_key(store: &Store, plan: Plan) -> anyhow::Result<(i64, String)> {
    let (pepper, key) = (Pepper::new(TEST_PEPPER).expect("long enough"), generate_key());
    let row = store
        .create_key(&NewKey {
            hmac: pepper.hmac(key.reveal()),
            pepper_id: &pepper.id(),
            display_prefix: key.display_prefix(),
            plan,
            name: "Teste",
            email: "teste@example.com",
        })
        .await?;
    Ok((row.id, key.reveal().to_owned()))
}

impl TestReplica {
    /// Serves this database at this moment and waits until it is ready.
    pub async fn start(database: &TestDatabase, now: DateTime<Utc>) -> anyhow::Result<Self> {
        Self::start_with_options(database, now, TestReplicaOptions::default()).await
    }

    /// With limits that no test reaches.
    pub async fn start_with_high_limits(database: &TestDatabase, now: DateTime<Utc>) -> anyhow::Result<Self> {
        Self::start_with_options(database, now, TestReplicaOptions { flags: &HIGH_LIMIT_FLAGS, redis_prefix: None })
            .await
    }

    pub async fn start_with_options(
        database: &TestDatabase,
        now: DateTime<Utc>,
        options: TestReplicaOptions<'_>,
    ) -> anyhow::Result<Self> {
        let exports = std::env::temp_dir().join(format!("vintem-exports-{:016x}", rand::random::<u64>()));
        let directory = exports.to_str().context("a name of plain characters")?;
        let flags = [&["--export-dir", directory], options.flags].concat();
        let settings = parse_serve_settings(&database.url(), &redis_url(), &flags)?;
        let prefix = options.redis_prefix.map_or_else(random_redis_prefix, str::to_owned);
        let clock = Arc::new(ManualClock::new(now));
        let replica = start_replica(&settings, &prefix, clock.clone()).await?;
        wait_until("the replica is ready", Duration::from_secs(30), || async { replica.is_ready() }).await;
        let http = crate::http_client_builder().build()?;
        let description = OpenApiSpec::load_project_spec()?;
        let (database_url, webhooks) = (database.url(), settings.webhooks);
        Ok(Self {
            replica,
            export_dir: exports,
            clock,
            http,
            database_url,
            redis_prefix: prefix,
            openapi_spec: description,
            webhook_settings: webhooks,
        })
    }

    /// Makes the files of the bulk export of what is served now, as `vintem work` does.
    pub fn build_exports(&self) -> anyhow::Result<BuildReport> {
        let snapshot = self.replica.snapshot().get().context("the replica is ready")?;
        Ok(build_changed_exports(&snapshot, &self.export_dir, self.clock.now())?)
    }

    /// Publishes all events whose rows are served, as `vintem work` does, and says how many.
    pub async fn publish_events(&self) -> anyhow::Result<u64> {
        let (store, live, mut published) = (self.replica.store(), self.replica.snapshot(), 0);
        loop {
            match publish_pending_events(&store, &live, self.clock.now()).await? {
                0 => return Ok(published),
                more => published += more,
            }
        }
    }

    /// What delivers to webhooks, as `vintem work` does, by the clock of the test.
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

    /// Sends a request and holds its answer to `openapi.yaml`, whatever else the test looks at.
    pub async fn send(&self, request: reqwest::RequestBuilder) -> anyhow::Result<reqwest::Response> {
        let seen = self.send_unchecked(request).await?;
        let objections = self.openapi_spec.validate_response(&seen);
        anyhow::ensure!(objections.is_empty(), "{}", objections.join("; "));
        let mut answer = http::Response::builder().status(seen.status).body(seen.body)?;
        *answer.headers_mut() = seen.headers;
        Ok(answer.into())
    }

    /// The answer as it came, not judged.
    pub async fn send_unchecked(&self, request: reqwest::RequestBuilder) -> anyhow::Result<ObservedResponse> {
        let request = request.build()?;
        let (method, path) = (request.method().to_string(), request.url().path().to_owned());
        let answer = self.http.execute(request).await?;
        let (status, headers) = (answer.status().as_u16(), answer.headers().clone());
        Ok(ObservedResponse { method, path, status, headers, body: answer.bytes().await?.into() })
    }

    /// A key as the operator makes it.
    pub async fn create_key(&self, plan: Plan) -> anyhow::Result<(i64, String)> {
        create_key(&self.open_store()?, plan).await
    }

    /// Waits until what is served is what the database holds.
    pub async fn wait_for_current_snapshot(&self) -> anyhow::Result<()> {
        let store = self.open_store()?;
        let expected = store.dataset_states().await?;
        wait_until("the snapshot is the newest", Duration::from_secs(10), || async {
            self.replica.served_dataset_states() == expected
        })
        .await;
        Ok(())
    }

    /// A key that was good once, and is no more here.
    pub async fn create_revoked_key(&self) -> anyhow::Result<String> {
        let (id, key) = self.create_key(Plan::Platinum).await?;
        self.open_store()?.revoke_key(id).await?;
        // Within a second it is refused everywhere; a page does not count against anybody's quota.
        wait_until("the key is revoked", Duration::from_secs(2), || async {
            self.get_with_key("/health", &key).await.is_ok_and(|answer| answer.status() == 401)
        })
        .await;
        Ok(key)
    }

    pub fn open_store(&self) -> anyhow::Result<Store> {
        Ok(Store::open(&self.database_url, 2, Timeouts::for_workers())?)
    }
}
