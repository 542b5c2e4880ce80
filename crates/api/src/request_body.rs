//! Bodies of requests: one JSON object, small, and whole in time.

use std::time::Duration;

use axum::body::{Body, Bytes};
use http::{HeaderMap, header};
use http_body_util::{BodyExt, Limited};
use serde::de::DeserializeOwned;
use tokio::sync::Semaphore;
use vintem_domain::{LocalizedText, Problem};

const MAX_BODY_BYTES: usize = 8 * 1024;
/// A body of 8 KB that takes longer is not meant to arrive.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);
/// Bodies that are awaited at once: who sends them slowly must not take the room of all who send none.
static BODY_READ_PERMITS: Semaphore = Semaphore::const_new(64);

/// `expected` says what the object should have been. Fields that `T` does not name are never bound.
pub async fn read_json_object<T: DeserializeOwned>(
    headers: &HeaderMap,
    body: Body,
    expected: LocalizedText,
) -> Result<T, Problem> {
    // First, so that nothing is read of what is not meant for us.
    require_json_content_type(headers)?;
    parse_json_object(&read_limited_body(body).await?, expected)
}

/// The same, where no body at all is as good as an empty object.
pub async fn read_optional_json_object<T: DeserializeOwned + Default>(
    headers: &HeaderMap,
    body: Body,
    expected: LocalizedText,
) -> Result<T, Problem> {
    let body = read_limited_body(body).await?;
    if body.is_empty() {
        return Ok(T::default());
    }
    require_json_content_type(headers)?;
    parse_json_object(&body, expected)
}

fn require_json_content_type(headers: &HeaderMap) -> Result<(), Problem> {
    let mut content_types = headers.get_all(header::CONTENT_TYPE).iter();
    let content_type = content_types.next().and_then(|value| value.to_str().ok()).unwrap_or("");
    let essence = content_type.split(';').next().unwrap_or("").trim();
    let is_json = essence.eq_ignore_ascii_case("application/json") && content_types.next().is_none();
    if is_json && !headers.contains_key(header::CONTENT_ENCODING) {
        return Ok(());
    }
    Err(Problem::BadBody(LocalizedText::new(
        "Send the body as JSON, not compressed, with the header Content-Type: application/json.",
        "Envie o corpo em JSON, sem compressão, com o cabeçalho Content-Type: application/json.",
    )))
}

async fn read_limited_body(body: Body) -> Result<Bytes, Problem> {
    let _awaited = BODY_READ_PERMITS.try_acquire().map_err(|_| Problem::Overloaded)?;
    match tokio::time::timeout(BODY_TIMEOUT, Limited::new(body, MAX_BODY_BYTES).collect()).await {
        Ok(Ok(collected)) => Ok(collected.to_bytes()),
        _ => Err(Problem::BadBody(LocalizedText::new(
            "The body did not arrive whole, or is larger than 8 KB.",
            "O corpo não chegou inteiro ou passa de 8 KB.",
        ))),
    }
}

fn parse_json_object<T: DeserializeOwned>(body: &[u8], expected: LocalizedText) -> Result<T, Problem> {
    // An array would be taken for the fields in their order.
    if !body.trim_ascii_start().starts_with(b"{") {
        return Err(Problem::BadBody(expected));
    }
    serde_json::from_slice(body).map_err(|_| Problem::BadBody(expected))
}
