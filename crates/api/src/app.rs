//! The state that all handlers share.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use axum::routing::MethodRouter;
use chrono::NaiveDate;
use http::{HeaderMap, Method};
use ipnet::IpNet;
use tracing::Span;
use vintem_deliver::export::ExportDirectory;
use vintem_deliver::webhook::{AddressGuard, SecretBox};
use vintem_domain::dates::sao_paulo_date;
use vintem_domain::plan::PlanConfig;
use vintem_domain::{Clock, Problem};
use vintem_meter::{Meter, UsageBacklog, UsageSource};
use vintem_snapshot::{LiveSnapshot, Snapshot};
use vintem_store::Store;

use crate::api_error::ApiError;
use crate::event_feed::EventFeed;
use crate::keyring::{Keyring, Pepper};
use crate::load::LoadControls;
use crate::task_health::TaskHealth;

/// What is known of a request when its trace begins.
pub struct TraceStart<'r> {
    pub headers: &'r HeaderMap,
    pub method: &'r Method,
    /// The path of the route, without the values of its parameters.
    pub route: &'static str,
    pub is_from_trusted_proxy: bool,
}

/// Begins the span of a request, if it is traced.
pub type RequestTracer = Arc<dyn Fn(&TraceStart<'_>) -> Span + Send + Sync>;

/// The API settings an operator can change.
#[derive(Clone)]
pub struct ApiSettings {
    pub offer: PlanConfig,
    /// The base URL that clients use, without a trailing slash.
    pub public_url: String,
    /// Proxies whose `X-Forwarded-For` and `Forwarded` headers we trust.
    pub trusted_proxies: Vec<IpNet>,
    /// New keys per day, for one address and for one e-mail.
    pub registrations_per_day: u32,
    /// Unknown keys that are looked up in PostgreSQL per minute, for one address.
    pub key_lookups_per_minute: u32,
    /// Maximum concurrent requests; above this, new requests are shed.
    pub max_in_flight: usize,
    /// `None` if no traces are exported.
    pub request_tracer: Option<RequestTracer>,
    /// Requests logged per second; at higher rates, only some are.
    pub logged_requests_per_second: u32,
    /// Memory for cached responses; 0 disables the cache.
    pub response_cache_bytes: u64,
    /// Directory of the bulk export files. `None` disables the export.
    pub export_directory: Option<PathBuf>,
    /// Support contact for the highest plan, if there is one.
    pub support_contact: Option<String>,
    /// Decides which addresses webhooks may call.
    pub webhook_guard: AddressGuard,
    /// Encrypts webhook secrets.
    pub webhook_secrets: SecretBox,
}

/// The state that handlers share.
pub struct App {
    pub settings: ApiSettings,
    pub store: Store,
    pub meter: Meter,
    pub keyring: Keyring,
    pub live_snapshot: Arc<LiveSnapshot>,
    pub exports: Option<Arc<ExportDirectory>>,
    pub event_feed: EventFeed,
    pub clock: Arc<dyn Clock>,
    pub(crate) load: LoadControls,
    pub task_health: Arc<TaskHealth>,
    /// Whether Postgres answered the last refresh of the keys.
    is_store_up: AtomicBool,
    is_store_read_only: AtomicBool,
    /// For each source of usage: what was not stored yet when this process last looked. `None` if it could not look.
    usage_backlogs: Mutex<Vec<Option<UsageBacklog>>>,
}

impl App {
    pub fn new(
        settings: ApiSettings,
        store: Store,
        meter: Meter,
        pepper: Pepper,
        live_snapshot: Arc<LiveSnapshot>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let keyring = Keyring::new(store.clone(), pepper, clock.clone());
        let exports = settings.export_directory.clone().map(|path| Arc::new(ExportDirectory::new(path)));

        let load = LoadControls::new(settings.max_in_flight);
        Self {
            settings,
            store,
            meter,
            keyring,
            live_snapshot,
            exports,
            event_feed: EventFeed::default(),
            clock,
            load,
            task_health: Arc::default(),
            is_store_up: AtomicBool::new(true),
            is_store_read_only: AtomicBool::new(false),
            usage_backlogs: Mutex::default(),
        }
    }

    /// Today's date in São Paulo. No data of a later date is served.
    pub fn today(&self) -> NaiveDate {
        sao_paulo_date(self.clock.now())
    }

    pub fn set_store_up(&self, is_up: bool) {
        self.is_store_up.store(is_up, Ordering::Relaxed);
    }

    pub(crate) fn is_store_up(&self) -> bool {
        self.is_store_up.load(Ordering::Relaxed)
    }

    pub fn set_store_read_only(&self, is_read_only: bool) {
        self.is_store_read_only.store(is_read_only, Ordering::Relaxed);
    }

    pub(crate) fn is_store_read_only(&self) -> bool {
        self.is_store_read_only.load(Ordering::Relaxed)
    }

    /// In the order of [`Meter::usage_sources`].
    pub fn set_usage_backlogs(&self, backlogs: Vec<Option<UsageBacklog>>) {
        *self.usage_backlogs.lock().expect("never held across a panic") = backlogs;
    }

    /// What is not stored yet, for each source that this process can see.
    pub fn usage_backlogs(&self) -> Vec<(UsageSource, UsageBacklog)> {
        let backlogs = self.usage_backlogs.lock().expect("never held across a panic");
        self.meter
            .usage_sources()
            .zip(backlogs.iter())
            .filter_map(|(source, backlog)| Some((source, (*backlog)?)))
            .collect()
    }

    /// Whether the served data is synthetic.
    pub(crate) fn is_synthetic(&self) -> bool {
        self.live_snapshot.get().is_some_and(|snapshot| snapshot.is_synthetic())
    }

    /// The snapshot that requests are served from. Fails until the first snapshot is loaded.
    pub(crate) fn current_snapshot(&self) -> Result<Arc<Snapshot>, ApiError> {
        self.live_snapshot.get().ok_or(ApiError(Problem::DependencyUnavailable))
    }
}

/// How handlers receive the [`App`].
pub type AppState = axum::extract::State<Arc<App>>;

/// Handlers by operation of the route table.
pub type Handlers = Vec<(&'static str, MethodRouter<Arc<App>>)>;
