//! The headers that every response has: rate limit, plan, caching, security.

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, header};
use vintem_domain::Plan;
use vintem_domain::plan::PlanLimits;

use super::admit::QuotaStatus;
use super::request_id::RequestId;

const EXPOSED_HEADERS: &str = "X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset, RateLimit, RateLimit-Policy, X-Plan, \
     X-Request-Id, X-Data-Source, X-Data-As-Of, X-Data-Stale, ETag, Link, Retry-After, Content-Location, Content-Disposition, \
     Deprecation, Sunset";

const X_RATELIMIT_LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const X_RATELIMIT_REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const X_RATELIMIT_RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");
const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
const X_PLAN: HeaderName = HeaderName::from_static("x-plan");
const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const X_DATA_SOURCE: HeaderName = HeaderName::from_static("x-data-source");
const VARY: HeaderValue =
    HeaderValue::from_static("Accept-Encoding, Accept, Accept-Language, X-API-Key, Authorization");
/// Pages also depend on the cookie with the language the reader chose.
const PAGE_VARY: HeaderValue =
    HeaderValue::from_static("Accept-Encoding, Accept, Accept-Language, X-API-Key, Authorization, Cookie");
const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");
const DEFAULT_CSP: HeaderValue = HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'");

/// Writes the headers that every response has.
pub struct HeaderWriter {
    /// Indexed by the plan's rank.
    by_plan: [PlanHeaders; 4],
}

/// Header values that depend only on the plan.
struct PlanHeaders {
    plan: HeaderValue,
    limit: HeaderValue,
    policy: HeaderValue,
}

impl HeaderWriter {
    pub fn new(limits: &PlanLimits) -> Self {
        let policy = |plan: Plan| format!("\"{}\";q={};w={}", plan.id(), limits.for_plan(plan), limits.window_seconds);
        let by_plan = Plan::ALL.map(|plan| PlanHeaders {
            plan: HeaderValue::from_static(plan.id()),
            limit: leak_header_value(limits.for_plan(plan).to_string()),
            policy: leak_header_value(policy(plan)),
        });
        Self { by_plan }
    }

    /// Writes the headers that every response has, except those of [`Self::write_caller`].
    pub fn write_common(&self, headers: &mut HeaderMap, is_synthetic: bool) {
        headers.reserve(20);
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
        headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(EXPOSED_HEADERS));
        let varies_by_cookie = headers.get_all(header::VARY).iter().any(|value| value == "Cookie");
        headers.insert(header::VARY, if varies_by_cookie { PAGE_VARY } else { VARY });
        headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
        headers.entry(header::CONTENT_SECURITY_POLICY).or_insert(DEFAULT_CSP);

        if is_synthetic {
            headers.insert(X_DATA_SOURCE, HeaderValue::from_static("synthetic"));
        }
    }

    /// Writes the headers that differ from one caller and one request to the next. A cached response has none of them.
    pub fn write_caller(&self, headers: &mut HeaderMap, plan: Plan, quota: &QuotaStatus, request_id: &RequestId) {
        let plan_headers = &self.by_plan[plan as usize];
        headers.insert(X_RATELIMIT_LIMIT, plan_headers.limit.clone());
        headers.insert(RATELIMIT_POLICY, plan_headers.policy.clone());
        headers.insert(X_PLAN, plan_headers.plan.clone());

        let remaining = DecimalDigits::from_number(quota.remaining.into());
        let reset_after = DecimalDigits::from_number(quota.reset_after_seconds);

        let mut buffer = [0; 64];
        let parts = [b"\"", plan.id().as_bytes(), b"\";r=", remaining.as_bytes(), b";t=", reset_after.as_bytes()];
        let mut length = 0;
        for part in parts {
            buffer[length..length + part.len()].copy_from_slice(part);
            length += part.len();
        }

        let value = |bytes: &[u8]| HeaderValue::from_bytes(bytes).expect("digits and plan names");
        headers.insert(X_RATELIMIT_REMAINING, value(remaining.as_bytes()));
        headers.insert(X_RATELIMIT_RESET, value(DecimalDigits::from_number(quota.reset_at_seconds).as_bytes()));
        headers.insert(RATELIMIT, value(&buffer[..length]));
        headers.insert(X_REQUEST_ID, value(request_id.as_bytes()));
    }
}

/// Other websites get no access to the response, and no permission by a preflight.
pub fn remove_cross_origin_headers(headers: &mut HeaderMap) {
    for name in [
        header::ACCESS_CONTROL_ALLOW_ORIGIN,
        header::ACCESS_CONTROL_EXPOSE_HEADERS,
        header::ACCESS_CONTROL_ALLOW_METHODS,
        header::ACCESS_CONTROL_ALLOW_HEADERS,
        header::ACCESS_CONTROL_MAX_AGE,
    ] {
        headers.remove(name);
    }
}

/// Reports how long a page took: the handler alone, and the whole request including admission.
pub fn write_server_timing(headers: &mut HeaderMap, handler: Duration, total: Duration) {
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    if let Ok(value) = HeaderValue::from_str(&format!("handler;dur={:.3}, total;dur={:.3}", ms(handler), ms(total))) {
        headers.insert(SERVER_TIMING, value);
    }
}

/// A value that is cloned into every response. Cloning a static `HeaderValue` costs nothing, so the text is leaked.
fn leak_header_value(text: String) -> HeaderValue {
    HeaderValue::from_static(text.leak())
}

/// A number as decimal text on the stack: every response has several, and none should allocate.
struct DecimalDigits {
    text: [u8; 20],
    start: usize,
}

impl DecimalDigits {
    fn from_number(mut number: u64) -> Self {
        let mut text = [b'0'; 20];
        let mut start = 20;
        loop {
            start -= 1;
            text[start] += (number % 10) as u8;
            number /= 10;
            if number == 0 {
                return Self { text, start };
            }
        }
    }

    fn as_bytes(&self) -> &[u8] {
        &self.text[self.start..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_match_the_formatted_number() {
        for number in [0, 7, 10, 2000, 1_763_233_000, u64::MAX] {
            assert_eq!(DecimalDigits::from_number(number).as_bytes(), number.to_string().as_bytes());
        }
    }
}
