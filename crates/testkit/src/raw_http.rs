//! Requests byte for byte: a client library would put them in order before sending.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Longer than every time limit of the service: what has not ended by then hangs.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(20);

/// What came back until the service closed the connection.
#[derive(Debug)]
pub struct RawResponse {
    /// 0 where it closed without a word.
    pub status: u16,
    /// The lines of its head, in lower case.
    pub head: String,
    pub body: Vec<u8>,
}

impl RawResponse {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
    }

    /// The `error` of its body, if that is one of the service's own.
    pub fn error_code(&self) -> Option<String> {
        let body: Value = serde_json::from_slice(&self.body).ok()?;
        Some(body["error"].as_str()?.to_owned())
    }
}

/// Sends these bytes and reads until the other side closes; that it does not is an error.
pub async fn send_raw_request(address: SocketAddr, request: &[u8]) -> anyhow::Result<RawResponse> {
    tokio::time::timeout(RESPONSE_TIMEOUT, send_and_read_to_end(address, request)).await?
}

async fn send_and_read_to_end(address: SocketAddr, request: &[u8]) -> anyhow::Result<RawResponse> {
    let (mut reader, mut writer) = TcpStream::connect(address).await?.into_split();
    let mut received = Vec::new();
    // The service may answer and close before it has taken all: then writing fails, and the answer is there all the same.
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

/// A request for a path with a key, as bytes.
pub fn build_keyed_get(path: &str, key: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: vintem.example\r\nX-API-Key: {key}\r\n\r\n").into_bytes()
}
