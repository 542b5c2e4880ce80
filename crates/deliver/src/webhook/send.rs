//! A single delivery attempt: a signed request and its outcome.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use reqwest::header::{CONTENT_TYPE, RETRY_AFTER};
use reqwest::redirect::Policy;
use reqwest::{Client, Response};
use serde::Serialize;
use tracing::{Instrument, Span};
use vintem_domain::VERSION;
use vintem_domain::dates::parse_retry_after;

use super::address_guard::{AddressError, AddressGuard};

/// A receiver that has not responded by then has failed.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Only the head of a response matters. We read this much of its body, for up to a second, so that the connection can be
/// reused; the rest of a longer body is not read.
const MAX_BODY_READ: usize = 16 << 10;
const BODY_READ_TIMEOUT: Duration = Duration::from_secs(1);
/// How long an idle connection is kept for the next request to the same receiver. Both limits are low because each idle
/// connection takes a file descriptor.
const IDLE_TIMEOUT: Duration = Duration::from_millis(500);
const MAX_IDLE_PER_HOST: usize = 4;

/// A signed message. Retries send the same body under the same ID.
#[derive(Debug)]
pub struct WebhookMessage<'m> {
    pub url: &'m str,
    pub event_id: &'m str,
    pub timestamp: i64,
    /// One for each valid secret.
    pub signatures: String,
    pub body: String,
    /// Position in the event feed; `None` for test events.
    pub feed_position: Option<i64>,
}

/// The outcome of an attempt. The body of the response is neither stored nor shown.
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

    /// The receiver asked us to stop sending (410 Gone).
    pub fn is_gone(&self) -> bool {
        self.status == Some(410)
    }

    pub fn failed(at: DateTime<Utc>, error: &'static str) -> Self {
        Self { at: format_timestamp(at), status: None, error: Some(error), milliseconds: 0, retry_after: None }
    }
}

/// The trace of an attempt: its span, and the header by which the receiver can continue it.
#[derive(Debug)]
pub struct AttemptTrace {
    pub span: Span,
    pub traceparent: String,
}

/// Begins the trace of an attempt, if it is traced.
pub type AttemptTracer = Arc<dyn Fn() -> Option<AttemptTrace> + Send + Sync>;

/// Sends messages to the addresses that the guard allows.
#[derive(Clone)]
pub struct WebhookSender {
    guard: Arc<AddressGuard>,
    /// `None` if no traces are exported.
    tracer: Option<AttemptTracer>,
    https_client: Client,
    /// For networks that the operator allows.
    http_client: Client,
}

impl fmt::Debug for WebhookSender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebhookSender").finish_non_exhaustive()
    }
}

impl WebhookSender {
    pub fn new(guard: AddressGuard, tracer: Option<AttemptTracer>) -> reqwest::Result<Self> {
        // The process has one crypto provider. An error only means that it is installed already.
        let _ = rustls::crypto::ring::default_provider().install_default();

        let guard = Arc::new(guard);
        let build_client = |is_encrypted| {
            Client::builder()
                .user_agent(format!("vintem/{VERSION}"))
                .timeout(REQUEST_TIMEOUT)
                .connect_timeout(CONNECT_TIMEOUT)
                .pool_idle_timeout(IDLE_TIMEOUT)
                .pool_max_idle_per_host(MAX_IDLE_PER_HOST)
                // Redirects and proxies would bypass the guard.
                .redirect(Policy::none())
                .no_proxy()
                .dns_resolver(guard.dns_resolver(is_encrypted))
                .build()
        };

        Ok(Self { https_client: build_client(true)?, http_client: build_client(false)?, guard: guard.clone(), tracer })
    }

    pub async fn send(&self, message: WebhookMessage<'_>, now: DateTime<Utc>) -> SendAttempt {
        let started = Instant::now();
        let at = format_timestamp(now);
        let trace = self.tracer.as_ref().and_then(|tracer| tracer());
        let span = trace.as_ref().map_or_else(Span::none, |trace| trace.span.clone());
        let traceparent = trace.map(|trace| trace.traceparent);
        let result = self.post(message, traceparent).instrument(span.clone()).await;
        if let Ok(response) = &result {
            span.record("http.response.status_code", response.status().as_u16());
        }
        let milliseconds = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);

        match result {
            Ok(mut response) => {
                let header = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok());
                let retry_after = header.and_then(|text| parse_retry_after(text, now));
                let status = response.status().as_u16();
                drain_body(&mut response).await;
                let error = (!response.status().is_success()).then_some("status");
                SendAttempt { at, status: Some(status), error, milliseconds, retry_after }
            }
            Err(error) => SendAttempt { at, status: None, error: Some(error), milliseconds, retry_after: None },
        }
    }

    async fn post(&self, message: WebhookMessage<'_>, traceparent: Option<String>) -> Result<Response, &'static str> {
        // IP addresses in URLs never reach the resolver, so they are checked here. Host names are checked when the
        // client connects.
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
        if let Some(traceparent) = traceparent {
            request = request.header("traceparent", traceparent);
        }
        request.send().await.map_err(|error| error_code(&error))
    }
}

async fn drain_body(response: &mut Response) {
    let mut bytes_read = 0;
    let drain = async {
        while let Ok(Some(chunk)) = response.chunk().await {
            bytes_read += chunk.len();
            if bytes_read > MAX_BODY_READ {
                break;
            }
        }
    };
    // If the body takes longer, dropping the response closes its connection.
    let _ = tokio::time::timeout(BODY_READ_TIMEOUT, drain).await;
}

/// Our own code for an error: it never contains text from the receiver.
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

/// An `io::Error` returns the error it wraps from `get_ref`, not from `source`, and that may be another `io::Error`.
fn is_tls_error(error: &(dyn std::error::Error + 'static)) -> bool {
    match error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref) {
        Some(content) => is_tls_error(content),
        None => error.is::<rustls::Error>(),
    }
}

/// Includes milliseconds: two attempts may fall within the same second.
fn format_timestamp(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(chrono::SecondsFormat::Millis, true)
}
