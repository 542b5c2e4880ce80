//! Clients that keep a connection busy for as long as the server lets them.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::sleep;

/// All series over all days: the longest response that a Free caller can get.
pub const LONG_TARGET: &str = "/api/v1/market/compare?ids=selic,cdi,ipca,selic-effective,selic-daily,cdi-daily,ipca-12m,ipca-ytd,real-selic,usd-brl,eur-brl&limit=20000";

/// Where connections go, and where they come from.
#[derive(Debug, Clone)]
pub struct AttackTarget {
    pub address: SocketAddr,
    pub sources: Vec<Ipv4Addr>,
}

impl AttackTarget {
    /// The sources take turns.
    pub async fn connect(&self, number: usize, receive_buffer: Option<u32>) -> std::io::Result<TcpStream> {
        let socket = TcpSocket::new_v4()?;
        socket.bind(SocketAddr::from((self.sources[number % self.sources.len()], 0)))?;
        if let Some(bytes) = receive_buffer {
            socket.set_recv_buffer_size(bytes)?;
        }
        socket.connect(self.address).await
    }
}

/// Addresses of attackers. Other callers have 127.0.0.1.
pub fn attacker_addresses(count: u8) -> Vec<Ipv4Addr> {
    (1..=count).map(|last| Ipv4Addr::new(127, 0, 1, last)).collect()
}

/// How a client dawdles.
#[derive(Debug, Clone)]
pub enum SlowClient {
    /// Sends nothing.
    Silent,
    /// Sends half a request head.
    HalfSent,
    /// Sends a byte of the body a second.
    SlowBody,
    /// Requests a long response with one of these keys in turn, and reads a kilobyte a second.
    SlowReader { keys: Arc<Vec<String>> },
}

impl SlowClient {
    /// Holds a connection until the server ends it.
    pub async fn hold(&self, target: &AttackTarget, number: usize) -> std::io::Result<()> {
        match self {
            Self::Silent => wait_for_end(target.connect(number, None).await?).await,
            Self::HalfSent => {
                let mut stream = target.connect(number, None).await?;
                stream.write_all(b"GET /health HTTP/1.1\r\nHost: a\r\nX-Half").await?;
                wait_for_end(stream).await
            }
            Self::SlowBody => {
                let stream = target.connect(number, None).await?;
                send_slowly(stream).await
            }
            Self::SlowReader { keys } => {
                let mut stream = target.connect(number, Some(4096)).await?;
                stream.write_all(&long_request(&keys[number % keys.len()])).await?;
                read_slowly(stream).await
            }
        }
    }
}

/// A request for a long response, which the server compresses as strongly as it can.
pub fn long_request(key: &str) -> Vec<u8> {
    format!(
        "GET {LONG_TARGET} HTTP/1.1\r\nHost: a\r\nX-API-Key: {key}\r\nAccept-Encoding: br\r\nConnection: close\r\n\r\n"
    )
    .into_bytes()
}

async fn wait_for_end(mut stream: TcpStream) -> std::io::Result<()> {
    let mut buffer = [0; 1024];
    while stream.read(&mut buffer).await? > 0 {}
    Ok(())
}

async fn send_slowly(mut stream: TcpStream) -> std::io::Result<()> {
    let head = "POST /api/v1/plans/register HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n";
    stream.write_all(head.as_bytes()).await?;
    let mut buffer = [0; 1024];
    loop {
        tokio::select! {
            read = stream.read(&mut buffer) => if read? == 0 { return Ok(()) },
            () = sleep(Duration::from_secs(1)) => stream.write_all(b" ").await?,
        }
    }
}

async fn read_slowly(mut stream: TcpStream) -> std::io::Result<()> {
    let mut buffer = [0; 1024];
    while stream.read(&mut buffer).await? > 0 {
        // A reset is noticed at once, even while there is something left to read.
        for _ in 0..10 {
            sleep(Duration::from_millis(100)).await;
            if let Some(error) = stream.take_error()? {
                return Err(error);
            }
        }
    }
    Ok(())
}
