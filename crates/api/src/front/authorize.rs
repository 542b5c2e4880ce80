//! Step 3: whether the caller may have what the request asks for.

use axum::extract::Request;
use vintem_domain::route::{MAX_URL_BYTES, Route};
use vintem_domain::{Plan, Problem};

use super::identify::CallerIdentity;
use super::routing::PathRoutes;
use crate::csv::{CSV_FORMAT_PARAM, prefers_csv};
use crate::params::QueryParams;

/// Checks an admitted request before its handler runs. The order of the checks decides which problem is reported.
pub fn check_access(
    identity: &CallerIdentity,
    is_preflight: bool,
    request: &Request,
    path_routes: PathRoutes<'_>,
    route: Option<&Route>,
) -> Result<(), Problem> {
    if let Some(key_problem) = &identity.key_problem {
        return Err(key_problem.clone());
    }
    if is_preflight {
        return Ok(());
    }

    let Some(route) = route else {
        return Err(if path_routes.is_empty() { Problem::NoSuchPath } else { Problem::MethodNotAllowed });
    };
    let required = required_plan(route, request);
    if identity.plan < required {
        let has_key = identity.key.is_some();
        return Err(Problem::UpgradeRequired { current: identity.plan, required, has_key });
    }

    if request.uri().path_and_query().is_some_and(|url| url.as_str().len() > MAX_URL_BYTES) {
        return Err(Problem::UrlTooLong);
    }
    Ok(())
}

/// The plan that the route requires with the requested options.
fn required_plan(route: &Route, request: &Request) -> Plan {
    let prefers_csv = prefers_csv(request.headers());
    let Some(query) = request.uri().query() else {
        return if prefers_csv { route.required_plan([CSV_FORMAT_PARAM].into_iter()) } else { route.plan };
    };

    let query = QueryParams::parse(query);
    let is_csv_by_accept = prefers_csv && !query.pairs().any(|(name, _)| name == CSV_FORMAT_PARAM.0);
    route.required_plan(query.pairs().chain(is_csv_by_accept.then_some(CSV_FORMAT_PARAM)))
}
