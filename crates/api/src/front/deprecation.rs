//! The headers of a deprecated route: `Deprecation` (RFC 9745), `Sunset` (RFC 8594), and a link to the policy.

use chrono::NaiveTime;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use vintem_domain::route::Route;

const DEPRECATION: HeaderName = HeaderName::from_static("deprecation");
const SUNSET: HeaderName = HeaderName::from_static("sunset");
const POLICY_LINK: HeaderValue =
    HeaderValue::from_static("</docs/guides/versioning>; rel=\"deprecation\"; type=\"text/html\"");

pub struct DeprecationHeaders {
    deprecation: HeaderValue,
    sunset: HeaderValue,
}

impl DeprecationHeaders {
    /// `None` if the route is not deprecated. Days begin at midnight UTC.
    pub fn for_route(route: &Route) -> Option<Self> {
        let deprecation = route.deprecation?;
        let since_seconds = deprecation.since.and_time(NaiveTime::MIN).and_utc().timestamp();
        let sunset = deprecation.sunset.format("%a, %d %b %Y 00:00:00 GMT");

        let value = |text: &str| HeaderValue::from_str(text).expect("plain text");
        Some(Self { deprecation: value(&format!("@{since_seconds}")), sunset: value(&sunset.to_string()) })
    }

    pub fn write(&self, headers: &mut HeaderMap) {
        headers.insert(DEPRECATION, self.deprecation.clone());
        headers.insert(SUNSET, self.sunset.clone());
        // Lists already have a `Link` to their next and previous pages.
        headers.append(header::LINK, POLICY_LINK);
    }
}

#[cfg(test)]
mod tests {
    use vintem_domain::route::{Deprecation, route_by_operation};

    use super::*;

    #[test]
    fn a_deprecated_route_names_both_days_and_links_to_the_policy() {
        let served = route_by_operation("list_selic");
        let deprecation = Deprecation { since: "2026-01-01".parse().unwrap(), sunset: "2027-01-01".parse().unwrap() };
        let deprecated = Route {
            operation: "list_old_selic",
            method: served.method,
            path: "/api/v1/market/old-selic",
            plan: served.plan,
            rate_limit: served.rate_limit,
            feature: served.feature,
            params: served.params,
            deprecation: Some(deprecation),
            is_same_origin_only: false,
        };

        let mut headers = HeaderMap::new();
        headers.insert(header::LINK, HeaderValue::from_static("</next>; rel=\"next\""));
        DeprecationHeaders::for_route(&deprecated).expect("headers").write(&mut headers);

        assert_eq!(headers["deprecation"], "@1767225600");
        assert_eq!(headers["sunset"], "Fri, 01 Jan 2027 00:00:00 GMT");
        let links: Vec<&HeaderValue> = headers.get_all(header::LINK).iter().collect();
        assert_eq!(
            links,
            ["</next>; rel=\"next\"", "</docs/guides/versioning>; rel=\"deprecation\"; type=\"text/html\""]
        );

        assert!(DeprecationHeaders::for_route(served).is_none());
    }
}
