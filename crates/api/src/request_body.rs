//! Reads request bodies: one JSON object, limited in size and time.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{FromRequest, FromRequestParts, Request};
use http::{HeaderMap, header};
use http_body_util::{BodyExt, Collected, Limited};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use tokio::time::timeout;
use vintem_domain::{LocalizedText, Problem};

use crate::api_error::ApiError;
use crate::app::App;
use crate::caller::Caller;
use crate::load::{OwnerBudget, Resource, SharedCapacity};

pub const MAX_BODY_BYTES: usize = 8 * 1024;
/// A client that needs longer for 8 KB is stalling.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// A body that arrives within this time after its head needs no permit. Most arrive together with it.
const PROMPT_BODY_TIMEOUT: Duration = Duration::from_millis(100);

/// A request body that is not read yet.
pub struct RequestBody {
    headers: HeaderMap,
    body: Body,
    budget: Arc<OwnerBudget>,
    capacity: Arc<SharedCapacity>,
}

impl FromRequest<Arc<App>> for RequestBody {
    type Rejection = ApiError;

    async fn from_request(request: Request, app: &Arc<App>) -> Result<Self, ApiError> {
        let (mut parts, body) = request.into_parts();
        let caller = Caller::from_request_parts(&mut parts, app).await?;
        let capacity = app.load.request_bodies.clone();
        Ok(Self { headers: parts.headers, body, budget: caller.budget.clone(), capacity })
    }
}

impl RequestBody {
    /// Reads a JSON object. `expected` is the error message if the body is something else. Unknown fields are ignored.
    pub async fn read_json_object<T: DeserializeOwned>(self, expected: LocalizedText) -> Result<T, Problem> {
        // Checked first, so that a body of another type is not read at all.
        require_json_content_type(&self.headers)?;
        parse_json_object(&self.read().await?, expected)
    }

    /// Like [`Self::read_json_object`], but an empty body counts as an empty object.
    pub async fn read_optional_json_object<T>(mut self, expected: LocalizedText) -> Result<T, Problem>
    where
        T: DeserializeOwned + Default,
    {
        let headers = std::mem::take(&mut self.headers);
        let body = self.read().await?;
        if body.is_empty() {
            return Ok(T::default());
        }
        require_json_content_type(&headers)?;
        parse_json_object(&body, expected)
    }

    /// Slow senders need a permit each, so that they cannot take the capacity of others.
    async fn read(self) -> Result<Bytes, Problem> {
        let mut reading = pin!(Limited::new(self.body, MAX_BODY_BYTES).collect());
        let collected = match timeout(PROMPT_BODY_TIMEOUT, &mut reading).await {
            Ok(collected) => collected,
            Err(_) => {
                let permit = self.budget.acquire_shared(Resource::RequestBodies, 1, &self.capacity).await?;
                let collected = timeout(BODY_TIMEOUT, reading).await;
                drop(permit);
                collected.map_err(|_| incomplete_body())?
            }
        };
        collected.map(Collected::to_bytes).map_err(|_| incomplete_body())
    }
}

fn incomplete_body() -> Problem {
    Problem::BadBody(LocalizedText::new(
        "The body is incomplete or larger than 8 KB.",
        "O corpo está incompleto ou tem mais de 8 KB.",
    ))
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
