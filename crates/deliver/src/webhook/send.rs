//! One attempt: a signed request, and what came of it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use reqwest::header::{CONTENT_TYPE, RETRY_AFTER};
use reqwest::redirect::Policy;
use reqwest::{Client, Response};
use serde::Serialize;
use vintem_domain::VERSION;
use vintem_domain::dates::parse_retry_after;

use super::address_guard::{AddressError, AddressGuard};

/// Who has not answered by then has failed.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Of an answer nothing but its head matters. So much is read of its body, for so long, that the connection may serve
/// again; what is longer is left where it is.
const MAX_BODY_READ: usize = 16 << 10;
const BODY_READ_TIMEOUT: Duration = Duration::from_secs(1);
/// A connection waits so long for the next request to the same receiver. Few do at any time: each takes a descriptor.
const IDLE_TIMEOUT: Duration = Duration::from_millis(500);
const MAX_IDLE_PER_HOST: usize = 4;

/// What is sent: the same body whenever it is sent again, under the same id.
#[derive(Debug)]
pub struct WebhookMessage<'m> {
    pub url: &'m str,
    pub event_id: &'m str,
    pub timestamp: i64,
    /// One for each secret that holds.
    pub signatures: String,
    pub body: String,
    /// Where it stands in the feed of events, if there.
    pub feed_position: Option<i64>,
}

/// What came of an attempt. Of the answer's body nothing is kept or told.
#[derive(Debug, Clone, Serialize)]
pub struct SendAttempt {
    pub at: String,
    pub status: Option<u16>,
    pub error: Option<&'static str>,
    pub milliseconds: u64,
    #[serde(skip)]
    pub retry_after: Option<Duration>,
}

impl SendAttempt {
    pub fn is_success(&self) -> bool {
        self.status.is_some_and(|status| (200..300).contains(&status))
    }

    /// The receiver wants nothing any more.
    pub fn is_gone(&self) -> bool {
        self.status == Some(410)
    }

    pub fn failed(at: DateTime<Utc>, error: &'static str) -> Self {
        Self { at: format_timestamp(at), status: None, error: Some(error), milliseconds: 0, retry_after: None }
    }
}

/// Sends to where the guard lets it.
#[derive(Debug, Clone)]
pub struct WebhookSender {
    guard: Arc<AddressGuard>,
    https_client: Client,
    /// For networks that the operator lets through.
    http_client: Client,
}

impl WebhookSender {
    pub fn new(guard: AddressGuard) -> reqwest::Result<Self> {
        // One provider of cryptography for the process; that it is there already is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let guard = Arc::new(guard);
        let client = |is_encrypted| {
            Client::builder()
                .user_agent(format!("vintem/{VERSION}"))
                .timeout(REQUEST_TIMEOUT)
                .connect_timeout(CONNECT_TIMEOUT)
                .pool_idle_timeout(IDLE_TIMEOUT)
                .pool_max_idle_per_host(MAX_IDLE_PER_HOST)
                // Either would lead past the guard.
                .redirect(Policy::none())
                .no_proxy()
                .dns_resolver(guard.dns_resolver(is_encrypted))
                .build()
        };
        Ok(Self { https_client: client(true)?, http_client: client(false)?, guard: guard.clone() })
    }

    pub async fn send(&self, message: WebhookMessage<'_>, now: DateTime<Utc>) -> SendAttempt {
        let began = Instant::now();
        let (at, answer) = (format_timestamp(now), self.post(message).await);
        let milliseconds = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        match answer {
            Ok(mut response) => {
                let asked = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok());
                let asked_wait = asked.and_then(|text| parse_retry_after(text, now));
                let status = response.status().as_u16();
                drain_body(&mut response).await;
                let error = (!response.status().is_success()).then_some("status");
                SendAttempt { at, status: Some(status), error, milliseconds, retry_after: asked_wait }
            }
            Err(error) => SendAttempt { at, status: None, error: Some(error), milliseconds, retry_after: None },
        }
    }

    async fn post(&self, message: WebhookMessage<'_>) -> Result<Response, &'static str> {
        // A literal address is not resolved, so it is judged here; a name when it is connected to.
        let url = self.guard.parse_url(message.url).map_err(|_| "address")?;
        let client = if url.scheme() == "https" { &self.https_client } else { &self.http_client };
        let mut request = client
            .post(url)
            .header(CONTENT_TYPE, "application/json")
            .header("webhook-id", message.event_id)
            .header("webhook-timestamp", message.timestamp)
            .header("webhook-signature", message.signatures)
            .body(message.body);
        if let Some(position) = message.feed_position {
            request = request.header("vintem-sequence", position);
        }
        request.send().await.map_err(|error| error_code(&error))
    }
}

async fn drain_body(response: &mut Response) {
    let mut read = 0;
    let reading = async {
        while let Ok(Some(piece)) = response.chunk().await {
            read += piece.len();
            if read > MAX_BODY_READ {
                break;
            }
        }
    };
    // A body that takes longer is not waited for: its connection ends with the response.
    let _ = tokio::time::timeout(BODY_READ_TIMEOUT, reading).await;
}

/// In one word, and never in words of the other side.
fn error_code(error: &reqwest::Error) -> &'static str {
    let mut source: Option<&dyn std::error::Error> = std::error::Error::source(error);
    while let Some(inner) = source {
        match inner.downcast_ref::<AddressError>() {
            Some(AddressError::UnresolvedHost) => return "unknown_host",
            Some(_) => return "address",
            None => {}
        }
        if is_tls_error(inner) {
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
fn is_tls_error(error: &(dyn std::error::Error + 'static)) -> bool {
    match error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref) {
        Some(content) => is_tls_error(content),
        None => error.is::<rustls::Error>(),
    }
}

/// To the millisecond: an attempt may follow another within a second.
fn format_timestamp(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(chrono::SecondsFormat::Millis, true)
}
