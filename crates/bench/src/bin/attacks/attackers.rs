//! The attacks.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinSet;
use tokio::time::{interval, sleep, timeout};
use vintem_bench::probes::RESPONSE_TIMEOUT;
use vintem_bench::slow_connections::{AttackTarget, LONG_TARGET, SlowClient, long_request};
use vintem_domain::ApiKey;

/// What the bare server answers to a request for a long response, compressed.
pub const LARGE_BODY_BYTES: usize = 1 << 20;

const FLOOD_CONNECTIONS: usize = 16;
const SLOW_CONNECTIONS: usize = 200;
const SILENT_CONNECTIONS: usize = 10_000;
/// Comparisons a second, as many as 20 Free keys may send.
const COMPARE_RATE: u32 = 12;
/// Between the end of a connection and the next one.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

pub struct Attack {
    pub name: &'static str,
    kind: AttackKind,
    /// What it requests, if the response is long.
    pub large_target: Option<&'static str>,
    keys: Arc<Vec<String>>,
}

#[derive(Debug, Clone, Copy)]
enum AttackKind {
    GuessedKeys,
    CompareFlood,
    SlowReaders,
    SlowBodies,
    SilentConnections,
    RegistrationFlood,
}

/// An attack that goes on until it is stopped.
pub struct RunningAttack(JoinSet<()>);

impl RunningAttack {
    pub async fn stop(mut self) {
        self.0.shutdown().await;
    }
}

impl Attack {
    pub fn all(keys: &[String]) -> Vec<Self> {
        let keys = Arc::new(keys.to_vec());
        let attack = |name, kind, large_target| Self { name, kind, large_target, keys: keys.clone() };
        vec![
            attack("guessed_keys", AttackKind::GuessedKeys, None),
            attack("compare_flood", AttackKind::CompareFlood, Some(LONG_TARGET)),
            attack("slow_readers", AttackKind::SlowReaders, Some(LONG_TARGET)),
            attack("slow_bodies", AttackKind::SlowBodies, None),
            attack("silent_connections", AttackKind::SilentConnections, None),
            attack("registration_flood", AttackKind::RegistrationFlood, None),
        ]
    }

    pub fn is_named(&self, name: &Option<String>) -> bool {
        name.as_ref().is_none_or(|name| name == self.name)
    }

    pub fn start(&self, target: AttackTarget) -> RunningAttack {
        let mut tasks = JoinSet::new();
        let keys = self.keys.clone();
        let kind = self.kind;
        match kind {
            AttackKind::CompareFlood => drop(tasks.spawn(flood_with_comparisons(target, keys))),
            _ => {
                let count = match kind {
                    AttackKind::GuessedKeys | AttackKind::RegistrationFlood => {
                        FLOOD_CONNECTIONS.max(target.sources.len())
                    }
                    AttackKind::SilentConnections => SILENT_CONNECTIONS,
                    _ => SLOW_CONNECTIONS,
                };
                for number in 0..count {
                    tasks.spawn(repeat(kind, target.clone(), keys.clone(), number));
                }
            }
        }
        RunningAttack(tasks)
    }
}

/// Attacks on a connection, and on a new one when it ends.
async fn repeat(kind: AttackKind, target: AttackTarget, keys: Arc<Vec<String>>, number: usize) {
    loop {
        // The server may refuse or close a connection at any time.
        let _ = match kind {
            AttackKind::GuessedKeys => send_repeatedly(&target, number, guess_request).await,
            AttackKind::RegistrationFlood => send_repeatedly(&target, number, registration_request).await,
            AttackKind::SlowReaders => SlowClient::SlowReader { keys: keys.clone() }.hold(&target, number).await,
            AttackKind::SlowBodies => SlowClient::SlowBody.hold(&target, number).await,
            AttackKind::SilentConnections | AttackKind::CompareFlood => SlowClient::Silent.hold(&target, number).await,
        };
        sleep(RETRY_INTERVAL).await;
    }
}

fn guess_request() -> Vec<u8> {
    let key = ApiKey::generate(rand::random::<u8>);
    format!("GET /api/v1/market/selic/current HTTP/1.1\r\nHost: a\r\nX-API-Key: {}\r\n\r\n", key.reveal()).into_bytes()
}

fn registration_request() -> Vec<u8> {
    let body = format!(r#"{{"name":"Teste","email":"{:016x}@example.com"}}"#, rand::random::<u64>());
    let head = "POST /api/v1/plans/register HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n";
    format!("{head}Content-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

/// Each request is sent as soon as there is something of the response before it.
async fn send_repeatedly(target: &AttackTarget, number: usize, request: fn() -> Vec<u8>) -> std::io::Result<()> {
    let mut stream = target.connect(number, None).await?;
    let mut buffer = vec![0; 64 * 1024];
    loop {
        stream.write_all(&request()).await?;
        if timeout(RESPONSE_TIMEOUT, stream.read(&mut buffer)).await?? == 0 {
            return Ok(());
        }
    }
}

async fn flood_with_comparisons(target: AttackTarget, keys: Arc<Vec<String>>) {
    let mut ticks = interval(Duration::from_secs(1) / COMPARE_RATE);
    let mut requests = JoinSet::new();
    for number in 0.. {
        ticks.tick().await;
        let target = target.clone();
        let request = long_request(&keys[number % keys.len()]);
        requests.spawn(async move {
            let mut stream = target.connect(number, None).await?;
            stream.write_all(&request).await?;
            let mut buffer = vec![0; 64 * 1024];
            while stream.read(&mut buffer).await? > 0 {}
            std::io::Result::Ok(())
        });
        while requests.try_join_next().is_some() {}
    }
}
