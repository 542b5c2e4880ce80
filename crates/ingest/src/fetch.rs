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
use vintem_domain::dates::retry_after;
use vintem_store::load::{Fetch, RawBody, Received};

/// Connecting to a host that is there takes a second at most.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// A body that stands still for so long has stopped.
const READ_TIMEOUT: Duration = Duration::from_secs(30);
/// The largest file that we ask for is some 30 MB.
const LARGEST_BODY: usize = 64 << 20;
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
pub struct Patience {
    pub tries: u32,
    /// Before the second try; doubled before each further one.
    pub first_wait: Duration,
    pub longest_wait: Duration,
    /// All tries and waits together: what would take longer is left for the next run.
    pub budget: Duration,
    /// For one try, from its first byte to its last.
    pub timeout: Duration,
}

impl Patience {
    /// For hosts that answer within seconds, as the central bank's do.
    pub const SHORT: Self = Self {
        tries: 4,
        first_wait: Duration::from_secs(1),
        longest_wait: Duration::from_secs(10),
        budget: Duration::from_secs(240),
        timeout: Duration::from_secs(45),
    };

    /// For a look at whether anybody is there.
    pub const ONE_TRY: Self = Self {
        tries: 1,
        first_wait: Duration::ZERO,
        longest_wait: Duration::ZERO,
        budget: Duration::ZERO,
        timeout: Duration::from_secs(20),
    };

    /// For the regulator's, which was seen to take half a minute for a megabyte.
    pub const LONG: Self = Self {
        tries: 5,
        first_wait: Duration::from_secs(2),
        longest_wait: Duration::from_secs(10),
        budget: Duration::from_secs(900),
        timeout: Duration::from_secs(300),
    };
}

#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// With the last answer that was no data, if there was one.
    #[error("{address} {problem}")]
    Failed { address: String, problem: String, last: Option<Box<Answer>> },
    #[error("{address} asks to come again in {} s", .wait.as_secs())]
    Later { address: String, wait: Duration },
}

/// One upstream.
#[derive(Debug)]
pub struct Host {
    client: reqwest::Client,
    base: String,
    patience: Patience,
    /// Whoever holds it may ask: at most one request is under way.
    turn: Mutex<()>,
}

/// What we have already, so that it need not come again.
#[derive(Debug, Clone, Default)]
pub struct Validators {
    pub etag: Option<String>,
    pub last_modified: Option<String>,
}

#[derive(Debug, Clone)]
pub struct Answer {
    pub address: String,
    pub status: u16,
    pub content_type: String,
    pub validators: Validators,
    pub body: Vec<u8>,
}

/// What an answer is worth.
#[derive(Debug)]
pub enum Worth {
    Taken,
    /// Trouble that tends to pass.
    Retry(String),
    /// The same question would get the same answer.
    GiveUp(String),
}

/// The client that all hosts share.
pub fn client(contact: &str) -> reqwest::Result<reqwest::Client> {
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

impl Host {
    pub fn new(client: reqwest::Client, base: &str, patience: Patience) -> Self {
        Self { client, base: base.trim_end_matches('/').to_owned(), patience, turn: Mutex::new(()) }
    }

    /// Asks until an answer is worth taking, patience ends, or asking again would not help.
    pub async fn get(
        &self,
        path: &str,
        validators: &Validators,
        worth: impl Fn(&Answer) -> Worth,
    ) -> Result<Answer, FetchError> {
        let _one_at_a_time = self.turn.lock().await;
        let address = format!("{}{path}", self.base);
        let began = Instant::now();
        let (mut problem, mut last) = (String::new(), None);
        for turn in 0..self.patience.tries {
            let (trouble, asked_wait) = match self.ask(&address, validators).await {
                Ok((answer, _)) if answer.status == 304 => return Ok(answer),
                Ok((answer, asked_wait)) => match worth(&answer) {
                    Worth::Taken => return Ok(answer),
                    Worth::GiveUp(problem) => {
                        return Err(FetchError::Failed { address, problem, last: Some(Box::new(answer)) });
                    }
                    Worth::Retry(trouble) => {
                        last = Some(Box::new(answer));
                        (trouble, asked_wait)
                    }
                },
                Err(trouble) => (trouble, None),
            };
            problem = trouble;
            if turn + 1 == self.patience.tries {
                break;
            }
            let wait = asked_wait.unwrap_or_else(|| self.wait_before(turn + 1));
            if began.elapsed() + wait > self.patience.budget {
                return Err(match asked_wait {
                    Some(wait) => FetchError::Later { address, wait },
                    None => FetchError::Failed { address, problem, last },
                });
            }
            tracing::debug!(address, problem, wait_ms = wait.as_millis(), "trying again");
            sleep(wait).await;
        }
        let problem = format!("{problem} (tried {} times)", self.patience.tries);
        Err(FetchError::Failed { address, problem, last })
    }

    /// Doubling, and never the same for two workers: half of it is chance.
    fn wait_before(&self, turn: u32) -> Duration {
        let doubled = self.patience.first_wait.saturating_mul(1 << turn.saturating_sub(1).min(16));
        let longest = doubled.min(self.patience.longest_wait);
        let half_ms = u64::try_from(longest.as_millis() / 2).unwrap_or(0);
        Duration::from_millis(half_ms + rand::rng().random_range(0..=half_ms))
    }

    async fn ask(&self, address: &str, validators: &Validators) -> Result<(Answer, Option<Duration>), String> {
        let mut request = self.client.get(address).timeout(self.patience.timeout);
        if let Some(etag) = &validators.etag {
            request = request.header(IF_NONE_MATCH, etag);
        }
        if let Some(last_modified) = &validators.last_modified {
            request = request.header(IF_MODIFIED_SINCE, last_modified);
        }
        let mut response = request.send().await.map_err(|error| described(&error))?;
        let status = response.status().as_u16();
        let text = |headers: &HeaderMap, name| -> Option<String> {
            headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned)
        };
        let headers = response.headers().clone();
        let asked_wait = text(&headers, RETRY_AFTER).and_then(|wait| retry_after(&wait, Utc::now()));
        if response.content_length().is_some_and(|length| length > LARGEST_BODY as u64) {
            return Err(format!("wants to send more than {LARGEST_BODY} bytes"));
        }
        let mut body = Vec::new();
        while let Some(piece) = response.chunk().await.map_err(|error| described(&error))? {
            if body.len() + piece.len() > LARGEST_BODY {
                return Err(format!("sends more than {LARGEST_BODY} bytes"));
            }
            body.extend_from_slice(&piece);
        }
        let answer = Answer {
            address: address.to_owned(),
            status,
            content_type: text(&headers, CONTENT_TYPE).unwrap_or_default(),
            validators: Validators { etag: text(&headers, ETAG), last_modified: text(&headers, LAST_MODIFIED) },
            body,
        };
        Ok((answer, asked_wait))
    }
}

impl Answer {
    pub fn sha256(&self) -> [u8; 32] {
        Sha256::digest(&self.body).into()
    }

    /// As the store wants it. `sha256` is of the bytes that are read, `kept` what is archived of them.
    pub fn provenance(&self, address: String, known_at: DateTime<Utc>, sha256: [u8; 32], kept: RawBody) -> Fetch {
        let received = Received { status: self.status, content_type: self.content_type.clone(), body: kept };
        Fetch { address, fetched_at: known_at, sha256, received: Some(received) }
    }
}

/// Compresses bytes for the archive. Takes a while for a large file: not for an async task.
pub fn archived(bytes: &[u8]) -> RawBody {
    let compressed = zstd::bulk::compress(bytes, COMPRESSION_LEVEL).unwrap_or_default();
    RawBody { sha256: Sha256::digest(bytes).into(), size: bytes.len(), compressed }
}

/// An error with its causes, without the address, which is said already.
fn described(error: &reqwest::Error) -> String {
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
    fn what_is_archived_can_be_read_again() {
        let bytes = b"CD_CVM;DENOM_SOCIAL\r\n".repeat(100);
        let kept = archived(&bytes);
        assert!(kept.compressed.len() < bytes.len() / 10);
        assert_eq!(zstd::bulk::decompress(&kept.compressed, kept.size).unwrap(), bytes);
    }
}
