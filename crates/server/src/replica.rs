//! A replica: everything that `vintem serve` runs, started and stopped as a whole.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use vintem_api::{App, TaskHealth};
use vintem_domain::lang::LocalizedText;
use vintem_domain::{Clock, Dataset};
use vintem_meter::UsageSource;
use vintem_pages::PageContext;
use vintem_snapshot::LiveSnapshot;
use vintem_store::reader::DatasetState;
use vintem_store::{Store, StoreError};

use crate::connections::{ConnectionLimits, Connections, raise_descriptor_limit};
use crate::http_server::ServerPhase;
use crate::listening::{bind, listen};
use crate::operator::metrics::metrics_handle;
use crate::operator::{AdminPort, open_admin_port};
use crate::settings::ServeSettings;
use crate::supervision::spawn_supervised;
use crate::{background, http_server};

/// The API description, served unchanged.
const OPENAPI_YAML: LocalizedText =
    LocalizedText::new(include_str!("../../../openapi.yaml"), include_str!("../../../openapi.pt-BR.yaml"));
/// Subdirectory of the data directory for the disk copy of the snapshot.
const SNAPSHOT_DIRECTORY: &str = "snapshot";
/// File in the data directory with the hashes of the keys.
const KEY_FILE: &str = "keys";
/// The prefix of all our keys in Redis.
pub const REDIS_PREFIX: &str = "vintem:";
/// What most systems allow a process by default.
const DEFAULT_DESCRIPTORS: u64 = 1024;
/// After this time the port opens without a snapshot: PostgreSQL takes connections but does not answer.
const MAX_FIRST_SNAPSHOT_WAIT: Duration = Duration::from_secs(60);
/// Usage that is not written within this time at shutdown is lost.
const USAGE_FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

pub struct Replica {
    pub address: SocketAddr,
    pub admin_address: SocketAddr,
    app: Arc<App>,
    notifications: Arc<background::Notifications>,
    phase: watch::Sender<ServerPhase>,
    drain_period: Duration,
    server_task: JoinHandle<()>,
    operator_tasks: Vec<JoinHandle<()>>,
    background_tasks: Vec<JoinHandle<()>>,
}

/// Binds the ports, wires everything and starts it. Returns once the public port is open.
pub async fn start_replica(
    settings: &ServeSettings,
    redis_prefix: &str,
    clock: Arc<dyn Clock>,
) -> anyhow::Result<Replica> {
    // Before anything that records metrics.
    metrics_handle();
    warn_of_unusual_window(settings);
    let pepper = settings.pepper.parse_pepper()?;
    let store = settings.open_store()?;
    // Without PostgreSQL a replica starts too, and finds out later.
    if let Err(error @ StoreError::WrongPepper) = store.check_pepper(pepper.mark()).await {
        return Err(error.into());
    }
    let meter = settings.open_meter(redis_prefix)?;

    let socket = bind(settings.listen)?;
    let address = socket.local_addr()?;

    let api = settings.api_settings(address)?;
    let public_url = api.public_url.clone();
    let snapshot = match &settings.directories.data_dir {
        Some(directory) => LiveSnapshot::with_disk_cache(directory.join(SNAPSHOT_DIRECTORY)),
        None => LiveSnapshot::default(),
    };
    let app = Arc::new(App::new(api, store, meter, pepper, Arc::new(snapshot), clock));
    if let Some(directory) = &settings.directories.data_dir
        && let Err(error) = open_key_file(&app, directory).await
    {
        tracing::warn!(%error, "cannot keep the keys on disk; without PostgreSQL no key is known after a restart");
    }

    let pages = page_context(settings, &app, public_url);
    let (phase, phase_changes) = watch::channel(ServerPhase::Serving);
    let service = vintem_api::build_service(
        app.clone(),
        vintem_pages::handlers(pages.clone()),
        vintem_pages::problem_renderer(pages),
    );
    let clients = Connections::new("public", connection_limits(), settings.trusted_proxies.0.clone());
    let admin_port = AdminPort {
        role: "serve",
        store: app.store.clone(),
        token: settings.admin_token.admin_token.clone(),
        phase: phase_changes.clone(),
        live_snapshot: Some(app.live_snapshot.clone()),
        replica: Some((app.clone(), clients.clone())),
    };
    let (admin_address, operator_tasks) = open_admin_port(settings.admin_listen, &app.task_health, admin_port)?;

    let notifications = Arc::new(background::Notifications::default());
    let background_tasks = spawn_background_tasks(&app, &notifications);
    // A balancer without health checks tries another replica if the port is closed, but not after a 503.
    let _ = tokio::time::timeout(MAX_FIRST_SNAPSHOT_WAIT, notifications.first_snapshot_attempt()).await;
    let listener = listen(socket)?;
    let server_task = tokio::spawn(http_server::serve(listener, clients, service, phase_changes));
    Ok(Replica {
        address,
        admin_address,
        app,
        notifications,
        phase,
        drain_period: Duration::from_secs(u64::from(settings.drain_seconds)),
        server_task,
        operator_tasks,
        background_tasks,
    })
}

fn warn_of_unusual_window(settings: &ServeSettings) {
    let seconds = settings.offer().limits.window_seconds;
    if seconds != 60 {
        tracing::warn!(seconds, "rate limit window differs from the 60 seconds that plans promise");
    }
}

async fn open_key_file(app: &App, directory: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(directory)?;
    app.keyring.open_file(&directory.join(KEY_FILE)).await
}

/// The connections that this process has file descriptors for.
fn connection_limits() -> ConnectionLimits {
    let descriptors = raise_descriptor_limit().unwrap_or_else(|error| {
        tracing::warn!(%error, "cannot read the limit of open files; assuming {DEFAULT_DESCRIPTORS}");
        DEFAULT_DESCRIPTORS
    });
    let limits = ConnectionLimits::from_descriptors(descriptors);
    tracing::info!(
        open_files = descriptors,
        connections = limits.max_open,
        connections_per_peer = limits.max_per_peer,
        "limits of this process"
    );
    limits
}

fn page_context(settings: &ServeSettings, app: &Arc<App>, public_url: String) -> PageContext {
    let health_app = app.clone();
    let search_app = app.clone();
    let work_app = app.clone();
    PageContext {
        offer: settings.offer(),
        public_url,
        contact: settings.contact.non_empty_contact(),
        openapi_yaml: OPENAPI_YAML,
        snapshot: app.live_snapshot.clone(),
        clock: app.clock.clone(),
        backends_healthy: Arc::new(move || health_app.is_running_well()),
        search: Arc::new(move |address, q, limit| {
            Box::pin(vintem_api::search_all(search_app.clone(), address, q, limit))
        }),
        run_work: Arc::new(move |address, work| Box::pin(vintem_api::run_page_work(work_app.clone(), address, work))),
    }
}

fn spawn_background_tasks(app: &Arc<App>, notifications: &Arc<background::Notifications>) -> Vec<JoinHandle<()>> {
    let health = &app.task_health;
    let app = || app.clone();
    let store = || app().store.clone();
    let snapshot = || app().live_snapshot.clone();
    let notifications = || notifications.clone();
    vec![
        spawn_supervised("notifications", health, (store(), notifications()), |(store, notifications)| {
            background::listen_for_notifications(store, notifications)
        }),
        spawn_supervised("keys", health, (app(), notifications()), |(app, notifications)| {
            background::refresh_keys(app, notifications)
        }),
        spawn_supervised("events", health, (app(), notifications()), |(app, notifications)| {
            background::refresh_events(app, notifications)
        }),
        spawn_supervised(
            "snapshot",
            health,
            (store(), snapshot(), notifications()),
            |(store, snapshot, notifications)| background::refresh_snapshot(store, snapshot, notifications),
        ),
        spawn_supervised("compaction", health, snapshot(), background::compact_layers),
        spawn_supervised("disk_copy", health, snapshot(), background::save_snapshot_copy),
        spawn_supervised("usage", health, app(), background::store_usage),
        spawn_supervised("partitions", health, store(), background::maintain_partitions),
    ]
}

impl Replica {
    /// The states of the datasets in the current snapshot.
    pub fn served_dataset_states(&self) -> HashMap<Dataset, DatasetState> {
        self.app.live_snapshot.get().map(|snapshot| snapshot.states().clone()).unwrap_or_default()
    }

    pub fn store(&self) -> Store {
        self.app.store.clone()
    }

    pub fn snapshot(&self) -> Arc<LiveSnapshot> {
        self.app.live_snapshot.clone()
    }

    pub fn notifications(&self) -> Arc<background::Notifications> {
        self.notifications.clone()
    }

    pub fn task_health(&self) -> Arc<TaskHealth> {
        self.app.task_health.clone()
    }

    pub fn is_ready(&self) -> bool {
        self.app.live_snapshot.get().is_some()
    }

    /// Says that the replica is no longer ready, and serves on until load balancers have noticed.
    pub async fn leave(&self) {
        self.phase.send_replace(ServerPhase::Leaving);
        tokio::time::sleep(self.drain_period).await;
    }

    /// No new connections → requests in flight finish → outcomes are counted.
    pub async fn stop(&mut self) {
        self.phase.send_replace(ServerPhase::Stopping);
        self.app.event_feed.shut_down();
        if let Err(error) = (&mut self.server_task).await {
            tracing::error!(%error, "http server failed");
        }
        for task in &self.background_tasks {
            task.abort();
        }

        let last_counts = async {
            self.app.meter.flush_outcomes().await;
            self.app.meter.shutdown().await;
            background::store_usage_from(&self.app, UsageSource::LocalProcess, USAGE_FLUSH_TIMEOUT).await
        };
        match tokio::time::timeout(USAGE_FLUSH_TIMEOUT, last_counts).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "cannot store the last usage counts"),
            Err(_) => tracing::warn!("timed out storing the last usage counts"),
        }
        self.app.store.close().await;
    }
}

/// Without [`Replica::stop`] everything is aborted at once.
impl Drop for Replica {
    fn drop(&mut self) {
        for task in [&self.server_task].into_iter().chain(&self.operator_tasks).chain(&self.background_tasks) {
            task.abort();
        }
    }
}
