//! One Redis server and the callers whose logs and counts it holds.
//!
//! A worker makes one call at a time. The first ask waits for nobody; those that come while a call is under way go
//! together with the next. When calls fail, what they carried is decided here and now, and what they would have
//! counted is sent again with later calls, under the number of its own, until one of them arrives.

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

/// What all shards of a process have in common.
#[derive(Debug)]
pub struct SharedState {
    pub window_us: u64,
    /// What a call may take before its asks are decided here.
    pub redis_timeout: Duration,
    pub replica_count: ReplicaCount,
    pub local_usage: LocalUsage,
    pub local_caps: LocalDailyCaps,
}

/// The decision on an ask, and when it fell.
#[derive(Debug, Clone, Copy)]
pub struct LimitDecision {
    pub status: LimitStatus,
    pub now_us: u64,
}

pub struct RedisShard {
    pub redis_keys: RedisKeys,
    /// For what is not an admission.
    pub background_connection: LazyConnection,
    /// Tells the calls and batches of this process from those of all others.
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

/// A sign of life this often; while Redis is away it is the probe that finds it again.
const HEARTBEAT_INTERVAL: Duration = Duration::from_millis(250);
/// Outcomes are sent with every second beat: those of one caller meanwhile become one count.
const HEARTBEATS_PER_OUTCOME_SEND: u32 = 2;
/// What a probe and the first connection may take: nobody waits for them.
const PROBE_TIMEOUT: Duration = Duration::from_millis(500);
/// When the time is up, an answer may be here and not read yet, if it was this process that stood still.
const FINAL_POLL_TIMEOUT: Duration = Duration::from_millis(1);
/// Who gave no sign of life for so long is not counted among the replicas (`admit.lua`).
const LIVENESS_TIMEOUT_US: u64 = 3_000_001;
/// One call carries no more, so that Redis is never busy for long with one.
const MAX_CHECKS_PER_CALL: usize = 512;
const MAX_OUTCOMES_PER_CALL: usize = 2048;

impl RedisShard {
    /// Starts its worker; must be called within a Tokio runtime.
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
        let worker = tokio::spawn(worker.run());
        *shard.worker.lock().expect("never held across a panic") = Some(worker);
        shard
    }

    /// Whether Redis decides, or this process alone.
    pub fn is_redis_available(&self) -> bool {
        !self.lock_queue().circuit.is_open()
    }

    pub async fn check_limit(&self, check: LimitCheck) -> LimitDecision {
        let answer = {
            let mut queue = self.lock_queue();
            if queue.circuit.is_open() || queue.is_shut_down {
                drop(queue);
                return self.check_and_count_locally(&check);
            }
            let (send, answer) = oneshot::channel();
            queue.checks.push((check, send));
            answer
        };
        self.work_arrived.notify_one();
        match answer.await {
            Ok(decision) => decision,
            // The worker is gone.
            Err(_) => self.check_and_count_locally(&check),
        }
    }

    pub fn record_outcome(&self, key_id: KeyId, group: RouteGroup, admitted_at_us: u64, outcome: RequestOutcome) {
        let field = UsageField { key_id, group, class: UsageClass::Outcome(outcome), day: admitted_at_us / DAY_US };
        let mut outcomes = self.pending_outcomes.lock().expect("never held across a panic");
        *outcomes.entry(field).or_default() += 1;
    }

    /// Returns once all outcomes noted before are counted: true in Redis, false here.
    pub async fn flush_outcomes(&self) -> bool {
        let (send, done) = oneshot::channel();
        {
            let mut queue = self.lock_queue();
            if queue.is_shut_down {
                return false;
            }
            queue.flush_waiters.push(send);
        }
        self.work_arrived.notify_one();
        done.await.unwrap_or(false)
    }

    /// Ends the worker and counts as gone, as far as Redis can be told.
    pub async fn shutdown(&self) {
        self.lock_queue().is_shut_down = true;
        self.work_arrived.notify_one();
        let worker = self.worker.lock().expect("never held across a panic").take();
        if let Some(worker) = worker {
            // A sign of life that is under way must not come after the last word.
            let _ = worker.await;
        }
        if self.is_redis_available() {
            // Its calls are remembered on, in case one is still under way.
            let last_sign_us = self.redis_clock.now_us().saturating_sub(LIVENESS_TIMEOUT_US);
            let gone = self.background_connection.run(async |redis| {
                redis.zadd::<_, _, _, ()>(self.redis_keys.live_processes(), &self.process_id, last_sign_us).await
            });
            if let Err(error) = gone.await {
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

    /// The counts of those outcomes that wait, as many as one call takes.
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

/// Why a call brought no answer, and whether it may have done its work all the same.
struct CallFailure {
    error: MeterError,
    may_have_arrived: bool,
}

struct ShardWorker {
    shard: Arc<RedisShard>,
    client: Client,
    connection: Option<MultiplexedConnection>,
    was_connected: bool,
    /// Of the last call that was made.
    last_call_number: u64,
    /// What calls carried of which nobody knows whether they arrived.
    unconfirmed_counts: Vec<CallCounts>,
}

impl ShardWorker {
    /// As long as anybody holds the shard.
    async fn run(mut self) {
        let mut beats = interval(HEARTBEAT_INTERVAL);
        beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut beat_count = 0u32;
        loop {
            let is_beat = tokio::select! {
                _ = beats.tick() => true,
                () = self.shard.work_arrived.notified() => false,
            };
            // The last handle is gone, but for this one.
            if Arc::strong_count(&self.shard) == 1 {
                return;
            }
            if self.shard.lock_queue().is_shut_down {
                self.process_queue_locally();
                return;
            }
            beat_count = beat_count.wrapping_add(u32::from(is_beat));
            if self.shard.is_redis_available() {
                self.process_queue(is_beat, is_beat && beat_count.is_multiple_of(HEARTBEATS_PER_OUTCOME_SEND)).await;
            } else {
                self.process_queue_locally();
                if is_beat {
                    // A probe: if it arrives, the circuit is closed again.
                    if let Err(CallFailure { error, .. }) =
                        self.call_redis(&[], UsageFieldCounts::default(), true, PROBE_TIMEOUT).await
                    {
                        tracing::debug!(%error, "Redis is still away");
                    }
                }
            }
        }
    }

    /// Until nothing waits any more.
    async fn process_queue(&mut self, mut is_heartbeat: bool, mut with_outcomes: bool) {
        loop {
            let (asks, flushes) = {
                let mut queue = self.shard.lock_queue();
                let max_checks = queue.checks.len().min(MAX_CHECKS_PER_CALL);
                let asks: Vec<_> = queue.checks.drain(..max_checks).collect();
                (asks, std::mem::take(&mut queue.flush_waiters))
            };
            let outcomes = if with_outcomes || !flushes.is_empty() {
                self.shard.take_pending_outcomes()
            } else {
                UsageFieldCounts::default()
            };
            if asks.is_empty() && flushes.is_empty() && outcomes.is_empty() && !is_heartbeat {
                return;
            }
            // More of them wait if this is all that a call takes.
            with_outcomes = outcomes.len() == MAX_OUTCOMES_PER_CALL;
            let arrived = self.check_batch(asks, outcomes, is_heartbeat).await;
            is_heartbeat = false;
            if with_outcomes && arrived && !flushes.is_empty() {
                self.shard.lock_queue().flush_waiters.extend(flushes);
            } else {
                notify_flush_waiters(flushes, arrived);
            }
            if !self.shard.is_redis_available() {
                self.process_queue_locally();
                return;
            }
        }
    }

    /// One call. True if it arrived; if not, its asks are decided here.
    async fn check_batch(
        &mut self,
        mut checks: Vec<(LimitCheck, oneshot::Sender<LimitDecision>)>,
        outcomes: UsageFieldCounts,
        is_heartbeat: bool,
    ) -> bool {
        // Alike beside each other; the sort is stable, so callers keep their turn.
        checks.sort_by_key(|(ask, _)| (ask.limit, ask.consumes));
        let (asks, answers): (Vec<LimitCheck>, Vec<_>) = checks.into_iter().unzip();
        let redis_timeout = self.shard.shared.redis_timeout;
        let budget = if self.was_connected { redis_timeout } else { redis_timeout.max(PROBE_TIMEOUT) };
        match self.call_redis(&asks, outcomes.clone(), is_heartbeat, budget).await {
            Ok(answer) => {
                for (send, standing) in answers.into_iter().zip(answer.statuses) {
                    // Who hung up needs no answer.
                    let _ = send.send(LimitDecision { status: standing, now_us: answer.now_us });
                }
                true
            }
            Err(CallFailure { error, may_have_arrived }) => {
                let mut counts = outcomes;
                for (ask, send) in asks.iter().zip(answers) {
                    let decision = self.shard.check_locally(ask);
                    if let Some(field) = usage_field(ask, decision.now_us) {
                        *counts.entry(field).or_default() += 1;
                    }
                    let _ = send.send(decision);
                }
                if may_have_arrived {
                    self.unconfirmed_counts.push(CallCounts { call_number: self.last_call_number, counts });
                } else {
                    self.shard.shared.local_usage.add_all(counts);
                }
                if self.shard.lock_queue().circuit.record_failure() {
                    tracing::warn!(%error, "Redis is away: this process limits and counts by itself");
                }
                // Those that came meanwhile have waited too: no ask is to wait for a second call that may fail.
                self.check_queued_locally();
                false
            }
        }
    }

    fn check_queued_locally(&self) {
        let asks = std::mem::take(&mut self.shard.lock_queue().checks);
        for (ask, send) in asks {
            let _ = send.send(self.shard.check_and_count_locally(&ask));
        }
    }

    /// What has come while Redis is away.
    fn process_queue_locally(&self) {
        self.check_queued_locally();
        let flushes = std::mem::take(&mut self.shard.lock_queue().flush_waiters);
        let outcomes = std::mem::take(&mut *self.shard.pending_outcomes.lock().expect("never held across a panic"));
        self.shard.shared.local_usage.add_all(outcomes);
        notify_flush_waiters(flushes, false);
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
        let mut groups = self.unconfirmed_counts.clone();
        if !counts.is_empty() {
            groups.push(CallCounts { call_number: self.last_call_number, counts });
        }
        let call = AdmitCall {
            redis_keys: &shard.redis_keys,
            window_us: shard.shared.window_us,
            now_us: 0,
            process_id: &shard.process_id,
            call_number: self.last_call_number,
            is_heartbeat,
            call_counts: &groups,
            checks,
        };
        let answered = {
            let mut sending = std::pin::pin!(self.send_call(&call));
            match timeout(call_timeout, &mut sending).await {
                Ok(answered) => answered,
                Err(_) => timeout(FINAL_POLL_TIMEOUT, sending).await.unwrap_or(Err(MeterError::Timeout(call_timeout))),
            }
        };
        let answer = match answered.and_then(|value| call.decode_reply(value)) {
            Ok(answer) => answer,
            Err(error) => {
                // What is still under way on the connection must not come between. Without one nothing was sent.
                let may_have_arrived = self.connection.take().is_some();
                return Err(CallFailure { error, may_have_arrived });
            }
        };
        self.unconfirmed_counts.clear();
        self.was_connected = true;
        shard.redis_clock.sync(answer.now_us);
        if is_heartbeat {
            shard.shared.replica_count.record(answer.live_processes);
        }
        if shard.lock_queue().circuit.record_success() {
            shard.local_limiter.clear();
            tracing::info!("Redis is back: limits and counts are shared again");
        }
        Ok(answer)
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
            answer => Ok(answer?),
        }
    }
}

async fn send_command(connection: &mut MultiplexedConnection, command: &Cmd) -> RedisResult<Value> {
    match connection.send_packed_command(command).await? {
        Value::ServerError(error) => Err(error.into()),
        answer => Ok(answer),
    }
}

fn notify_flush_waiters(flush_waiters: Vec<oneshot::Sender<bool>>, arrived: bool) {
    for flush in flush_waiters {
        let _ = flush.send(arrived);
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
        let live = async |redis: &mut MultiplexedConnection| {
            let (seconds, micros): (u64, u64) = redis::cmd("TIME").query_async(redis).await.unwrap();
            let since = seconds * 1_000_000 + micros - LIVENESS_TIMEOUT_US + 1;
            redis.zcount::<_, _, _, u32>(&processes, since, "+inf").await.unwrap()
        };
        timeout(redis_timeout, async {
            while live(&mut redis).await == 0 {
                tokio::task::yield_now().await;
            }
        })
        .await
        .expect("its first sign of life");
        meter.shutdown().await;
        assert_eq!(live(&mut redis).await, 0);
        for name in redis.keys::<_, Vec<String>>(format!("{prefix}*")).await.unwrap() {
            redis.del::<_, ()>(name).await.unwrap();
        }
    }
}
