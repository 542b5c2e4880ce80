//! The state of the handlers.

use std::pin::Pin;
use std::sync::Arc;

use tokio::sync::oneshot;
use vintem_domain::lang::LocalizedText;
use vintem_domain::plan::PlanConfig;
use vintem_domain::{AddressBucket, Clock, Problem};
use vintem_snapshot::{LiveSnapshot, RowPage, Snapshot};

/// Everything that the pages need from the rest of the service.
#[derive(Clone)]
pub struct PageContext {
    pub offer: PlanConfig,
    /// The URL of the service, such as `https://api.example.com`, without a trailing slash.
    pub public_url: String,
    /// How to reach the operator: an e-mail address or the URL of a page.
    pub contact: Option<String>,
    /// Served unchanged at `/docs/openapi.yaml` and `/docs/openapi.pt-BR.yaml`.
    pub openapi_yaml: LocalizedText,
    pub snapshot: Arc<LiveSnapshot>,
    pub clock: Arc<dyn Clock>,
    /// Whether Postgres and Redis responded when they were last used.
    pub backends_healthy: Arc<dyn Fn() -> bool + Send + Sync>,
    /// The search of the API, with its concurrency limits. Arguments: whom the work is charged to, the query and the
    /// maximum rows of each kind.
    pub search: Arc<dyn Fn(AddressBucket, String, usize) -> SearchFuture + Send + Sync>,
    /// Runs work of several milliseconds beside other requests, with the concurrency limits of searches. The address is
    /// whom it is charged to.
    pub run_work: Arc<dyn Fn(AddressBucket, PageWork) -> WorkFuture + Send + Sync>,
}

pub type PageWork = Box<dyn FnOnce() + Send>;
pub type WorkFuture = Pin<Box<dyn Future<Output = Result<(), Problem>> + Send>>;

impl PageContext {
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        address: AddressBucket,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Problem> {
        let (sender, receiver) = oneshot::channel();
        let send_result = move || {
            // Nobody waits for it if the visitor has left.
            let _ = sender.send(work());
        };
        (self.run_work)(address, Box::new(send_result)).await?;
        receiver.await.map_err(|_| Problem::Internal)
    }
}

/// The state of each handler.
pub(crate) type SharedSettings = Arc<PageContext>;

/// The companies and the filings found, in this order, with the snapshot that they were found in.
pub type SearchFuture = Pin<Box<dyn Future<Output = Result<(Arc<Snapshot>, [RowPage; 2]), Problem>> + Send>>;
