//! Replicas behind a load balancer are restarted one after the other: no request fails. The balancer knows nothing but
//! `/readyz`, and never retries. `just rolling-restarts` does this 20 times. `just upgrade` begins with replicas of the
//! previous release, and updates the schema of large tables meanwhile.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use reqwest::header::CONNECTION;
use sqlx::PgConnection;
use vintem_testkit::background_load::{BackgroundLoad, PlannedRequest, RequestRecord};
use vintem_testkit::{
    DedicatedRedis, ServerProcess, TempDirectory, TestDatabase, create_key_by_cli, find_free_port, http_client_builder,
    parse_env_var, run_vintem, wait_until,
};

use crate::usage_storage::insert_keys;
use crate::{TestResult, friday, vintem_binary};

const REPLICA_COUNT: usize = 2;
/// How long a replica serves on after SIGTERM. The balancer asks every half second.
const DRAIN_SECONDS: &str = "2";
/// After the drain: requests in flight, and the last usage.
const MAX_SHUTDOWN: Duration = Duration::from_secs(12);
/// The usage is read from PostgreSQL, so a migration that blocks its table is noticed; the others come from memory.
const REQUEST_PATHS: [&str; 5] = [
    "/api/v1/plans/usage",
    "/api/v1/market/selic/current",
    "/api/v1/market/cdi?limit=5000",
    "/api/v1/companies?limit=20",
    "/api/v1/filings?limit=20",
];

/// During an upgrade, no request may take longer.
const MAX_UPGRADE_LATENCY: Duration = Duration::from_millis(500);

/// haproxy in front of the replicas; dropping this kills it.
struct LoadBalancer {
    process: Child,
    port: u16,
    directory: TempDirectory,
}

impl LoadBalancer {
    fn start(replicas: &[ReplicaPorts]) -> anyhow::Result<Self> {
        let directory = TempDirectory::create()?;
        let port = find_free_port()?;
        let mut servers = String::new();
        for (number, ReplicaPorts { public, admin }) in replicas.iter().enumerate() {
            servers.push_str(&format!("  server replica{number} 127.0.0.1:{public} check port {admin}\n"));
        }
        let socket = command_socket(&directory).display().to_string();
        let config = format!(
            "global\n  stats socket {socket} level admin\n\
             defaults\n  mode http\n  timeout connect 2s\n  timeout client 30s\n  timeout server 30s\n  retries 0\n\
             frontend clients\n  bind 127.0.0.1:{port}\n  default_backend replicas\n\
             backend replicas\n  balance roundrobin\n  http-reuse always\n  option httpchk GET /readyz\n  \
             http-response set-header X-Replica %s\n  default-server inter 500ms fall 1 rise 1\n{servers}"
        );
        let file = directory.path().join("haproxy.cfg");
        std::fs::File::create(&file)?.write_all(config.as_bytes())?;
        let process = Command::new("haproxy").args(["-db", "-q", "-f"]).arg(&file).stdout(Stdio::null()).spawn()?;
        Ok(Self { process, port, directory })
    }

    fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    /// Waits until the balancer sends requests to this replica.
    async fn wait_for_replica(&self, http: &reqwest::Client, replica: usize) {
        let name = format!("replica{replica}");
        wait_until("an answer of the replica", Duration::from_secs(20), || async {
            let response = http.get(self.url("/health")).send().await;
            response.is_ok_and(|response| response.headers().get("x-replica").is_some_and(|header| *header == name[..]))
        })
        .await;
    }

    /// For replicas that do not announce their end: sends them nothing any more, and waits until they have answered.
    async fn drain(&self, replica: usize) -> anyhow::Result<()> {
        self.run_command(&format!("set server replicas/replica{replica} state drain"))?;
        wait_until("the end of all requests", Duration::from_secs(20), || async {
            let name = format!("replicas,replica{replica},");
            // The fifth column has the requests that are being answered.
            self.run_command("show stat").is_ok_and(|table| {
                let row = table.lines().find(|line| line.starts_with(&name));
                row.is_some_and(|row| row.split(',').nth(4) == Some("0"))
            })
        })
        .await;
        Ok(())
    }

    fn undrain(&self, replica: usize) -> anyhow::Result<()> {
        self.run_command(&format!("set server replicas/replica{replica} state ready"))?;
        Ok(())
    }

    fn run_command(&self, command: &str) -> anyhow::Result<String> {
        let mut socket = UnixStream::connect(command_socket(&self.directory))?;
        writeln!(socket, "{command}")?;
        let mut answer = String::new();
        socket.read_to_string(&mut answer)?;
        Ok(answer)
    }
}

fn command_socket(directory: &TempDirectory) -> PathBuf {
    directory.path().join("commands")
}

impl Drop for LoadBalancer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Fixed, so that a restarted replica is found again.
#[derive(Clone, Copy)]
struct ReplicaPorts {
    public: u16,
    admin: u16,
}

impl ReplicaPorts {
    fn find() -> anyhow::Result<Self> {
        Ok(Self { public: find_free_port()?, admin: find_free_port()? })
    }

    fn start_replica(self, binary: &Path, database_url: &str, redis_url: &str) -> anyhow::Result<ServerProcess> {
        let listen = format!("--listen=127.0.0.1:{}", self.public);
        let admin_listen = format!("--admin-listen=127.0.0.1:{}", self.admin);
        let flags = [&listen, &admin_listen, "--limit-platinum=10000000", "--trusted-proxies=127.0.0.1/32"];
        let drain = [("VINTEM_DRAIN_SECONDS", DRAIN_SECONDS)];
        ServerProcess::start_with_env(binary, database_url, redis_url, &flags, &drain)
    }
}

/// What runs before the restarts: this version, or the previous release in a database with large tables.
struct Beginning {
    previous_binary: Option<PathBuf>,
    database: TestDatabase,
    key: String,
}

impl Beginning {
    async fn prepare() -> anyhow::Result<Self> {
        let previous_binary: Option<PathBuf> = std::env::var_os("VINTEM_PREVIOUS_BINARY").map(Into::into);
        let Some(binary) = &previous_binary else {
            let database = TestDatabase::create_demo(friday()).await?;
            let (_, key) = create_key_by_cli(vintem_binary(), &database.url(), "platinum").await?;
            return Ok(Self { previous_binary, database, key });
        };

        let database = TestDatabase::create_without_schema().await?;
        for command in [&["migrate"][..], &["demo", "--filings", "50000"]] {
            let (status, _, error) = run_vintem(binary, &database.url(), command).await?;
            anyhow::ensure!(status.success(), "{error}");
        }
        let (_, key) = create_key_by_cli(binary, &database.url(), "platinum").await?;
        fill_large_tables(&mut database.connect().await?).await?;
        Ok(Self { previous_binary, database, key })
    }

    fn binary(&self) -> &Path {
        self.previous_binary.as_deref().unwrap_or(vintem_binary())
    }
}

/// A million rows in each table whose migration depends on its size. The schema is that of the previous release.
async fn fill_large_tables(connection: &mut PgConnection) -> TestResult {
    insert_keys(connection, 1_000_000).await?;
    let statements = [
        "insert into usage_day (key_id, day, route_group, requests, successful)
         select id, current_date - 1, 'market', 1, 1
         from api_key",
        "insert into webhook (id, key_id, url, types, companies, categories, folded_categories, series, pairs, status,
                              created_at, secret)
         select 'wh_made_up', min(id), 'https://example.com/', '{}', '{}', '{}', '{}', '{}', '{}', 'paused', now(), '\\x00'
         from api_key",
        "with published as (
             insert into event (type, occurred_at, subject, position, body)
             select 'rate.published', now() - interval '1 day', '{}', number, '{}'
             from generate_series(1, 1000000) number
             returning sequence, id, type
         )
         insert into delivery (webhook, event, event_id, type, state, next_attempt_at, created_at)
         select webhook.number, sequence, published.id, type, 'delivered', now(), now()
         from published, webhook",
        "update event_feed set last_position = 1000000",
        "analyze",
    ];
    for statement in statements {
        sqlx::query(statement).execute(&mut *connection).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn no_request_fails_while_replicas_are_restarted_one_after_the_other() -> TestResult {
    let restarts: usize = parse_env_var("VINTEM_RESTARTS").unwrap_or(2);
    let rate: u32 = parse_env_var("VINTEM_RESTART_RATE").unwrap_or(100);
    let min_requests: usize = parse_env_var("VINTEM_RESTART_REQUESTS").unwrap_or(0);

    let beginning = Beginning::prepare().await?;
    let database_url = beginning.database.url();
    let redis = DedicatedRedis::start()?;
    let mut ports = Vec::new();
    let mut replicas = Vec::new();
    for _ in 0..REPLICA_COUNT {
        let replica = ReplicaPorts::find()?;
        ports.push(replica);
        replicas.push(replica.start_replica(beginning.binary(), &database_url, &redis.url())?);
    }
    let balancer = LoadBalancer::start(&ports)?;
    let http = http_client_builder().timeout(Duration::from_secs(20)).build()?;
    for replica in 0..REPLICA_COUNT {
        balancer.wait_for_replica(&http, replica).await;
    }

    let load_http = http.clone();
    let base_url = balancer.url("");
    let key = beginning.key.clone();
    let load = BackgroundLoad::start(rate, move || {
        let path = REQUEST_PATHS[rand::random_range(0..REQUEST_PATHS.len())];
        let mut request = load_http.get(format!("{base_url}{path}")).header("X-API-Key", &key);
        // Half of the clients keep their connection, the others open one for each request.
        if rand::random() {
            request = request.header(CONNECTION, "close");
        }
        Some(PlannedRequest { caller: 0, replica: 0, request })
    });
    let started = Instant::now();
    if beginning.previous_binary.is_some() {
        let (status, output, error) = run_vintem(vintem_binary(), &database_url, &["migrate"]).await?;
        assert!(status.success(), "{error}");
        println!("{}", output.trim());
        println!("migration_seconds: {:.1}", started.elapsed().as_secs_f64());
    }
    for restart in 0..restarts {
        let replica = restart % REPLICA_COUNT;
        // The previous release closes its port at once.
        let must_be_drained = beginning.previous_binary.is_some() && restart < REPLICA_COUNT;
        if must_be_drained {
            balancer.drain(replica).await?;
        }
        replicas[replica].terminate()?;
        let status = replicas[replica].wait_timeout(MAX_SHUTDOWN)?;
        assert!(status.is_some_and(|status| status.success()), "restart {restart}: {status:?}");
        replicas[replica] = ports[replica].start_replica(vintem_binary(), &database_url, &redis.url())?;
        if must_be_drained {
            balancer.undrain(replica)?;
        }
        balancer.wait_for_replica(&http, replica).await;
    }
    while started.elapsed().as_secs_f64() * f64::from(rate) < min_requests as f64 {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }

    let records = load.stop().await?;
    let failed = records.iter().filter(|record| record.status() != Some(200)).count();
    let slowest = records.iter().map(RequestRecord::latency).max().unwrap_or_default();
    println!("restarts: {restarts}");
    println!("requests: {}", records.len());
    println!("slowest_ms: {}", slowest.as_millis());
    println!("failed: {failed}");
    assert_eq!(failed, 0, "{:?}", records.iter().find(|record| record.status() != Some(200)));
    assert!(records.len() >= min_requests);
    if beginning.previous_binary.is_some() {
        assert!(slowest <= MAX_UPGRADE_LATENCY, "{slowest:?}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_public_port_opens_when_there_is_data() -> TestResult {
    let database = TestDatabase::create_demo(friday()).await?;
    let database_url = database.url();
    let redis = DedicatedRedis::start()?;
    let redis_url = redis.url();
    let http = http_client_builder().build()?;
    let locked = database.lock_table("dataset").await?;
    let ports = ReplicaPorts::find()?;
    let starting = tokio::task::spawn_blocking(move || ports.start_replica(vintem_binary(), &database_url, &redis_url));

    wait_until("an answer of the admin port", Duration::from_secs(20), || async {
        let response = http.get(format!("http://127.0.0.1:{}/readyz", ports.admin)).send().await;
        response.is_ok_and(|response| response.status() == 503)
    })
    .await;
    let refused = tokio::net::TcpStream::connect(("127.0.0.1", ports.public)).await;
    assert!(refused.is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionRefused));
    drop(locked);

    let replica = starting.await??;
    let response = http.get(replica.url("/api/v1/market/selic/current")).send().await?;
    assert_eq!(response.status(), 200);
    Ok(())
}
