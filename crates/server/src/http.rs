//! HTTP/1.1 by hyper's own builder: unlike `axum::serve` it closes connections that stay silent.

use std::convert::Infallible;
use std::net::IpAddr;
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use http::{HeaderValue, header};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tower::ServiceExt;
use vintem_api::PeerAddress;

use crate::stall::WriteStall;
use crate::strict_heads::StrictHeads;

/// A head that takes longer is not meant to arrive; a connection that idles longer is opened anew at little cost.
const HEAD_TIMEOUT: Duration = Duration::from_secs(8);
/// A client that takes nothing for so long is not meant to get the rest.
const WRITE_TIMEOUT: Duration = Duration::from_secs(15);
/// The request line and all headers; more gets 431.
const LARGEST_HEAD: usize = 16 * 1024;
/// After SIGTERM requests under way have so long to end: with what follows it stays below ten seconds.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(8);
/// When the process is out of file descriptors, accepting again at once would only burn the processor.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// What is served: the service, or the operator's router.
pub trait HttpService:
    tower::Service<Request, Response = Response, Error = Infallible, Future: Send> + Clone + Send + 'static
{
}

impl<S> HttpService for S where
    S: tower::Service<Request, Response = Response, Error = Infallible, Future: Send> + Clone + Send + 'static
{
}

/// Serves until `stop` turns true, then lets what is under way end.
pub async fn serve<S: HttpService>(listener: TcpListener, service: S, mut stop: watch::Receiver<bool>) {
    let graceful = GracefulShutdown::new();
    // Dropped when draining is over: that ends the connections which are still open.
    let (over, _) = watch::channel(());
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Ok(_) = stop.wait_for(|stop| *stop) => break,
        };
        match accepted {
            Ok((stream, peer)) => {
                let connection = serve_connection(stream, peer.ip(), service.clone(), graceful.watcher());
                let mut over = over.subscribe();
                tokio::spawn(async move {
                    tokio::select! {
                        () = connection => {}
                        _ = over.changed() => {}
                    }
                });
            }
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listener);
    if tokio::time::timeout(DRAIN_TIMEOUT, graceful.shutdown()).await.is_err() {
        tracing::warn!("connections that did not end in time were cut");
    }
}

async fn serve_connection<S: HttpService>(stream: TcpStream, peer: IpAddr, answering: S, watcher: Watcher) {
    // Answers are small and complete: waiting to fill a packet would only delay them.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "a connection was gone before it was served");
        return;
    }
    let service = service_fn(move |request: Request<Incoming>| {
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(PeerAddress(peer));
        let is_chunked = request.headers().contains_key(header::TRANSFER_ENCODING);
        let answer = answering.clone().oneshot(request);
        async move {
            let mut answer = answer.await?;
            // Where chunks end is the parser's to know: `StrictHeads` could not say where a further head begins.
            if is_chunked {
                answer.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            Ok::<_, Infallible>(answer)
        }
    });
    let stream = StrictHeads::new(WriteStall::new(stream, WRITE_TIMEOUT), LARGEST_HEAD);
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_header_size(LARGEST_HEAD)
        .serve_connection(TokioIo::new(stream), service);
    if let Err(error) = watcher.watch(connection).await {
        // Resets and time-outs of clients: their own business, of use only when a client is looked into.
        tracing::debug!(%error, "a connection ended early");
    }
}
