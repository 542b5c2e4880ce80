//! The response of a page that cannot be shown.

use axum::response::{IntoResponse, Response};
use http::StatusCode;
use vintem_domain::Problem;

/// The server turns the problem in the response extensions into an HTML page or a JSON body.
pub(crate) fn problem_response(problem: Problem) -> Response {
    let status = StatusCode::from_u16(problem.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = status.into_response();
    response.extensions_mut().insert(problem);
    response
}
