//! A load that costs the machine as little as can be, for benchmarks whose server shares the cores with it: requests are
//! made beforehand, and of an answer nothing is read but whether it is the one that must come.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

/// Larger than every answer that is measured.
const LARGEST_ANSWER: usize = 16 * 1024;
/// An answer that takes longer never comes.
const HANGS_AFTER: Duration = Duration::from_secs(10);

/// One answer as it came over a connection that stays open.
#[derive(Debug, Clone)]
pub struct WholeAnswer {
    /// Status line and headers, without the empty line.
    pub head: String,
    pub body: Vec<u8>,
}

impl WholeAnswer {
    pub fn status(&self) -> Option<u16> {
        self.head.get(9..12)?.parse().ok()
    }

    /// Names and values in the order in which they came.
    pub fn headers(&self) -> impl Iterator<Item = (&str, &str)> {
        self.head.lines().skip(1).filter_map(|line| line.split_once(": "))
    }
}

/// A request for a path with a key, as bytes.
pub fn keyed_get(path: &str, key: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: vintem.example\r\nX-API-Key: {key}\r\n\r\n").into_bytes()
}

/// Asks once.
pub async fn ask(address: SocketAddr, request: &[u8]) -> anyhow::Result<WholeAnswer> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(request).await?;
    let mut received = Vec::new();
    loop {
        let count = tokio::time::timeout(HANGS_AFTER, stream.read_buf(&mut received)).await??;
        ensure!(count > 0, "closed after {:?}", String::from_utf8_lossy(&received));
        let Some(end) = received.windows(4).position(|bytes| bytes == b"\r\n\r\n") else { continue };
        let head = String::from_utf8(received[..end].to_vec())?;
        let answer = WholeAnswer { body: received[end + 4..].to_vec(), head };
        let length = answer.headers().find(|(name, _)| name.eq_ignore_ascii_case("content-length"));
        let length: usize = length.context("an answer without its length")?.1.parse()?;
        if answer.body.len() >= length {
            return Ok(answer);
        }
    }
}

/// Connections each of which asks again as soon as it is answered.
#[derive(Debug)]
pub struct ClosedLoad {
    answered: Arc<AtomicU64>,
    connections: JoinSet<anyhow::Result<()>>,
}

impl ClosedLoad {
    /// The requests are shared out to the connections, each of which goes through its own in turn. Every answer must be
    /// 200 with this body.
    pub fn start(address: SocketAddr, connections: usize, requests: &Arc<Vec<Vec<u8>>>, body: &Arc<Vec<u8>>) -> Self {
        let (answered, mut tasks) = (Arc::new(AtomicU64::new(0)), JoinSet::new());
        for first in 0..connections {
            let (requests, body, answered) = (requests.clone(), body.clone(), answered.clone());
            tasks.spawn(async move {
                let own = requests.iter().skip(first).step_by(connections).cycle();
                ask_on(address, own.map(Vec::as_slice), &body, &answered).await
            });
        }
        Self { answered, connections: tasks }
    }

    /// How many answers have come so far.
    pub fn answered(&self) -> u64 {
        self.answered.load(Ordering::Relaxed)
    }

    /// Lets it run for so long; an error where an answer was not as it must be.
    pub async fn run(&mut self, time: Duration) -> anyhow::Result<()> {
        match tokio::time::timeout(time, self.connections.join_next()).await {
            Err(_) => Ok(()),
            Ok(Some(Ok(Err(error)))) => Err(error),
            Ok(ended) => bail!("a connection ended: {ended:?}"),
        }
    }
}

async fn ask_on<'r>(
    address: SocketAddr,
    requests: impl Iterator<Item = &'r [u8]>,
    body: &[u8],
    answered: &AtomicU64,
) -> anyhow::Result<()> {
    let mut stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let mut buffer = vec![0; LARGEST_ANSWER];
    for request in requests {
        stream.write_all(request).await?;
        let mut length = 0;
        while !is_whole(&buffer[..length], body) {
            let came = stream.read(&mut buffer[length..]).await?;
            length += came;
            let so_far = &buffer[..length];
            let is_good = came > 0 && (length < 12 || so_far.starts_with(b"HTTP/1.1 200"));
            ensure!(is_good, "not the answer that must come: {}", String::from_utf8_lossy(so_far));
        }
        answered.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

/// Whether these bytes end with this body, after a head. The head itself need not be read: no further answer can follow
/// before a further request.
fn is_whole(bytes: &[u8], body: &[u8]) -> bool {
    let Some(head) = bytes.strip_suffix(body) else { return false };
    head.ends_with(b"\r\n\r\n")
}
