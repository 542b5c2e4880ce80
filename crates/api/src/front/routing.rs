//! Finds the route of a request before axum does: limits and plans depend on it.

use std::collections::HashMap;

use http::{HeaderValue, Method};
use vintem_domain::route::{HttpMethod, ROUTES, Route};

use super::response_cache::ResponseCache;
use crate::request_metrics::RouteMetrics;

/// The routes of each path, matched with the same library that axum uses.
pub struct RouteTable(matchit::Router<Vec<RouteEntry>>);

/// A route with its response cache and metrics.
pub struct RouteEntry {
    pub route: &'static Route,
    pub cache: ResponseCache,
    pub metrics: &'static RouteMetrics,
}

impl RouteTable {
    pub fn new() -> Self {
        let mut by_path: HashMap<&'static str, Vec<RouteEntry>> = HashMap::new();
        for route in ROUTES {
            let cache = ResponseCache::default();
            let metrics = RouteMetrics::for_operation(route.operation);
            by_path.entry(route.path).or_default().push(RouteEntry { route, cache, metrics });
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
