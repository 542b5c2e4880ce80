//! One Redis server, with the logs and counts of the callers that it serves.
//!
//! A worker makes one call at a time. The first check is sent at once; checks that arrive during a call go together
//! with the next one. When a call fails, this process decides its checks at once. Its counts are sent again with later
//! calls, under the failed call's number, until one of them arrives.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncCommands, Client, Cmd, ErrorKind, RedisResult, ServerErrorKind, Value};
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval, timeout};
use vintem_domain::KeyId;
use vintem_domain::usage::{RequestOutcome, RouteGroup};

use crate::admit_call::{
    ADMIT_SCRIPT, AdmitCall, AdmitReply, CallCounts, DAY_US, LimitCheck, UsageClass, UsageField, UsageFieldCounts,
};
use crate::circuit::{Circuit, RedisClock, ReplicaCount};
use crate::connection::{LazyConnection, connect_without_timeout};
use crate::daily_caps::LocalDailyCaps;
use crate::local_usage::LocalUsage;
use crate::redis_keys::RedisKeys;
use crate::sliding_log::{LimitStatus, LocalRateLimiter};
use crate::{MeterError, Result};

/// State shared by all shards of a process.
#[derive(Debug)]
pub struct SharedState {
    pub window_us: u64,
    /// How long a call may take before this process decides its checks.
    pub redis_timeout: Duration,
    pub replica_count: ReplicaCount,
    pub local_usage: LocalUsage,
    pub local_caps: LocalDailyCaps,
}

/// The decision on a check, and when it was made.
#[derive(Debug, Clone, Copy)]
pub struct LimitDecision {
    pub status: LimitStatus,
    pub now_us: u64,
}

pub struct RedisShard {
    pub redis_keys: RedisKeys,
    /// For everything other than admissions.
    pub background_connection: LazyConnection,
    /// Distinguishes the calls and batches of this process from those of all others.
    pub process_id: String,
    pub redis_clock: RedisClock,
    shared: Arc<SharedState>,
    local_limiter: LocalRateLimiter,
    queue: Mutex<ShardQueue>,
    work_arrived: Notify,
    pending_outcomes: Mutex<UsageFieldCounts>,
    worker: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct ShardQueue {
    circuit: Circuit,
    is_shut_down: bool,
    checks: Vec<(LimitCheck, oneshot::Sender<LimitDecision>)>,
    flush_waiters: Vec<oneshot::Sender<bool>>,
}

/// Interval of the heartbeat. While Redis is unavailable, the heartbeat is the probe that finds it again.
const HEARTBEAT_INTERVAL: Duration = Duration::from_millis(250);
/// Outcomes go with every second heartbeat, so that several outcomes of one caller become one count.
const HEARTBEATS_PER_OUTCOME_SEND: u32 = 2;
/// Time limit for a probe, which no request waits for, and for the first connection.
const PROBE_TIMEOUT: Duration = Duration::from_millis(500);
/// After a timeout the reply may have arrived without being read, if it was this process that stalled.
const FINAL_POLL_TIMEOUT: Duration = Duration::from_millis(1);
/// A process without a heartbeat for this long does not count as a replica (`admit.lua`).
const LIVENESS_TIMEOUT_US: u64 = 3_000_001;
/// Limits the size of a call, so that no call keeps Redis busy for long.
const MAX_CHECKS_PER_CALL: usize = 512;
const MAX_OUTCOMES_PER_CALL: usize = 2048;

impl RedisShard {
    /// Starts the shard's worker. Must be called within a Tokio runtime.
    pub fn start(client: Client, redis_keys: RedisKeys, shared: Arc<SharedState>) -> Arc<Self> {
        let shard = Arc::new(Self {
            redis_keys,
            background_connection: LazyConnection::new(client.clone()),
            process_id: format!("{:016x}", rand::random::<u64>()),
            redis_clock: RedisClock::default(),
            local_limiter: LocalRateLimiter::new(shared.window_us),
            shared,
            queue: Mutex::default(),
            work_arrived: Notify::new(),
            pending_outcomes: Mutex::default(),
            worker: Mutex::default(),
        });

        let worker = ShardWorker {
            shard: shard.clone(),
            client,
            connection: None,
            was_connected: false,
            last_call_number: 0,
            unconfirmed_counts: Vec::new(),
        };

        let worker_task = tokio::spawn(worker.run());
        *shard.worker.lock().expect("never held across a panic") = Some(worker_task);

        shard
    }

    /// True if Redis decides, false if this process decides alone.
    pub fn is_redis_available(&self) -> bool {
        !self.lock_queue().circuit.is_open()
    }

    pub async fn check_limit(&self, check: LimitCheck) -> LimitDecision {
        let response = {
            let mut queue = self.lock_queue();
            if queue.circuit.is_open() || queue.is_shut_down {
                drop(queue);
                return self.check_and_count_locally(&check);
            }
            let (sender, response) = oneshot::channel();
            queue.checks.push((check, sender));
            response
        };
        self.work_arrived.notify_one();

        match response.await {
            Ok(decision) => decision,
            // The worker has ended.
            Err(_) => self.check_and_count_locally(&check),
        }
    }

    pub fn record_outcome(&self, key_id: KeyId, group: RouteGroup, admitted_at_us: u64, outcome: RequestOutcome) {
        let field = UsageField { key_id, group, class: UsageClass::Outcome(outcome), day: admitted_at_us / DAY_US };
        let mut outcomes = self.pending_outcomes.lock().expect("never held across a panic");
        *outcomes.entry(field).or_default() += 1;
    }

    /// Returns once all outcomes recorded so far are counted: true if in Redis, false if in this process.
    pub async fn flush_outcomes(&self) -> bool {
        let (sender, done) = oneshot::channel();
        {
            let mut queue = self.lock_queue();
            if queue.is_shut_down {
                return false;
            }
            queue.flush_waiters.push(sender);
        }

        self.work_arrived.notify_one();
        done.await.unwrap_or(false)
    }

    /// Ends the worker and removes this process from the live replicas, if Redis is reachable.
    pub async fn shutdown(&self) {
        self.lock_queue().is_shut_down = true;
        self.work_arrived.notify_one();

        let worker = self.worker.lock().expect("never held across a panic").take();
        if let Some(worker) = worker {
            // A heartbeat in flight must not arrive after the sign-off.
            let _ = worker.await;
        }

        if self.is_redis_available() {
            // Only the heartbeat is backdated: Redis still needs the last call number, in case a call is in flight.
            let expired_us = self.redis_clock.now_us().saturating_sub(LIVENESS_TIMEOUT_US);
            let sign_off = self.background_connection.run(async |redis| {
                redis.zadd::<_, _, _, ()>(self.redis_keys.live_processes(), &self.process_id, expired_us).await
            });
            if let Err(error) = sign_off.await {
                tracing::warn!(%error, "this replica counts as live for some seconds more");
            }
        }
    }

    fn check_and_count_locally(&self, check: &LimitCheck) -> LimitDecision {
        let decision = self.check_locally(check);
        if let Some(field) = usage_field(check, decision.now_us) {
            self.shared.local_usage.add(field, 1);
        }
        decision
    }

    fn check_locally(&self, check: &LimitCheck) -> LimitDecision {
        let now_us = self.redis_clock.now_us();
        let limit = self.shared.replica_count.share_of(check.limit);
        LimitDecision { status: self.local_limiter.check(check.log_id, limit, check.consumes, now_us), now_us }
    }

    /// Takes the pending outcomes, up to as many as fit into one call.
    fn take_pending_outcomes(&self) -> UsageFieldCounts {
        let mut outcomes = self.pending_outcomes.lock().expect("never held across a panic");
        if outcomes.len() <= MAX_OUTCOMES_PER_CALL {
            return std::mem::take(&mut outcomes);
        }

        let fields: Vec<UsageField> = outcomes.keys().take(MAX_OUTCOMES_PER_CALL).copied().collect();
        fields.into_iter().filter_map(|field| outcomes.remove_entry(&field)).collect()
    }

    fn lock_queue(&self) -> std::sync::MutexGuard<'_, ShardQueue> {
        self.queue.lock().expect("never held across a panic")
    }
}

fn usage_field(check: &LimitCheck, now_us: u64) -> Option<UsageField> {
    let (key_id, group) = check.counted_usage?;
    Some(UsageField { key_id, group, class: UsageClass::Request, day: now_us / DAY_US })
}

/// Why a call got no reply, and whether it may have been executed anyway.
struct CallFailure {
    error: MeterError,
    may_have_arrived: bool,
}

struct ShardWorker {
    shard: Arc<RedisShard>,
    client: Client,
    connection: Option<MultiplexedConnection>,
    was_connected: bool,
    /// Number of the last call made.
    last_call_number: u64,
    /// Counts of failed calls that may or may not have arrived.
    unconfirmed_counts: Vec<CallCounts>,
}

impl ShardWorker {
    /// Runs until the shard is shut down or its last other handle is dropped.
    async fn run(mut self) {
        let mut heartbeats = interval(HEARTBEAT_INTERVAL);
        heartbeats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut heartbeat_count = 0u32;

        loop {
            let is_heartbeat = tokio::select! {
                _ = heartbeats.tick() => true,
                () = self.shard.work_arrived.notified() => false,
            };

            // This worker holds the only remaining handle.
            if Arc::strong_count(&self.shard) == 1 {
                return;
            }
            if self.shard.lock_queue().is_shut_down {
                self.process_queue_locally();
                return;
            }

            heartbeat_count = heartbeat_count.wrapping_add(u32::from(is_heartbeat));
            if self.shard.is_redis_available() {
                let with_outcomes = is_heartbeat && heartbeat_count.is_multiple_of(HEARTBEATS_PER_OUTCOME_SEND);
                self.process_queue(is_heartbeat, with_outcomes).await;
            } else {
                self.process_queue_locally();
                if is_heartbeat {
                    // A probe: its success closes the circuit again.
                    if let Err(CallFailure { error, .. }) =
                        self.call_redis(&[], UsageFieldCounts::default(), true, PROBE_TIMEOUT).await
                    {
                        tracing::debug!(%error, "Redis is still away");
                    }
                }
            }
        }
    }

    /// Makes calls until nothing waits in the queue.
    async fn process_queue(&mut self, mut is_heartbeat: bool, mut with_outcomes: bool) {
        loop {
            let (checks, flush_waiters) = {
                let mut queue = self.shard.lock_queue();
                let max_checks = queue.checks.len().min(MAX_CHECKS_PER_CALL);
                let checks: Vec<_> = queue.checks.drain(..max_checks).collect();
                (checks, std::mem::take(&mut queue.flush_waiters))
            };
            let outcomes = if with_outcomes || !flush_waiters.is_empty() {
                self.shard.take_pending_outcomes()
            } else {
                UsageFieldCounts::default()
            };
            if checks.is_empty() && flush_waiters.is_empty() && outcomes.is_empty() && !is_heartbeat {
                return;
            }

            // A full call means that more outcomes may wait.
            with_outcomes = outcomes.len() == MAX_OUTCOMES_PER_CALL;
            let arrived = self.check_batch(checks, outcomes, is_heartbeat).await;
            is_heartbeat = false;

            if with_outcomes && arrived && !flush_waiters.is_empty() {
                self.shard.lock_queue().flush_waiters.extend(flush_waiters);
            } else {
                notify_flush_waiters(flush_waiters, arrived);
            }
            if !self.shard.is_redis_available() {
                self.process_queue_locally();
                return;
            }
        }
    }

    /// Makes one call and returns whether it arrived. If it did not, this process decides its checks.
    async fn check_batch(
        &mut self,
        mut queued: Vec<(LimitCheck, oneshot::Sender<LimitDecision>)>,
        outcomes: UsageFieldCounts,
        is_heartbeat: bool,
    ) -> bool {
        // Equal limits must be adjacent. The sort is stable, so callers keep their order.
        queued.sort_by_key(|(check, _)| (check.limit, check.consumes));
        let (checks, senders): (Vec<LimitCheck>, Vec<_>) = queued.into_iter().unzip();
        let redis_timeout = self.shard.shared.redis_timeout;
        let call_timeout = if self.was_connected { redis_timeout } else { redis_timeout.max(PROBE_TIMEOUT) };

        match self.call_redis(&checks, outcomes.clone(), is_heartbeat, call_timeout).await {
            Ok(reply) => {
                for (sender, status) in senders.into_iter().zip(reply.statuses) {
                    // A caller that disconnected needs no response.
                    let _ = sender.send(LimitDecision { status, now_us: reply.now_us });
                }
                true
            }
            Err(CallFailure { error, may_have_arrived }) => {
                let mut counts = outcomes;
                for (check, sender) in checks.iter().zip(senders) {
                    let decision = self.shard.check_locally(check);
                    if let Some(field) = usage_field(check, decision.now_us) {
                        *counts.entry(field).or_default() += 1;
                    }
                    let _ = sender.send(decision);
                }

                if may_have_arrived {
                    self.unconfirmed_counts.push(CallCounts { call_number: self.last_call_number, counts });
                } else {
                    self.shard.shared.local_usage.add_all(counts);
                }

                if self.shard.lock_queue().circuit.record_failure() {
                    tracing::warn!(%error, "Redis is away: this process limits and counts by itself");
                }

                // Checks that arrived during the call have waited too, and must not wait for a second call that may
                // fail.
                self.check_queued_locally();
                false
            }
        }
    }

    fn check_queued_locally(&self) {
        let checks = std::mem::take(&mut self.shard.lock_queue().checks);
        for (check, sender) in checks {
            let _ = sender.send(self.shard.check_and_count_locally(&check));
        }
    }

    /// Decides and counts everything in the queue without Redis.
    fn process_queue_locally(&self) {
        self.check_queued_locally();
        let flush_waiters = std::mem::take(&mut self.shard.lock_queue().flush_waiters);
        let outcomes = std::mem::take(&mut *self.shard.pending_outcomes.lock().expect("never held across a panic"));
        self.shard.shared.local_usage.add_all(outcomes);
        notify_flush_waiters(flush_waiters, false);
    }

    async fn call_redis(
        &mut self,
        checks: &[LimitCheck],
        counts: UsageFieldCounts,
        is_heartbeat: bool,
        call_timeout: Duration,
    ) -> std::result::Result<AdmitReply, CallFailure> {
        self.last_call_number += 1;
        let shard = self.shard.clone();
        let mut call_counts = self.unconfirmed_counts.clone();
        if !counts.is_empty() {
            call_counts.push(CallCounts { call_number: self.last_call_number, counts });
        }
        let call = AdmitCall {
            redis_keys: &shard.redis_keys,
            window_us: shard.shared.window_us,
            now_us: 0,
            process_id: &shard.process_id,
            call_number: self.last_call_number,
            is_heartbeat,
            call_counts: &call_counts,
            checks,
        };

        let result = {
            let mut sending = std::pin::pin!(self.send_call(&call));
            match timeout(call_timeout, &mut sending).await {
                Ok(result) => result,
                Err(_) => timeout(FINAL_POLL_TIMEOUT, sending).await.unwrap_or(Err(MeterError::Timeout(call_timeout))),
            }
        };
        let reply = match result.and_then(|value| call.decode_reply(value)) {
            Ok(reply) => reply,
            Err(error) => {
                // Drop the connection, so that a late reply is not taken for the next one. Without a connection nothing
                // was sent.
                let may_have_arrived = self.connection.take().is_some();
                return Err(CallFailure { error, may_have_arrived });
            }
        };

        self.unconfirmed_counts.clear();
        self.was_connected = true;
        shard.redis_clock.sync(reply.now_us);
        if is_heartbeat {
            shard.shared.replica_count.record(reply.live_processes);
        }
        if shard.lock_queue().circuit.record_success() {
            shard.local_limiter.clear();
            tracing::info!("Redis is back: limits and counts are shared again");
        }

        Ok(reply)
    }

    async fn send_call(&mut self, call: &AdmitCall<'_>) -> Result<Value> {
        let connection = match &mut self.connection {
            Some(connection) => connection,
            none => none.insert(connect_without_timeout(&self.client).await?),
        };

        let command = call.encode();
        match send_command(connection, &command).await {
            Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                ADMIT_SCRIPT.load_async(connection).await?;
                Ok(send_command(connection, &command).await?)
            }
            result => Ok(result?),
        }
    }
}

async fn send_command(connection: &mut MultiplexedConnection, command: &Cmd) -> RedisResult<Value> {
    match connection.send_packed_command(command).await? {
        Value::ServerError(error) => Err(error.into()),
        reply => Ok(reply),
    }
}

fn notify_flush_waiters(flush_waiters: Vec<oneshot::Sender<bool>>, arrived: bool) {
    for waiter in flush_waiters {
        let _ = waiter.send(arrived);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Meter, MeterSettings};

    #[tokio::test]
    async fn a_process_is_not_live_after_shutdown() {
        let url = std::env::var("VINTEM_TEST_REDIS").unwrap_or_else(|_| "redis://127.0.0.1:6379".into());
        let prefix = format!("test:leave:{:016x}:", rand::random::<u64>());
        let redis_timeout = Duration::from_secs(5);
        let settings = MeterSettings {
            redis_urls: vec![&url],
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
