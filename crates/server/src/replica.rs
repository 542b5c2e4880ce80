//! One replica: everything that `vintem serve` runs, started and stopped as a whole.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use vintem_api::App;
use vintem_domain::{Clock, Dataset};
use vintem_meter::Source;
use vintem_pages::PageSettings;
use vintem_snapshot::LiveSnapshot;
use vintem_store::Store;
use vintem_store::read::DatasetState;

use crate::settings::ServeSettings;
use crate::{follow, http, operator};

/// The contract, served as it is.
const OPENAPI: &str = include_str!("../../../openapi.yaml");
/// The copy of the filings within the directory of a replica.
const COPY_DIRECTORY: &str = "snapshot";
/// What all our keys in Redis begin with.
pub const REDIS_PREFIX: &str = "vintem:";
/// What is not counted by then is lost.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

pub struct Replica {
    pub address: SocketAddr,
    pub admin_address: SocketAddr,
    app: Arc<App>,
    bells: Arc<follow::Bells>,
    stop: watch::Sender<bool>,
    server: JoinHandle<()>,
    operator: JoinHandle<()>,
    followers: Vec<JoinHandle<()>>,
}

/// Binds, wires and starts; returns while the first snapshot is still being built.
pub async fn start(settings: &ServeSettings, redis_prefix: &str, clock: Arc<dyn Clock>) -> anyhow::Result<Replica> {
    let offer = settings.offer();
    if offer.limits.window_seconds != 60 {
        tracing::warn!(
            seconds = offer.limits.window_seconds,
            "the window of the rate limit is not the minute that plans promise"
        );
    }
    let pepper = settings.pepper.pepper()?;
    let store = settings.store()?;
    let meter = settings.meter(redis_prefix)?;
    let listen = |address: SocketAddr| async move {
        TcpListener::bind(address).await.with_context(|| format!("cannot listen on {address}"))
    };
    let listener = listen(settings.listen).await?;
    let admin_listener = listen(settings.admin_listen).await?;
    let (address, admin_address) = (listener.local_addr()?, admin_listener.local_addr()?);

    let api = settings.api(address)?;
    let public_url = api.public_url.clone();
    let snapshot = match &settings.directories.data_dir {
        Some(directory) => LiveSnapshot::with_copy(directory.join(COPY_DIRECTORY)),
        None => LiveSnapshot::default(),
    };
    let app = Arc::new(App::new(api, store, meter, pepper, Arc::new(snapshot), clock.clone()));
    let (looked_at, searched) = (app.clone(), app.clone());
    let pages = PageSettings {
        offer,
        public_url,
        contact: settings.contact.shown(),
        openapi_yaml: OPENAPI,
        snapshot: app.snapshot.clone(),
        clock,
        engines_answer: Arc::new(move || looked_at.dependencies_answer()),
        search: Arc::new(move |q, limit| Box::pin(vintem_api::find(searched.clone(), q, limit))),
    };
    let (stop, stopping) = watch::channel(false);
    let service =
        vintem_api::service(app.clone(), vintem_pages::handlers(pages.clone()), vintem_pages::problem_page(pages));
    let operator = operator::router(app.clone(), stopping.clone(), operator::metrics_handle());
    let server = tokio::spawn(http::serve(listener, service, stopping));
    // The operator's port is never drained: probes see until the end that the replica is not ready any more.
    let (_, never) = watch::channel(false);
    let operator = tokio::spawn(http::serve(admin_listener, operator, never));
    let bells = Arc::new(follow::Bells::default());
    let followers = vec![
        tokio::spawn(follow::listen(app.store.clone(), bells.clone())),
        tokio::spawn(follow::keys(app.clone(), bells.clone())),
        tokio::spawn(follow::events(app.clone(), bells.clone())),
        tokio::spawn(follow::snapshot(app.store.clone(), app.snapshot.clone(), bells.clone())),
        tokio::spawn(follow::compact(app.snapshot.clone())),
        tokio::spawn(follow::save_copy(app.snapshot.clone())),
        tokio::spawn(follow::drain_usage(app.clone())),
        tokio::spawn(operator::keep_metrics_small(operator::metrics_handle())),
    ];
    Ok(Replica { address, admin_address, app, bells, stop, server, operator, followers })
}

impl Replica {
    /// How far the datasets have come that are served now.
    pub fn served_states(&self) -> HashMap<Dataset, DatasetState> {
        self.app.snapshot.get().map(|snapshot| snapshot.states().clone()).unwrap_or_default()
    }

    pub fn store(&self) -> Store {
        self.app.store.clone()
    }

    pub fn snapshot(&self) -> Arc<LiveSnapshot> {
        self.app.snapshot.clone()
    }

    /// What rings when Postgres notifies.
    pub fn bells(&self) -> Arc<follow::Bells> {
        self.bells.clone()
    }

    pub fn is_ready(&self) -> bool {
        self.app.snapshot.get().is_some()
    }

    /// Not ready any more → no new connections → what is under way ends → outcomes are counted.
    pub async fn stop(&mut self) {
        self.stop.send_replace(true);
        self.app.feed.end();
        if let Err(error) = (&mut self.server).await {
            tracing::error!(%error, "serving ended badly");
        }
        for follower in &self.followers {
            follower.abort();
        }
        let last_counts = async {
            self.app.meter.flush_outcomes().await;
            self.app.meter.leave().await;
            follow::drain(&self.app, Source::Process).await
        };
        match tokio::time::timeout(FLUSH_TIMEOUT, last_counts).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "the last requests could not be counted"),
            Err(_) => tracing::warn!("the last requests could not be counted in time"),
        }
        self.app.store.close().await;
    }
}

/// Without [`Replica::stop`] everything ends at once.
impl Drop for Replica {
    fn drop(&mut self) {
        for task in [&self.server, &self.operator].into_iter().chain(&self.followers) {
            task.abort();
        }
    }
}
