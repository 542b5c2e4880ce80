//! HTTP client for the upstreams: it identifies itself, sends one request at a time to each host, honors `Retry-After`,
//! and limits the size of a response.

use std::time::Duration;

use chrono::{DateTime, Utc};
use rand::RngExt;
use reqwest::header::{CONTENT_TYPE, ETAG, HeaderMap, IF_MODIFIED_SINCE, IF_NONE_MATCH, LAST_MODIFIED, RETRY_AFTER};
use sha2::{Digest, Sha256};
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep};
use vintem_domain::VERSION;
use vintem_domain::dates::parse_retry_after;
use vintem_store::load::{ArchivedResponse, NewFetch, RawBody};

/// Connecting to a reachable host takes a second at most.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// A body without progress for this long has stalled.
const READ_TIMEOUT: Duration = Duration::from_secs(30);
/// The largest file that we fetch is about 30 MB.
const MAX_BODY_BYTES: usize = 64 << 20;
/// zstd's default level; the regulator's tables shrink to a tenth.
const COMPRESSION_LEVEL: i32 = 3;

/// Base URLs of the upstreams.
#[derive(Debug, Clone)]
pub struct UpstreamAddresses {
    pub sgs: String,
    pub ptax: String,
    pub cvm: String,
}

/// Limits on the attempts, backoff and duration of a request.
#[derive(Debug, Clone, Copy)]
pub struct RetryPolicy {
    pub max_attempts: u32,
    /// Before the second attempt; doubled before each further one.
    pub initial_backoff: Duration,
    pub max_backoff: Duration,
    /// For all attempts and waits together. A wait that would exceed it is left to the next run.
    pub total_time_budget: Duration,
    /// For one attempt, including its whole body.
    pub attempt_timeout: Duration,
}

impl RetryPolicy {
    /// For hosts that respond within seconds, such as the central bank's.
    pub const SHORT: Self = Self {
        max_attempts: 4,
        initial_backoff: Duration::from_secs(1),
        max_backoff: Duration::from_secs(10),
        total_time_budget: Duration::from_secs(240),
        attempt_timeout: Duration::from_secs(45),
    };

    /// For checking whether a host is reachable.
    pub const SINGLE_ATTEMPT: Self = Self {
        max_attempts: 1,
        initial_backoff: Duration::ZERO,
        max_backoff: Duration::ZERO,
        total_time_budget: Duration::ZERO,
        attempt_timeout: Duration::from_secs(20),
    };

    /// For the regulator's host, which has taken half a minute for a megabyte.
    pub const LONG: Self = Self {
        max_attempts: 5,
        initial_backoff: Duration::from_secs(2),
        max_backoff: Duration::from_secs(10),
        total_time_budget: Duration::from_secs(900),
        attempt_timeout: Duration::from_secs(300),
    };
}

#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// With the last response that was not data, if there was one.
    #[error("{address} {problem}")]
    Failed { address: String, problem: String, last_response: Option<Box<UpstreamResponse>> },
    #[error("{address} asks to retry in {} s", .wait.as_secs())]
    RetryLater { address: String, wait: Duration },
}

/// The client of one upstream.
#[derive(Debug)]
pub struct UpstreamClient {
    client: reqwest::Client,
    base_url: String,
    retry_policy: RetryPolicy,
    /// Held during a request, so that the host gets only one at a time.
    request_lock: Mutex<()>,
}

/// Identify the version that we already have, so that the upstream does not send it again.
#[derive(Debug, Clone, Default)]
pub struct CacheValidators {
    pub etag: Option<String>,
    pub last_modified: Option<String>,
}

#[derive(Debug, Clone)]
pub struct UpstreamResponse {
    pub address: String,
    pub status: u16,
    pub content_type: String,
    pub validators: CacheValidators,
    pub body: Vec<u8>,
}

/// What to do with a response.
#[derive(Debug)]
pub enum ResponseVerdict {
    Accept,
    /// A temporary problem.
    Retry(String),
    /// The same request would get the same response.
    GiveUp(String),
}

/// The HTTP client shared by all upstreams.
pub fn build_http_client(contact: &str) -> reqwest::Result<reqwest::Client> {
    // rustls needs one crypto provider per process. The error means that one is already installed, which is fine.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let contact = if contact.is_empty() { String::new() } else { format!(" (+{contact})") };
    reqwest::Client::builder()
        .user_agent(format!("vintem/{VERSION}{contact}"))
        .connect_timeout(CONNECT_TIMEOUT)
        .read_timeout(READ_TIMEOUT)
        // These upstreams never redirect to another host, so such a redirect would lead to someone else's data.
        .redirect(reqwest::redirect::Policy::none())
        .no_proxy()
        .build()
}

impl UpstreamClient {
    pub fn new(client: reqwest::Client, base_url: &str, retry_policy: RetryPolicy) -> Self {
        Self { client, base_url: base_url.trim_end_matches('/').to_owned(), retry_policy, request_lock: Mutex::new(()) }
    }

    /// Retries until a response is accepted, the retry policy is exhausted, or a retry would not help.
    pub async fn get_with_retries(
        &self,
        path: &str,
        validators: &CacheValidators,
        judge_response: impl Fn(&UpstreamResponse) -> ResponseVerdict,
    ) -> Result<UpstreamResponse, FetchError> {
        let _request_guard = self.request_lock.lock().await;
        let address = format!("{}{path}", self.base_url);
        let started = Instant::now();
        let mut problem = String::new();
        let mut last_response = None;

        for attempt in 0..self.retry_policy.max_attempts {
            let (reason, retry_after) = match self.send_request(&address, validators).await {
                Ok((response, _)) if response.status == 304 => return Ok(response),
                Ok((response, retry_after)) => match judge_response(&response) {
                    ResponseVerdict::Accept => return Ok(response),
                    ResponseVerdict::GiveUp(problem) => {
                        return Err(FetchError::Failed { address, problem, last_response: Some(Box::new(response)) });
                    }
                    ResponseVerdict::Retry(reason) => {
                        last_response = Some(Box::new(response));
                        (reason, retry_after)
                    }
                },
                Err(reason) => (reason, None),
            };

            problem = reason;
            if attempt + 1 == self.retry_policy.max_attempts {
                break;
            }

            let wait = retry_after.unwrap_or_else(|| self.backoff_before_attempt(attempt + 1));
            if started.elapsed() + wait > self.retry_policy.total_time_budget {
                return Err(match retry_after {
                    Some(wait) => FetchError::RetryLater { address, wait },
                    None => FetchError::Failed { address, problem, last_response },
                });
            }
            tracing::debug!(address, problem, wait_ms = wait.as_millis(), "upstream request failed; retrying");
            sleep(wait).await;
        }

        if self.retry_policy.max_attempts > 1 {
            problem.push_str(&format!(" after {} attempts", self.retry_policy.max_attempts));
        }
        Err(FetchError::Failed { address, problem, last_response })
    }

    /// Exponential backoff. Half of it is random, so that two workers don't retry at the same moment.
    fn backoff_before_attempt(&self, attempt: u32) -> Duration {
        let doubled = self.retry_policy.initial_backoff.saturating_mul(1 << attempt.saturating_sub(1).min(16));
        let capped = doubled.min(self.retry_policy.max_backoff);
        let half_ms = u64::try_from(capped.as_millis() / 2).unwrap_or(0);
        Duration::from_millis(half_ms + rand::rng().random_range(0..=half_ms))
    }

    async fn send_request(
        &self,
        address: &str,
        validators: &CacheValidators,
    ) -> Result<(UpstreamResponse, Option<Duration>), String> {
        let mut request = self.client.get(address).timeout(self.retry_policy.attempt_timeout);
        if let Some(etag) = &validators.etag {
            request = request.header(IF_NONE_MATCH, etag);
        }
        if let Some(last_modified) = &validators.last_modified {
            request = request.header(IF_MODIFIED_SINCE, last_modified);
        }

        let mut response = request.send().await.map_err(|error| describe_error(&error))?;
        let header_text = |headers: &HeaderMap, name| -> Option<String> {
            headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned)
        };
        let status = response.status().as_u16();
        let headers = response.headers().clone();
        let retry_after = header_text(&headers, RETRY_AFTER).and_then(|text| parse_retry_after(&text, Utc::now()));

        if response.content_length().is_some_and(|length| length > MAX_BODY_BYTES as u64) {
            return Err(format!("wants to send more than {MAX_BODY_BYTES} bytes"));
        }

        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| describe_error(&error))? {
            if body.len() + chunk.len() > MAX_BODY_BYTES {
                return Err(format!("sends more than {MAX_BODY_BYTES} bytes"));
            }
            body.extend_from_slice(&chunk);
        }

        let upstream_response = UpstreamResponse {
            address: address.to_owned(),
            status,
            content_type: header_text(&headers, CONTENT_TYPE).unwrap_or_default(),
            validators: CacheValidators {
                etag: header_text(&headers, ETAG),
                last_modified: header_text(&headers, LAST_MODIFIED),
            },
            body,
        };
        Ok((upstream_response, retry_after))
    }
}

impl UpstreamResponse {
    pub fn body_sha256(&self) -> [u8; 32] {
        Sha256::digest(&self.body).into()
    }

    /// The fetch record for the store. `sha256` is the hash of the parsed bytes; `archived_body` may be redacted.
    pub fn to_fetch_record(
        &self,
        source_url: String,
        fetched_at: DateTime<Utc>,
        sha256: [u8; 32],
        archived_body: RawBody,
    ) -> NewFetch {
        let response =
            ArchivedResponse { status: self.status, content_type: self.content_type.clone(), body: archived_body };
        NewFetch { source_url, fetched_at, sha256, response: Some(response) }
    }
}

/// Compresses bytes for the archive. Slow for a large file: run it on a blocking thread.
pub fn compress_for_archive(bytes: &[u8]) -> RawBody {
    let compressed = zstd::bulk::compress(bytes, COMPRESSION_LEVEL).unwrap_or_default();
    RawBody { sha256: Sha256::digest(bytes).into(), size: bytes.len(), compressed }
}

/// The bytes of an archived body.
pub fn decompress_from_archive(body: &RawBody) -> std::io::Result<Vec<u8>> {
    zstd::bulk::decompress(&body.compressed, body.size)
}

/// An error with its innermost cause, because the outer ones repeat it. Without the address, which the caller adds.
fn describe_error(error: &reqwest::Error) -> String {
    let text = if error.is_timeout() { "did not answer in time" } else { "is unreachable" };

    let mut cause: &dyn std::error::Error = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    format!("{text}: {cause}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn archived_bodies_decompress_to_the_original_bytes() {
        let bytes = b"CD_CVM;DENOM_SOCIAL\r\n".repeat(100);
        let archived = compress_for_archive(&bytes);
        assert!(archived.compressed.len() < bytes.len() / 10);
        assert_eq!(decompress_from_archive(&archived).unwrap(), bytes);
    }
}
