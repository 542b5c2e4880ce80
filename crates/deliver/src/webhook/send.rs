//! One attempt: a signed request, and what came of it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use reqwest::header::{CONTENT_TYPE, RETRY_AFTER};
use reqwest::redirect::Policy;
use reqwest::{Client, Response};
use serde::Serialize;
use vintem_domain::VERSION;
use vintem_domain::dates::retry_after;

use super::address::{AddressGuard, AddressRefused};

/// Who has not answered by then has failed.
const TIMEOUT: Duration = Duration::from_secs(30);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Of an answer nothing but its head matters. So much is read of its body, for so long, that the connection may serve
/// again; what is longer is left where it is.
const MOST_READ: usize = 16 << 10;
const READ_TIMEOUT: Duration = Duration::from_secs(1);
/// A connection waits so long for the next request to the same receiver. Few do at any time: each takes a descriptor.
const IDLE_TIMEOUT: Duration = Duration::from_millis(500);
const MOST_IDLE: usize = 4;

/// What is sent: the same body whenever it is sent again, under the same id.
#[derive(Debug)]
pub struct Message<'m> {
    pub url: &'m str,
    pub id: &'m str,
    pub timestamp: i64,
    /// One for each secret that holds.
    pub signatures: String,
    pub body: String,
    /// Where it stands in the feed of events, if there.
    pub position: Option<i64>,
}

/// What came of an attempt. Of the answer's body nothing is kept or told.
#[derive(Debug, Clone, Serialize)]
pub struct Attempt {
    pub at: String,
    pub status: Option<u16>,
    pub error: Option<&'static str>,
    pub milliseconds: u64,
    #[serde(skip)]
    pub asked_wait: Option<Duration>,
}

impl Attempt {
    pub fn is_success(&self) -> bool {
        self.status.is_some_and(|status| (200..300).contains(&status))
    }

    /// The receiver wants nothing any more.
    pub fn is_gone(&self) -> bool {
        self.status == Some(410)
    }

    pub fn failed(at: DateTime<Utc>, error: &'static str) -> Self {
        Self { at: shown(at), status: None, error: Some(error), milliseconds: 0, asked_wait: None }
    }
}

/// Sends to where the guard lets it.
#[derive(Debug, Clone)]
pub struct Sender {
    guard: Arc<AddressGuard>,
    encrypted: Client,
    /// For networks that the operator lets through.
    plain: Client,
}

impl Sender {
    pub fn new(guard: AddressGuard) -> reqwest::Result<Self> {
        // One provider of cryptography for the process; that it is there already is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let guard = Arc::new(guard);
        let client = |is_encrypted| {
            Client::builder()
                .user_agent(format!("vintem/{VERSION}"))
                .timeout(TIMEOUT)
                .connect_timeout(CONNECT_TIMEOUT)
                .pool_idle_timeout(IDLE_TIMEOUT)
                .pool_max_idle_per_host(MOST_IDLE)
                // Either would lead past the guard.
                .redirect(Policy::none())
                .no_proxy()
                .dns_resolver(guard.resolver(is_encrypted))
                .build()
        };
        Ok(Self { encrypted: client(true)?, plain: client(false)?, guard: guard.clone() })
    }

    pub async fn send(&self, message: Message<'_>, now: DateTime<Utc>) -> Attempt {
        let began = Instant::now();
        let (at, answer) = (shown(now), self.post(message).await);
        let milliseconds = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        match answer {
            Ok(mut response) => {
                let asked = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok());
                let asked_wait = asked.and_then(|text| retry_after(text, now));
                let status = response.status().as_u16();
                read_away(&mut response).await;
                let error = (!response.status().is_success()).then_some("status");
                Attempt { at, status: Some(status), error, milliseconds, asked_wait }
            }
            Err(error) => Attempt { at, status: None, error: Some(error), milliseconds, asked_wait: None },
        }
    }

    async fn post(&self, message: Message<'_>) -> Result<Response, &'static str> {
        // A literal address is not resolved, so it is judged here; a name when it is connected to.
        let url = self.guard.read(message.url).map_err(|_| "address")?;
        let client = if url.scheme() == "https" { &self.encrypted } else { &self.plain };
        let mut request = client
            .post(url)
            .header(CONTENT_TYPE, "application/json")
            .header("webhook-id", message.id)
            .header("webhook-timestamp", message.timestamp)
            .header("webhook-signature", message.signatures)
            .body(message.body);
        if let Some(position) = message.position {
            request = request.header("vintem-sequence", position);
        }
        request.send().await.map_err(|error| cause(&error))
    }
}

async fn read_away(response: &mut Response) {
    let mut read = 0;
    let reading = async {
        while let Ok(Some(piece)) = response.chunk().await {
            read += piece.len();
            if read > MOST_READ {
                break;
            }
        }
    };
    // A body that takes longer is not waited for: its connection ends with the response.
    let _ = tokio::time::timeout(READ_TIMEOUT, reading).await;
}

/// In one word, and never in words of the other side.
fn cause(error: &reqwest::Error) -> &'static str {
    let mut source: Option<&dyn std::error::Error> = std::error::Error::source(error);
    while let Some(inner) = source {
        match inner.downcast_ref::<AddressRefused>() {
            Some(AddressRefused::Unknown) => return "unknown_host",
            Some(_) => return "address",
            None => {}
        }
        if is_of_tls(inner) {
            return "tls";
        }
        source = inner.source();
    }
    match error {
        error if error.is_timeout() => "timeout",
        error if error.is_connect() => "connection",
        _ => "broken_off",
    }
}

/// What an error of I/O wraps is not its source but its content, which may be another one.
fn is_of_tls(error: &(dyn std::error::Error + 'static)) -> bool {
    match error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref) {
        Some(content) => is_of_tls(content),
        None => error.is::<rustls::Error>(),
    }
}

/// To the millisecond: an attempt may follow another within a second.
fn shown(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(chrono::SecondsFormat::Millis, true)
}
