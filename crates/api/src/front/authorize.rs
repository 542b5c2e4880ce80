//! Step 5: checks whether the caller may make this request.

use axum::extract::Request;
use http::{HeaderMap, HeaderValue, header};
use vintem_domain::key::ApiKey;
use vintem_domain::route::{MAX_URL_BYTES, Route};
use vintem_domain::{Plan, Problem};

use super::identify::CallerIdentity;
use super::routing::{PathRoutes, SlashRedirect};
use crate::csv::{CSV_FORMAT_PARAM, prefers_csv};
use crate::params::{QueryParams, is_ignored_param};

/// Checks an admitted request before its handler runs. The order of the checks decides which problem is reported.
pub fn check_access(
    identity: &CallerIdentity,
    is_preflight: bool,
    request: &Request,
    path_routes: PathRoutes<'_>,
    route: Option<&Route>,
    redirect: Option<&SlashRedirect>,
) -> Result<(), Problem> {
    if let Some(key_problem) = &identity.key_problem {
        return Err(key_problem.clone());
    }
    if is_preflight {
        return Ok(());
    }
    if let Some(redirect) = redirect {
        return check_redirect(redirect, request);
    }

    let Some(route) = route else {
        return Err(if path_routes.is_empty() { Problem::NoSuchPath } else { Problem::MethodNotAllowed });
    };
    check_plan(identity, route.plan)?;
    if route.is_api() {
        refuse_unknown_params(route, request.uri().query().unwrap_or(""))?;
    }
    check_plan(identity, required_plan(route, request))?;
    check_url_length(request)
}

/// Pages of other websites are refused, so that they cannot use the browsers of their visitors. Only browsers send
/// `Origin`.
pub fn check_origin(headers: &HeaderMap, public_url: &str) -> Result<(), Problem> {
    let host = headers.get(header::HOST).map(HeaderValue::as_bytes);
    let is_own = |origin: &HeaderValue| {
        let Some((_, authority)) = origin.to_str().ok().and_then(|origin| origin.split_once("://")) else {
            return false;
        };
        let is_own_host = host.is_some_and(|host| host.eq_ignore_ascii_case(authority.as_bytes()));
        is_own_host || origin.as_bytes().eq_ignore_ascii_case(url_origin(public_url).as_bytes())
    };
    if headers.get_all(header::ORIGIN).iter().all(is_own) { Ok(()) } else { Err(Problem::ForeignOrigin) }
}

/// A URL without its path.
fn url_origin(url: &str) -> &str {
    let authority_start = url.find("://").map_or(0, |at| at + 3);
    let length = url[authority_start..].find('/').unwrap_or(url.len() - authority_start);
    &url[..authority_start + length]
}

/// The route behind a redirect checks plan and parameters itself. Here only a key in the URL is refused, because the
/// response would repeat it.
fn check_redirect(redirect: &SlashRedirect, request: &Request) -> Result<(), Problem> {
    if redirect.route.is_api() {
        refuse_keys(redirect.route, &QueryParams::parse(request.uri().query().unwrap_or("")))?;
    }
    check_url_length(request)
}

fn check_url_length(request: &Request) -> Result<(), Problem> {
    if request.uri().path_and_query().is_some_and(|url| url.as_str().len() > MAX_URL_BYTES) {
        return Err(Problem::UrlTooLong);
    }
    Ok(())
}

fn check_plan(identity: &CallerIdentity, required: Plan) -> Result<(), Problem> {
    if identity.plan < required {
        let has_key = identity.key.is_some();
        return Err(Problem::UpgradeRequired { current: identity.plan, required, has_key });
    }
    Ok(())
}

/// Names that people use for a key in a URL.
const KEY_PARAM_NAMES: [&str; 8] =
    ["api_key", "apikey", "api-key", "x-api-key", "key", "token", "access_token", "authorization"];
/// Longer names are truncated in the message.
const MAX_SHOWN_NAME_CHARS: usize = 64;
/// A name is suggested if it differs in no more than a third of its letters.
const LETTERS_PER_TYPO: usize = 3;

/// Unknown names are an error, because ignoring a misspelled filter would return unfiltered data.
fn refuse_unknown_params(route: &Route, query_string: &str) -> Result<(), Problem> {
    let query = QueryParams::parse(query_string);
    // Keys are refused first, so that no error message repeats one as an unknown name.
    refuse_keys(route, &query)?;

    let first_unknown = unknown_params(route, &query).next();
    match first_unknown {
        None => Ok(()),
        Some((name, _)) => Err(Problem::UnknownParameter {
            name: shown_name(name),
            suggestion: closest_name(name, route.param_names()),
            accepted: route.param_names().collect(),
        }),
    }
}

/// Refuses API keys in the URL, where logs and browser histories keep them.
fn refuse_keys(route: &Route, query: &QueryParams) -> Result<(), Problem> {
    for (name, value) in unknown_params(route, query) {
        if ApiKey::is_key_like(name.trim()) {
            return Err(Problem::KeyInQuery { name: None });
        }
        let is_key = KEY_PARAM_NAMES.contains(&name.to_ascii_lowercase().as_str())
            || value.is_some_and(|value| ApiKey::is_key_like(value.trim()));
        if is_key {
            return Err(Problem::KeyInQuery { name: Some(shown_name(name)) });
        }
    }
    Ok(())
}

/// The parameters that the route neither accepts nor ignores.
fn unknown_params<'q>(route: &'q Route, query: &'q QueryParams) -> impl Iterator<Item = (&'q str, Option<&'q str>)> {
    query.pairs().filter(move |(name, _)| !route.takes_param(name) && !is_ignored_param(name))
}

fn shown_name(name: &str) -> String {
    name.chars().take(MAX_SHOWN_NAME_CHARS).collect()
}

/// Names that people try, in lower case without punctuation, and our name for each.
const SYNONYMS: [(&str, &str); 16] = [
    ("date", "on"),
    ("day", "on"),
    ("date", "as_of"),
    ("start", "from"),
    ("startdate", "from"),
    ("since", "from"),
    ("end", "to"),
    ("enddate", "to"),
    ("until", "to"),
    ("page", "offset"),
    ("perpage", "limit"),
    ("pagesize", "limit"),
    ("sort", "order"),
    ("currency", "pair"),
    ("query", "q"),
    ("uf", "state"),
];

/// The accepted name that is most similar, ignoring case and punctuation, if it is similar enough to be a typo.
fn closest_name(name: &str, accepted: impl Iterator<Item = &'static str>) -> Option<&'static str> {
    let fold = |name: &str| name.to_lowercase().replace(['-', '_', '[', ']'], "");
    let name = fold(&shown_name(name));
    let accepted: Vec<&'static str> = accepted.collect();
    let synonym = SYNONYMS.iter().find(|(other, own)| *other == name && accepted.contains(own));
    if let Some((_, own)) = synonym {
        return Some(own);
    }

    let by_distance = accepted.iter().map(|accepted| (strsim::osa_distance(&name, &fold(accepted)), *accepted));
    by_distance
        .min()
        .filter(|(distance, _)| *distance < name.len() && *distance <= name.len().div_ceil(LETTERS_PER_TYPO))
        .map(|(_, name)| name)
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

#[cfg(test)]
mod tests {
    use vintem_domain::route::route_by_operation;

    use super::*;

    fn refusal(operation: &str, query: &str) -> Option<Problem> {
        refuse_unknown_params(route_by_operation(operation), query).err()
    }

    #[test]
    fn the_closest_name_is_suggested_and_a_distant_one_is_not() {
        for (unknown, suggestion) in [
            ("lmit", Some("limit")),
            ("Limit", Some("limit")),
            ("limit[]", Some("limit")),
            ("catgory", Some("category")),
            ("companyId", Some("company_id")),
            ("as-of", Some("as_of")),
            ("colour", None),
            ("x", None),
        ] {
            let problem = refusal("list_filings", &format!("limit=3&{unknown}=1")).expect("a refusal");
            let Problem::UnknownParameter { name, suggestion: suggested, accepted } = problem else {
                panic!("{unknown}: {problem:?}")
            };
            assert_eq!((name.as_str(), suggested), (unknown, suggestion));
            assert!(accepted.contains(&"company_id"));
        }
    }

    #[test]
    fn only_the_own_pages_have_an_own_origin() {
        let check = |host: &str, origin: &str, public_url: &str| {
            let value = |text: &str| HeaderValue::from_str(text).unwrap();
            let headers = HeaderMap::from_iter([(header::HOST, value(host)), (header::ORIGIN, value(origin))]);
            check_origin(&headers, public_url).is_ok()
        };
        for (origin, is_own) in [
            ("https://api.example.com", true),
            ("HTTPS://API.example.com", true),
            ("http://127.0.0.1:8080", true),
            ("http://api.example.com", false),
            ("https://api.example.com.evil.example", false),
            ("https://evil.example", false),
            ("https://api.example.com:8443", false),
            ("null", false),
            ("", false),
        ] {
            assert_eq!(check("127.0.0.1:8080", origin, "https://api.example.com/data"), is_own, "{origin}");
        }
        assert!(check_origin(&HeaderMap::new(), "https://api.example.com").is_ok());
    }

    #[test]
    fn cache_busters_and_link_trackers_are_ignored() {
        assert_eq!(refusal("list_filings", "_=1&utm_source=x&utm_campaign=y&limit=2&&"), None);
        assert!(refusal("list_filings", "__=1").is_some());
    }

    #[test]
    fn a_key_in_the_url_is_refused_and_never_repeated() {
        let key = ApiKey::generate(|| 7);
        let key = key.reveal();
        for query in [
            format!("api_key={key}"),
            format!("colour=blue&{key}"),
            format!("{key}=1"),
            format!("colour={key}"),
            format!("{}=1", &key[..40]),
        ] {
            let problem = refusal("list_selic", &query).expect("a refusal");
            assert!(matches!(problem, Problem::KeyInQuery { .. }), "{problem:?}");
            assert!(!format!("{problem:?}{}", problem.message(vintem_domain::Lang::En)).contains(&key[..12]));
        }
        assert!(matches!(refusal("list_selic", "token=abc"), Some(Problem::KeyInQuery { .. })));
    }
}
