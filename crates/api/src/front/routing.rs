//! Finds the route of a request before axum does: limits and plans depend on it.

use std::collections::HashMap;

use http::{HeaderValue, Method, Uri};
use vintem_domain::route::{HttpMethod, ROUTES, Route};

use super::deprecation::DeprecationHeaders;
use crate::request_metrics::RouteMetrics;

/// The routes of each path, matched with the same library that axum uses.
pub struct RouteTable(matchit::Router<Vec<RouteEntry>>);

/// A route with its metrics, and its headers if it is deprecated.
pub struct RouteEntry {
    pub route: &'static Route,
    pub deprecation: Option<DeprecationHeaders>,
    pub metrics: &'static RouteMetrics,
}

impl RouteTable {
    pub fn new() -> Self {
        let mut by_path: HashMap<&'static str, Vec<RouteEntry>> = HashMap::new();
        for route in ROUTES {
            let entry = RouteEntry {
                route,
                deprecation: DeprecationHeaders::for_route(route),
                metrics: RouteMetrics::for_operation(route.operation),
            };
            by_path.entry(route.path).or_default().push(entry);
        }

        let mut matcher = matchit::Router::new();
        for (path, routes) in by_path {
            matcher.insert(path, routes).expect("axum has taken the same paths");
        }
        Self(matcher)
    }

    /// The routes of this path, one for each method.
    pub fn find(&self, path: &str) -> PathRoutes<'_> {
        PathRoutes(self.0.at(path).map_or(&[], |matched| matched.value.as_slice()))
    }

    /// The redirect for a path with a trailing slash, if the path without the slash has a route for this method.
    pub fn find_slash_redirect(&self, method: &Method, uri: &Uri) -> Option<SlashRedirect> {
        let path = uri.path().strip_suffix('/').filter(|path| !path.ends_with('/'))?;
        // A `Location` that begins with two slashes would name another host.
        if !path.starts_with('/') || path.starts_with("//") {
            return None;
        }

        let route = self.find(path).for_method(method)?.route;
        let location = match uri.query() {
            Some(query) => format!("{path}?{query}"),
            None => path.to_owned(),
        };
        Some(SlashRedirect { route, location: HeaderValue::from_bytes(location.as_bytes()).ok()? })
    }
}

/// The redirect target of a path with a trailing slash.
pub struct SlashRedirect {
    /// The route of the path without the slash.
    pub route: &'static Route,
    /// The path without the slash, and the query, as they were sent.
    pub location: HeaderValue,
}

/// The routes of one path.
#[derive(Clone, Copy)]
pub struct PathRoutes<'t>(&'t [RouteEntry]);

impl<'t> PathRoutes<'t> {
    pub fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    pub fn for_method(self, method: &Method) -> Option<&'t RouteEntry> {
        self.0.iter().find(|entry| accepts_method(entry.route, method))
    }

    /// Whether websites of others must not call this path.
    pub fn is_same_origin_only(self) -> bool {
        self.0.iter().any(|entry| entry.route.is_same_origin_only)
    }

    /// The `Allow` header.
    pub fn allowed_methods(self) -> HeaderValue {
        let methods: Vec<&str> = self
            .0
            .iter()
            .map(|entry| match entry.route.method {
                HttpMethod::Get => "GET, HEAD",
                other => other.as_str(),
            })
            .collect();
        HeaderValue::from_str(&methods.join(", ")).expect("plain text")
    }
}

/// Routes that accept GET also accept HEAD.
fn accepts_method(route: &Route, method: &Method) -> bool {
    match route.method {
        HttpMethod::Get => *method == Method::GET || *method == Method::HEAD,
        other => method.as_str() == other.as_str(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn redirect(method: &Method, target: &str) -> Option<String> {
        let uri: Uri = target.parse().unwrap();
        let redirect = RouteTable::new().find_slash_redirect(method, &uri)?;
        Some(redirect.location.to_str().unwrap().to_owned())
    }

    #[test]
    fn one_slash_too_many_leads_to_the_route_with_the_same_query() {
        for (target, location) in [
            ("/pricing/", "/pricing"),
            ("/api/v1/", "/api/v1"),
            ("/api/v1/companies/", "/api/v1/companies"),
            ("/api/v1/companies/%2F%2f/?", "/api/v1/companies/%2F%2f?"),
            ("/api/v1/market/selic/?limit=3&&x=%c3%A9+/", "/api/v1/market/selic?limit=3&&x=%c3%A9+/"),
            ("http://example.com/docs/", "/docs"),
        ] {
            assert_eq!(redirect(&Method::GET, target).as_deref(), Some(location), "{target}");
            assert_eq!(redirect(&Method::HEAD, target).as_deref(), Some(location), "{target}");
            assert_eq!(redirect(&Method::DELETE, target), None, "{target}");
        }
        assert_eq!(redirect(&Method::POST, "/api/v1/plans/register/").as_deref(), Some("/api/v1/plans/register"));
    }

    #[test]
    fn no_other_path_is_redirected() {
        for target in [
            "/",
            "//",
            "/pricing",
            "/pricing//",
            "//pricing/",
            "//example.com/",
            "//example.com/pricing/",
            "/nothing/",
            "/api/v1/nothing/",
            "/API/V1/",
            "/api/v1/companies//",
        ] {
            assert_eq!(redirect(&Method::GET, target), None, "{target}");
        }
    }
}
