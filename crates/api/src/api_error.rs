//! Turns problems into responses. A handler returns the problem; the front layer writes it in the caller's language.

use std::any::Any;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use serde::Serialize;
use vintem_domain::{Lang, Problem};
use vintem_snapshot::SnapshotError;
use vintem_store::StoreError;

/// The error type of all handlers.
#[derive(Debug, Clone)]
pub struct ApiError(pub Problem);

/// The response has no body yet: the front layer replaces it with [`problem_response`].
impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = status_code(&self.0);
        response.extensions_mut().insert(self.0);
        response
    }
}

impl From<Problem> for ApiError {
    fn from(problem: Problem) -> Self {
        Self(problem)
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        tracing::warn!(%error, "postgres failed during a request that needs it");
        Self(Problem::DependencyUnavailable)
    }
}

impl From<SnapshotError> for ApiError {
    fn from(error: SnapshotError) -> Self {
        match error {
            SnapshotError::Store(error) => error.into(),
            error => {
                tracing::error!(%error, "search failed");
                Self(Problem::Internal)
            }
        }
    }
}

/// For the layer that catches panics. A 500 is a bug: the details go to the log, not to the caller.
#[expect(clippy::needless_pass_by_value, reason = "CatchPanicLayer passes the panic by value")]
pub fn panic_response(panic: Box<dyn Any + Send>) -> Response {
    let message = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    tracing::error!(panic = message.unwrap_or("without a message"), "handler panicked");
    ApiError(Problem::Internal).into_response()
}

#[derive(Serialize)]
struct ProblemBody<'a> {
    error: &'static str,
    message: String,
    request_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after: Option<u64>,
    /// The query parameter that was refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    param: Option<&'a str>,
    /// Where the parameters are documented.
    #[serde(skip_serializing_if = "Option::is_none")]
    docs_url: Option<String>,
    #[serde(flatten)]
    upgrade: Option<UpgradeBody>,
}

#[derive(Serialize)]
struct UpgradeBody {
    current_plan: &'static str,
    required_plan: &'static str,
    upgrade_url: String,
}

/// The JSON response for a problem, without the headers that every response has.
pub fn problem_response(problem: &Problem, lang: Lang, request_id: &str, public_url: &str) -> Response {
    let upgrade = match problem {
        Problem::UpgradeRequired { current, required, .. } => Some(UpgradeBody {
            current_plan: current.id(),
            required_plan: required.id(),
            upgrade_url: format!("{public_url}/pricing"),
        }),
        _ => None,
    };
    let body = ProblemBody {
        error: problem.code().id(),
        message: problem.message(lang),
        request_id,
        retry_after: problem.retry_after_seconds(),
        param: problem.parameter(),
        docs_url: problem.is_about_parameter().then(|| format!("{public_url}/docs")),
        upgrade,
    };

    let mut response = Response::new(Body::from(serde_json::to_vec(&body).unwrap_or_default()));
    *response.status_mut() = status_code(problem);

    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if let Some(seconds) = problem.retry_after_seconds() {
        headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    if let Problem::RangeNotSatisfiable { file_size } = problem
        && let Ok(range) = HeaderValue::from_str(&format!("bytes */{file_size}"))
    {
        response.headers_mut().insert(header::CONTENT_RANGE, range);
    }
    if response.status() == StatusCode::UNAUTHORIZED {
        response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }

    response
}

fn status_code(problem: &Problem) -> StatusCode {
    StatusCode::from_u16(problem.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}
