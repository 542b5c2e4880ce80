//! The handle that the service uses. `admission` and `usage` add what it does.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use vintem_domain::KeyId;

use crate::circuit::ReplicaCount;
use crate::connection::open_client;
use crate::daily_caps::{DailyCap, DailyCaps};
use crate::error::Result;
use crate::local_usage::LocalUsage;
use crate::redis_keys::RedisKeys;
use crate::shard::{CallMetrics, ProcessState, RedisShard};

#[derive(Debug, Clone)]
pub struct MeterSettings<'a> {
    /// One server, or several that share the callers. All replicas must list the same servers in the same order.
    pub redis_urls: Vec<&'a str>,
    /// In PEM; `rediss://` servers are trusted by these alone. Without them, by those of the system.
    pub redis_certificates: Option<&'a [u8]>,
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
            usage_gaps: Mutex::default(),
        });

        let start_shard = |(server, url): (usize, &&str)| {
            let client = open_client(url, settings.redis_certificates)?;
            let metrics = CallMetrics::new(server);
            let keys = RedisKeys::new(settings.prefix);
            Ok(RedisShard::start(client, hash_server_name(url), keys, process.clone(), metrics))
        };
        let shards: Arc<[RedisShard]> =
            settings.redis_urls.iter().enumerate().map(start_shard).collect::<Result<_>>()?;
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

    /// The shard with the highest score for this caller. A new server takes over the callers that it scores highest for,
    /// and all others stay where they are. Must give the same shard in every replica: a caller must not change servers
    /// within a window.
    pub(crate) fn shard_for_hash(&self, caller_hash: u64) -> &RedisShard {
        let score = |shard: &&RedisShard| mix_bits(caller_hash ^ shard.name_hash());
        self.shards.iter().max_by_key(score).expect("at least one server")
    }
}

/// Hashes what identifies a server, the same in every replica: host, port and database, without credentials.
fn hash_server_name(url: &str) -> u64 {
    let without_scheme = url.split_once("://").map_or(url, |(_, rest)| rest);
    let without_user = without_scheme.rsplit_once('@').map_or(without_scheme, |(_, rest)| rest);
    let name = without_user.split('?').next().unwrap_or_default().trim_end_matches('/');
    // FNV-1a, whose result never changes.
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Spreads neighboring numbers evenly (the finalizer of SplitMix64).
fn mix_bits(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

fn duration_micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open_meter(ports: &[u16]) -> Meter {
        let urls: Vec<String> = ports.iter().map(|port| format!("redis://127.0.0.1:{port}")).collect();
        let settings = MeterSettings {
            redis_urls: urls.iter().map(String::as_str).collect(),
            redis_certificates: None,
            prefix: "test:",
            window: Duration::from_secs(60),
            redis_timeout: Duration::from_millis(25),
            assumed_replicas: 1,
        };
        Meter::open(&settings).unwrap()
    }

    /// No server runs on these ports: which one a caller belongs to does not depend on that.
    #[tokio::test]
    async fn a_new_server_takes_over_its_share_of_callers_and_no_other_moves() {
        const CALLERS: u64 = 30_000;
        let two = open_meter(&[1, 2]);
        let three = open_meter(&[3, 2, 1]);
        let names = [1, 2, 3].map(|port| hash_server_name(&format!("redis://127.0.0.1:{port}")));

        let mut moved = 0;
        let mut callers_by_server = [0; 3];
        for caller in 0..CALLERS {
            // As ids of keys are: the milliseconds since 2020 × 4096.
            let hash = (216_000_000_000 + caller * 37) << 12;
            let before = two.shard_for_hash(hash).name_hash();
            let after = three.shard_for_hash(hash).name_hash();
            assert!(after == before || after == names[2], "a caller moved between old servers");
            moved += u64::from(after != before);
            callers_by_server[names.iter().position(|name| *name == after).unwrap()] += 1;
        }
        println!("moved: {moved} of {CALLERS}, callers by server: {callers_by_server:?}");
        assert!(moved < CALLERS / 3 + CALLERS / 50);
        assert!(callers_by_server.iter().all(|callers| *callers > CALLERS * 3 / 10));
    }

    #[test]
    fn a_server_is_known_by_its_address_and_not_by_its_password() {
        let name = hash_server_name("redis://redis.example:6379/2");
        assert_eq!(hash_server_name("rediss://user:se@cret@redis.example:6379/2/"), name);
        assert_ne!(hash_server_name("redis://redis.example:6379/3"), name);
    }
}
