//! The HTTP/1.1 server. It uses hyper's own builder, which closes silent connections; `axum::serve` does not.

use std::convert::Infallible;
use std::future::poll_fn;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
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

use crate::connections::{ConnectionGuard, Connections};
use crate::head_timer::RequestHeadTimer;
use crate::slow_reader_guard::{ReadingPace, SlowReaderGuard};
use crate::smuggling_guard::SmugglingGuard;

/// A new connection that sends nothing for this long is closed.
const FIRST_BYTE_TIMEOUT: Duration = Duration::from_secs(5);
/// The read timeout of a request head, and so the idle timeout of a connection: reopening one is cheap.
const HEAD_READ_TIMEOUT: Duration = Duration::from_secs(8);
/// Clients must read 8 KiB per second, after five seconds of grace.
const CLIENT_PACE: ReadingPace = ReadingPace {
    initial_patience: Duration::from_secs(5),
    max_patience: Duration::from_secs(10),
    min_bytes_per_second: 8 * 1024,
};
/// A trusted proxy may wait for its own clients, as long as it reads something now and then.
const PROXY_PACE: ReadingPace = ReadingPace {
    initial_patience: Duration::from_secs(15),
    max_patience: Duration::from_secs(15),
    min_bytes_per_second: 1,
};
/// What the system buffers of a response beyond what is on its way. With the default of several megabytes, a slow reader
/// would hold up a write for minutes, and look like one that does not read at all.
const UNSENT_BUFFER_BYTES: u32 = 32 * 1024;
/// Maximum size of the request line and all headers. Longer heads get 431.
const MAX_HEAD_BYTES: usize = 16 * 1024;
/// What hyper buffers of a response before it waits for the client.
const MAX_BUFFER_BYTES: usize = 64 * 1024;
/// How long requests in flight may take after SIGTERM. With the steps that follow, shutdown stays below ten seconds.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(8);
/// When the process is out of file descriptors, accepting again at once would only burn CPU.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(50);

/// How far the shutdown of a server has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerPhase {
    Serving,
    /// Answers everyone, but asks each client to close its connection: others still send requests here until they notice
    /// that the replica is no longer ready.
    Leaving,
    /// Accepts no more connections, and waits for the requests in flight.
    Stopping,
}

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

/// Serves until the phase is `Stopping`, then waits for the requests in flight.
pub async fn serve<S: RequestHandler>(
    listener: TcpListener,
    open_connections: Arc<Connections>,
    handler: S,
    mut phase: watch::Receiver<ServerPhase>,
) {
    let mut connections = JoinSet::new();
    let connection_phase = phase.clone();

    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next() => continue,
            Ok(_) = phase.wait_for(is_stopping) => break,
        };
        match accepted {
            Ok((stream, peer)) => {
                // Without a place the stream is closed at once.
                let Some(guard) = open_connections.open(peer.ip()) else { continue };
                // The one that made room is gone only when its task has ended.
                if guard.has_replaced {
                    tokio::task::yield_now().await;
                }
                let connection = guard.connection.clone();
                let task = serve_connection(stream, peer.ip(), guard, handler.clone(), connection_phase.clone());
                connection.set_task(connections.spawn(task));
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

fn is_stopping(phase: &ServerPhase) -> bool {
    *phase == ServerPhase::Stopping
}

fn prepare_stream(stream: &TcpStream) -> std::io::Result<()> {
    // Responses are small and complete: waiting to fill a packet would only delay them.
    stream.set_nodelay(true)?;
    socket2::SockRef::from(stream).set_tcp_notsent_lowat(UNSENT_BUFFER_BYTES)
}

/// Waits for the first byte, and serves what follows.
async fn serve_connection<S: RequestHandler>(
    stream: TcpStream,
    peer: IpAddr,
    guard: ConnectionGuard,
    handler: S,
    mut phase: watch::Receiver<ServerPhase>,
) {
    if let Err(error) = prepare_stream(&stream) {
        tracing::debug!(%error, "connection closed before it was served");
        return;
    }

    let has_bytes = tokio::select! {
        has_bytes = tokio::time::timeout(FIRST_BYTE_TIMEOUT, has_first_byte(&stream)) => has_bytes == Ok(true),
        Ok(_) = phase.wait_for(is_stopping) => false,
    };
    if has_bytes {
        // Boxed: with the buffers of a request it takes some 17 kB, which a silent connection should not have.
        Box::pin(serve_requests(stream, peer, guard, handler, phase)).await;
    }
}

/// Waits until the client has sent something. False if it closes the connection instead.
async fn has_first_byte(stream: &TcpStream) -> bool {
    // A new stream can count as readable before anything has arrived, so a byte is looked at.
    matches!(stream.peek(&mut [0]).await, Ok(1..))
}

async fn serve_requests<S: RequestHandler>(
    stream: TcpStream,
    peer: IpAddr,
    guard: ConnectionGuard,
    handler: S,
    mut phase: watch::Receiver<ServerPhase>,
) {
    let pace = if guard.connection.is_trusted { PROXY_PACE } else { CLIENT_PACE };
    let current_phase = phase.clone();
    let service = service_fn(|request: Request<Incoming>| {
        // Avoids a boxed body for requests without one.
        let request = request.map(|body| if body.is_end_stream() { Body::empty() } else { Body::new(body) });
        let is_chunked = request.headers().contains_key(header::TRANSFER_ENCODING);
        let response = handler.clone().handle(request, peer);
        let connection = guard.connection.clone();
        let current_phase = current_phase.clone();
        async move {
            connection.set_has_request(true);
            let mut response = response.await;
            // A response that is written while it is sent goes on after this.
            connection.set_has_request(response.body().size_hint().exact().is_none());
            let is_leaving = *current_phase.borrow() != ServerPhase::Serving;
            // Only hyper's parser knows where a chunked body ends, so `SmugglingGuard` could not find the next head.
            if is_chunked || is_leaving {
                response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            Ok::<_, Infallible>(response)
        }
    });
    let stream = SlowReaderGuard::new(stream, pace, |stream| {
        if let Err(error) = stream.set_zero_linger() {
            tracing::debug!(%error, "a slow reader's connection is closed, but not reset");
        }
    });
    let stream = SmugglingGuard::new(stream, MAX_HEAD_BYTES);
    let connection = http1::Builder::new()
        // A client that closes its side after the request still gets its response. Detecting that during a request would
        // also cost a buffer each time.
        .half_close(true)
        .timer(RequestHeadTimer::default())
        .header_read_timeout(HEAD_READ_TIMEOUT)
        .max_header_size(MAX_HEAD_BYTES)
        .max_buf_size(MAX_BUFFER_BYTES)
        .serve_connection(TokioIo::new(stream), service);

    let phase_changes = phase.clone();
    let mut connection = pin!(connection);
    let mut stop = pin!(phase.wait_for(is_stopping));
    let mut is_waiting = false;
    let mut may_stop = true;
    let serving = poll_fn(|context| {
        // The first poll registers this task to be woken by `stop`. After that, `stop` is polled only when it changed.
        if may_stop && (!is_waiting || phase_changes.has_changed().unwrap_or(true)) {
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

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use tokio::io::AsyncWriteExt;

    use super::*;

    async fn connect() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (client, accepted) = tokio::join!(TcpStream::connect(listener.local_addr().unwrap()), listener.accept());
        let stream = accepted.unwrap().0;
        // Its first event has been seen.
        stream.writable().await.unwrap();
        (client.unwrap(), stream)
    }

    #[tokio::test]
    async fn a_connection_has_sent_something_only_when_a_byte_has_arrived() {
        let (mut client, stream) = connect().await;
        assert_eq!(has_first_byte(&stream).now_or_never(), None);
        client.write_all(b"G").await.unwrap();
        assert!(has_first_byte(&stream).await);

        let (client, stream) = connect().await;
        drop(client);
        assert!(!has_first_byte(&stream).await);
    }
}
