//! HTTP client for the upstreams: it identifies itself, sends one request at a time to each host, honors `Retry-After`,
//! and limits the size of a response.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use chrono::{DateTime, Utc};
use rand::RngExt;
use reqwest::header::{
    CONTENT_RANGE, CONTENT_TYPE, ETAG, HeaderMap, HeaderName, HeaderValue, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE,
    LAST_MODIFIED, RANGE, RETRY_AFTER,
};
use sha2::{Digest, Sha256};
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep};
use vintem_domain::VERSION;
use vintem_domain::dates::parse_retry_after;
use vintem_domain::statement::split_into_tables;
use vintem_store::load::{ArchivedResponse, NewFetch, RawBody};
use vintem_store::sources::FileValidators;

/// Connecting to a reachable host takes a second at most.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// A body without progress for this long has stalled.
const READ_TIMEOUT: Duration = Duration::from_secs(30);
/// The largest file that we fetch is about 30 MB.
const MAX_BODY_BYTES: usize = 64 << 20;
/// How the problem of a host begins that we cannot be sure to be talking to.
pub const CERTIFICATE_PROBLEM: &str = "has a certificate that is not trusted";
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
    /// It answered as if all were well, but with nothing that can be used.
    #[error("{address} {problem}")]
    Unusable { address: String, problem: String },
    #[error("{address} asks to retry in {} s", .wait.as_secs())]
    RetryLater { address: String, wait: Duration },
}

impl FetchError {
    /// Whether the host did not answer, or said that it cannot at present. Other errors may concern one file alone.
    pub fn is_outage(&self) -> bool {
        match self {
            Self::Failed { last_response: None, .. } | Self::RetryLater { .. } => true,
            Self::Failed { last_response: Some(response), .. } => matches!(response.status, 429 | 502..=504),
            Self::Unusable { .. } => false,
        }
    }
}

/// The client of one upstream.
#[derive(Debug)]
pub struct UpstreamClient {
    client: reqwest::Client,
    base_url: String,
    retry_policy: RetryPolicy,
    /// The download that was interrupted last. Locked during a request, so that the host gets only one at a time.
    partial_body: Mutex<Option<PartialBody>>,
    received_bytes: AtomicU64,
}

#[derive(Debug, Clone)]
pub struct UpstreamResponse {
    pub address: String,
    pub status: u16,
    pub content_type: String,
    pub validators: FileValidators,
    pub body: Vec<u8>,
    /// Of a part of a file: the offset of its first byte, and the length of the file.
    pub content_range: Option<(u64, u64)>,
}

/// What to ask for.
#[derive(Debug, Clone, Default)]
pub struct FetchRequest<'a> {
    pub path: &'a str,
    /// Of the version that we have: the upstream need not send it again.
    pub known: FileValidators,
    /// `bytes=0-99`; the upstream may send the whole file all the same.
    pub range: Option<String>,
    /// Of the version that the range is of: of another one, the upstream sends the whole file.
    pub range_of: FileValidators,
    /// Whether to try only once.
    pub single_attempt: bool,
}

/// The first bytes of a body that was interrupted.
#[derive(Debug)]
struct PartialBody {
    address: String,
    validators: FileValidators,
    bytes: Vec<u8>,
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
        Self {
            client,
            base_url: base_url.trim_end_matches('/').to_owned(),
            retry_policy,
            partial_body: Mutex::default(),
            received_bytes: AtomicU64::new(0),
        }
    }

    /// The bytes of all bodies so far, whether or not they were of use.
    pub fn received_bytes(&self) -> u64 {
        self.received_bytes.load(Ordering::Relaxed)
    }

    /// Retries until a response is accepted, the retry policy is exhausted, or a retry would not help. A download that
    /// was interrupted is resumed, even by a later call.
    pub async fn get_with_retries(
        &self,
        request: &FetchRequest<'_>,
        judge_response: impl Fn(&UpstreamResponse) -> ResponseVerdict,
    ) -> Result<UpstreamResponse, FetchError> {
        let mut partial_body = self.partial_body.lock().await;
        let address = format!("{}{}", self.base_url, request.path);
        let started = Instant::now();
        let mut problem = String::new();
        let mut last_response = None;
        let max_attempts = if request.single_attempt { 1 } else { self.retry_policy.max_attempts };

        for attempt in 0..max_attempts {
            let (reason, retry_after) = match self.send_request(&address, request, &mut partial_body).await {
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
                Err(reason) => {
                    last_response = None;
                    (reason, None)
                }
            };

            problem = reason;
            if problem.starts_with(CERTIFICATE_PROBLEM) {
                return Err(FetchError::Failed { address, problem, last_response });
            }
            if attempt + 1 == max_attempts {
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

        if max_attempts > 1 {
            problem.push_str(&format!(" after {max_attempts} attempts"));
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
        fetch: &FetchRequest<'_>,
        partial_body: &mut Option<PartialBody>,
    ) -> Result<(UpstreamResponse, Option<Duration>), String> {
        let resumed = partial_body.take_if(|partial| partial.address == address && fetch.range.is_none());
        let request = self.client.get(address).timeout(self.retry_policy.attempt_timeout);
        let request = request.headers(conditional_headers(fetch, resumed.as_ref()));
        let mut response = match request.send().await {
            Ok(response) => response,
            Err(error) => {
                *partial_body = resumed;
                return Err(describe_error(&error));
            }
        };

        let headers = response.headers().clone();
        let validators =
            FileValidators { etag: header_text(&headers, ETAG), last_modified: header_text(&headers, LAST_MODIFIED) };
        let mut status = response.status().as_u16();
        let mut content_range = header_text(&headers, CONTENT_RANGE).and_then(|text| parse_content_range(&text));
        let mut body = Vec::new();
        match resumed {
            Some(partial) if status == 206 => {
                if content_range.is_none_or(|(first, _)| first != partial.bytes.len() as u64) {
                    return Err("sent another part of a file than it was asked for".to_owned());
                }
                (status, content_range, body) = (200, None, partial.bytes);
            }
            // The file itself may be as it was.
            Some(partial) if status >= 500 => *partial_body = Some(partial),
            _ => {}
        }

        if response.content_length().is_some_and(|length| length > (MAX_BODY_BYTES - body.len()) as u64) {
            return Err(format!("wants to send more than {MAX_BODY_BYTES} bytes"));
        }
        loop {
            let chunk = match response.chunk().await {
                Ok(Some(chunk)) => chunk,
                Ok(None) => break,
                Err(error) => {
                    let may_resume = status == 200 && fetch.range.is_none() && validators != FileValidators::default();
                    *partial_body =
                        may_resume.then(|| PartialBody { address: address.to_owned(), validators, bytes: body });
                    return Err(describe_error(&error));
                }
            };
            if body.len() + chunk.len() > MAX_BODY_BYTES {
                return Err(format!("sends more than {MAX_BODY_BYTES} bytes"));
            }
            self.received_bytes.fetch_add(chunk.len() as u64, Ordering::Relaxed);
            body.extend_from_slice(&chunk);
        }

        let retry_after = header_text(&headers, RETRY_AFTER).and_then(|text| parse_retry_after(&text, Utc::now()));
        let content_type = header_text(&headers, CONTENT_TYPE).unwrap_or_default();
        let address = address.to_owned();
        Ok((UpstreamResponse { address, status, content_type, validators, body, content_range }, retry_after))
    }
}

/// A range is only of use if it is of the version that we have the rest of.
fn conditional_headers(fetch: &FetchRequest<'_>, resumed: Option<&PartialBody>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    let mut insert = |name, value: &str| {
        if let Ok(value) = HeaderValue::from_str(value) {
            headers.insert(name, value);
        }
    };
    if let Some(etag) = &fetch.known.etag {
        insert(IF_NONE_MATCH, etag);
    }
    if let Some(last_modified) = &fetch.known.last_modified {
        insert(IF_MODIFIED_SINCE, last_modified);
    }

    let resumed_range = resumed.map(|partial| format!("bytes={}-", partial.bytes.len()));
    let version = resumed.map_or(&fetch.range_of, |partial| &partial.validators);
    if let Some(range) = resumed_range.as_ref().or(fetch.range.as_ref()) {
        insert(RANGE, range);
    }
    // A weak tag says nothing about bytes.
    let strong_etag = version.etag.as_ref().filter(|etag| !etag.starts_with("W/"));
    if let Some(version) = strong_etag.or(version.last_modified.as_ref()) {
        insert(IF_RANGE, version);
    }
    headers
}

/// `bytes 100-199/5000` → (100, 5000).
fn parse_content_range(text: &str) -> Option<(u64, u64)> {
    let (range, length) = text.strip_prefix("bytes ")?.split_once('/')?;
    Some((range.split_once('-')?.0.parse().ok()?, length.parse().ok()?))
}

fn header_text(headers: &HeaderMap, name: HeaderName) -> Option<String> {
    headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned)
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
    let mut compressed = zstd::bulk::compress(bytes, COMPRESSION_LEVEL).unwrap_or_default();
    // Its buffer was made for bytes that cannot be compressed. A year of statements holds a thousand of them at once.
    compressed.shrink_to_fit();
    RawBody { sha256: Sha256::digest(bytes).into(), size: bytes.len(), compressed }
}

/// Compresses the canonical form of a document: one zstd frame for each table, so that a table can be read without the
/// others. Decompressed together, the frames are the whole text.
pub fn compress_statement_for_archive(canonical: &str) -> std::io::Result<RawBody> {
    let mut compressor = zstd::bulk::Compressor::new(COMPRESSION_LEVEL)?;
    let mut compressed = Vec::new();
    for table in split_into_tables(canonical) {
        compressed.extend(compressor.compress(table.as_bytes())?);
    }
    compressed.shrink_to_fit();
    Ok(RawBody { sha256: Sha256::digest(canonical).into(), size: canonical.len(), compressed })
}

/// The bytes of an archived body.
pub fn decompress_from_archive(body: &RawBody) -> std::io::Result<Vec<u8>> {
    zstd::bulk::decompress(&body.compressed, body.size)
}

/// An error with its innermost cause, because the outer ones repeat it. Without the address, which the caller adds.
fn describe_error(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    let text = match error.is_timeout() {
        true => "did not answer in time",
        false if is_certificate_error(cause) => CERTIFICATE_PROBLEM,
        false => "is unreachable",
    };
    format!("{text}: {cause}")
}

/// rustls reports it through the connection, as an I/O error inside others.
fn is_certificate_error(cause: &(dyn std::error::Error + 'static)) -> bool {
    let mut error = cause;
    while let Some(inner) = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref) {
        error = inner;
    }
    matches!(error.downcast_ref(), Some(rustls::Error::InvalidCertificate(_)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_ranges_are_read() {
        assert_eq!(parse_content_range("bytes 100-199/5000"), Some((100, 5000)));
        for text in ["bytes */5000", "bytes 1-2/*", "100-199/5000", "bytes 1/2"] {
            assert_eq!(parse_content_range(text), None, "{text}");
        }
    }

    #[test]
    fn archived_bodies_hold_no_spare_memory() {
        let body = compress_for_archive(&b"3.01;Receita;1000.0000000000\n".repeat(1_000));
        assert!(body.compressed.len() < 1_000, "{}", body.compressed.len());
        assert_eq!(body.compressed.capacity(), body.compressed.len());
    }

    #[test]
    fn archived_bodies_decompress_to_the_original_bytes() {
        let bytes = b"CD_CVM;DENOM_SOCIAL\r\n".repeat(100);
        let archived = compress_for_archive(&bytes);
        assert!(archived.compressed.len() < bytes.len() / 10);
        assert_eq!(decompress_from_archive(&archived).unwrap(), bytes);
    }
}
