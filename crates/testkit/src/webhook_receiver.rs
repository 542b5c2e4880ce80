//! Webhook receivers on one loopback port, one per path. They record each request and respond as the test configures.

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

/// How a receiver responds; 200 by default.
#[derive(Debug, Clone)]
pub enum ReceiverBehavior {
    Status(u16),
    /// 429 with this `Retry-After`.
    TooManyRequests(&'static str),
    /// 200 after a while.
    DelayedOk(Duration),
    /// 302 to this URL.
    Redirect(String),
    /// 200 with a body that never ends.
    EndlessBody,
    /// Closes the connection without a response.
    CutConnection,
}

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

    pub fn event_id(&self) -> &str {
        self.header("webhook-id")
    }
}

#[derive(Debug, Default)]
struct ReceiverState {
    requests: Mutex<Vec<ReceivedRequest>>,
    behaviors: Mutex<HashMap<String, ReceiverBehavior>>,
}

/// Dropping this stops the server.
#[derive(Debug)]
pub struct WebhookReceiver {
    pub address: SocketAddr,
    state: Arc<ReceiverState>,
    server: JoinHandle<()>,
}

impl WebhookReceiver {
    pub async fn start() -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let state = Arc::new(ReceiverState::default());

        let router = Router::new().fallback(handle_request).with_state(state.clone());
        let server = tokio::spawn(async move {
            if let Err(error) = axum::serve(listener, router).await {
                eprintln!("the receiver ended: {error}");
            }
        });
        Ok(Self { address, state, server })
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Sets how this path responds from now on.
    pub fn set_behavior(&self, path: &str, behavior: ReceiverBehavior) {
        self.state.behaviors.lock().expect("never held across a panic").insert(path.to_owned(), behavior);
    }

    /// The requests to one path so far, in order.
    pub fn requests_to(&self, path: &str) -> Vec<ReceivedRequest> {
        let requests = self.state.requests.lock().expect("never held across a panic");
        requests.iter().filter(|request| request.path == path).cloned().collect()
    }

    /// The requests to all paths so far, in order.
    pub fn all_requests(&self) -> Vec<ReceivedRequest> {
        self.state.requests.lock().expect("never held across a panic").clone()
    }

    pub fn request_count(&self) -> usize {
        self.state.requests.lock().expect("never held across a panic").len()
    }

    /// The number of requests to paths other than this one.
    pub fn request_count_excluding(&self, path: &str) -> usize {
        let requests = self.state.requests.lock().expect("never held across a panic");
        requests.iter().filter(|request| request.path != path).count()
    }

    pub fn clear_requests(&self) {
        self.state.requests.lock().expect("never held across a panic").clear();
    }

    /// The only request to this path; an error if there is none or more than one.
    pub fn single_request_to(&self, path: &str) -> anyhow::Result<ReceivedRequest> {
        let mut requests = self.requests_to(path);
        anyhow::ensure!(requests.len() == 1, "{path} received {}", requests.len());
        requests.pop().context("one")
    }
}

impl Drop for WebhookReceiver {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn handle_request(
    State(state): State<Arc<ReceiverState>>,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let path = uri.path().to_owned();
    let behavior = state.behaviors.lock().expect("never held across a panic").get(&path).cloned();
    let request = ReceivedRequest { path, headers, body, received_at: Instant::now() };
    state.requests.lock().expect("never held across a panic").push(request);

    let builder = Response::builder();
    let response = match behavior.unwrap_or(ReceiverBehavior::Status(200)) {
        ReceiverBehavior::Status(status) => builder.status(status).body(Body::from("a word that nobody is to be told")),
        ReceiverBehavior::TooManyRequests(wait) => builder.status(429).header("retry-after", wait).body(Body::empty()),
        ReceiverBehavior::DelayedOk(wait) => {
            tokio::time::sleep(wait).await;
            builder.body(Body::empty())
        }
        ReceiverBehavior::Redirect(to) => builder.status(StatusCode::FOUND).header("location", to).body(Body::empty()),
        ReceiverBehavior::EndlessBody => {
            let endless =
                futures_util::stream::repeat_with(|| Ok::<_, std::io::Error>(Bytes::from_static(&[b'x'; 8192])));
            builder.body(Body::from_stream(endless))
        }
        // The server drops the connection when its handler panics.
        ReceiverBehavior::CutConnection => std::panic::resume_unwind(Box::new("to cut the connection")),
    };
    response.expect("a plain answer")
}
