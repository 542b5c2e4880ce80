//! Sends requests as raw bytes, including malformed ones that a client library would correct or refuse.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Longer than every timeout of the service: a request that takes longer hangs.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(20);

/// Everything received until the service closed the connection.
#[derive(Debug)]
pub struct RawResponse {
    /// 0 if the service closed the connection without a response.
    pub status: u16,
    /// The status line and headers, in lower case.
    pub head: String,
    pub body: Vec<u8>,
}

impl RawResponse {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
    }

    /// The `error` field of the body, if it is one of the service's problem bodies.
    pub fn error_code(&self) -> Option<String> {
        let body: Value = serde_json::from_slice(&self.body).ok()?;
        Some(body["error"].as_str()?.to_owned())
    }
}

/// Sends these bytes and reads until the service closes the connection; a timeout is an error.
pub async fn send_raw_request(address: SocketAddr, request: &[u8]) -> anyhow::Result<RawResponse> {
    tokio::time::timeout(RESPONSE_TIMEOUT, send_and_read_to_end(address, request)).await?
}

async fn send_and_read_to_end(address: SocketAddr, request: &[u8]) -> anyhow::Result<RawResponse> {
    let (mut reader, mut writer) = TcpStream::connect(address).await?.into_split();
    let mut received = Vec::new();
    // The service may respond and close before it has read everything. Then the write fails, but the response is there.
    let (_, read) = tokio::join!(writer.write_all(request), reader.read_to_end(&mut received));

    let text = String::from_utf8_lossy(&received);
    if received.is_empty() && read.is_ok() {
        return Ok(RawResponse { status: 0, head: String::new(), body: Vec::new() });
    }
    let Some((head, _)) = text.split_once("\r\n\r\n") else {
        anyhow::bail!("no answer but {text:?}, {read:?}");
    };

    let status = head.get(9..12).unwrap_or_default().parse()?;
    let body = received[head.len() + 4..].to_vec();
    Ok(RawResponse { status, head: head.to_lowercase(), body })
}

/// The bytes of a GET request with an API key.
pub fn build_keyed_get(path: &str, key: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: vintem.example\r\nX-API-Key: {key}\r\n\r\n").into_bytes()
}
