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

use super::fake_response::{FakeResponse, percent_decode};
use super::faults::{self, BodyDelivery};
use super::{FakeBackend, UpstreamService, upstream_for_path};

/// One request as it came.
#[derive(Debug, Clone)]
pub struct RecordedRequest {
    pub received_at: Instant,
    pub upstream: Option<UpstreamService>,
    pub method: Method,
    /// As sent.
    pub path_and_query: String,
    pub headers: HeaderMap,
    /// Requests to the same upstream that were under way at that moment, with this one.
    pub in_flight: usize,
    /// Nothing until it is answered.
    pub status: Option<u16>,
}

impl RecordedRequest {
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
pub struct RequestLog {
    inner: Arc<Mutex<RequestLogInner>>,
}

#[derive(Debug, Default)]
struct RequestLogInner {
    requests: Vec<RecordedRequest>,
    /// How many were forgotten before the first of these.
    cleared_count: usize,
    in_flight: BTreeMap<Option<UpstreamService>, usize>,
}

/// A request under way; it ends when this is dropped.
#[derive(Debug)]
struct InFlightRequest {
    log: Arc<Mutex<RequestLogInner>>,
    upstream: Option<UpstreamService>,
    sequence_number: usize,
}

impl RequestLog {
    pub fn requests(&self) -> Vec<RecordedRequest> {
        lock_log(&self.inner).requests.clone()
    }

    pub fn clear(&self) {
        let mut log = lock_log(&self.inner);
        log.cleared_count += log.requests.len();
        log.requests.clear();
    }

    fn record_start(
        &self,
        upstream: Option<UpstreamService>,
        method: Method,
        target: &str,
        headers: HeaderMap,
    ) -> InFlightRequest {
        let mut log = lock_log(&self.inner);
        let count = log.in_flight.entry(upstream).or_default();
        *count += 1;
        let in_flight = *count;
        let number = log.cleared_count + log.requests.len();
        let path_and_query = target.to_owned();
        let at = Instant::now();
        log.requests.push(RecordedRequest {
            received_at: at,
            upstream,
            method,
            path_and_query,
            headers,
            in_flight,
            status: None,
        });
        InFlightRequest { log: self.inner.clone(), upstream, sequence_number: number }
    }
}

impl InFlightRequest {
    fn record_status(&self, status: StatusCode) {
        let mut log = lock_log(&self.log);
        let place = self.sequence_number.checked_sub(log.cleared_count);
        if let Some(seen) = place.and_then(|place| log.requests.get_mut(place)) {
            seen.status = Some(status.as_u16());
        }
    }
}

impl Drop for InFlightRequest {
    fn drop(&mut self) {
        if let Some(count) = lock_log(&self.log).in_flight.get_mut(&self.upstream) {
            *count -= 1;
        }
    }
}

fn lock_log(log: &Mutex<RequestLogInner>) -> MutexGuard<'_, RequestLogInner> {
    log.lock().unwrap_or_else(PoisonError::into_inner)
}

/// When the process is out of file descriptors, accepting again at once would only burn the processor.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(20);

/// Until the other end of `stopped` is dropped; then connections are cut, stalled ones too.
pub async fn serve_until_stopped(listener: TcpListener, backend: Arc<FakeBackend>, mut stopped: oneshot::Receiver<()>) {
    let listener = tokio::net::TcpListener::from_std(listener).expect("a listener that does not block");
    let router = Router::new().fallback(handle_request).with_state(backend);
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = &mut stopped => break,
            // So that those which have ended do not pile up.
            Some(_) = connections.join_next() => continue,
        };
        let Ok((stream, _)) = accepted else {
            tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
            continue;
        };
        let router = router.clone();
        let service =
            service_fn(move |request: Request<hyper::body::Incoming>| router.clone().oneshot(request.map(Body::new)));
        connections.spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
    }
}

async fn handle_request(State(backend): State<Arc<FakeBackend>>, request: Request) -> Result<Response, Infallible> {
    // Clients that gave up just before are noticed first: their requests are not under way any more.
    tokio::task::yield_now().await;
    tokio::task::yield_now().await;
    let (parts, _) = request.into_parts();
    let target = parts.uri.path_and_query().map_or("/", |target| target.as_str()).to_owned();
    let (path, query) = (percent_decode(parts.uri.path()), parts.uri.query().unwrap_or_default().to_owned());
    let in_flight = backend.request_log.record_start(
        upstream_for_path(&path),
        parts.method.clone(),
        &target,
        parts.headers.clone(),
    );
    if !matches!(parts.method, Method::GET | Method::HEAD) {
        in_flight.record_status(StatusCode::METHOD_NOT_ALLOWED);
        return Ok(text_response(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD"));
    }
    let is_elsewhere = parts.headers.get(header::HOST).is_some_and(|host| host.as_bytes().starts_with(b"localhost"));
    let fault = if is_elsewhere { None } else { backend.take_fault(&target) };
    let own_port = backend.address.port();
    // Aside, for a year of filings takes its time.
    let made = tokio::task::spawn_blocking(move || {
        faults::apply_fault(fault, &target, own_port, || backend.normal_response(&path, &query))
    });
    let (answer, delivery) = match made.await.map_err(anyhow::Error::from).flatten() {
        Ok(made) => made,
        Err(error) => {
            // A fault of the stand-in itself must not look like one of the upstream.
            eprintln!("the stand-in failed at {}: {error:#}", parts.uri);
            in_flight.record_status(StatusCode::NOT_IMPLEMENTED);
            return Ok(text_response(StatusCode::NOT_IMPLEMENTED, format!("the stand-in failed: {error:#}")));
        }
    };
    if delivery == BodyDelivery::NoResponse {
        std::future::pending::<()>().await;
    }
    // What is meant to fail on its way has to be on its way, even if the client has the same already.
    let conditions = if delivery == BodyDelivery::Complete { parts.headers } else { HeaderMap::new() };
    let answer = answer.into_conditional_response(&conditions);
    in_flight.record_status(answer.status);
    Ok(build_response(answer, delivery, parts.method == Method::HEAD, in_flight))
}

fn text_response(status: StatusCode, text: impl Into<Body>) -> Response {
    let mut response = Response::new(text.into());
    *response.status_mut() = status;
    response
}

/// Bodies are streams of unknown length, so that the header may state another one.
fn build_response(answer: FakeResponse, delivery: BodyDelivery, is_head: bool, in_flight: InFlightRequest) -> Response {
    let mut builder = Response::builder().status(answer.status);
    for (name, value) in answer.headers {
        builder = builder.header(name, value);
    }
    let (length, half) = (answer.body.len(), answer.body.slice(..answer.body.len() / 2));
    let (stated, sent) = match delivery {
        BodyDelivery::Complete | BodyDelivery::NoResponse => (length, answer.body),
        BodyDelivery::HalfThenStall | BodyDelivery::HalfThenClose => (length, half),
        BodyDelivery::HalfAsComplete => (half.len(), half),
    };
    if answer.status != StatusCode::NOT_MODIFIED {
        builder = builder.header(header::CONTENT_LENGTH, stated);
    }
    let is_empty = is_head || answer.status == StatusCode::NOT_MODIFIED;
    let body = match delivery {
        _ if is_empty => Body::empty(),
        BodyDelivery::HalfThenStall => Body::from_stream(stream_in_chunks(sent, None).chain(stalled_stream(in_flight))),
        BodyDelivery::HalfThenClose => {
            Body::from_stream(stream_in_chunks(sent, Some(in_flight)).chain(delayed_end_stream()))
        }
        _ => Body::from_stream(stream_in_chunks(sent, Some(in_flight))),
    };
    builder.body(body).unwrap_or_else(|error| text_response(StatusCode::NOT_IMPLEMENTED, error.to_string()))
}

/// A request ends when its last piece is handed over: the client cannot have all of it before.
fn stream_in_chunks(
    body: Bytes,
    in_flight: Option<InFlightRequest>,
) -> impl Stream<Item = Result<Bytes, Infallible>> + Send + 'static {
    const CHUNK_BYTES: usize = 64 * 1024;
    stream::unfold((body, in_flight), |(mut body, under_way)| async move {
        if body.is_empty() {
            return None;
        }
        let piece = body.split_to(body.len().min(CHUNK_BYTES));
        let under_way = under_way.filter(|_| !body.is_empty());
        Some((Ok(piece), (body, under_way)))
    })
}

/// Nothing more, and the request stays under way until its client gives up.
fn stalled_stream(in_flight: InFlightRequest) -> impl Stream<Item = Result<Bytes, Infallible>> + Send + 'static {
    stream::once(async move {
        let _under_way = in_flight;
        std::future::pending().await
    })
}

/// Nothing more, but not at once: what was handed over is sent first, and would be lost otherwise.
fn delayed_end_stream() -> impl Stream<Item = Result<Bytes, Infallible>> + Send + 'static {
    stream::once(async {
        tokio::task::yield_now().await;
        Ok(Bytes::new())
    })
}
