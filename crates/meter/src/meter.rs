//! The handle that the service uses. `admission` and `usage` add what it does.

use std::sync::Arc;
use std::time::Duration;

use vintem_domain::KeyId;

use crate::circuit::ReplicaCount;
use crate::daily_caps::{DailyCap, DailyCaps};
use crate::error::Result;
use crate::local_usage::LocalUsage;
use crate::redis_keys::RedisKeys;
use crate::shard::{ProcessState, RedisShard};

#[derive(Debug, Clone)]
pub struct MeterSettings<'a> {
    /// One server, or several that share the callers. All replicas must list the same servers in the same order.
    pub redis_urls: Vec<&'a str>,
    /// Prefix of every key in Redis.
    pub prefix: &'a str,
    /// Window of the rate limit.
    pub window: Duration,
    /// How long an admission waits for Redis before this process decides.
    pub redis_timeout: Duration,
    /// Number of replicas assumed to share the limit until Redis reports it.
    pub assumed_replicas: u32,
}

/// Handle to the meter. Cheap to clone.
#[derive(Clone)]
pub struct Meter {
    pub(crate) process: Arc<ProcessState>,
    pub(crate) shards: Arc<[RedisShard]>,
    pub(crate) daily_caps: Arc<DailyCaps>,
}

impl std::fmt::Debug for Meter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Meter").field("servers", &self.shards.len()).finish_non_exhaustive()
    }
}

impl Meter {
    /// Connects lazily, so a replica can start while Redis is unavailable. Must be called within a Tokio runtime.
    pub fn open(settings: &MeterSettings<'_>) -> Result<Self> {
        let process = Arc::new(ProcessState {
            window_us: duration_micros(settings.window),
            redis_timeout: settings.redis_timeout,
            replica_count: ReplicaCount::with_assumed(settings.assumed_replicas),
            local_usage: LocalUsage::default(),
        });

        let start_shard = |url: &&str| {
            let client = redis::Client::open(*url)?;
            Ok(RedisShard::start(client, RedisKeys::new(settings.prefix), process.clone()))
        };
        let shards: Arc<[RedisShard]> = settings.redis_urls.iter().map(start_shard).collect::<Result<_>>()?;
        let daily_caps = Arc::new(DailyCaps::new(shards.clone(), process.clone()));

        Ok(Self { process, shards, daily_caps })
    }

    /// Signs this replica off, so that the others get its share of the limit should Redis become unavailable.
    pub async fn shutdown(&self) {
        for shard in self.shards.iter() {
            shard.shutdown().await;
        }
    }

    /// For each server: true if Redis decides, false if this process decides alone.
    pub fn redis_availability(&self) -> impl Iterator<Item = bool> {
        self.shards.iter().map(RedisShard::is_redis_available)
    }

    /// Number of usage counts that only this process has until they are stored, such as those from a Redis outage.
    pub fn local_usage_count(&self) -> usize {
        self.process.local_usage.len()
    }

    /// Takes one from each cap, or nothing: `Err(wait)` is the number of microseconds until all caps would pass.
    pub async fn try_take_daily_caps(&self, caps: &[DailyCap]) -> std::result::Result<(), u64> {
        self.daily_caps.try_take(caps).await
    }

    /// Returns what was taken for something that then did not happen.
    pub async fn refund_daily_caps(&self, caps: &[DailyCap]) {
        self.daily_caps.refund(caps).await;
    }

    pub(crate) fn shard_for_key(&self, id: KeyId) -> &RedisShard {
        self.shard_for_hash(id.cast_unsigned())
    }

    /// Must give the same shard in every replica of every version: a caller must not change servers within a window.
    pub(crate) fn shard_for_hash(&self, caller_hash: u64) -> &RedisShard {
        // Fibonacci hashing spreads neighboring ids evenly.
        let mixed = caller_hash.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        &self.shards[(mixed % self.shards.len() as u64) as usize]
    }
}

fn duration_micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
