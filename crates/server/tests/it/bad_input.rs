//! Malformed and hostile requests: each gets its documented error or the HTTP parser's, at once, never a 5xx and never
//! silence.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::Value;
use vintem_testkit::{QuietClock, TestDatabase, TestReplica, send_raw_request};

use crate::{TestResult, friday};

/// Which layer responds: the service, with limit headers and one of its error codes (empty if it accepts the request),
/// or the HTTP parser in front of it.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Responder {
    Service(&'static str),
    Parser,
}

struct InputCase {
    name: &'static str,
    request: Vec<u8>,
    status: u16,
    responder: Responder,
}

fn case(name: &'static str, request: impl Into<Vec<u8>>, status: u16, responder: Responder) -> InputCase {
    InputCase { name, request: request.into(), status, responder }
}

const ACCEPTED: Responder = Responder::Service("");
const BAD_REQUEST: Responder = Responder::Service("bad_request");
const NOT_FOUND: Responder = Responder::Service("not_found");
const METHOD_NOT_ALLOWED: Responder = Responder::Service("method_not_allowed");

fn get_request(target: &str, headers: &str) -> String {
    format!("GET {target} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{headers}\r\n")
}

fn post_registration(headers: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "POST /api/v1/plans/register HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: {length}\r\n\
         {headers}\r\n{body}"
    )
}

fn post_registration_json(body: &str) -> String {
    post_registration("Content-Type: application/json\r\n", body)
}

const VALID_REGISTRATION: &str = r#"{"name":"Ana","email":"ana@example.com"}"#;

/// Bytes that two HTTP parsers could read as different requests.
fn smuggling_cases() -> Vec<InputCase> {
    let register = "POST /api/v1/plans/register HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n";
    let hidden = "GET /api/v1/market/selic HTTP/1.1\r\nHost: a\r\n\r\n";
    let health = "GET /health HTTP/1.1\r\nHost: a\r\n";
    vec![
        case(
            "length, then chunks",
            format!("{register}Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{hidden}"),
            400,
            Responder::Parser,
        ),
        case(
            "chunks, then length",
            format!("{register}Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n{hidden}"),
            400,
            Responder::Parser,
        ),
        case(
            "two lengths that differ",
            format!("{register}Content-Length: 0\r\nContent-Length: 51\r\n\r\n{hidden}"),
            400,
            Responder::Parser,
        ),
        case(
            "two lengths alike",
            format!("{register}Content-Length: 2\r\nContent-Length: 2\r\n\r\n{{}}{hidden}"),
            400,
            Responder::Parser,
        ),
        case(
            "a list of lengths",
            format!("{register}Content-Length: 2, 2\r\n\r\n{{}}{hidden}"),
            400,
            Responder::Parser,
        ),
        case("a signed length", format!("{register}Content-Length: +2\r\n\r\n{{}}"), 400, Responder::Parser),
        case("a negative length", format!("{register}Content-Length: -2\r\n\r\n{{}}"), 400, Responder::Parser),
        case("a length in hexadecimal", format!("{register}Content-Length: 0x2\r\n\r\n{{}}"), 400, Responder::Parser),
        case(
            "a length beyond all numbers",
            format!("{register}Content-Length: 99999999999999999999999\r\n\r\n"),
            400,
            Responder::Parser,
        ),
        case(
            "an encoding that is not chunks",
            format!("{register}Transfer-Encoding: identity\r\n\r\n{hidden}"),
            400,
            Responder::Parser,
        ),
        case(
            "chunks not last",
            format!("{register}Transfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n{hidden}"),
            400,
            Responder::Parser,
        ),
        case(
            "chunks in HTTP/1.0",
            "POST /api/v1/plans/register HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            400,
            Responder::Parser,
        ),
        case(
            "space before the colon",
            format!("{register}Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n"),
            400,
            Responder::Parser,
        ),
        case("a folded header", format!("{health}X-Folded: a\r\n b\r\n\r\n"), 400, Responder::Parser),
        case("a line that ends in LF", "GET /health HTTP/1.1\r\nHost: a\nX-A: b\r\n\r\n", 400, Responder::Parser),
        case("all lines end in LF", "GET /health HTTP/1.1\nHost: a\n\n", 400, Responder::Parser),
        case("a CR in a value", format!("{health}X-A: a\rb\r\n\r\n"), 400, Responder::Parser),
        case("a NUL in a value", format!("{health}X-A: a\0b\r\n\r\n"), 400, Responder::Parser),
        case("a NUL in a name", format!("{health}X-\0A: b\r\n\r\n"), 400, Responder::Parser),
        case("a header without a name", format!("{health}: b\r\n\r\n"), 400, Responder::Parser),
        case("a header without a colon", format!("{health}X-A\r\n\r\n"), 400, Responder::Parser),
        case("no host", "GET /health HTTP/1.1\r\n\r\n", 400, Responder::Parser),
        case("two hosts", format!("{health}Host: b\r\n\r\n"), 400, Responder::Parser),
        case("no version", "GET /health\r\n\r\n", 400, Responder::Parser),
        case("another version", "GET /health HTTP/3.7\r\nHost: a\r\n\r\n", 400, Responder::Parser),
        case("the preface of HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 0, Responder::Parser),
        case(
            "the hello of TLS",
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n".as_slice(),
            400,
            Responder::Parser,
        ),
        case(
            "a broken chunk",
            format!("{register}Connection: close\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"),
            400,
            BAD_REQUEST,
        ),
        case(
            "a chunk beyond all numbers",
            format!("{register}Connection: close\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n"),
            400,
            BAD_REQUEST,
        ),
    ]
}

fn size_cases() -> Vec<InputCase> {
    let headers = |count: usize| (0..count).map(|index| format!("X-{index}: a\r\n")).collect::<String>();
    let long = "a".repeat(8200);
    vec![
        // `get_request` adds Host and Connection.
        case("100 headers", get_request("/health", &headers(98)), 200, ACCEPTED),
        case("101 headers", get_request("/health", &headers(99)), 431, Responder::Parser),
        case(
            "a head of 17 KB",
            get_request("/health", &format!("X-Large: {}\r\n", "a".repeat(17_000))),
            431,
            Responder::Parser,
        ),
        case("a request line of 17 KB", get_request(&format!("/{}", "a".repeat(17_000)), ""), 431, Responder::Parser),
        case("an address of over 8 KB", get_request(&format!("/api/v1/market/selic?x={long}"), ""), 400, BAD_REQUEST),
        case(
            "a path of over 8 KB",
            get_request(&format!("/api/v1/companies/{long}"), ""),
            403,
            Responder::Service("upgrade_required"),
        ),
        case(
            "a thousand parameters",
            get_request(&format!("/api/v1/market/selic?{}", "a=1&".repeat(1000)), ""),
            400,
            BAD_REQUEST,
        ),
        case(
            "a body of 10 MB",
            post_registration_json(&format!("{{\"name\":\"{}\"}}", "a".repeat(10_000_000))),
            400,
            BAD_REQUEST,
        ),
        case(
            "a body of 9 KB",
            post_registration_json(&format!("{{\"name\":\"{}\"}}", "a".repeat(9_000))),
            400,
            BAD_REQUEST,
        ),
        case("a body deeper than any stack", post_registration_json(&"{\"a\":".repeat(1_600)), 400, BAD_REQUEST),
        case(
            "arrays 4,000 deep",
            post_registration_json(&format!("{{\"name\":{}", "[".repeat(4_000))),
            400,
            BAD_REQUEST,
        ),
        case(
            "33 levels beside the fields",
            post_registration_json(&format!(
                r#"{{"name":"Ana","email":"ana@example.com","x":{}{}}}"#,
                "[".repeat(32),
                "]".repeat(32)
            )),
            201,
            ACCEPTED,
        ),
        case(
            "a name of 101 characters",
            post_registration_json(&format!(r#"{{"name":"{}","email":"a@example.com"}}"#, "ã".repeat(101))),
            400,
            BAD_REQUEST,
        ),
        case(
            "an e-mail of 255 characters",
            post_registration_json(&format!(
                r#"{{"name":"Ana","email":"{}@{}.com"}}"#,
                "a".repeat(60),
                "b".repeat(190)
            )),
            400,
            BAD_REQUEST,
        ),
    ]
}

fn method_cases() -> Vec<InputCase> {
    let request = |method: &str, target: &str| {
        format!("{method} {target} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
    };
    let selic = "/api/v1/market/selic";
    let mut cases: Vec<InputCase> = ["PUT", "PATCH", "DELETE", "TRACE", "OPTIONS", "PROPFIND", "BREW", "get", "G-E_T"]
        .map(|method| case("another method", request(method, selic), 405, METHOD_NOT_ALLOWED))
        .into();
    cases.extend([
        case("a method of 1,000 letters", request(&"M".repeat(1_000), selic), 405, METHOD_NOT_ALLOWED),
        case("CONNECT", "CONNECT a:443 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", 404, NOT_FOUND),
        case("OPTIONS *", request("OPTIONS", "*"), 404, NOT_FOUND),
        case("a whole address as target", request("GET", "http://example.com/api/v1/market/selic"), 200, ACCEPTED),
        case("a target without a slash", request("GET", "api/v1/market/selic"), 400, Responder::Parser),
        case("HTTP/1.0", "GET /api/v1/market/selic HTTP/1.0\r\n\r\n", 200, ACCEPTED),
        case("GET with a body", format!("{}{{}}", get_request(selic, "Content-Length: 2\r\n")), 200, ACCEPTED),
        case("GET with a body that never comes", get_request(selic, "Content-Length: 2000000000\r\n"), 200, ACCEPTED),
    ]);
    cases
}

fn body_cases() -> Vec<InputCase> {
    let typed =
        |content_type: &str| post_registration(&format!("Content-Type: {content_type}\r\n"), VALID_REGISTRATION);
    let mut cases = vec![
        case("no content type", post_registration("", VALID_REGISTRATION), 400, BAD_REQUEST),
        case("form", typed("application/x-www-form-urlencoded"), 400, BAD_REQUEST),
        case("plain text", typed("text/plain"), 400, BAD_REQUEST),
        case("JSON of another name", typed("application/problem+json"), 400, BAD_REQUEST),
        case("JSON with a charset", typed("application/json; charset=utf-8"), 201, ACCEPTED),
        case("JSON in upper case", typed("APPLICATION/JSON"), 201, ACCEPTED),
        case(
            "two content types",
            post_registration("Content-Type: application/json\r\nContent-Type: text/plain\r\n", VALID_REGISTRATION),
            400,
            BAD_REQUEST,
        ),
        case(
            "a packed body",
            post_registration("Content-Type: application/json\r\nContent-Encoding: gzip\r\n", VALID_REGISTRATION),
            400,
            BAD_REQUEST,
        ),
        case("no body", post_registration_json(""), 400, BAD_REQUEST),
        case(
            "a second object",
            post_registration_json(&format!("{VALID_REGISTRATION}{VALID_REGISTRATION}")),
            400,
            BAD_REQUEST,
        ),
        case(
            "a plan of one's own",
            post_registration_json(r#"{"name":"Ana","email":"ana@example.com","plan":"platinum","rate_limit":9}"#),
            201,
            ACCEPTED,
        ),
        case(
            "a field twice",
            post_registration_json(r#"{"name":"Ana","name":"Eva","email":"ana@example.com"}"#),
            400,
            BAD_REQUEST,
        ),
        case(
            "a field twice, once escaped",
            post_registration_json(r#"{"name":"Ana","n\u0061me":"Eva","email":"ana@example.com"}"#),
            400,
            BAD_REQUEST,
        ),
        case(
            "expecting to go on",
            post_registration("Content-Type: text/plain\r\nExpect: 100-continue\r\n", VALID_REGISTRATION),
            400,
            BAD_REQUEST,
        ),
    ];

    for name in [
        "null",
        "1",
        "true",
        "[]",
        "{}",
        "\"\"",
        "\" \"",
        "\"a\\r\\nb\"",
        "\"a\\u0000\"",
        "\"\\ud800\"",
        "\"\u{85}\"",
        "1e999",
    ] {
        let body = format!(r#"{{"name":{name},"email":"ana@example.com"}}"#);
        cases.push(case("a name that is none", post_registration_json(&body), 400, BAD_REQUEST));
    }

    for email in [
        "a",
        "@",
        "a@",
        "@b.com",
        "a@b@c.com",
        "a b@c.com",
        "a@b.com\\r\\nBcc: c@d.com",
        "a\\u0000@b.com",
        "a@b..com",
        "a@-b.com",
    ] {
        let body = format!(r#"{{"name":"Ana","email":"{email}"}}"#);
        cases.push(case("an e-mail that is none", post_registration_json(&body), 400, BAD_REQUEST));
    }

    let mut broken = post_registration_json(VALID_REGISTRATION).into_bytes();
    let index = broken.len() - 10;
    broken[index] = 0xff;
    cases.push(case("a body that is no UTF-8", broken, 400, BAD_REQUEST));
    cases
}

fn parameter_cases() -> Vec<InputCase> {
    let selic = |query: &str| get_request(&format!("/api/v1/market/selic?{query}"), "");
    let mut cases = Vec::new();
    for query in [
        "limit=0",
        "limit=-1",
        "limit=1.0",
        "limit=1e3",
        "limit=0x10",
        "limit=%31%00",
        "limit=",
        "limit=%20",
        "limit=١",
        "limit=1&limit=2",
        "limit=1&l%69mit=1",
        "limit=%ff",
        "limit=%C0%B1",
        "limit=%",
        "limit=%zz",
        "from=",
        "to=x",
        "from=2024-02-30",
        "from=2024-1-1",
        "from=20240101",
        "from=2024-01-01T00:00:00",
        "from=1899-12-31",
        "to=2200-01-01",
        "from=-2024-01-01",
        "from=2024-01-02&to=2024-01-01",
        "from=2024-01-01&from=2024-01-01",
        "order=up",
        "order=ASC",
        "numbers=float",
        "limit=18446744073709551616%20",
    ] {
        // Also raw bytes beyond ASCII, as in `limit=١`: the parser lets them through, and the service refuses them.
        cases.push(case("a parameter that cannot be", selic(query), 400, BAD_REQUEST));
    }

    for query in ["&&&", "_=1", "utm_source=a&utm_source=b", "limit=18446744073709551616", "limit=007"] {
        cases.push(case("a parameter that is ignored or unusual", selic(query), 200, ACCEPTED));
    }
    for query in ["limit[]=1", "x=1&x=2", "?", "=", "%00=%00", "LIMIT=x", "%ff=1", "a%0d%0ab=1"] {
        cases.push(case("a parameter that is not ours", selic(query), 400, BAD_REQUEST));
    }

    for pair in [
        "",
        "USD",
        "USD/",
        "/BRL",
        "BRL/BRL",
        "USDBRLX",
        "XXX/BRL",
        "USD%00BRL",
        "USD%2F%2FBRL",
        "US$/BRL",
        "%F0%9F%92%B8/BRL",
    ] {
        cases.push(case(
            "a pair that is not carried",
            get_request(&format!("/api/v1/market/fx?pair={pair}"), ""),
            400,
            BAD_REQUEST,
        ));
    }
    cases
}

fn target_cases() -> Vec<InputCase> {
    let mut cases: Vec<InputCase> = [
        "/api/v1/market/selic%00",
        "/api/v1/market/..%2f..%2fetc%2fpasswd",
        "/%ff",
        "/%C0%AF",
        "/%",
        "/..",
        "/.",
        "//",
        "/%2e%2e/",
        "/api/v1/market/%73elic",
        "/\\",
    ]
    .map(|target| case("nowhere", get_request(target, ""), 404, NOT_FOUND))
    .into();
    cases.extend([
        case("a space in the target", get_request("/health a", ""), 400, Responder::Parser),
        case("a tab in the target", get_request("/health\ta", ""), 400, Responder::Parser),
        case("a NUL in the target", get_request("/health\0", ""), 400, Responder::Parser),
        case(
            "a key that is not text",
            get_request("/health", "X-API-Key: \u{80}\u{ff}\r\n"),
            401,
            Responder::Service("invalid_api_key"),
        ),
        case(
            "a key of 8 KB",
            get_request("/health", &format!("X-API-Key: {}\r\n", "a".repeat(8000))),
            401,
            Responder::Service("invalid_api_key"),
        ),
        case("two keys", get_request("/health", "X-API-Key: a\r\nX-API-Key: b\r\n"), 400, BAD_REQUEST),
        case(
            "a tag that is none",
            get_request("/api/v1/market/selic", "If-None-Match: \"\u{ff}, W/\r\n"),
            200,
            ACCEPTED,
        ),
        case(
            "a thousand tags",
            get_request("/api/v1/market/selic", &format!("If-None-Match: {}\r\n", "\"a\",".repeat(1000))),
            200,
            ACCEPTED,
        ),
        case(
            "a language that is none",
            get_request("/api/v1/market/selic", "Accept-Language: \u{ff};q=,,;;\r\n"),
            200,
            ACCEPTED,
        ),
        case(
            "an encoding that is none",
            get_request("/api/v1/market/selic", "Accept-Encoding: \u{ff}, *;q=nan\r\n"),
            200,
            ACCEPTED,
        ),
        case(
            "nothing that can be accepted",
            get_request("/api/v1/market/selic", "Accept: image/png;q=0\r\n"),
            200,
            ACCEPTED,
        ),
        case("a range", get_request("/api/v1/market/selic", "Range: bytes=5-1\r\n"), 200, ACCEPTED),
        case(
            "an upgrade",
            get_request("/api/v1/market/selic", "Upgrade: h2c, websocket\r\nHTTP2-Settings: AAA\r\n"),
            200,
            ACCEPTED,
        ),
        case(
            "another who forwards",
            get_request("/api/v1/market/selic", "X-Forwarded-For: \u{ff}, ::1, 999.1.1.1\r\n"),
            200,
            ACCEPTED,
        ),
    ]);
    cases
}

async fn find_mismatch(address: SocketAddr, case: &InputCase) -> Option<String> {
    let response = match send_raw_request(address, &case.request).await {
        Ok(response) => response,
        Err(error) => return Some(format!("{}: {error}", case.name)),
    };

    let has_limits = response.header("x-ratelimit-limit").is_some() && response.header("x-plan").is_some();
    let is_expected_response = match case.responder {
        Responder::Parser => response.body.is_empty() && !has_limits,
        Responder::Service("") => has_limits,
        Responder::Service(error) => has_limits && response.error_code().as_deref() == Some(error),
    };

    let excerpt = String::from_utf8_lossy(&case.request[..case.request.len().min(90)]).into_owned();
    (response.status != case.status || !is_expected_response).then(|| {
        let body = String::from_utf8_lossy(&response.body[..response.body.len().min(200)]).into_owned();
        format!("{} ({excerpt:?}): {} and not {} {:?}, {body}", case.name, response.status, case.status, case.responder)
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn every_bad_request_gets_its_documented_error() -> TestResult {
    let database = TestDatabase::create_demo(friday()).await?;
    let replica = TestReplica::start_with_high_limits(&database, friday()).await?;
    let cases: Vec<InputCase> =
        [smuggling_cases(), size_cases(), method_cases(), body_cases(), parameter_cases(), target_cases()]
            .into_iter()
            .flatten()
            .collect();

    let clock = QuietClock::start();
    let mut mismatches = Vec::new();
    for case in &cases {
        mismatches.extend(find_mismatch(replica.replica.address, case).await);
    }

    println!("cases: {}", cases.len());
    println!("objections: {}", mismatches.len());
    assert!(mismatches.is_empty(), "{mismatches:#?}");
    // Every response is immediate: no case runs into a timeout.
    assert!(clock.elapsed() < Duration::from_secs(8), "{:?}", clock.elapsed());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stalled_request_body_is_refused() -> TestResult {
    let database = TestDatabase::create_empty().await?;
    let replica = TestReplica::start(&database, friday()).await?;

    let head =
        "POST /api/v1/plans/register HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Type: application/json\r\n";
    for rest in ["Content-Length: 40\r\n\r\n{", "Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n"] {
        let response = send_raw_request(replica.replica.address, format!("{head}{rest}").as_bytes()).await?;
        assert_eq!((response.status, response.error_code().as_deref()), (400, Some("bad_request")), "{rest:?}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn registration_ignores_unknown_fields_and_creates_a_free_key() -> TestResult {
    let database = TestDatabase::create_empty().await?;
    let replica = TestReplica::start(&database, friday()).await?;

    let request = post_registration_json(
        r#"{"name":"Ana","email":"ana@example.com","plan":"platinum","id":1,"rate_limit":9999}"#,
    );
    let response = send_raw_request(replica.replica.address, request.as_bytes()).await?;
    let body: Value = serde_json::from_slice(&response.body)?;
    assert_eq!((&body["plan"], &body["rate_limit"]), (&"free".into(), &30.into()));

    let keys = replica.open_store()?.list_keys(i64::MAX, 10).await?;
    assert_eq!(keys.iter().map(|key| key.plan.id()).collect::<Vec<_>>(), ["free"]);
    Ok(())
}
