//! Upstream faults that a test switches on for the paths it names.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use bytes::Bytes;
use chrono::{NaiveDate, TimeDelta};
use http::{StatusCode, header};

use super::fake_response::{FakeResponse, HTML_CONTENT_TYPE, JSON_CONTENT_TYPE};
use super::sgs;
use super::zip_archive::{self, ZipMember};

/// A change to the bytes of a normal body.
pub type BodyTransform = Arc<dyn Fn(Vec<u8>) -> Vec<u8> + Send + Sync>;

/// A change to a member of an archive, given its name and content.
pub type MemberTransform = Arc<dyn Fn(&str, Vec<u8>) -> Vec<u8> + Send + Sync>;

#[derive(Clone)]
pub enum Fault {
    /// An HTML error page with status 200.
    HtmlWith200,
    /// Status 200 without a body.
    Empty200,
    /// `[]`
    EmptyArray,
    /// The normal body with an HTML content type.
    JsonAsHtml,
    /// The 404 that SGS sends for a window without values.
    SgsValuesNotFound,
    /// A 404 without a body, as in an outage.
    EmptyNotFound,
    /// The error for a window of more than ten years, with status 406 or, as the real service sometimes does, 200.
    WindowTooWide { with_200: bool },
    /// 429, with this `Retry-After`.
    TooManyRequests { retry_after: Option<String> },
    /// 503, with this `Retry-After`.
    Unavailable { retry_after: Option<String> },
    /// 500 with an HTML page.
    ServerErrorPage,
    /// Any other status, without a body.
    Status(u16),
    /// The connection stays open, and no more data arrives.
    Stall(StallAt),
    /// The connection closes halfway through the body.
    CutBody,
    /// The body comes at this speed. CVM has taken half a minute for a megabyte.
    SlowBody { bytes_per_second: usize },
    /// `Content-Encoding: gzip` with a body that is not gzip.
    GzipGarbage,
    /// 302 to the same path at `localhost`, a different host name. The normal response is served there, and
    /// [`RecordedRequest::host`](super::RecordedRequest::host) shows who followed.
    RedirectToOtherHost,
    /// `Content-Length` states half of the body's length, so that half of it arrives without an error.
    WrongContentLength,
    /// The first tenths of an archive, sent as if complete.
    TruncatedZip { tenths: u8 },
    /// A small archive whose member inflates to more than 200 MB.
    ZipBomb,
    /// The normal archive with further members whose paths lead outside the target directory.
    PathTraversalZip,
    /// An archive without the member that it is named after.
    MissingMember,
    /// This body, with the headers of the normal one.
    ReplaceBody(Vec<u8>),
    /// The normal body, changed.
    TransformBody(BodyTransform),
    /// The normal archive with its first member changed, the one that it is named after.
    TransformZipMember(BodyTransform),
    /// The normal archive with any of its members changed.
    TransformZipMembers(MemberTransform),
    /// A fault for the next N requests only.
    ForNextRequests(u32, Box<Fault>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StallAt {
    /// Before the first byte of a response.
    Head,
    /// In the middle of the body.
    HalfBody,
}

impl Fault {
    pub fn for_next_requests(self, requests: u32) -> Self {
        Self::ForNextRequests(requests, Box::new(self))
    }

    pub fn transform_body(change: impl Fn(Vec<u8>) -> Vec<u8> + Send + Sync + 'static) -> Self {
        Self::TransformBody(Arc::new(change))
    }

    pub fn transform_zip_member(change: impl Fn(Vec<u8>) -> Vec<u8> + Send + Sync + 'static) -> Self {
        Self::TransformZipMember(Arc::new(change))
    }

    pub fn transform_zip_members(change: impl Fn(&str, Vec<u8>) -> Vec<u8> + Send + Sync + 'static) -> Self {
        Self::TransformZipMembers(Arc::new(change))
    }

    /// The faults that can be named on the command line.
    fn named_faults() -> Vec<(&'static str, Self)> {
        let retry_after = || Some("2".to_owned());
        vec![
            ("html-with-200", Self::HtmlWith200),
            ("empty-200", Self::Empty200),
            ("empty-array", Self::EmptyArray),
            ("json-as-html", Self::JsonAsHtml),
            ("values-not-found", Self::SgsValuesNotFound),
            ("not-found", Self::EmptyNotFound),
            ("window-too-wide", Self::WindowTooWide { with_200: false }),
            ("window-too-wide-200", Self::WindowTooWide { with_200: true }),
            ("too-many-requests", Self::TooManyRequests { retry_after: retry_after() }),
            ("unavailable", Self::Unavailable { retry_after: retry_after() }),
            ("server-error", Self::ServerErrorPage),
            ("stall-head", Self::Stall(StallAt::Head)),
            ("stall-body", Self::Stall(StallAt::HalfBody)),
            ("cut-body", Self::CutBody),
            ("slow-body", Self::SlowBody { bytes_per_second: 35_000 }),
            ("gzip-garbage", Self::GzipGarbage),
            ("redirect", Self::RedirectToOtherHost),
            ("wrong-length", Self::WrongContentLength),
            ("truncated-zip", Self::TruncatedZip { tenths: 5 }),
            ("zip-bomb", Self::ZipBomb),
            ("path-traversal-zip", Self::PathTraversalZip),
            ("missing-member", Self::MissingMember),
            ("bad-value", Self::transform_body(|body| spoil_last_value(&body))),
        ]
    }

    /// The names, for the command-line help.
    pub fn names() -> String {
        Self::named_faults().iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
    }
}

/// `html-with-200`, or `3*html-with-200` for the next three requests only.
impl FromStr for Fault {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some((times, fault)) = text.split_once('*') {
            let times = times.parse().map_err(|_| format!("{times} is not a number of requests"))?;
            return Ok(fault.parse::<Self>()?.for_next_requests(times));
        }
        let found = Self::named_faults().into_iter().find(|(name, _)| *name == text);
        found.map(|(_, fault)| fault).ok_or_else(|| format!("{text} is none of {}", Self::names()))
    }
}

impl fmt::Debug for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ReplaceBody(body) => write!(f, "Replace({} bytes)", body.len()),
            Self::TransformBody(_) => f.write_str("Transform"),
            Self::TransformZipMember(_) => f.write_str("TransformMember"),
            Self::TransformZipMembers(_) => f.write_str("TransformMembers"),
            Self::ForNextRequests(times, fault) => write!(f, "{times} times {fault:?}"),
            Self::Status(status) => write!(f, "status {status}"),
            other => {
                let is_same = |fault: &Self| std::mem::discriminant(fault) == std::mem::discriminant(other);
                let named = Self::named_faults().into_iter().find(|(_, fault)| is_same(fault));
                f.write_str(named.map_or("a fault", |(name, _)| name))
            }
        }
    }
}

/// How much of a response is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyDelivery {
    Complete,
    NoResponse,
    /// Half of the body, then nothing, with the connection open.
    HalfThenStall,
    /// Half of the body, then the connection closes.
    HalfThenClose,
    Slow {
        bytes_per_second: usize,
    },
    /// Half of the body, with a `Content-Length` that says it is complete.
    HalfAsComplete,
}

/// More than a client accepts.
const ZIP_BOMB_MEGABYTES: usize = 210;

/// Applies a fault to a response. `normal_response` is only called if the fault needs it, because it may be slow to
/// generate; `target` is the path and query as sent.
pub fn apply_fault(
    fault: Option<Fault>,
    target: &str,
    own_port: u16,
    normal_response: impl FnOnce() -> anyhow::Result<FakeResponse>,
) -> anyhow::Result<(FakeResponse, BodyDelivery)> {
    let Some(fault) = fault else { return Ok((normal_response()?, BodyDelivery::Complete)) };

    let delivery = match fault {
        Fault::Stall(StallAt::Head) => return Ok((empty_response(StatusCode::OK), BodyDelivery::NoResponse)),
        Fault::Stall(StallAt::HalfBody) => BodyDelivery::HalfThenStall,
        Fault::CutBody => BodyDelivery::HalfThenClose,
        Fault::SlowBody { bytes_per_second } => BodyDelivery::Slow { bytes_per_second },
        Fault::WrongContentLength => BodyDelivery::HalfAsComplete,
        _ => BodyDelivery::Complete,
    };

    let response = match fault {
        Fault::ForNextRequests(_, fault) => return apply_fault(Some(*fault), target, own_port, normal_response),
        Fault::Stall(_) | Fault::CutBody | Fault::SlowBody { .. } | Fault::WrongContentLength => normal_response()?,
        Fault::HtmlWith200 => FakeResponse::new(StatusCode::OK, HTML_CONTENT_TYPE, sgs::INVALID_REQUEST_PAGE),
        Fault::Empty200 => FakeResponse::new(StatusCode::OK, JSON_CONTENT_TYPE, ""),
        Fault::EmptyArray => FakeResponse::new(StatusCode::OK, JSON_CONTENT_TYPE, "[]"),
        Fault::JsonAsHtml => normal_response()?.with_header(header::CONTENT_TYPE, HTML_CONTENT_TYPE),
        Fault::SgsValuesNotFound => sgs::values_not_found_response(),
        Fault::EmptyNotFound => empty_response(StatusCode::NOT_FOUND),
        Fault::WindowTooWide { with_200 } => {
            let status = if with_200 { StatusCode::OK } else { StatusCode::NOT_ACCEPTABLE };
            FakeResponse::new(status, JSON_CONTENT_TYPE, sgs::WINDOW_TOO_WIDE_BODY)
        }
        Fault::TooManyRequests { retry_after } => retry_after_response(StatusCode::TOO_MANY_REQUESTS, retry_after),
        Fault::Unavailable { retry_after } => retry_after_response(StatusCode::SERVICE_UNAVAILABLE, retry_after),
        Fault::ServerErrorPage => {
            FakeResponse::new(StatusCode::INTERNAL_SERVER_ERROR, HTML_CONTENT_TYPE, SERVER_ERROR_PAGE)
        }
        Fault::Status(status) => empty_response(StatusCode::from_u16(status)?),
        Fault::GzipGarbage => with_changed_body(normal_response()?, |_| b"\x1f\x8b\x08\x00 this is no gzip".to_vec())
            .with_header(header::CONTENT_ENCODING, "gzip"),
        Fault::RedirectToOtherHost => empty_response(StatusCode::FOUND)
            .with_header(header::LOCATION, format!("http://localhost:{own_port}{target}")),
        Fault::TruncatedZip { tenths } => {
            with_changed_body(normal_response()?, |body| body[..body.len() * usize::from(tenths) / 10].to_vec())
        }
        Fault::ReplaceBody(body) => with_changed_body(normal_response()?, |_| body),
        Fault::TransformBody(change) => with_changed_body(normal_response()?, |body| change(body)),
        Fault::TransformZipMembers(change) => with_changed_members(normal_response()?, |members| {
            for member in members {
                member.content = change(&member.name, std::mem::take(&mut member.content));
            }
        })?,
        Fault::TransformZipMember(change) => with_changed_members(normal_response()?, |members| {
            if let Some(first) = members.first_mut() {
                first.content = change(std::mem::take(&mut first.content));
            }
        })?,
        Fault::PathTraversalZip => with_changed_members(normal_response()?, |members| {
            let names = ["../../../../vintem_stand_in_was_here.csv", "/vintem_stand_in_was_here.csv"];
            members.extend(names.map(|name| ZipMember::new(name, "written where it does not belong\r\n")));
        })?,
        Fault::MissingMember => with_changed_members(normal_response()?, |members| {
            if let Some(first) = members.first_mut() {
                first.name = "LEIA-ME.txt".to_owned();
            }
        })?,
        Fault::ZipBomb => {
            let response = normal_response()?;
            let first = zip_archive::read_zip(&response.body)?.into_iter().next();
            let first = first.unwrap_or_else(|| ZipMember::new("empty.csv", ""));
            let header = first.content.split_inclusive(|byte| *byte == b'\n').next().unwrap_or_default();
            let bomb = zip_archive::build_zip_bomb(&first.name, header, ZIP_BOMB_MEGABYTES, modified_date(&response))?;
            with_changed_body(response, |_| bomb)
        }
    };
    Ok((response, delivery))
}

const SERVER_ERROR_PAGE: &str = concat!(
    "<html><head><title>500 Internal Server Error</title></head><body><h1>500 Internal Server Error</h1>",
    "<p>Em caso de dúvidas, entre em contato: suporte.ti@bcb.gov.br</p></body></html>"
);

fn empty_response(status: StatusCode) -> FakeResponse {
    FakeResponse { status, headers: Vec::new(), body: Bytes::new(), modified_at: None }
}

fn retry_after_response(status: StatusCode, retry_after: Option<String>) -> FakeResponse {
    match retry_after {
        Some(text) => empty_response(status).with_header(header::RETRY_AFTER, text),
        None => empty_response(status),
    }
}

/// A changed file also gets a later modification time.
fn with_changed_body(response: FakeResponse, change: impl FnOnce(Vec<u8>) -> Vec<u8>) -> FakeResponse {
    let modified_at = response.modified_at.map(|modified_at| modified_at + TimeDelta::minutes(1));
    FakeResponse { body: change(response.body.to_vec()).into(), modified_at, ..response }
}

fn with_changed_members(
    response: FakeResponse,
    change: impl FnOnce(&mut Vec<ZipMember>),
) -> anyhow::Result<FakeResponse> {
    let mut members = zip_archive::read_zip(&response.body)?;
    change(&mut members);
    let archive = zip_archive::write_zip(&members, modified_date(&response))?;
    Ok(with_changed_body(response, |_| archive))
}

fn modified_date(response: &FakeResponse) -> NaiveDate {
    response.modified_at.unwrap_or_default().date_naive()
}

/// Makes the last value of a series one that is no number.
fn spoil_last_value(body: &[u8]) -> Vec<u8> {
    let mut text = String::from_utf8_lossy(body).into_owned();
    if let Some(start) = text.rfind("\"valor\":\"") {
        text.insert(start + "\"valor\":\"".len(), '?');
    }
    text.into_bytes()
}
