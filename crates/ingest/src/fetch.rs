//! One client for all upstreams: says who it is, asks one thing at a time of each host, waits when it is told to, and
//! never takes more than it asked for.

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

/// Connecting to a host that is there takes a second at most.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// A body that stands still for so long has stopped.
const READ_TIMEOUT: Duration = Duration::from_secs(30);
/// The largest file that we ask for is some 30 MB.
const MAX_BODY_BYTES: usize = 64 << 20;
/// zstd's own default: the regulator's tables shrink to a tenth.
const COMPRESSION_LEVEL: i32 = 3;

/// Where the upstreams are.
#[derive(Debug, Clone)]
pub struct UpstreamAddresses {
    pub sgs: String,
    pub ptax: String,
    pub cvm: String,
}

/// How long to try.
#[derive(Debug, Clone, Copy)]
pub struct RetryPolicy {
    pub max_attempts: u32,
    /// Before the second try; doubled before each further one.
    pub initial_backoff: Duration,
    pub max_backoff: Duration,
    /// All tries and waits together: what would take longer is left for the next run.
    pub total_time_budget: Duration,
    /// For one try, from its first byte to its last.
    pub attempt_timeout: Duration,
}

impl RetryPolicy {
    /// For hosts that answer within seconds, as the central bank's do.
    pub const SHORT: Self = Self {
        max_attempts: 4,
        initial_backoff: Duration::from_secs(1),
        max_backoff: Duration::from_secs(10),
        total_time_budget: Duration::from_secs(240),
        attempt_timeout: Duration::from_secs(45),
    };

    /// For a look at whether anybody is there.
    pub const SINGLE_ATTEMPT: Self = Self {
        max_attempts: 1,
        initial_backoff: Duration::ZERO,
        max_backoff: Duration::ZERO,
        total_time_budget: Duration::ZERO,
        attempt_timeout: Duration::from_secs(20),
    };

    /// For the regulator's, which was seen to take half a minute for a megabyte.
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
    /// With the last answer that was no data, if there was one.
    #[error("{address} {problem}")]
    Failed { address: String, problem: String, last_response: Option<Box<UpstreamResponse>> },
    #[error("{address} asks to come again in {} s", .wait.as_secs())]
    RetryLater { address: String, wait: Duration },
}

/// One upstream.
#[derive(Debug)]
pub struct UpstreamClient {
    client: reqwest::Client,
    base_url: String,
    retry_policy: RetryPolicy,
    /// Whoever holds it may ask: at most one request is under way.
    request_lock: Mutex<()>,
}

/// What we have already, so that it need not come again.
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

/// What an answer is worth.
#[derive(Debug)]
pub enum ResponseVerdict {
    Accept,
    /// Trouble that tends to pass.
    Retry(String),
    /// The same question would get the same answer.
    GiveUp(String),
}

/// The client that all hosts share.
pub fn build_http_client(contact: &str) -> reqwest::Result<reqwest::Client> {
    // One provider of cryptography for the process; that it is there already is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let contact = if contact.is_empty() { String::new() } else { format!(" (+{contact})") };
    reqwest::Client::builder()
        .user_agent(format!("vintem/{VERSION}{contact}"))
        .connect_timeout(CONNECT_TIMEOUT)
        .read_timeout(READ_TIMEOUT)
        // A redirect to another host is nothing that these upstreams do: it would be somebody else's data.
        .redirect(reqwest::redirect::Policy::none())
        .no_proxy()
        .build()
}

impl UpstreamClient {
    pub fn new(client: reqwest::Client, base: &str, retry_policy: RetryPolicy) -> Self {
        Self { client, base_url: base.trim_end_matches('/').to_owned(), retry_policy, request_lock: Mutex::new(()) }
    }

    /// Asks until an answer is worth taking, patience ends, or asking again would not help.
    pub async fn get_with_retries(
        &self,
        path: &str,
        validators: &CacheValidators,
        judge_response: impl Fn(&UpstreamResponse) -> ResponseVerdict,
    ) -> Result<UpstreamResponse, FetchError> {
        let _one_at_a_time = self.request_lock.lock().await;
        let address = format!("{}{path}", self.base_url);
        let began = Instant::now();
        let (mut problem, mut last) = (String::new(), None);
        for attempt in 0..self.retry_policy.max_attempts {
            let (trouble, asked_wait) = match self.send_request(&address, validators).await {
                Ok((answer, _)) if answer.status == 304 => return Ok(answer),
                Ok((answer, asked_wait)) => match judge_response(&answer) {
                    ResponseVerdict::Accept => return Ok(answer),
                    ResponseVerdict::GiveUp(problem) => {
                        return Err(FetchError::Failed { address, problem, last_response: Some(Box::new(answer)) });
                    }
                    ResponseVerdict::Retry(trouble) => {
                        last = Some(Box::new(answer));
                        (trouble, asked_wait)
                    }
                },
                Err(trouble) => (trouble, None),
            };
            problem = trouble;
            if attempt + 1 == self.retry_policy.max_attempts {
                break;
            }
            let wait = asked_wait.unwrap_or_else(|| self.backoff_before_attempt(attempt + 1));
            if began.elapsed() + wait > self.retry_policy.total_time_budget {
                return Err(match asked_wait {
                    Some(wait) => FetchError::RetryLater { address, wait },
                    None => FetchError::Failed { address, problem, last_response: last },
                });
            }
            tracing::debug!(address, problem, wait_ms = wait.as_millis(), "trying again");
            sleep(wait).await;
        }
        let problem = format!("{problem} (tried {} times)", self.retry_policy.max_attempts);
        Err(FetchError::Failed { address, problem, last_response: last })
    }

    /// Doubling, and never the same for two workers: half of it is chance.
    fn backoff_before_attempt(&self, attempt: u32) -> Duration {
        let doubled = self.retry_policy.initial_backoff.saturating_mul(1 << attempt.saturating_sub(1).min(16));
        let longest = doubled.min(self.retry_policy.max_backoff);
        let half_ms = u64::try_from(longest.as_millis() / 2).unwrap_or(0);
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
        let status = response.status().as_u16();
        let text = |headers: &HeaderMap, name| -> Option<String> {
            headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned)
        };
        let headers = response.headers().clone();
        let asked_wait = text(&headers, RETRY_AFTER).and_then(|wait| parse_retry_after(&wait, Utc::now()));
        if response.content_length().is_some_and(|length| length > MAX_BODY_BYTES as u64) {
            return Err(format!("wants to send more than {MAX_BODY_BYTES} bytes"));
        }
        let mut body = Vec::new();
        while let Some(piece) = response.chunk().await.map_err(|error| describe_error(&error))? {
            if body.len() + piece.len() > MAX_BODY_BYTES {
                return Err(format!("sends more than {MAX_BODY_BYTES} bytes"));
            }
            body.extend_from_slice(&piece);
        }
        let answer = UpstreamResponse {
            address: address.to_owned(),
            status,
            content_type: text(&headers, CONTENT_TYPE).unwrap_or_default(),
            validators: CacheValidators { etag: text(&headers, ETAG), last_modified: text(&headers, LAST_MODIFIED) },
            body,
        };
        Ok((answer, asked_wait))
    }
}

impl UpstreamResponse {
    pub fn body_sha256(&self) -> [u8; 32] {
        Sha256::digest(&self.body).into()
    }

    /// As the store wants it. `sha256` is of the bytes that are read, `kept` what is archived of them.
    pub fn to_fetch_record(
        &self,
        address: String,
        known_at: DateTime<Utc>,
        sha256: [u8; 32],
        archived_body: RawBody,
    ) -> NewFetch {
        let received =
            ArchivedResponse { status: self.status, content_type: self.content_type.clone(), body: archived_body };
        NewFetch { source_url: address, fetched_at: known_at, sha256, response: Some(received) }
    }
}

/// Compresses bytes for the archive. Takes a while for a large file: not for an async task.
pub fn compress_for_archive(bytes: &[u8]) -> RawBody {
    let compressed = zstd::bulk::compress(bytes, COMPRESSION_LEVEL).unwrap_or_default();
    RawBody { sha256: Sha256::digest(bytes).into(), size: bytes.len(), compressed }
}

/// An error with its causes, without the address, which is said already.
fn describe_error(error: &reqwest::Error) -> String {
    let mut text = if error.is_timeout() { "does not answer in time".to_owned() } else { "cannot be read".to_owned() };
    let mut cause: Option<&dyn std::error::Error> = std::error::Error::source(error);
    while let Some(inner) = cause {
        text.push_str(&format!(": {inner}"));
        cause = inner.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn archived_bodies_decompress_to_the_original_bytes() {
        let bytes = b"CD_CVM;DENOM_SOCIAL\r\n".repeat(100);
        let kept = compress_for_archive(&bytes);
        assert!(kept.compressed.len() < bytes.len() / 10);
        assert_eq!(zstd::bulk::decompress(&kept.compressed, kept.size).unwrap(), bytes);
    }
}
