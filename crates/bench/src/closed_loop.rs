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
const MAX_RESPONSE_BYTES: usize = 16 * 1024;
/// An answer that takes longer never comes.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);

/// One answer as it came over a connection that stays open.
#[derive(Debug, Clone)]
pub struct KeepAliveResponse {
    /// Status line and headers, without the empty line.
    pub head: String,
    pub body: Vec<u8>,
}

impl KeepAliveResponse {
    pub fn status(&self) -> Option<u16> {
        self.head.get(9..12)?.parse().ok()
    }

    /// Names and values in the order in which they came.
    pub fn headers(&self) -> impl Iterator<Item = (&str, &str)> {
        parse_headers(&self.head)
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        find_header(&self.head, name)
    }
}

/// Asks once.
pub async fn send_once(address: SocketAddr, request: &[u8]) -> anyhow::Result<KeepAliveResponse> {
    KeepAliveConnection::open(address).await?.send(request).await
}

/// One that stays open from a request to the next.
#[derive(Debug)]
pub struct KeepAliveConnection {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl KeepAliveConnection {
    pub async fn open(address: SocketAddr) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, buffer: Vec::with_capacity(MAX_RESPONSE_BYTES) })
    }

    pub async fn send(&mut self, request: &[u8]) -> anyhow::Result<KeepAliveResponse> {
        tokio::time::timeout(RESPONSE_TIMEOUT, self.send_without_timeout(request)).await.context("no answer in time")?
    }

    async fn send_without_timeout(&mut self, request: &[u8]) -> anyhow::Result<KeepAliveResponse> {
        self.stream.write_all(request).await?;
        self.buffer.clear();
        let mut body_begins = None;
        loop {
            let count = self.stream.read_buf(&mut self.buffer).await?;
            ensure!(count > 0, "closed after {:?}", String::from_utf8_lossy(&self.buffer));
            if body_begins.is_none() {
                body_begins = self.buffer.windows(4).position(|bytes| bytes == b"\r\n\r\n").map(|end| end + 4);
            }
            let Some(begins) = body_begins else { continue };
            let (head, body) = self.buffer.split_at(begins);
            let head = std::str::from_utf8(&head[..begins - 4])?;
            let length: usize = find_header(head, "content-length").context("an answer without its length")?.parse()?;
            if body.len() >= length {
                return Ok(KeepAliveResponse { head: head.to_owned(), body: body.to_vec() });
            }
        }
    }
}

fn parse_headers(head: &str) -> impl Iterator<Item = (&str, &str)> {
    head.lines().skip(1).filter_map(|line| line.split_once(": "))
}

fn find_header<'h>(head: &'h str, name: &str) -> Option<&'h str> {
    parse_headers(head).find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value)
}

/// Connections each of which asks again as soon as it is answered.
#[derive(Debug)]
pub struct ClosedLoopLoad {
    response_count: Arc<AtomicU64>,
    connection_tasks: JoinSet<anyhow::Result<()>>,
}

impl ClosedLoopLoad {
    /// The requests are shared out to the connections, each of which goes through its own in turn. Every answer must be
    /// 200 with this body.
    pub fn start(address: SocketAddr, connections: usize, requests: &Arc<Vec<Vec<u8>>>, body: &Arc<Vec<u8>>) -> Self {
        let (response_count, mut tasks) = (Arc::new(AtomicU64::new(0)), JoinSet::new());
        for first in 0..connections {
            let (requests, body, answered) = (requests.clone(), body.clone(), response_count.clone());
            tasks.spawn(async move {
                let own = requests.iter().skip(first).step_by(connections).cycle();
                send_in_loop(address, own.map(Vec::as_slice), &body, &answered).await
            });
        }
        Self { response_count, connection_tasks: tasks }
    }

    /// How many answers have come so far.
    pub fn response_count(&self) -> u64 {
        self.response_count.load(Ordering::Relaxed)
    }

    /// Lets it run for so long; an error where an answer was not as it must be.
    pub async fn run_for(&mut self, time: Duration) -> anyhow::Result<()> {
        match tokio::time::timeout(time, self.connection_tasks.join_next()).await {
            Err(_) => Ok(()),
            Ok(Some(Ok(Err(error)))) => Err(error),
            Ok(ended) => bail!("a connection ended: {ended:?}"),
        }
    }
}

async fn send_in_loop<'r>(
    address: SocketAddr,
    requests: impl Iterator<Item = &'r [u8]>,
    body: &[u8],
    answered: &AtomicU64,
) -> anyhow::Result<()> {
    let mut stream = KeepAliveConnection::open(address).await?.stream;
    let mut buffer = vec![0; MAX_RESPONSE_BYTES];
    for request in requests {
        stream.write_all(request).await?;
        let mut length = 0;
        while !is_complete_response(&buffer[..length], body) {
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
fn is_complete_response(bytes: &[u8], body: &[u8]) -> bool {
    let Some(head) = bytes.strip_suffix(body) else { return false };
    head.ends_with(b"\r\n\r\n")
}
