//! Reads request bodies: one JSON object, limited in size and time.

use std::time::Duration;

use axum::body::{Body, Bytes};
use http::{HeaderMap, header};
use http_body_util::{BodyExt, Limited};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use vintem_domain::{LocalizedText, Problem};

use crate::load::LoadControls;

pub const MAX_BODY_BYTES: usize = 8 * 1024;
/// A client that needs longer for 8 KB is stalling.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// Reads a JSON object. `expected` is the error message if the body is something else. Unknown fields are ignored.
pub async fn read_json_object<T: DeserializeOwned>(
    load: &LoadControls,
    headers: &HeaderMap,
    body: Body,
    expected: LocalizedText,
) -> Result<T, Problem> {
    // Checked first, so that a body of another type is not read at all.
    require_json_content_type(headers)?;
    parse_json_object(&read_limited_body(load, body).await?, expected)
}

/// Like [`read_json_object`], but an empty body counts as an empty object.
pub async fn read_optional_json_object<T: DeserializeOwned + Default>(
    load: &LoadControls,
    headers: &HeaderMap,
    body: Body,
    expected: LocalizedText,
) -> Result<T, Problem> {
    let body = read_limited_body(load, body).await?;
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
        "Send the body as uncompressed JSON, with the header `Content-Type: application/json`.",
        "Envie o corpo em JSON, sem compressão, com o cabeçalho `Content-Type: application/json`.",
    )))
}

async fn read_limited_body(load: &LoadControls, body: Body) -> Result<Bytes, Problem> {
    let _permit = load.body_reads.try_acquire().map_err(|_| Problem::Overloaded)?;
    match tokio::time::timeout(BODY_TIMEOUT, Limited::new(body, MAX_BODY_BYTES).collect()).await {
        Ok(Ok(collected)) => Ok(collected.to_bytes()),
        _ => Err(Problem::BadBody(LocalizedText::new(
            "The body is incomplete or larger than 8 KB.",
            "O corpo está incompleto ou tem mais de 8 KB.",
        ))),
    }
}

fn parse_json_object<T: DeserializeOwned>(body: &[u8], expected: LocalizedText) -> Result<T, Problem> {
    // serde would accept an array as the fields in order.
    if !body.trim_ascii_start().starts_with(b"{") {
        return Err(Problem::BadBody(expected));
    }
    serde_json::from_slice(body).map_err(|_| Problem::BadBody(expected))
}

/// For optional fields: makes `null` a present field (`Some(Value::Null)`) and not a missing one.
pub fn deserialize_present<'de, D: Deserializer<'de>>(field: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(field).map(Some)
}
