//! What goes wrong upstream, switched on by a test for the paths that it names.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use bytes::Bytes;
use chrono::{NaiveDate, TimeDelta};
use http::{StatusCode, header};

use super::answer::{Answer, HTML, JSON};
use super::archive::{self, Member};
use super::sgs;

/// A change to the bytes of a true body.
pub type Change = Arc<dyn Fn(Vec<u8>) -> Vec<u8> + Send + Sync>;

#[derive(Clone)]
pub enum Fault {
    /// An error page that says it is a success.
    HtmlWith200,
    /// A success without a body.
    Empty200,
    /// `[]`
    EmptyArray,
    /// The true body, called HTML.
    JsonAsHtml,
    /// The 404 by which SGS says that a window is empty.
    NotFoundValues,
    /// The 404 of an outage: no body.
    NotFoundEmpty,
    /// The refusal of a window of more than ten years, with the status 406 or, as seen at times, 200.
    WindowTooWide { with_200: bool },
    /// 429, with this `Retry-After`.
    TooManyRequests { retry_after: Option<String> },
    /// 503, with this `Retry-After`.
    Unavailable { retry_after: Option<String> },
    /// 500 with an HTML page.
    ServerErrorPage,
    /// Any other status, without a body.
    Status(u16),
    /// The connection stays open, and nothing comes any more.
    Stall(StallAt),
    /// The connection closes half way through the body.
    CutBody,
    /// `Content-Encoding: gzip` over what is none.
    GzipGarbage,
    /// 302 to the same path at `localhost`, another name than the one that was asked. There the truth is served, and
    /// [`Seen::host`](super::Seen::host) tells who followed.
    RedirectToOtherHost,
    /// `Content-Length` states half of what the body has, so that half of it arrives and all seems well.
    WrongContentLength,
    /// The first tenths of an archive, as if they were all of it.
    TruncatedZip { tenths: u8 },
    /// A small archive whose member inflates to more than 200 MB.
    ZipBomb,
    /// The true archive with further members that want to be written elsewhere.
    PathTraversalZip,
    /// An archive without the member that it is named after.
    MissingMember,
    /// This body, with the headers of the true one.
    Replace(Vec<u8>),
    /// The true body, changed.
    Transform(Change),
    /// The true archive with its first member changed: the one that it is named after.
    TransformMember(Change),
    /// Only the next so many requests.
    Times(u32, Box<Fault>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StallAt {
    /// Before the first byte of an answer.
    Head,
    /// In the middle of the body.
    HalfBody,
}

impl Fault {
    pub fn times(self, requests: u32) -> Self {
        Self::Times(requests, Box::new(self))
    }

    pub fn transform(change: impl Fn(Vec<u8>) -> Vec<u8> + Send + Sync + 'static) -> Self {
        Self::Transform(Arc::new(change))
    }

    pub fn transform_member(change: impl Fn(Vec<u8>) -> Vec<u8> + Send + Sync + 'static) -> Self {
        Self::TransformMember(Arc::new(change))
    }

    /// The faults that have a name on the command line.
    fn named() -> Vec<(&'static str, Self)> {
        let retry_after = || Some("2".to_owned());
        vec![
            ("html-with-200", Self::HtmlWith200),
            ("empty-200", Self::Empty200),
            ("empty-array", Self::EmptyArray),
            ("json-as-html", Self::JsonAsHtml),
            ("values-not-found", Self::NotFoundValues),
            ("not-found", Self::NotFoundEmpty),
            ("window-too-wide", Self::WindowTooWide { with_200: false }),
            ("window-too-wide-200", Self::WindowTooWide { with_200: true }),
            ("too-many-requests", Self::TooManyRequests { retry_after: retry_after() }),
            ("unavailable", Self::Unavailable { retry_after: retry_after() }),
            ("server-error", Self::ServerErrorPage),
            ("stall-head", Self::Stall(StallAt::Head)),
            ("stall-body", Self::Stall(StallAt::HalfBody)),
            ("cut-body", Self::CutBody),
            ("gzip-garbage", Self::GzipGarbage),
            ("redirect", Self::RedirectToOtherHost),
            ("wrong-length", Self::WrongContentLength),
            ("truncated-zip", Self::TruncatedZip { tenths: 5 }),
            ("zip-bomb", Self::ZipBomb),
            ("path-traversal-zip", Self::PathTraversalZip),
            ("missing-member", Self::MissingMember),
        ]
    }

    /// Names for the help of the command line.
    pub fn names() -> String {
        Self::named().iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
    }
}

/// `html-with-200`, or `3*html-with-200` for the next three requests only.
impl FromStr for Fault {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some((times, fault)) = text.split_once('*') {
            let times = times.parse().map_err(|_| format!("{times} is not a number of requests"))?;
            return Ok(fault.parse::<Self>()?.times(times));
        }
        let found = Self::named().into_iter().find(|(name, _)| *name == text);
        found.map(|(_, fault)| fault).ok_or_else(|| format!("{text} is none of {}", Self::names()))
    }
}

impl fmt::Debug for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Replace(body) => write!(f, "Replace({} bytes)", body.len()),
            Self::Transform(_) => f.write_str("Transform"),
            Self::TransformMember(_) => f.write_str("TransformMember"),
            Self::Times(times, fault) => write!(f, "{times} times {fault:?}"),
            Self::Status(status) => write!(f, "status {status}"),
            other => {
                let is_same = |fault: &Self| std::mem::discriminant(fault) == std::mem::discriminant(other);
                let named = Self::named().into_iter().find(|(_, fault)| is_same(fault));
                f.write_str(named.map_or("a fault", |(name, _)| name))
            }
        }
    }
}

/// How an answer travels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    Whole,
    NeverBegins,
    /// Half of the body, then nothing, with the connection open.
    HalfThenSilence,
    /// Half of the body, then the connection closes.
    HalfThenClosed,
    /// Half of the body, and a length that says that it is all.
    HalfAsWhole,
}

/// More than what a client may take in.
const BOMB_MEGABYTES: usize = 210;

/// What is sent instead of the truth. `truth` is only asked where the fault needs it, for it may take long to make;
/// `target` is the path and query as they were sent.
pub fn answer(
    fault: Option<Fault>,
    target: &str,
    own_port: u16,
    truth: impl FnOnce() -> anyhow::Result<Answer>,
) -> anyhow::Result<(Answer, Delivery)> {
    let Some(fault) = fault else { return Ok((truth()?, Delivery::Whole)) };
    let delivery = match fault {
        Fault::Stall(StallAt::Head) => return Ok((empty(StatusCode::OK), Delivery::NeverBegins)),
        Fault::Stall(StallAt::HalfBody) => Delivery::HalfThenSilence,
        Fault::CutBody => Delivery::HalfThenClosed,
        Fault::WrongContentLength => Delivery::HalfAsWhole,
        _ => Delivery::Whole,
    };
    let answer = match fault {
        Fault::Times(_, fault) => return answer(Some(*fault), target, own_port, truth),
        Fault::Stall(_) | Fault::CutBody | Fault::WrongContentLength => truth()?,
        Fault::HtmlWith200 => Answer::new(StatusCode::OK, HTML, sgs::INVALID_REQUEST_PAGE),
        Fault::Empty200 => Answer::new(StatusCode::OK, JSON, ""),
        Fault::EmptyArray => Answer::new(StatusCode::OK, JSON, "[]"),
        Fault::JsonAsHtml => truth()?.with(header::CONTENT_TYPE, HTML),
        Fault::NotFoundValues => sgs::not_found(),
        Fault::NotFoundEmpty => empty(StatusCode::NOT_FOUND),
        Fault::WindowTooWide { with_200 } => {
            let status = if with_200 { StatusCode::OK } else { StatusCode::NOT_ACCEPTABLE };
            Answer::new(status, JSON, sgs::WINDOW_TOO_WIDE)
        }
        Fault::TooManyRequests { retry_after } => refused(StatusCode::TOO_MANY_REQUESTS, retry_after),
        Fault::Unavailable { retry_after } => refused(StatusCode::SERVICE_UNAVAILABLE, retry_after),
        Fault::ServerErrorPage => Answer::new(StatusCode::INTERNAL_SERVER_ERROR, HTML, SERVER_ERROR_PAGE),
        Fault::Status(status) => empty(StatusCode::from_u16(status)?),
        Fault::GzipGarbage => {
            changed(truth()?, |_| b"\x1f\x8b\x08\x00 this is no gzip".to_vec()).with(header::CONTENT_ENCODING, "gzip")
        }
        Fault::RedirectToOtherHost => {
            empty(StatusCode::FOUND).with(header::LOCATION, format!("http://localhost:{own_port}{target}"))
        }
        Fault::TruncatedZip { tenths } => {
            changed(truth()?, |body| body[..body.len() * usize::from(tenths) / 10].to_vec())
        }
        Fault::Replace(body) => changed(truth()?, |_| body),
        Fault::Transform(change) => changed(truth()?, |body| change(body)),
        Fault::TransformMember(change) => with_members(truth()?, |members| {
            if let Some(first) = members.first_mut() {
                first.content = change(std::mem::take(&mut first.content));
            }
        })?,
        Fault::PathTraversalZip => with_members(truth()?, |members| {
            let names = ["../../../../vintem_stand_in_was_here.csv", "/vintem_stand_in_was_here.csv"];
            members.extend(names.map(|name| Member::new(name, "written where it does not belong\r\n")));
        })?,
        Fault::MissingMember => with_members(truth()?, |members| {
            if let Some(first) = members.first_mut() {
                first.name = "LEIA-ME.txt".to_owned();
            }
        })?,
        Fault::ZipBomb => {
            let true_answer = truth()?;
            let first = archive::unpack(&true_answer.body)?.into_iter().next();
            let first = first.unwrap_or_else(|| Member::new("empty.csv", ""));
            let header = first.content.split_inclusive(|byte| *byte == b'\n').next().unwrap_or_default();
            let bomb = archive::bomb(&first.name, header, BOMB_MEGABYTES, day_of(&true_answer))?;
            changed(true_answer, |_| bomb)
        }
    };
    Ok((answer, delivery))
}

const SERVER_ERROR_PAGE: &str = concat!(
    "<html><head><title>500 Internal Server Error</title></head><body><h1>500 Internal Server Error</h1>",
    "<p>Em caso de dúvidas, entre em contato: suporte.ti@bcb.gov.br</p></body></html>"
);

fn empty(status: StatusCode) -> Answer {
    Answer { status, headers: Vec::new(), body: Bytes::new(), modified: None }
}

fn refused(status: StatusCode, retry_after: Option<String>) -> Answer {
    match retry_after {
        Some(text) => empty(status).with(header::RETRY_AFTER, text),
        None => empty(status),
    }
}

/// Another body is another file, and a younger one.
fn changed(answer: Answer, change: impl FnOnce(Vec<u8>) -> Vec<u8>) -> Answer {
    let modified = answer.modified.map(|modified| modified + TimeDelta::minutes(1));
    Answer { body: change(answer.body.to_vec()).into(), modified, ..answer }
}

fn with_members(answer: Answer, change: impl FnOnce(&mut Vec<Member>)) -> anyhow::Result<Answer> {
    let mut members = archive::unpack(&answer.body)?;
    change(&mut members);
    let archive = archive::pack(&members, day_of(&answer))?;
    Ok(changed(answer, |_| archive))
}

fn day_of(answer: &Answer) -> NaiveDate {
    answer.modified.unwrap_or_default().date_naive()
}
