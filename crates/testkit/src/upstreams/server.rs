//! The HTTP server of the fake upstreams. It uses hyper directly, so that a response can stop halfway.

use std::convert::Infallible;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

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

use super::backend::FakeBackend;
use super::fake_response::{FakeResponse, percent_decode};
use super::faults::{self, BodyDelivery};
use super::request_log::InFlightRequest;
use super::upstream_service::upstream_for_path;

/// When the process is out of file descriptors, accepting again at once would only burn CPU.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(20);

/// Serves until the sender of `stopped` is dropped, then closes all connections, including stalled ones.
pub async fn serve_until_stopped(listener: TcpListener, backend: Arc<FakeBackend>, mut stopped: oneshot::Receiver<()>) {
    let listener = tokio::net::TcpListener::from_std(listener).expect("a listener that does not block");
    let router = Router::new().fallback(handle_request).with_state(backend);

    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = &mut stopped => break,
            // Reaps finished connections, so that they don't pile up.
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
    // Let the runtime first notice clients that just gave up: their requests no longer count as in flight.
    tokio::task::yield_now().await;
    tokio::task::yield_now().await;

    let (parts, _) = request.into_parts();
    let target = parts.uri.path_and_query().map_or("/", |target| target.as_str()).to_owned();
    let path = percent_decode(parts.uri.path());
    let query = parts.uri.query().unwrap_or_default().to_owned();
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

    let is_redirected = parts.headers.get(header::HOST).is_some_and(|host| host.as_bytes().starts_with(b"localhost"));
    let fault = if is_redirected { None } else { backend.take_fault(&target) };
    let own_port = backend.address.port();
    let sends_ranges = backend.lock_controls().sends_ranges;
    // On a blocking thread, because generating a year of filings takes a while.
    let generated = tokio::task::spawn_blocking(move || {
        faults::apply_fault(fault, &target, own_port, || backend.normal_response(&path, &query))
    });
    let (response, delivery) = match generated.await.map_err(anyhow::Error::from).flatten() {
        Ok(generated) => generated,
        Err(error) => {
            // An error of the fake itself must not look like one of the upstream.
            eprintln!("the stand-in failed at {}: {error:#}", parts.uri);
            in_flight.record_status(StatusCode::NOT_IMPLEMENTED);
            return Ok(text_response(StatusCode::NOT_IMPLEMENTED, format!("the stand-in failed: {error:#}")));
        }
    };

    if delivery == BodyDelivery::NoResponse {
        std::future::pending::<()>().await;
    }
    // A body that has to fail in transit must be sent, even to a client that already has it.
    let mut conditions = match delivery {
        BodyDelivery::Complete | BodyDelivery::Slow { .. } => parts.headers,
        _ => HeaderMap::new(),
    };
    if !sends_ranges {
        conditions.remove(header::RANGE);
    }
    let response = response.into_conditional_response(&conditions);
    in_flight.record_status(response.status);
    Ok(build_response(response, delivery, parts.method == Method::HEAD, in_flight))
}

fn text_response(status: StatusCode, text: impl Into<Body>) -> Response {
    let mut response = Response::new(text.into());
    *response.status_mut() = status;
    response
}

/// Bodies are streams of unknown length, so that `Content-Length` can state a different one.
fn build_response(fake: FakeResponse, delivery: BodyDelivery, is_head: bool, in_flight: InFlightRequest) -> Response {
    let mut builder = Response::builder().status(fake.status);
    for (name, value) in fake.headers {
        builder = builder.header(name, value);
    }

    let length = fake.body.len();
    let half = fake.body.slice(..length / 2);
    let (stated_length, sent) = match delivery {
        BodyDelivery::Complete | BodyDelivery::Slow { .. } | BodyDelivery::NoResponse => (length, fake.body),
        BodyDelivery::HalfThenStall | BodyDelivery::HalfThenClose => (length, half),
        BodyDelivery::HalfAsComplete => (half.len(), half),
    };
    if fake.status != StatusCode::NOT_MODIFIED {
        builder = builder.header(header::CONTENT_LENGTH, stated_length);
    }

    let is_empty = is_head || fake.status == StatusCode::NOT_MODIFIED;
    let body = match delivery {
        _ if is_empty => Body::empty(),
        BodyDelivery::HalfThenStall => Body::from_stream(stream_in_chunks(sent, None).chain(stalled_stream(in_flight))),
        BodyDelivery::Slow { bytes_per_second } => Body::from_stream(stream_slowly(sent, bytes_per_second, in_flight)),
        BodyDelivery::HalfThenClose => {
            Body::from_stream(stream_in_chunks(sent, Some(in_flight)).chain(delayed_end_stream()))
        }
        _ => Body::from_stream(stream_in_chunks(sent, Some(in_flight))),
    };
    builder.body(body).unwrap_or_else(|error| text_response(StatusCode::NOT_IMPLEMENTED, error.to_string()))
}

/// A request ends when its last chunk is handed over: the client can't have the whole body before that.
fn stream_in_chunks(
    body: Bytes,
    in_flight: Option<InFlightRequest>,
) -> impl Stream<Item = Result<Bytes, Infallible>> + Send + 'static {
    const CHUNK_BYTES: usize = 64 * 1024;
    stream::unfold((body, in_flight), |(mut body, in_flight)| async move {
        if body.is_empty() {
            return None;
        }
        let chunk = body.split_to(body.len().min(CHUNK_BYTES));
        let in_flight = in_flight.filter(|_| !body.is_empty());
        Some((Ok(chunk), (body, in_flight)))
    })
}

/// Ten chunks a second.
fn stream_slowly(
    body: Bytes,
    bytes_per_second: usize,
    in_flight: InFlightRequest,
) -> impl Stream<Item = Result<Bytes, Infallible>> + Send + 'static {
    stream::unfold((body, Some(in_flight)), move |(mut body, in_flight)| async move {
        if body.is_empty() {
            return None;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        let chunk = body.split_to(body.len().min(bytes_per_second / 10));
        let in_flight = in_flight.filter(|_| !body.is_empty());
        Some((Ok(chunk), (body, in_flight)))
    })
}

/// Sends nothing, and keeps the request in flight until its client gives up.
fn stalled_stream(in_flight: InFlightRequest) -> impl Stream<Item = Result<Bytes, Infallible>> + Send + 'static {
    stream::once(async move {
        let _in_flight = in_flight;
        std::future::pending().await
    })
}

/// Ends the body one step later: without the delay, chunks already handed over would be lost.
fn delayed_end_stream() -> impl Stream<Item = Result<Bytes, Infallible>> + Send + 'static {
    stream::once(async {
        tokio::task::yield_now().await;
        Ok(Bytes::new())
    })
}
