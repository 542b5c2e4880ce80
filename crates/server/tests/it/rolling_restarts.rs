//! Replicas behind a load balancer are restarted one after the other: no request fails. The balancer knows nothing but
//! `/readyz`, and never retries. `just rolling-restarts` does this 20 times.

use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use reqwest::header::CONNECTION;
use vintem_testkit::background_load::{BackgroundLoad, PlannedRequest};
use vintem_testkit::{
    ServerProcess, TempDirectory, TestDatabase, create_key_by_cli, find_free_port, http_client_builder, parse_env_var,
    redis_url, wait_until,
};

use crate::{TestResult, friday, vintem_binary};

const REPLICA_COUNT: usize = 2;
/// How long a replica serves on after SIGTERM. The balancer asks every half second.
const DRAIN_SECONDS: &str = "2";
/// After the drain: requests in flight, and the last usage.
const MAX_SHUTDOWN: Duration = Duration::from_secs(12);
const REQUEST_PATHS: [&str; 4] = [
    "/api/v1/market/selic/current",
    "/api/v1/market/cdi?limit=5000",
    "/api/v1/companies?limit=20",
    "/api/v1/filings?limit=20",
];

/// haproxy in front of the replicas; dropping this kills it.
struct LoadBalancer {
    process: Child,
    port: u16,
    _directory: TempDirectory,
}

impl LoadBalancer {
    fn start(replicas: &[ReplicaPorts]) -> anyhow::Result<Self> {
        let directory = TempDirectory::create()?;
        let port = find_free_port()?;
        let mut servers = String::new();
        for (number, ReplicaPorts { public, admin }) in replicas.iter().enumerate() {
            servers.push_str(&format!("  server replica{number} 127.0.0.1:{public} check port {admin}\n"));
        }
        let config = format!(
            "defaults\n  mode http\n  timeout connect 2s\n  timeout client 30s\n  timeout server 30s\n  retries 0\n\
             frontend clients\n  bind 127.0.0.1:{port}\n  default_backend replicas\n\
             backend replicas\n  balance roundrobin\n  http-reuse always\n  option httpchk GET /readyz\n  \
             http-response set-header X-Replica %s\n  default-server inter 500ms fall 1 rise 1\n{servers}"
        );
        let file = directory.path().join("haproxy.cfg");
        std::fs::File::create(&file)?.write_all(config.as_bytes())?;
        let process = Command::new("haproxy").args(["-db", "-q", "-f"]).arg(&file).stdout(Stdio::null()).spawn()?;
        Ok(Self { process, port, _directory: directory })
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
    fn start_replica(self, database: &TestDatabase) -> anyhow::Result<ServerProcess> {
        let listen = format!("--listen=127.0.0.1:{}", self.public);
        let admin_listen = format!("--admin-listen=127.0.0.1:{}", self.admin);
        let flags = [&listen, &admin_listen, "--limit-platinum=10000000", "--trusted-proxies=127.0.0.1/32"];
        let drain = [("VINTEM_DRAIN_SECONDS", DRAIN_SECONDS)];
        ServerProcess::start_with_env(vintem_binary(), &database.url(), &redis_url(), &flags, &drain)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_request_fails_while_replicas_are_restarted_one_after_the_other() -> TestResult {
    let restarts: usize = parse_env_var("VINTEM_RESTARTS").unwrap_or(2);
    let rate: u32 = parse_env_var("VINTEM_RESTART_RATE").unwrap_or(100);
    let min_requests: usize = parse_env_var("VINTEM_RESTART_REQUESTS").unwrap_or(0);

    let database = TestDatabase::create_demo(friday()).await?;
    let (_, key) = create_key_by_cli(vintem_binary(), &database.url(), "platinum").await?;
    let mut ports = Vec::new();
    let mut replicas = Vec::new();
    for _ in 0..REPLICA_COUNT {
        let replica = ReplicaPorts { public: find_free_port()?, admin: find_free_port()? };
        ports.push(replica);
        replicas.push(replica.start_replica(&database)?);
    }
    let balancer = LoadBalancer::start(&ports)?;
    let http = http_client_builder().timeout(Duration::from_secs(20)).build()?;
    for replica in 0..REPLICA_COUNT {
        balancer.wait_for_replica(&http, replica).await;
    }

    let load_http = http.clone();
    let base_url = balancer.url("");
    let load = BackgroundLoad::start(rate, move || {
        let path = REQUEST_PATHS[rand::random_range(0..REQUEST_PATHS.len())];
        let mut request = load_http.get(format!("{base_url}{path}")).header("X-API-Key", &key);
        // Half of the clients keep their connection, the others open one for each request.
        if rand::random() {
            request = request.header(CONNECTION, "close");
        }
        Some(PlannedRequest { caller: 0, replica: 0, request })
    });
    let started = std::time::Instant::now();
    for restart in 0..restarts {
        let replica = restart % REPLICA_COUNT;
        replicas[replica].terminate()?;
        let status = replicas[replica].wait_timeout(MAX_SHUTDOWN)?;
        assert!(status.is_some_and(|status| status.success()), "restart {restart}: {status:?}");
        replicas[replica] = ports[replica].start_replica(&database)?;
        balancer.wait_for_replica(&http, replica).await;
    }
    while started.elapsed().as_secs_f64() * f64::from(rate) < min_requests as f64 {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }

    let records = load.stop().await?;
    let failed = records.iter().filter(|record| record.status() != Some(200)).count();
    println!("restarts: {restarts}");
    println!("requests: {}", records.len());
    println!("failed: {failed}");
    assert_eq!(failed, 0, "{:?}", records.iter().find(|record| record.status() != Some(200)));
    assert!(records.len() >= min_requests);
    Ok(())
}
