//! The service behind PgBouncer in transaction mode: each transaction meets any of two connections to PostgreSQL.

use std::os::unix::fs::MetadataExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;
use reqwest::{RequestBuilder, Response};
use serde_json::{Value, json};
use vintem_testkit::{
    DedicatedPostgres, DedicatedRedis, HIGH_LIMIT_FLAGS, ServerProcess, create_key_by_cli, find_free_port,
    http_client_builder, run_vintem, wait_until,
};

use crate::{TestResult, vintem_binary};

/// Dropping this kills it.
struct PgBouncer {
    process: Child,
    port: u16,
}

impl PgBouncer {
    fn start(postgres: &DedicatedPostgres) -> anyhow::Result<Self> {
        let port = find_free_port()?;
        let users = postgres.work_dir().join("users.txt");
        std::fs::write(&users, "\"postgres\" \"\"\n")?;
        let config = postgres.work_dir().join("pgbouncer.ini");
        let text = format!(
            "[databases]\npostgres = host=127.0.0.1 port={}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\n\
             unix_socket_dir =\nauth_type = trust\nauth_file = {}\npool_mode = transaction\ndefault_pool_size = 2\n\
             max_client_conn = 200\n",
            postgres.port(),
            users.display()
        );
        std::fs::write(&config, text)?;
        let mut command = Command::new("pgbouncer");
        // It refuses to run as root.
        if std::fs::metadata("/proc/self")?.uid() == 0 {
            command.args(["-u", "postgres"]);
        }
        let process = command.arg("-q").arg(&config).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        Ok(Self { process, port })
    }

    fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres", self.port)
    }
}

impl Drop for PgBouncer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The response, after a while at most: on a slow machine fifty requests may wait longer for two connections than the
/// service lets them.
async fn send_until_accepted(request: RequestBuilder) -> anyhow::Result<Response> {
    let started = Instant::now();
    loop {
        let response = request.try_clone().context("a body that can be sent again")?.send().await?;
        if response.status() != 503 || started.elapsed() > Duration::from_secs(30) {
            return Ok(response);
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_works_behind_a_pooler_of_transactions() -> TestResult {
    let postgres = DedicatedPostgres::start()?;
    let direct = format!("{}/postgres", postgres.url());
    for command in [&["migrate"][..], &["demo", "--filings", "1000"]] {
        let (status, _, error) = run_vintem(vintem_binary(), &direct, command).await?;
        anyhow::ensure!(status.success(), "{command:?}: {error}");
    }
    let (key_id, key) = create_key_by_cli(vintem_binary(), &direct, "platinum").await?;

    let pooler = PgBouncer::start(&postgres)?;
    let redis = DedicatedRedis::start()?;
    let flags = [&HIGH_LIMIT_FLAGS[..], &["--webhook-allow=127.0.0.0/8"]].concat();
    let replica = ServerProcess::start_with_env(
        vintem_binary(),
        &pooler.url(),
        &redis.url(),
        &flags,
        &[("VINTEM_DATABASE_DIRECT_URL", &direct)],
    )?;
    let http = http_client_builder().build()?;
    let get =
        async |path: &str, key: &str| send_until_accepted(http.get(replica.url(path)).header("X-API-Key", key)).await;

    // Writes and reads at the same time, so that they meet both connections.
    let register = async |number: usize| -> anyhow::Result<String> {
        let body = json!({"name": "Pooler", "email": format!("{number}@pooler.example")});
        let response = send_until_accepted(http.post(replica.url("/api/v1/plans/register")).json(&body)).await?;
        anyhow::ensure!(response.status() == 201, "{}", response.text().await?);
        let body: Value = response.json().await?;
        let key = body["api_key"].as_str().unwrap_or_default().to_owned();
        anyhow::ensure!(get("/api/v1/keys/me", &key).await?.status() == 200);
        Ok(key)
    };
    let registered = futures_util::future::try_join_all((0..50).map(register)).await?;
    let usage: Value = get("/api/v1/plans/usage", &registered[0]).await?.json().await?;
    assert!(usage["total_requests"].as_u64() >= Some(2), "{usage}");

    let rotation = http.post(replica.url("/api/v1/keys/rotate")).header("X-API-Key", &registered[1]).json(&json!({}));
    assert_eq!(send_until_accepted(rotation).await?.status(), 200);
    let webhook = json!({"url": "http://127.0.0.1:9/hook", "types": ["rate.published"]});
    let creation = http.post(replica.url("/api/v1/webhooks")).header("X-API-Key", &key).json(&webhook);
    assert_eq!(send_until_accepted(creation).await?.status(), 201);
    for path in ["/api/v1/events", "/api/v1/filings?as_of=2026-11-01", "/api/v1/companies?as_of=2026-11-01"] {
        let response = get(path, &key).await?;
        assert_eq!(response.status(), 200, "{path}: {}", response.text().await?);
    }

    // Changes by others are noticed, which needs a session of its own.
    let id = key_id.to_string();
    let (status, _, error) = run_vintem(vintem_binary(), &direct, &["keys", "revoke", &id]).await?;
    anyhow::ensure!(status.success(), "{error}");
    wait_until("the key to be refused", Duration::from_secs(5), || async {
        get("/api/v1/keys/me", &key).await.is_ok_and(|response| response.status() == 401)
    })
    .await;
    // On a busy machine its data may lag for a moment.
    wait_until("the replica to be healthy", Duration::from_secs(10), || async {
        let Ok(response) = http.get(replica.url("/health")).send().await else { return false };
        response.json::<Value>().await.is_ok_and(|health| health["status"] == "ok")
    })
    .await;
    Ok(())
}
