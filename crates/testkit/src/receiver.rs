//! Receivers of webhooks, one a path, on one loopback port: they note what they get and answer as they are told.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::Context;
use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use bytes::Bytes;
use http::{HeaderMap, StatusCode, Uri};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// How a receiver answers; 200 unless it was told otherwise.
#[derive(Debug, Clone)]
pub enum Manner {
    Status(u16),
    /// 429 with this `Retry-After`.
    Busy(&'static str),
    /// 200 after a while.
    Slow(Duration),
    /// Leads elsewhere.
    Redirect(String),
    /// 200 with far more to read than anybody wants.
    Huge,
    /// Cuts the connection instead.
    Break,
}

/// A request that came in.
#[derive(Debug, Clone)]
pub struct Received {
    pub path: String,
    pub headers: HeaderMap,
    pub body: Bytes,
    pub at: Instant,
}

impl Received {
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    /// The event's.
    pub fn id(&self) -> &str {
        self.header("webhook-id")
    }
}

#[derive(Debug, Default)]
struct Desk {
    received: Mutex<Vec<Received>>,
    manners: Mutex<HashMap<String, Manner>>,
}

/// It ends with the test.
#[derive(Debug)]
pub struct Receiver {
    pub address: SocketAddr,
    desk: Arc<Desk>,
    server: JoinHandle<()>,
}

impl Receiver {
    pub async fn start() -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let (address, desk) = (listener.local_addr()?, Arc::new(Desk::default()));
        let service = Router::new().fallback(receive).with_state(desk.clone());
        let server = tokio::spawn(async move {
            if let Err(error) = axum::serve(listener, service).await {
                eprintln!("the receiver ended: {error}");
            }
        });
        Ok(Self { address, desk, server })
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// From now on this path answers so.
    pub fn behave(&self, path: &str, manner: Manner) {
        self.desk.manners.lock().expect("never held across a panic").insert(path.to_owned(), manner);
    }

    /// What a path has received so far, in order.
    pub fn received(&self, path: &str) -> Vec<Received> {
        let all = self.desk.received.lock().expect("never held across a panic");
        all.iter().filter(|received| received.path == path).cloned().collect()
    }

    /// All that came in so far, whatever its path.
    pub fn all_received(&self) -> Vec<Received> {
        self.desk.received.lock().expect("never held across a panic").clone()
    }

    pub fn count(&self) -> usize {
        self.desk.received.lock().expect("never held across a panic").len()
    }

    /// How many came in on other paths than this one.
    pub fn count_but(&self, path: &str) -> usize {
        let all = self.desk.received.lock().expect("never held across a panic");
        all.iter().filter(|received| received.path != path).count()
    }

    /// Begins anew.
    pub fn forget(&self) {
        self.desk.received.lock().expect("never held across a panic").clear();
    }

    /// The only one that this path has received.
    pub fn only(&self, path: &str) -> anyhow::Result<Received> {
        let mut received = self.received(path);
        anyhow::ensure!(received.len() == 1, "{path} received {}", received.len());
        received.pop().context("one")
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn receive(State(desk): State<Arc<Desk>>, uri: Uri, headers: HeaderMap, body: Bytes) -> Response {
    let path = uri.path().to_owned();
    let manner = desk.manners.lock().expect("never held across a panic").get(&path).cloned();
    let received = Received { path, headers, body, at: Instant::now() };
    desk.received.lock().expect("never held across a panic").push(received);
    let answer = Response::builder();
    let response = match manner.unwrap_or(Manner::Status(200)) {
        Manner::Status(status) => answer.status(status).body(Body::from("a word that nobody is to be told")),
        Manner::Busy(wait) => answer.status(429).header("retry-after", wait).body(Body::empty()),
        Manner::Slow(wait) => {
            tokio::time::sleep(wait).await;
            answer.body(Body::empty())
        }
        Manner::Redirect(to) => answer.status(StatusCode::FOUND).header("location", to).body(Body::empty()),
        Manner::Huge => {
            let endless =
                futures_util::stream::repeat_with(|| Ok::<_, std::io::Error>(Bytes::from_static(&[b'x'; 8192])));
            answer.body(Body::from_stream(endless))
        }
        // The server drops the connection of a handler that does not come to its end.
        Manner::Break => std::panic::resume_unwind(Box::new("to cut the connection")),
    };
    response.expect("a plain answer")
}
