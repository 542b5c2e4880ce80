//! Nobody can crowd anybody out: what one caller does leaves the others their share.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::Context;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::{Instant, sleep_until};
use vintem_domain::Plan;
use vintem_testkit::{
    DedicatedRedis, ServerProcess, TestDatabase, TestReplica, create_key_by_cli, http_client_builder, parse_env_var,
    wait_until,
};

use crate::{TestResult, friday, vintem_binary};

const SELIC_PATH: &str = "/api/v1/market/selic/current";
const REGISTER_PATH: &str = "/api/v1/plans/register";
/// Lookups of unknown keys stay below their limit of 30 a minute.
const MAX_ROUNDS_PER_MINUTE: u32 = 25;

async fn connect_from(source: Ipv4Addr, server: SocketAddr) -> std::io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.bind((source, 0).into())?;
    socket.connect(server).await
}

/// Whether the service has sent something that begins with this.
fn has_received(stream: &TcpStream, start: &[u8]) -> bool {
    let mut buffer = [0; 64];
    match stream.try_read(&mut buffer) {
        Ok(count) => buffer[..count].starts_with(start),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::WouldBlock);
            false
        }
    }
}

/// Repeats a request that is refused, as `Retry-After` says, while the slow bodies are still there: on a busy machine its
/// own body may arrive too late to need no permit.
async fn send_promptly(replica: &TestReplica, request: &reqwest::RequestBuilder) -> anyhow::Result<u16> {
    let mut status = 503;
    for attempt in 0..4 {
        if status == 503 {
            tokio::time::sleep(Duration::from_secs(attempt.min(1))).await;
            status = replica.send(request.try_clone().context("a body of JSON")?).await?.status().as_u16();
        }
    }
    Ok(status)
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_request_bodies_do_not_keep_others_from_writing() -> TestResult {
    let database = TestDatabase::create_demo(friday()).await?;
    let replica = TestReplica::start_with_high_limits(&database, friday()).await?;
    let (_, gold) = replica.create_key(Plan::Gold).await?;

    // From one address, and from more addresses than all Free callers together may have bodies.
    for address_count in [1, 100] {
        let mut senders = Vec::new();
        for number in 0..200u8 {
            let source = Ipv4Addr::new(127, 0, 1, 1 + number % address_count);
            let mut stream = connect_from(source, replica.replica.address).await?;
            let head = "POST /api/v1/plans/register HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n\
                        Content-Length: 100\r\n\r\n{";
            stream.write_all(head.as_bytes()).await?;
            senders.push(stream);
        }
        wait_until("there are more slow bodies than allowed", Duration::from_secs(20), || async {
            senders.iter().any(|stream| has_received(stream, b"HTTP/1.1 503"))
        })
        .await;

        let label = replica.http.patch(replica.url("/api/v1/keys/me")).header("X-API-Key", &gold);
        let label = label.json(&json!({"label": "minha"}));
        assert_eq!(send_promptly(&replica, &label).await?, 200, "{address_count}");
        let body = json!({"name": "Ana", "email": format!("ana{address_count}@example.com")});
        let registration = replica.http.post(replica.url(REGISTER_PATH)).json(&body);
        assert_eq!(send_promptly(&replica, &registration).await?, 201, "{address_count}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn silent_connections_leave_room_for_the_operator_and_for_other_clients() -> TestResult {
    let redis = DedicatedRedis::start()?;
    let database = TestDatabase::create_demo(friday()).await?;
    let process = ServerProcess::start_with_open_files(256, vintem_binary(), &database.url(), &redis.url())?;
    let server: SocketAddr = process.address.parse()?;

    let mut silent = Vec::new();
    for number in 0..364u16 {
        let [_, last] = (1 + number % 8).to_be_bytes();
        // The service may close a connection at once.
        silent.push(connect_from(Ipv4Addr::new(127, 0, 1, last), server).await);
    }
    let http = http_client_builder().timeout(Duration::from_secs(20)).build()?;
    for url in [process.url(SELIC_PATH), format!("http://{}/livez", process.admin_address)] {
        assert_eq!(http.get(&url).send().await?.status(), 200, "{url}");
    }
    drop(silent);
    Ok(())
}

/// `just fresh-keys` runs this 200 times, as often as lookups allow.
#[tokio::test(flavor = "multi_thread")]
async fn a_new_key_works_at_once_on_another_replica_for_an_address_without_quota() -> TestResult {
    let rounds: u32 = parse_env_var("VINTEM_FRESH_KEY_ROUNDS").unwrap_or(20);
    let redis = DedicatedRedis::start()?;
    let database = TestDatabase::create_demo(friday()).await?;
    let flags = ["--register-per-day=100000"];
    let first = ServerProcess::start(vintem_binary(), &database.url(), &redis.url(), &flags)?;
    let second = ServerProcess::start(vintem_binary(), &database.url(), &redis.url(), &flags)?;
    let (_, platinum) = create_key_by_cli(vintem_binary(), &database.url(), "platinum").await?;
    let http = http_client_builder().build()?;

    let started = Instant::now();
    for round in 0..rounds {
        if rounds > MAX_ROUNDS_PER_MINUTE {
            sleep_until(started + Duration::from_secs(60) * round / MAX_ROUNDS_PER_MINUTE).await;
        }
        // The address has no requests left.
        while http.get(second.url(SELIC_PATH)).send().await?.status() != 429 {}

        let body = json!({"name": "Ana", "email": format!("ana{round}@example.com")});
        let registration = http.post(first.url(REGISTER_PATH)).header("X-API-Key", &platinum).json(&body);
        let registered: Value = registration.send().await?.json().await?;
        let key = registered["api_key"].as_str().expect("a key");
        let response = http.get(second.url(SELIC_PATH)).header("X-API-Key", key).send().await?;
        assert_eq!(response.status(), 200, "round {round}");
    }
    println!("rounds: {rounds}");
    Ok(())
}
