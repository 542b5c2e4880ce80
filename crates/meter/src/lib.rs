//! Redis: every key name and script. The rate limit and the live usage, shared by all replicas.
//!
//! All requests that wait in a process travel in one call: a script admits each by an exact sliding log and counts its
//! usage in the same step, so no answered request is ever missing from it. One clock rules: that of Redis. Several
//! servers share the callers by hash. It never touches SQL; draining the counts into Postgres is done by who holds
//! both. While Redis is away the process decides by itself, each replica for its part of the limit, and counts what it
//! decided until it is stored.

mod admission;
mod admit_call;
mod circuit;
mod connection;
mod daily_caps;
#[cfg(test)]
mod limiter_model_tests;
mod local_usage;
mod redis_keys;
mod shard;
mod sliding_log;
mod usage;

use std::sync::Arc;
use std::time::Duration;

pub use admission::{AdmissionCharge, AdmissionDecision, AdmissionRequest, QuotaOwner};
pub use daily_caps::DailyCap;
pub use usage::{LiveUsage, LiveUsageBatch, UsageBatch, UsageSource};

use circuit::ReplicaCount;
use shard::{RedisShard, SharedState};

#[derive(Debug, thiserror::Error)]
pub enum MeterError {
    #[error("asking Redis: {0}")]
    Redis(#[from] redis::RedisError),
    #[error("Redis did not answer within {0:?}")]
    Timeout(Duration),
    #[error("Redis answered in a form that no script of ours has: {0}")]
    UnexpectedReply(String),
}

pub type Result<T> = std::result::Result<T, MeterError>;

#[derive(Debug, Clone)]
pub struct MeterSettings<'a> {
    /// One server, or several that share the callers: all replicas must name the same in the same order.
    pub redis_urls: Vec<&'a str>,
    /// What all keys in Redis begin with.
    pub prefix: &'a str,
    /// The window of the rate limit.
    pub window: Duration,
    /// What an admission may wait for Redis before it is decided here.
    pub redis_timeout: Duration,
    /// How many replicas share the limit, while Redis has not told yet.
    pub assumed_replicas: u32,
}

/// The meter in one handle. Cheap to clone.
#[derive(Clone)]
pub struct Meter {
    shared: Arc<SharedState>,
    shards: Arc<[Arc<RedisShard>]>,
}

impl std::fmt::Debug for Meter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Meter").field("servers", &self.shards.len()).finish_non_exhaustive()
    }
}

impl Meter {
    /// Connects lazily: a replica may start while Redis is away. Must be called within a Tokio runtime.
    pub fn open(settings: &MeterSettings<'_>) -> Result<Self> {
        let common = Arc::new(SharedState {
            window_us: admission::duration_micros(settings.window),
            redis_timeout: settings.redis_timeout,
            replica_count: ReplicaCount::with_assumed(settings.assumed_replicas),
            local_usage: local_usage::LocalUsage::default(),
            local_caps: daily_caps::LocalDailyCaps::default(),
        });
        let shard = |url: &&str| {
            let client = redis::Client::open(*url)?;
            Ok(RedisShard::start(client, redis_keys::RedisKeys::new(settings.prefix), common.clone()))
        };
        let shards = settings.redis_urls.iter().map(shard).collect::<Result<_>>()?;
        Ok(Self { shared: common, shards })
    }

    /// The replica ends: the others have its part of the limit, should Redis go away.
    pub async fn shutdown(&self) {
        for shard in self.shards.iter() {
            shard.shutdown().await;
        }
    }

    /// For each server whether it decides, or this process alone.
    pub fn redis_availability(&self) -> impl Iterator<Item = bool> {
        self.shards.iter().map(|shard| shard.is_redis_available())
    }

    /// How many counts of usage only this process knows, until they are stored: those of when Redis was away.
    pub fn local_usage_count(&self) -> usize {
        self.shared.local_usage.len()
    }
}

/// Whether a server answers.
pub async fn ping_redis(url: &str) -> Result<()> {
    let link = connection::LazyConnection::new(redis::Client::open(url)?);
    link.run(async |redis| redis::cmd("PING").exec_async(redis).await).await
}
