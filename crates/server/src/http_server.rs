//! HTTP/1.1 by hyper's own builder: unlike `axum::serve` it closes connections that stay silent.

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

/// A head that takes longer is not meant to arrive; a connection that idles longer is opened anew at little cost.
const HEAD_READ_TIMEOUT: Duration = Duration::from_secs(8);
/// A client that takes nothing for so long is not meant to get the rest.
const WRITE_TIMEOUT: Duration = Duration::from_secs(15);
/// The request line and all headers; more gets 431.
const MAX_HEAD_BYTES: usize = 16 * 1024;
/// After SIGTERM requests under way have so long to end: with what follows it stays below ten seconds.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(8);
/// When the process is out of file descriptors, accepting again at once would only burn the processor.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(50);
/// Further connections wait to be accepted. Each may hold a head and an answer in memory, some 32 kB in all, and who is
/// silent is gone in seconds.
const MAX_OPEN_CONNECTIONS: usize = 10_000;

/// What answers requests.
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

/// Serves until `stop` turns true, then lets what is under way end.
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
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
            }
        }
    }
    drop(listener);
    let drained = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(DRAIN_TIMEOUT, drained).await.is_err() {
        // Dropping their set cuts those that are still open.
        tracing::warn!("connections that did not end in time were cut");
    }
}

async fn serve_connection<S: RequestHandler>(
    stream: TcpStream,
    peer: IpAddr,
    handler: S,
    mut stopping: watch::Receiver<bool>,
) {
    // Answers are small and complete: waiting to fill a packet would only delay them.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "a connection was gone before it was served");
        return;
    }
    let service = service_fn(move |request: Request<Incoming>| {
        // A body that has ended before it began is not worth a box.
        let request = request.map(|body| if body.is_end_stream() { Body::empty() } else { Body::new(body) });
        let is_chunked = request.headers().contains_key(header::TRANSFER_ENCODING);
        let answer = handler.clone().handle(request, peer);
        async move {
            let mut answer = answer.await;
            // Where chunks end is the parser's to know: `StrictHeads` could not say where a further head begins.
            if is_chunked {
                answer.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            Ok::<_, Infallible>(answer)
        }
    });
    let stream = SmugglingGuard::new(WriteTimeoutStream::new(stream, WRITE_TIMEOUT), MAX_HEAD_BYTES);
    let connection = http1::Builder::new()
        // Who closes its side after the request is answered all the same. Looking out for that during a request would also
        // cost a buffer each time.
        .half_close(true)
        .timer(RequestHeadTimer::default())
        .header_read_timeout(HEAD_READ_TIMEOUT)
        .max_header_size(MAX_HEAD_BYTES)
        .serve_connection(TokioIo::new(stream), service);
    let told = stopping.clone();
    let (mut connection, mut stop) = (pin!(connection), pin!(stopping.wait_for(|stop| *stop)));
    let (mut is_waiting, mut may_stop) = (false, true);
    let served = poll_fn(|context| {
        // Once it waits for the stop, this task is woken by it, and until then there is no need to ask.
        if may_stop && (!is_waiting || told.has_changed().unwrap_or(true)) {
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
    if let Err(error) = served.await {
        // Resets and time-outs of clients: their own business, of use only when a client is looked into.
        tracing::debug!(%error, "a connection ended early");
    }
}
