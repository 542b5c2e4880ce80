//! A whole replica within the test's process, with a clock that the test holds.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use chrono::{DateTime, Utc};
use clap::Parser;
use vintem_api::{Pepper, new_key};
use vintem_deliver::export::Built;
use vintem_deliver::webhook::Dispatcher;
use vintem_domain::{Clock, ManualClock, Plan};
use vintem_server::replica::{Replica, start};
use vintem_server::settings::{ServeSettings, WebhookSettings};
use vintem_server::work::{dispatcher, make_exports, publish};
use vintem_store::keys::NewKey;
use vintem_store::{Deadlines, Store};

use crate::database::TestDatabase;
use crate::description::{Description, Seen};
use crate::engines::redis_url;
use crate::eventually;

/// The pepper of all tests.
pub const PEPPER: &str = "a pepper for tests, long enough to be taken";

/// What the secrets of webhooks are sealed under in all tests.
pub const SECRET_KEY: &str = "a secret key for tests, long enough to be taken";

/// What a request of a test waits for an engine, unless the test is about just that.
pub const PATIENT_BUDGET_MS: &str = "5000";

/// What a request waits for PostgreSQL where nobody says otherwise: for tests that are about that.
pub const USUAL_POSTGRES_BUDGET: [&str; 2] = ["--postgres-budget-ms", "500"];

/// Limits that no test reaches.
pub const ROOMY: [&str; 5] = [
    "--limit-free=10000000",
    "--limit-bronze=10000000",
    "--limit-gold=10000000",
    "--limit-platinum=10000000",
    "--register-per-day=100000",
];

#[derive(Debug, Parser)]
struct Settings {
    #[command(flatten)]
    serve: ServeSettings,
}

/// The settings of a replica on free ports, as if these flags had been given.
pub fn settings(database_url: &str, redis_url: &str, flags: &[&str]) -> anyhow::Result<ServeSettings> {
    let mut line = vec!["test", "--database-url", database_url, "--redis-url", redis_url];
    line.extend(["--key-pepper", PEPPER, "--secret-key", SECRET_KEY]);
    line.extend(["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"]);
    // Many tests at once keep the engines waiting for the processor: that is no reason to go on without them.
    for budget in ["--redis-budget-ms", "--postgres-budget-ms"] {
        if !flags.contains(&budget) {
            line.extend([budget, PATIENT_BUDGET_MS]);
        }
    }
    // Receivers of webhooks are on loopback.
    if !flags.contains(&"--webhook-allow") {
        line.extend(["--webhook-allow", "127.0.0.0/8"]);
    }
    line.extend(flags);
    Ok(Settings::try_parse_from(line)?.serve)
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
    exports: PathBuf,
    pub clock: Arc<ManualClock>,
    pub http: reqwest::Client,
    database_url: String,
    redis_prefix: String,
    description: Description,
    webhooks: WebhookSettings,
}

impl Drop for TestReplica {
    fn drop(&mut self) {
        // Most tests make none.
        let _ = std::fs::remove_dir_all(&self.exports);
        if let Err(error) = forget(&self.redis_prefix) {
            eprintln!("keys of {} were left in Redis: {error}", self.redis_prefix);
        }
    }
}

/// A prefix that no other test has.
pub fn redis_prefix() -> String {
    format!("test:{:016x}:", rand::random::<u64>())
}

/// Deletes everything under a prefix.
fn forget(prefix: &str) -> redis::RedisResult<()> {
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
    let (pepper, key) = (Pepper::new(PEPPER).expect("long enough"), new_key());
    let row = store
        .create_key(&NewKey {
            hmac: pepper.hmac(key.reveal()),
            pepper_id: &pepper.id(),
            shown: key.shown(),
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
        Self::start_with(database, now, TestReplicaOptions::default()).await
    }

    /// With limits that no test reaches.
    pub async fn start_roomy(database: &TestDatabase, now: DateTime<Utc>) -> anyhow::Result<Self> {
        Self::start_with(database, now, TestReplicaOptions { flags: &ROOMY, redis_prefix: None }).await
    }

    pub async fn start_with(
        database: &TestDatabase,
        now: DateTime<Utc>,
        options: TestReplicaOptions<'_>,
    ) -> anyhow::Result<Self> {
        let exports = std::env::temp_dir().join(format!("vintem-exports-{:016x}", rand::random::<u64>()));
        let directory = exports.to_str().context("a name of plain characters")?;
        let flags = [&["--export-dir", directory], options.flags].concat();
        let settings = settings(&database.url(), &redis_url(), &flags)?;
        let prefix = options.redis_prefix.map_or_else(redis_prefix, str::to_owned);
        let clock = Arc::new(ManualClock::new(now));
        let replica = start(&settings, &prefix, clock.clone()).await?;
        eventually("the replica is ready", Duration::from_secs(30), || async { replica.is_ready() }).await;
        let http = crate::http_client().build()?;
        let description = Description::of_the_project()?;
        let (database_url, webhooks) = (database.url(), settings.webhooks);
        Ok(Self { replica, exports, clock, http, database_url, redis_prefix: prefix, description, webhooks })
    }

    /// Makes the files of the bulk export of what is served now, as `vintem work` does.
    pub fn make_exports(&self) -> anyhow::Result<Built> {
        let snapshot = self.replica.snapshot().get().context("the replica is ready")?;
        Ok(make_exports(&snapshot, &self.exports, self.clock.now())?)
    }

    /// Publishes all events whose rows are served, as `vintem work` does, and says how many.
    pub async fn publish_events(&self) -> anyhow::Result<u64> {
        let (store, live, mut published) = (self.replica.store(), self.replica.snapshot(), 0);
        loop {
            match publish(&store, &live, self.clock.now()).await? {
                0 => return Ok(published),
                more => published += more,
            }
        }
    }

    /// What delivers to webhooks, as `vintem work` does, by the clock of the test.
    pub fn dispatcher(&self) -> anyhow::Result<Dispatcher> {
        dispatcher(self.store()?, &self.webhooks, self.clock.clone())
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.replica.address)
    }

    pub async fn get(&self, path: &str) -> anyhow::Result<reqwest::Response> {
        self.send(self.http.get(self.url(path))).await
    }

    pub async fn get_with(&self, path: &str, key: &str) -> anyhow::Result<reqwest::Response> {
        self.send(self.http.get(self.url(path)).header("X-API-Key", key)).await
    }

    /// Sends a request and holds its answer to `openapi.yaml`, whatever else the test looks at.
    pub async fn send(&self, request: reqwest::RequestBuilder) -> anyhow::Result<reqwest::Response> {
        let seen = self.see(request).await?;
        let objections = self.description.objections(&seen);
        anyhow::ensure!(objections.is_empty(), "{}", objections.join("; "));
        let mut answer = http::Response::builder().status(seen.status).body(seen.body)?;
        *answer.headers_mut() = seen.headers;
        Ok(answer.into())
    }

    /// The answer as it came, not judged.
    pub async fn see(&self, request: reqwest::RequestBuilder) -> anyhow::Result<Seen> {
        let request = request.build()?;
        let (method, path) = (request.method().to_string(), request.url().path().to_owned());
        let answer = self.http.execute(request).await?;
        let (status, headers) = (answer.status().as_u16(), answer.headers().clone());
        Ok(Seen { method, path, status, headers, body: answer.bytes().await?.into() })
    }

    /// A key as the operator makes it.
    pub async fn create_key(&self, plan: Plan) -> anyhow::Result<(i64, String)> {
        create_key(&self.store()?, plan).await
    }

    /// Waits until what is served is what the database holds.
    pub async fn settled(&self) -> anyhow::Result<()> {
        let store = self.store()?;
        let expected = store.dataset_states().await?;
        eventually("the snapshot is the newest", Duration::from_secs(10), || async {
            self.replica.served_states() == expected
        })
        .await;
        Ok(())
    }

    /// A key that was good once, and is no more here.
    pub async fn revoked_key(&self) -> anyhow::Result<String> {
        let (id, key) = self.create_key(Plan::Platinum).await?;
        self.store()?.revoke_key(id).await?;
        // Within a second it is refused everywhere; a page does not count against anybody's quota.
        eventually("the key is revoked", Duration::from_secs(2), || async {
            self.get_with("/health", &key).await.is_ok_and(|answer| answer.status() == 401)
        })
        .await;
        Ok(key)
    }

    pub fn store(&self) -> anyhow::Result<Store> {
        Ok(Store::open(&self.database_url, 2, Deadlines::of_workers())?)
    }
}
