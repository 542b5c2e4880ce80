//! The HTTP/1.1 server. It uses hyper's own builder, which closes silent connections; `axum::serve` does not.

use std::convert::Infallible;
use std::future::poll_fn;
use std::net::IpAddr;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use http::{HeaderValue, header};
use hyper::body::{Body as _, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tower::ServiceExt;

use crate::head_timer::RequestHeadTimer;
use crate::smuggling_guard::SmugglingGuard;
use crate::write_timeout::WriteTimeoutStream;

/// The read timeout of a request head, and so the idle timeout of a connection: reopening one is cheap.
const HEAD_READ_TIMEOUT: Duration = Duration::from_secs(8);
/// A client that reads nothing for this long is disconnected.
const WRITE_TIMEOUT: Duration = Duration::from_secs(15);
/// Maximum size of the request line and all headers. Longer heads get 431.
const MAX_HEAD_BYTES: usize = 16 * 1024;
/// How long requests in flight may take after SIGTERM. With the steps that follow, shutdown stays below ten seconds.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(8);
/// When the process is out of file descriptors, accepting again at once would only burn CPU.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(50);
/// Further connections wait to be accepted. Each may hold a head and a response in memory, some 32 kB in all, and silent
/// ones are closed within seconds.
const MAX_OPEN_CONNECTIONS: usize = 10_000;

/// Responds to requests.
pub trait RequestHandler: Clone + Send + Sync + 'static {
    fn handle(self, request: Request, peer: IpAddr) -> impl Future<Output = Response> + Send;
}

impl RequestHandler for vintem_api::ApiService {
    fn handle(self, request: Request, peer: IpAddr) -> impl Future<Output = Response> + Send {
        Self::respond(self, request, peer)
    }
}

impl RequestHandler for Router {
    async fn handle(self, request: Request, _: IpAddr) -> Response {
        match self.oneshot(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        }
    }
}

/// Serves until `stop` turns true, then waits for the requests in flight.
pub async fn serve<S: RequestHandler>(listener: TcpListener, handler: S, mut stop: watch::Receiver<bool>) {
    let mut connections = JoinSet::new();
    let stopping = stop.clone();

    loop {
        let accepted = tokio::select! {
            accepted = listener.accept(), if connections.len() < MAX_OPEN_CONNECTIONS => accepted,
            Some(_) = connections.join_next() => continue,
            Ok(_) = stop.wait_for(|stop| *stop) => break,
        };
        match accepted {
            Ok((stream, peer)) => {
                connections.spawn(serve_connection(stream, peer.ip(), handler.clone(), stopping.clone()));
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept connection");
                tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
            }
        }
    }

    drop(listener);
    let drain = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(DRAIN_TIMEOUT, drain).await.is_err() {
        // Dropping the `JoinSet` closes the connections that are still open.
        tracing::warn!("closed connections that exceeded the shutdown timeout");
    }
}

async fn serve_connection<S: RequestHandler>(
    stream: TcpStream,
    peer: IpAddr,
    handler: S,
    mut stopping: watch::Receiver<bool>,
) {
    // Responses are small and complete: waiting to fill a packet would only delay them.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "connection closed before it was served");
        return;
    }

    let service = service_fn(move |request: Request<Incoming>| {
        // Avoids a boxed body for requests without one.
        let request = request.map(|body| if body.is_end_stream() { Body::empty() } else { Body::new(body) });
        let is_chunked = request.headers().contains_key(header::TRANSFER_ENCODING);
        let response = handler.clone().handle(request, peer);
        async move {
            let mut response = response.await;
            // Only hyper's parser knows where a chunked body ends, so `SmugglingGuard` could not find the next head.
            if is_chunked {
                response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            Ok::<_, Infallible>(response)
        }
    });
    let stream = SmugglingGuard::new(WriteTimeoutStream::new(stream, WRITE_TIMEOUT), MAX_HEAD_BYTES);
    let connection = http1::Builder::new()
        // A client that closes its side after the request still gets its response. Detecting that during a request would
        // also cost a buffer each time.
        .half_close(true)
        .timer(RequestHeadTimer::default())
        .header_read_timeout(HEAD_READ_TIMEOUT)
        .max_header_size(MAX_HEAD_BYTES)
        .serve_connection(TokioIo::new(stream), service);

    let stop_changes = stopping.clone();
    let mut connection = pin!(connection);
    let mut stop = pin!(stopping.wait_for(|stop| *stop));
    let mut is_waiting = false;
    let mut may_stop = true;
    let serving = poll_fn(|context| {
        // The first poll registers this task to be woken by `stop`. After that, `stop` is polled only when it changed.
        if may_stop && (!is_waiting || stop_changes.has_changed().unwrap_or(true)) {
            is_waiting = true;
            if let Poll::Ready(stopped) = stop.as_mut().poll(context) {
                may_stop = false;
                if stopped.is_ok() {
                    connection.as_mut().graceful_shutdown();
                }
            }
        }
        connection.as_mut().poll(context)
    });

    if let Err(error) = serving.await {
        // Client resets and timeouts matter only when debugging a client.
        tracing::debug!(%error, "connection ended early");
    }
}
