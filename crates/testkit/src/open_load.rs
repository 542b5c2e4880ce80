//! A load at a rate of its own, whatever becomes of the requests before: what a server under it is slow at is seen.
//!
//! Each request is due at an instant, and its latency is reckoned from there: that it had to wait for a free connection
//! is part of it, so nothing is left out because the server was slow.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// One request and what came of it.
#[derive(Debug, Clone, Copy)]
pub struct Reply {
    /// When it should have been sent, since the load began.
    pub due: Duration,
    /// From then until all of the answer was there.
    pub latency: Duration,
    /// 0 where no answer came.
    pub status: u16,
    /// Whether it says when to come again.
    pub says_when: bool,
}

/// An answer that takes longer is none.
const HANGS_AFTER: Duration = Duration::from_secs(10);

/// Asks for these requests in turn, so many times a second for so long, over at most so many connections.
pub async fn open_load(
    address: SocketAddr,
    requests: &Arc<Vec<Vec<u8>>>,
    connections: usize,
    rate: f64,
    time: Duration,
) -> Vec<Reply> {
    let count = (time.as_secs_f64() * rate) as u64;
    let (due, next) = (Arc::new(Semaphore::new(0)), Arc::new(AtomicU64::new(0)));
    let replies = Arc::new(Mutex::new(Vec::with_capacity(count as usize)));
    let began = Instant::now();
    let mut tasks = JoinSet::new();
    for _ in 0..connections {
        let (requests, due, next, replies) = (requests.clone(), due.clone(), next.clone(), replies.clone());
        tasks.spawn(async move {
            let mut connection = None;
            loop {
                // Closed when there is nothing more to ask.
                let Ok(turn) = due.acquire().await else { return };
                turn.forget();
                let number = next.fetch_add(1, Ordering::Relaxed);
                let should = Duration::from_secs_f64(number as f64 / rate);
                let request = &requests[(number % requests.len() as u64) as usize];
                let answer = tokio::time::timeout(HANGS_AFTER, ask(address, &mut connection, request)).await;
                let (status, says_when) = match answer {
                    Ok(Ok(answer)) => answer,
                    _ => {
                        connection = None;
                        (0, false)
                    }
                };
                let latency = began.elapsed().saturating_sub(should);
                let reply = Reply { due: should, latency, status, says_when };
                replies.lock().expect("never held across a panic").push(reply);
            }
        });
    }
    let mut released = 0;
    while released < count {
        // As many as are due by now: a timer that is late makes none of them go missing.
        let by_now = ((began.elapsed().as_secs_f64() * rate) as u64).min(count);
        due.add_permits((by_now - released) as usize);
        released = by_now;
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    while replies.lock().expect("never held across a panic").len() < count as usize {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    due.close();
    while tasks.join_next().await.is_some() {}
    std::mem::take(&mut *replies.lock().expect("never held across a panic"))
}

/// How many are answered by 200 in a second when so many connections ask again as soon as they are answered.
pub async fn closed_goodput(
    address: SocketAddr,
    requests: &Arc<Vec<Vec<u8>>>,
    connections: usize,
    time: Duration,
) -> anyhow::Result<f64> {
    let (good, next, began) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)), Instant::now());
    let mut tasks = JoinSet::new();
    for _ in 0..connections {
        let (requests, good, next) = (requests.clone(), good.clone(), next.clone());
        tasks.spawn(async move {
            let mut connection = None;
            while began.elapsed() < time {
                let number = next.fetch_add(1, Ordering::Relaxed) as usize;
                let (status, _) = ask(address, &mut connection, &requests[number % requests.len()]).await?;
                good.fetch_add(u64::from(status == 200), Ordering::Relaxed);
            }
            anyhow::Ok(())
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    Ok(good.load(Ordering::Relaxed) as f64 / began.elapsed().as_secs_f64())
}

/// The status, and whether there was a `Retry-After`. The connection is kept.
async fn ask(address: SocketAddr, kept: &mut Option<Connection>, request: &[u8]) -> anyhow::Result<(u16, bool)> {
    let connection = match kept {
        Some(connection) => connection,
        None => {
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            kept.insert(Connection { stream, received: Vec::with_capacity(64 * 1024) })
        }
    };
    connection.stream.write_all(request).await?;
    connection.received.clear();
    let mut head_end = None;
    loop {
        let count = connection.stream.read_buf(&mut connection.received).await?;
        ensure!(count > 0, "closed");
        let received = &connection.received;
        if head_end.is_none() {
            head_end = received.windows(4).position(|bytes| bytes == b"\r\n\r\n");
        }
        let Some(end) = head_end else { continue };
        let head = std::str::from_utf8(&received[..end])?;
        let length = header(head, "content-length").context("an answer without its length")?.parse::<usize>()?;
        if received.len() >= end + 4 + length {
            let status = head.get(9..12).context("a short status line")?.parse()?;
            return Ok((status, header(head, "retry-after").is_some()));
        }
    }
}

struct Connection {
    stream: TcpStream,
    received: Vec<u8>,
}

fn header<'h>(head: &'h str, name: &str) -> Option<&'h str> {
    head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}
