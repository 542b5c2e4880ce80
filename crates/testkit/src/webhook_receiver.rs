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
pub enum ReceiverBehavior {
    Status(u16),
    /// 429 with this `Retry-After`.
    TooManyRequests(&'static str),
    /// 200 after a while.
    DelayedOk(Duration),
    /// Leads elsewhere.
    Redirect(String),
    /// 200 with far more to read than anybody wants.
    EndlessBody,
    /// Cuts the connection instead.
    CutConnection,
}

/// A request that came in.
#[derive(Debug, Clone)]
pub struct ReceivedRequest {
    pub path: String,
    pub headers: HeaderMap,
    pub body: Bytes,
    pub received_at: Instant,
}

impl ReceivedRequest {
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    /// The event's.
    pub fn event_id(&self) -> &str {
        self.header("webhook-id")
    }
}

#[derive(Debug, Default)]
struct ReceiverState {
    requests: Mutex<Vec<ReceivedRequest>>,
    behaviors: Mutex<HashMap<String, ReceiverBehavior>>,
}

/// It ends with the test.
#[derive(Debug)]
pub struct WebhookReceiver {
    pub address: SocketAddr,
    state: Arc<ReceiverState>,
    server: JoinHandle<()>,
}

impl WebhookReceiver {
    pub async fn start() -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let (address, desk) = (listener.local_addr()?, Arc::new(ReceiverState::default()));
        let service = Router::new().fallback(handle_request).with_state(desk.clone());
        let server = tokio::spawn(async move {
            if let Err(error) = axum::serve(listener, service).await {
                eprintln!("the receiver ended: {error}");
            }
        });
        Ok(Self { address, state: desk, server })
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// From now on this path answers so.
    pub fn set_behavior(&self, path: &str, manner: ReceiverBehavior) {
        self.state.behaviors.lock().expect("never held across a panic").insert(path.to_owned(), manner);
    }

    /// What a path has received so far, in order.
    pub fn requests_to(&self, path: &str) -> Vec<ReceivedRequest> {
        let all = self.state.requests.lock().expect("never held across a panic");
        all.iter().filter(|received| received.path == path).cloned().collect()
    }

    /// All that came in so far, whatever its path.
    pub fn all_requests(&self) -> Vec<ReceivedRequest> {
        self.state.requests.lock().expect("never held across a panic").clone()
    }

    pub fn request_count(&self) -> usize {
        self.state.requests.lock().expect("never held across a panic").len()
    }

    /// How many came in on other paths than this one.
    pub fn request_count_excluding(&self, path: &str) -> usize {
        let all = self.state.requests.lock().expect("never held across a panic");
        all.iter().filter(|received| received.path != path).count()
    }

    /// Begins anew.
    pub fn clear_requests(&self) {
        self.state.requests.lock().expect("never held across a panic").clear();
    }

    /// The only one that this path has received.
    pub fn single_request_to(&self, path: &str) -> anyhow::Result<ReceivedRequest> {
        let mut received = self.requests_to(path);
        anyhow::ensure!(received.len() == 1, "{path} received {}", received.len());
        received.pop().context("one")
    }
}

impl Drop for WebhookReceiver {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn handle_request(State(desk): State<Arc<ReceiverState>>, uri: Uri, headers: HeaderMap, body: Bytes) -> Response {
    let path = uri.path().to_owned();
    let manner = desk.behaviors.lock().expect("never held across a panic").get(&path).cloned();
    let received = ReceivedRequest { path, headers, body, received_at: Instant::now() };
    desk.requests.lock().expect("never held across a panic").push(received);
    let answer = Response::builder();
    let response = match manner.unwrap_or(ReceiverBehavior::Status(200)) {
        ReceiverBehavior::Status(status) => answer.status(status).body(Body::from("a word that nobody is to be told")),
        ReceiverBehavior::TooManyRequests(wait) => answer.status(429).header("retry-after", wait).body(Body::empty()),
        ReceiverBehavior::DelayedOk(wait) => {
            tokio::time::sleep(wait).await;
            answer.body(Body::empty())
        }
        ReceiverBehavior::Redirect(to) => answer.status(StatusCode::FOUND).header("location", to).body(Body::empty()),
        ReceiverBehavior::EndlessBody => {
            let endless =
                futures_util::stream::repeat_with(|| Ok::<_, std::io::Error>(Bytes::from_static(&[b'x'; 8192])));
            answer.body(Body::from_stream(endless))
        }
        // The server drops the connection of a handler that does not come to its end.
        ReceiverBehavior::CutConnection => std::panic::resume_unwind(Box::new("to cut the connection")),
    };
    response.expect("a plain answer")
}
