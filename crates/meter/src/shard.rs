//! One Redis server, with the logs and counts of the callers that it serves.
//!
//! A worker makes one call at a time. The first check is sent at once; checks that arrive during a call go together
//! with the next one. When a call fails, this process decides its checks at once. Its counts are sent again with later
//! calls, under the failed call's number, until one of them arrives.

mod state;
mod worker;

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard};

use redis::{AsyncCommands, Client};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use vintem_domain::KeyId;
use vintem_domain::usage::{RequestOutcome, RouteGroup};

use crate::admit_call::{DAY_US, LimitCheck, UsageClass, UsageField};
use crate::connection::LazyConnection;
use crate::redis_keys::RedisKeys;
use state::ShardState;
use worker::ShardWorker;

pub use state::{LimitDecision, ProcessState, UsageGap};
pub use worker::CallMetrics;

/// A process without a heartbeat for this long does not count as a replica (`admit.lua`).
const LIVENESS_TIMEOUT_US: u64 = 3_000_001;

pub struct RedisShard {
    /// For everything other than admissions.
    pub background_connection: LazyConnection,
    /// Of the server, the same in every replica.
    name_hash: u64,
    state: Arc<ShardState>,
    worker: Mutex<Option<JoinHandle<()>>>,
    /// The batch of the last chunk that this process stored, and the index of that chunk: the next one is not far.
    storing_position: Mutex<(String, u64)>,
}

impl RedisShard {
    /// Starts the shard's worker. Must be called within a Tokio runtime.
    pub fn start(
        client: Client,
        name_hash: u64,
        redis_keys: RedisKeys,
        process: Arc<ProcessState>,
        metrics: CallMetrics,
    ) -> Self {
        let state = Arc::new(ShardState::new(redis_keys, process));
        let worker = ShardWorker::new(state.clone(), client.clone(), metrics);
        let worker_task = tokio::spawn(worker.run());

        Self {
            background_connection: LazyConnection::new(client),
            name_hash,
            state,
            worker: Mutex::new(Some(worker_task)),
            storing_position: Mutex::default(),
        }
    }

    pub fn name_hash(&self) -> u64 {
        self.name_hash
    }

    pub fn redis_keys(&self) -> &RedisKeys {
        &self.state.redis_keys
    }

    /// Distinguishes the calls and batches of this process from those of all others.
    pub fn process_id(&self) -> &str {
        &self.state.process_id
    }

    pub fn lock_storing_position(&self) -> MutexGuard<'_, (String, u64)> {
        self.storing_position.lock().expect("never held across a panic")
    }

    pub fn oldest_batch_us(&self) -> &AtomicU64 {
        &self.state.oldest_batch_us
    }

    /// Redis' time, estimated from its last reply.
    pub fn now_us(&self) -> u64 {
        self.state.redis_clock.now_us()
    }

    /// True if Redis decides, false if this process decides alone.
    pub fn is_redis_available(&self) -> bool {
        self.state.is_redis_available()
    }

    pub async fn check_limit(&self, check: LimitCheck) -> LimitDecision {
        let response = {
            let mut queue = self.state.lock_queue();
            if queue.circuit.is_open() || queue.is_shut_down {
                drop(queue);
                return self.state.check_and_count_locally(&check);
            }
            let (sender, response) = oneshot::channel();
            queue.checks.push((check, sender));
            response
        };
        self.state.work_arrived.notify_one();

        match response.await {
            Ok(decision) => decision,
            // The worker has ended.
            Err(_) => self.state.check_and_count_locally(&check),
        }
    }

    pub fn record_outcome(&self, key_id: KeyId, group: RouteGroup, admitted_at_us: u64, outcome: RequestOutcome) {
        let day = admitted_at_us / DAY_US;
        self.state.add_pending_outcome(UsageField { key_id, group, class: UsageClass::Outcome(outcome), day });
    }

    /// Returns once all outcomes recorded so far are counted: true if in Redis, false if in this process.
    pub async fn flush_outcomes(&self) -> bool {
        let (sender, done) = oneshot::channel();
        {
            let mut queue = self.state.lock_queue();
            if queue.is_shut_down {
                return false;
            }
            queue.flush_waiters.push(sender);
        }

        self.state.work_arrived.notify_one();
        done.await.unwrap_or(false)
    }

    /// Ends the worker and removes this process from the live replicas, if Redis is reachable.
    pub async fn shutdown(&self) {
        self.state.lock_queue().is_shut_down = true;
        self.state.work_arrived.notify_one();

        let worker = self.worker.lock().expect("never held across a panic").take();
        if let Some(worker) = worker {
            // A heartbeat in flight must not arrive after the sign-off.
            let _ = worker.await;
        }

        if self.is_redis_available() {
            // Only the heartbeat is backdated: Redis still needs the last call number, in case a call is in flight.
            let expired_us = self.now_us().saturating_sub(LIVENESS_TIMEOUT_US);
            let sign_off = self.background_connection.run(async |redis| {
                redis.zadd::<_, _, _, ()>(self.redis_keys().live_processes(), self.process_id(), expired_us).await
            });
            if let Err(error) = sign_off.await {
                tracing::warn!(%error, "replica could not sign off; it counts as live for a few more seconds");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use redis::aio::MultiplexedConnection;
    use tokio::time::timeout;

    use super::*;
    use crate::connection::connect_without_timeout;
    use crate::{Meter, MeterSettings};

    #[tokio::test]
    async fn a_process_is_not_live_after_shutdown() {
        let url = std::env::var("VINTEM_TEST_REDIS").unwrap_or_else(|_| "redis://127.0.0.1:6379".into());
        let prefix = format!("test:leave:{:016x}:", rand::random::<u64>());
        let redis_timeout = Duration::from_secs(5);
        let settings = MeterSettings {
            redis_urls: vec![&url],
            redis_certificates: None,
            prefix: &prefix,
            window: Duration::from_secs(60),
            redis_timeout,
            assumed_replicas: 1,
        };
        let meter = Meter::open(&settings).unwrap();

        let mut redis = connect_without_timeout(&Client::open(url.as_str()).unwrap()).await.unwrap();
        let processes = RedisKeys::new(&prefix).live_processes();
        let count_live = async |redis: &mut MultiplexedConnection| {
            let (seconds, micros): (u64, u64) = redis::cmd("TIME").query_async(redis).await.unwrap();
            let since = seconds * 1_000_000 + micros - LIVENESS_TIMEOUT_US + 1;
            redis.zcount::<_, _, _, u32>(&processes, since, "+inf").await.unwrap()
        };

        timeout(redis_timeout, async {
            while count_live(&mut redis).await == 0 {
                tokio::task::yield_now().await;
            }
        })
        .await
        .expect("its first sign of life");

        meter.shutdown().await;
        assert_eq!(count_live(&mut redis).await, 0);

        for name in redis.keys::<_, Vec<String>>(format!("{prefix}*")).await.unwrap() {
            redis.del::<_, ()>(name).await.unwrap();
        }
    }
}
