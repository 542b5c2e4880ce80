//! A closed-loop load that uses as little CPU as possible, for benchmarks whose server shares the cores with it: requests
//! are built beforehand, and a response is only compared with the expected one.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

/// Larger than the head of every measured response.
const MAX_HEAD_BYTES: usize = 16 * 1024;
/// A response that takes longer counts as lost.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);

/// One response received over a keep-alive connection.
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

    /// Names and values in the order received.
    pub fn headers(&self) -> impl Iterator<Item = (&str, &str)> {
        parse_headers(&self.head)
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        find_header(&self.head, name)
    }
}

/// Sends one request on a new connection.
pub async fn send_once(address: SocketAddr, request: &[u8]) -> anyhow::Result<KeepAliveResponse> {
    KeepAliveConnection::open(address).await?.send(request).await
}

/// A connection that stays open between requests.
#[derive(Debug)]
pub struct KeepAliveConnection {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl KeepAliveConnection {
    pub async fn open(address: SocketAddr) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, buffer: Vec::with_capacity(MAX_HEAD_BYTES) })
    }

    pub async fn send(&mut self, request: &[u8]) -> anyhow::Result<KeepAliveResponse> {
        tokio::time::timeout(RESPONSE_TIMEOUT, self.send_without_timeout(request)).await.context("no answer in time")?
    }

    async fn send_without_timeout(&mut self, request: &[u8]) -> anyhow::Result<KeepAliveResponse> {
        self.stream.write_all(request).await?;
        self.buffer.clear();

        let mut body_start = None;
        loop {
            let count = self.stream.read_buf(&mut self.buffer).await?;
            ensure!(count > 0, "closed after {:?}", String::from_utf8_lossy(&self.buffer));
            if body_start.is_none() {
                body_start = self.buffer.windows(4).position(|bytes| bytes == b"\r\n\r\n").map(|end| end + 4);
            }
            let Some(start) = body_start else { continue };

            let (head, body) = self.buffer.split_at(start);
            let head = std::str::from_utf8(&head[..start - 4])?;
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
    parse_headers(head).find(|(other, _)| other.eq_ignore_ascii_case(name)).map(|(_, value)| value)
}

/// A request, and the body of its response.
#[derive(Debug)]
pub struct ExpectedRequest {
    pub request: Vec<u8>,
    pub body: Arc<Vec<u8>>,
}

/// Connections that each send the next request as soon as they have a response.
#[derive(Debug)]
pub struct ClosedLoopLoad {
    response_count: Arc<AtomicU64>,
    connection_tasks: JoinSet<anyhow::Result<()>>,
}

impl ClosedLoopLoad {
    /// Divides the requests among the connections, each of which repeats its own in turn. Every response must be 200 with
    /// its body.
    pub fn start(address: SocketAddr, connections: usize, requests: &Arc<Vec<ExpectedRequest>>) -> Self {
        let response_count = Arc::new(AtomicU64::new(0));
        let mut connection_tasks = JoinSet::new();
        for first in 0..connections {
            let requests = requests.clone();
            let response_count = response_count.clone();
            connection_tasks.spawn(async move {
                let own_requests = requests.iter().skip(first).step_by(connections).cycle();
                send_in_loop(address, own_requests, &response_count).await
            });
        }
        Self { response_count, connection_tasks }
    }

    /// The number of responses so far.
    pub fn response_count(&self) -> u64 {
        self.response_count.load(Ordering::Relaxed)
    }

    /// Runs the load for this long; an error if a response was not the expected one.
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
    requests: impl Iterator<Item = &'r ExpectedRequest>,
    response_count: &AtomicU64,
) -> anyhow::Result<()> {
    let mut stream = KeepAliveConnection::open(address).await?.stream;
    let mut buffer = vec![0; MAX_HEAD_BYTES];
    for ExpectedRequest { request, body } in requests {
        stream.write_all(request).await?;
        let mut length = 0;
        let max_length = MAX_HEAD_BYTES + body.len();
        if buffer.len() < max_length {
            buffer.resize(max_length, 0);
        }
        while !is_complete_response(&buffer[..length], body) {
            let read = stream.read(&mut buffer[length..]).await?;
            length += read;
            let received = &buffer[..length];
            let is_good = read > 0 && (length < 12 || received.starts_with(b"HTTP/1.1 200"));
            ensure!(is_good, "not the answer that must come: {}", String::from_utf8_lossy(received));
        }
        response_count.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

/// Whether these bytes are a head followed by this body. The head need not be parsed: without another request no other
/// response can follow.
fn is_complete_response(bytes: &[u8], body: &[u8]) -> bool {
    let Some(head) = bytes.strip_suffix(body) else { return false };
    head.ends_with(b"\r\n\r\n")
}
