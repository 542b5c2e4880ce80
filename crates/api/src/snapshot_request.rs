//! A request that is answered from the snapshot.
//!
//! The handler of such a request gets a [`SnapshotRequest`] instead of the caller and the application. It sees the
//! snapshot, the day and the request itself, but no key, no plan, no clock and no store, so its response is the same for
//! every caller until the next load or the next day, and can be cached.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::extract::FromRequestParts;
use chrono::{DateTime, NaiveDate, Utc};
use http::HeaderValue;
use http::request::Parts;
use vintem_domain::dates::sao_paulo_date;
use vintem_domain::{Dataset, Lang, Problem};
use vintem_snapshot::Snapshot;

use crate::api_error::ApiError;
use crate::app::{ApiSettings, App};
use crate::cache_validity::{CacheValidity, UndatedStaleness};
use crate::caller::Caller;
use crate::load::{OwnerPermit, Resource, WorkOwner};
use crate::params::canonical_query;

pub struct SnapshotRequest {
    pub lang: Lang,
    /// Whether `Accept` ranks CSV above JSON.
    pub prefers_csv: bool,
    /// Today's date in São Paulo. No data of a later date is served.
    pub today: NaiveDate,
    canonical_query: String,
    snapshot: Option<Arc<Snapshot>>,
    now: DateTime<Utc>,
    /// Whether the handler had access to more than the snapshot.
    is_uncached: AtomicBool,
    caller: Caller,
    app: Arc<App>,
}

impl SnapshotRequest {
    /// The snapshot that the request is answered from. Fails until the first one is loaded.
    pub fn snapshot(&self) -> Result<Arc<Snapshot>, ApiError> {
        self.snapshot.clone().ok_or(ApiError(Problem::DependencyUnavailable))
    }

    pub fn path(&self) -> &str {
        self.caller.path()
    }

    /// The query without ignored parameters, in an order that does not depend on the caller.
    pub fn canonical_query(&self) -> &str {
        &self.canonical_query
    }

    pub fn settings(&self) -> &ApiSettings {
        &self.app.settings
    }

    pub fn is_stale(&self, snapshot: &Snapshot, dataset: Dataset) -> bool {
        self.app.live_snapshot.is_stale(snapshot, dataset, self.now)
    }

    /// Runs a search or another lookup of several milliseconds beside the requests that take less.
    pub async fn run_search<T: Send + 'static>(
        &self,
        search: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        self.app.load.search_pool.run(self.owner(), search).await
    }

    /// The right to a table that is longer than a page. Each caller may have only few at once.
    pub fn acquire_long_table(&self) -> Result<OwnerPermit, Problem> {
        self.caller.budget.try_acquire(Resource::LongTables)
    }

    /// The right to a response that is written while it is sent. Waits a little if the caller, or all together, have too
    /// many that are not sent yet. Taken before anything is written, so that nothing is in memory meanwhile.
    pub async fn acquire_stream(&self) -> Result<OwnerPermit, Problem> {
        self.app.load.acquire_stream(&self.caller.budget).await
    }

    /// Whom the work of this request is charged to.
    pub fn owner(&self) -> WorkOwner {
        self.caller.budget.owner
    }

    /// Everything else, such as the store. The response may then depend on more than the snapshot and the day, so it is
    /// not cached.
    pub fn app_without_caching(&self) -> &Arc<App> {
        self.is_uncached.store(true, Ordering::Relaxed);
        &self.app
    }

    pub(crate) fn if_none_match(&self) -> Option<&HeaderValue> {
        self.caller.if_none_match.as_ref()
    }

    /// How long the response stays the same; `None` if it must not be cached.
    pub(crate) fn cache_validity(&self, undated_staleness: UndatedStaleness) -> Option<CacheValidity> {
        let snapshot = self.snapshot.as_ref().filter(|_| !self.is_uncached.load(Ordering::Relaxed))?;
        CacheValidity::new(snapshot, self.now, undated_staleness)
    }
}

impl FromRequestParts<Arc<App>> for SnapshotRequest {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, ApiError> {
        let caller = Caller::from_request_parts(parts, app).await?;
        let now = app.clock.now();
        Ok(Self {
            lang: caller.lang,
            prefers_csv: caller.prefers_csv,
            today: sao_paulo_date(now),
            canonical_query: canonical_query(caller.query_string()),
            snapshot: app.live_snapshot.get(),
            now,
            is_uncached: AtomicBool::new(false),
            caller,
            app: app.clone(),
        })
    }
}
