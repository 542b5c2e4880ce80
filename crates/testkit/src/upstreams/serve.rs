//! The server: hyper's, so that answers can stop half way, and a record of every request.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::TcpListener;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream::{self, Stream, StreamExt};
use http::{HeaderMap, Method, StatusCode, header};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tower::ServiceExt;

use super::answer::{Answer, decoded};
use super::faults::{self, Delivery};
use super::{Upstream, World, upstream_of};

/// One request as it came.
#[derive(Debug, Clone)]
pub struct Seen {
    pub at: Instant,
    pub upstream: Option<Upstream>,
    pub method: Method,
    /// As sent.
    pub path_and_query: String,
    pub headers: HeaderMap,
    /// Requests to the same upstream that were under way at that moment, with this one.
    pub in_flight: usize,
    /// Nothing until it is answered.
    pub status: Option<u16>,
}

impl Seen {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// The name under which it was asked: `localhost` if it followed a redirect to another host.
    pub fn host(&self) -> &str {
        let host = self.header("host").unwrap_or_default();
        host.rsplit_once(':').map_or(host, |(name, _)| name)
    }
}

#[derive(Debug, Default)]
pub struct Log {
    inner: Arc<Mutex<LogInner>>,
}

#[derive(Debug, Default)]
struct LogInner {
    requests: Vec<Seen>,
    /// How many were forgotten before the first of these.
    forgotten: usize,
    in_flight: BTreeMap<Option<Upstream>, usize>,
}

/// A request under way; it ends when this is dropped.
#[derive(Debug)]
struct UnderWay {
    log: Arc<Mutex<LogInner>>,
    upstream: Option<Upstream>,
    number: usize,
}

impl Log {
    pub fn requests(&self) -> Vec<Seen> {
        lock(&self.inner).requests.clone()
    }

    pub fn forget(&self) {
        let mut log = lock(&self.inner);
        log.forgotten += log.requests.len();
        log.requests.clear();
    }

    fn begin(&self, upstream: Option<Upstream>, method: Method, target: &str, headers: HeaderMap) -> UnderWay {
        let mut log = lock(&self.inner);
        let count = log.in_flight.entry(upstream).or_default();
        *count += 1;
        let in_flight = *count;
        let number = log.forgotten + log.requests.len();
        let path_and_query = target.to_owned();
        let at = Instant::now();
        log.requests.push(Seen { at, upstream, method, path_and_query, headers, in_flight, status: None });
        UnderWay { log: self.inner.clone(), upstream, number }
    }
}

impl UnderWay {
    fn answered(&self, status: StatusCode) {
        let mut log = lock(&self.log);
        let place = self.number.checked_sub(log.forgotten);
        if let Some(seen) = place.and_then(|place| log.requests.get_mut(place)) {
            seen.status = Some(status.as_u16());
        }
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        if let Some(count) = lock(&self.log).in_flight.get_mut(&self.upstream) {
            *count -= 1;
        }
    }
}

fn lock(log: &Mutex<LogInner>) -> MutexGuard<'_, LogInner> {
    log.lock().unwrap_or_else(PoisonError::into_inner)
}

/// When the process is out of file descriptors, accepting again at once would only burn the processor.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

/// Until the other end of `stopped` is dropped; then connections are cut, stalled ones too.
pub async fn serve(listener: TcpListener, world: Arc<World>, mut stopped: oneshot::Receiver<()>) {
    let listener = tokio::net::TcpListener::from_std(listener).expect("a listener that does not block");
    let router = Router::new().fallback(answer).with_state(world);
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = &mut stopped => break,
            // So that those which have ended do not pile up.
            Some(_) = connections.join_next() => continue,
        };
        let Ok((stream, _)) = accepted else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let router = router.clone();
        let service =
            service_fn(move |request: Request<hyper::body::Incoming>| router.clone().oneshot(request.map(Body::new)));
        connections.spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
    }
}

async fn answer(State(world): State<Arc<World>>, request: Request) -> Result<Response, Infallible> {
    // Clients that gave up just before are noticed first: their requests are not under way any more.
    tokio::task::yield_now().await;
    tokio::task::yield_now().await;
    let (parts, _) = request.into_parts();
    let target = parts.uri.path_and_query().map_or("/", |target| target.as_str()).to_owned();
    let (path, query) = (decoded(parts.uri.path()), parts.uri.query().unwrap_or_default().to_owned());
    let under_way = world.log.begin(upstream_of(&path), parts.method.clone(), &target, parts.headers.clone());
    if !matches!(parts.method, Method::GET | Method::HEAD) {
        under_way.answered(StatusCode::METHOD_NOT_ALLOWED);
        return Ok(with_status(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD"));
    }
    let is_elsewhere = parts.headers.get(header::HOST).is_some_and(|host| host.as_bytes().starts_with(b"localhost"));
    let fault = if is_elsewhere { None } else { world.take_fault(&target) };
    let own_port = world.address.port();
    // Aside, for a year of filings takes its time.
    let made =
        tokio::task::spawn_blocking(move || faults::answer(fault, &target, own_port, || world.truth(&path, &query)));
    let (answer, delivery) = match made.await.map_err(anyhow::Error::from).flatten() {
        Ok(made) => made,
        Err(error) => {
            // A fault of the stand-in itself must not look like one of the upstream.
            eprintln!("the stand-in failed at {}: {error:#}", parts.uri);
            under_way.answered(StatusCode::NOT_IMPLEMENTED);
            return Ok(with_status(StatusCode::NOT_IMPLEMENTED, format!("the stand-in failed: {error:#}")));
        }
    };
    if delivery == Delivery::NeverBegins {
        std::future::pending::<()>().await;
    }
    // What is meant to fail on its way has to be on its way, even if the client has the same already.
    let conditions = if delivery == Delivery::Whole { parts.headers } else { HeaderMap::new() };
    let answer = answer.for_request(&conditions);
    under_way.answered(answer.status);
    Ok(response(answer, delivery, parts.method == Method::HEAD, under_way))
}

fn with_status(status: StatusCode, text: impl Into<Body>) -> Response {
    let mut response = Response::new(text.into());
    *response.status_mut() = status;
    response
}

/// Bodies are streams of unknown length, so that the header may state another one.
fn response(answer: Answer, delivery: Delivery, is_head: bool, under_way: UnderWay) -> Response {
    let mut builder = Response::builder().status(answer.status);
    for (name, value) in answer.headers {
        builder = builder.header(name, value);
    }
    let (length, half) = (answer.body.len(), answer.body.slice(..answer.body.len() / 2));
    let (stated, sent) = match delivery {
        Delivery::Whole | Delivery::NeverBegins => (length, answer.body),
        Delivery::HalfThenSilence | Delivery::HalfThenClosed => (length, half),
        Delivery::HalfAsWhole => (half.len(), half),
    };
    if answer.status != StatusCode::NOT_MODIFIED {
        builder = builder.header(header::CONTENT_LENGTH, stated);
    }
    let is_empty = is_head || answer.status == StatusCode::NOT_MODIFIED;
    let body = match delivery {
        _ if is_empty => Body::empty(),
        Delivery::HalfThenSilence => Body::from_stream(in_pieces(sent, None).chain(silence(under_way))),
        Delivery::HalfThenClosed => Body::from_stream(in_pieces(sent, Some(under_way)).chain(a_moment())),
        _ => Body::from_stream(in_pieces(sent, Some(under_way))),
    };
    builder.body(body).unwrap_or_else(|error| with_status(StatusCode::NOT_IMPLEMENTED, error.to_string()))
}

/// A request ends when its last piece is handed over: the client cannot have all of it before.
fn in_pieces(
    body: Bytes,
    under_way: Option<UnderWay>,
) -> impl Stream<Item = Result<Bytes, Infallible>> + Send + 'static {
    const PIECE: usize = 64 * 1024;
    stream::unfold((body, under_way), |(mut body, under_way)| async move {
        if body.is_empty() {
            return None;
        }
        let piece = body.split_to(body.len().min(PIECE));
        let under_way = under_way.filter(|_| !body.is_empty());
        Some((Ok(piece), (body, under_way)))
    })
}

/// Nothing more, and the request stays under way until its client gives up.
fn silence(under_way: UnderWay) -> impl Stream<Item = Result<Bytes, Infallible>> + Send + 'static {
    stream::once(async move {
        let _under_way = under_way;
        std::future::pending().await
    })
}

/// Nothing more, but not at once: what was handed over is sent first, and would be lost otherwise.
fn a_moment() -> impl Stream<Item = Result<Bytes, Infallible>> + Send + 'static {
    stream::once(async {
        tokio::task::yield_now().await;
        Ok(Bytes::new())
    })
}
