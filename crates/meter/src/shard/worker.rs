//! The worker of a shard, which makes its calls to Redis, one at a time.

use std::sync::Arc;
use std::time::{Duration, Instant};

use metrics::{Counter, Histogram};
use redis::aio::MultiplexedConnection;
use redis::{Client, Cmd, ErrorKind, RedisResult, ServerErrorKind, Value};
use tokio::sync::oneshot;
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::state::{LimitDecision, QueuedCheck, ShardState, usage_field};
use crate::admit_call::{ADMIT_SCRIPT, AdmitCall, AdmitReply, CallCounts, LimitCheck, UsageFieldCounts};
use crate::connection::{connect_without_timeout, fetch_run_id};
use crate::error::{MeterError, Result};

/// Interval of the heartbeat. While Redis is unavailable, the heartbeat is the probe that finds it again.
const HEARTBEAT_INTERVAL: Duration = Duration::from_millis(250);
/// Outcomes go with every second heartbeat, so that several outcomes of one caller become one count.
const HEARTBEATS_PER_OUTCOME_SEND: u32 = 2;
/// Time limit for a probe, which no request waits for, and for the first connection.
const PROBE_TIMEOUT: Duration = Duration::from_millis(500);
/// After a timeout the reply may have arrived without being read, if it was this process that stalled.
const FINAL_POLL_TIMEOUT: Duration = Duration::from_millis(1);
/// Limits the size of a call, so that no call keeps Redis busy for long.
const MAX_CHECKS_PER_CALL: usize = 512;
const MAX_OUTCOMES_PER_CALL: usize = 2048;

pub struct ShardWorker {
    state: Arc<ShardState>,
    client: Client,
    connection: Option<RunConnection>,
    was_connected: bool,
    /// Number of the last call made.
    last_call_number: u64,
    /// Counts of failed calls that may or may not have arrived.
    unconfirmed_counts: Vec<CallCounts>,
    last_confirmed_count: ConfirmedCount,
    metrics: CallMetrics,
}

/// How the calls to one server go.
pub struct CallMetrics {
    seconds: Histogram,
    failures: Counter,
}

impl CallMetrics {
    /// `server` is its position in the settings.
    pub fn new(server: usize) -> Self {
        let server = server.to_string();
        Self {
            seconds: metrics::histogram!("vintem_redis_call_seconds", "server" => server.clone()),
            failures: metrics::counter!("vintem_redis_call_failures_total", "server" => server),
        }
    }
}

/// A connection to one run of a server.
struct RunConnection {
    connection: MultiplexedConnection,
    run_id: String,
}

/// The last call with counts that Redis confirmed. A server that does not know it any more has lost its last writes.
#[derive(Debug, Clone, Copy, Default)]
struct ConfirmedCount {
    call_number: u64,
    at_us: u64,
}

/// Why a call got no reply, and whether it may have been executed anyway.
struct CallFailure {
    error: MeterError,
    may_have_arrived: bool,
}

impl ShardWorker {
    pub fn new(state: Arc<ShardState>, client: Client, metrics: CallMetrics) -> Self {
        Self {
            state,
            client,
            connection: None,
            was_connected: false,
            last_call_number: 0,
            unconfirmed_counts: Vec::new(),
            last_confirmed_count: ConfirmedCount::default(),
            metrics,
        }
    }

    /// Runs until the shard is shut down or dropped.
    pub async fn run(mut self) {
        let mut heartbeats = interval(HEARTBEAT_INTERVAL);
        heartbeats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut heartbeat_count = 0u32;

        loop {
            let is_heartbeat = tokio::select! {
                _ = heartbeats.tick() => true,
                () = self.state.work_arrived.notified() => false,
            };

            // Only this worker still holds the state.
            if Arc::strong_count(&self.state) == 1 {
                return;
            }
            if self.state.lock_queue().is_shut_down {
                self.process_queue_locally();
                return;
            }

            heartbeat_count = heartbeat_count.wrapping_add(u32::from(is_heartbeat));
            if self.state.is_redis_available() {
                let with_outcomes = is_heartbeat && heartbeat_count.is_multiple_of(HEARTBEATS_PER_OUTCOME_SEND);
                self.process_queue(is_heartbeat, with_outcomes).await;
            } else {
                self.process_queue_locally();
                if is_heartbeat {
                    // A probe: its success closes the circuit again.
                    if let Err(CallFailure { error, .. }) =
                        self.call_redis(&[], UsageFieldCounts::default(), true, PROBE_TIMEOUT).await
                    {
                        tracing::debug!(%error, "redis still unreachable");
                    }
                }
            }
        }
    }

    /// Makes calls until nothing waits in the queue.
    async fn process_queue(&mut self, mut is_heartbeat: bool, mut with_outcomes: bool) {
        loop {
            let (checks, flush_waiters) = {
                let mut queue = self.state.lock_queue();
                let max_checks = queue.checks.len().min(MAX_CHECKS_PER_CALL);
                let checks: Vec<_> = queue.checks.drain(..max_checks).collect();
                (checks, std::mem::take(&mut queue.flush_waiters))
            };
            let outcomes = if with_outcomes || !flush_waiters.is_empty() {
                self.state.take_pending_outcomes(MAX_OUTCOMES_PER_CALL)
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
                self.state.lock_queue().flush_waiters.extend(flush_waiters);
            } else {
                notify_flush_waiters(flush_waiters, arrived);
            }
            if !self.state.is_redis_available() {
                self.process_queue_locally();
                return;
            }
        }
    }

    /// Makes one call and returns whether it arrived. If it did not, this process decides its checks.
    async fn check_batch(
        &mut self,
        mut queued: Vec<QueuedCheck>,
        outcomes: UsageFieldCounts,
        is_heartbeat: bool,
    ) -> bool {
        // Equal limits must be adjacent. The sort is stable, so callers keep their order.
        queued.sort_by_key(|(check, _)| (check.limit, check.consumes));
        let (checks, senders): (Vec<LimitCheck>, Vec<_>) = queued.into_iter().unzip();
        let redis_timeout = self.state.process.redis_timeout;
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
                    let decision = self.state.check_locally(check);
                    if let Some(field) = usage_field(check, decision.now_us) {
                        *counts.entry(field).or_default() += 1;
                    }
                    let _ = sender.send(decision);
                }

                if may_have_arrived {
                    self.unconfirmed_counts.push(CallCounts { call_number: self.last_call_number, counts });
                } else {
                    self.state.process.local_usage.add_all(counts);
                }

                if self.state.lock_queue().circuit.record_failure() {
                    tracing::warn!(%error, "redis unreachable; limiting and counting locally");
                }

                // Checks that arrived during the call have waited too, and must not wait for a second call that may
                // fail.
                self.check_queued_locally();
                false
            }
        }
    }

    fn check_queued_locally(&self) {
        let checks = std::mem::take(&mut self.state.lock_queue().checks);
        for (check, sender) in checks {
            let _ = sender.send(self.state.check_and_count_locally(&check));
        }
    }

    /// Decides and counts everything in the queue without Redis.
    fn process_queue_locally(&self) {
        self.check_queued_locally();
        let flush_waiters = std::mem::take(&mut self.state.lock_queue().flush_waiters);
        let outcomes = self.state.take_pending_outcomes(usize::MAX);
        self.state.process.local_usage.add_all(outcomes);
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
        let state = self.state.clone();
        let mut call_counts = self.unconfirmed_counts.clone();
        if !counts.is_empty() {
            call_counts.push(CallCounts { call_number: self.last_call_number, counts });
        }
        let call = AdmitCall {
            redis_keys: &state.redis_keys,
            window_us: state.process.window_us,
            now_us: 0,
            process_id: &state.process_id,
            call_number: self.last_call_number,
            is_heartbeat,
            call_counts: &call_counts,
            checks,
        };

        let started = Instant::now();
        let result = {
            let mut sending = std::pin::pin!(self.send_call(&call));
            match timeout(call_timeout, &mut sending).await {
                Ok(result) => result,
                Err(_) => timeout(FINAL_POLL_TIMEOUT, sending).await.unwrap_or(Err(MeterError::Timeout(call_timeout))),
            }
        };
        self.metrics.seconds.record(started.elapsed().as_secs_f64());
        let reply = match result.and_then(|value| call.decode_reply(value)) {
            Ok(reply) => reply,
            Err(error) => {
                self.metrics.failures.increment(1);
                // Drop the connection, so that a late reply is not taken for the next one. Without a connection nothing
                // was sent.
                let may_have_arrived = self.connection.take().is_some();
                return Err(CallFailure { error, may_have_arrived });
            }
        };

        let previous = self.last_confirmed_count;
        if reply.previous_call_number < previous.call_number {
            let calls = previous.call_number - reply.previous_call_number;
            tracing::error!(calls, "redis lost its last writes; usage since then may be incomplete");
            state.record_lost_counts(calls, previous.at_us);
        }
        if call.counts_usage() {
            self.last_confirmed_count = ConfirmedCount { call_number: call.call_number, at_us: reply.now_us };
        } else {
            // A loss is reported once.
            self.last_confirmed_count.call_number = previous.call_number.min(reply.previous_call_number);
        }
        self.unconfirmed_counts.clear();
        self.was_connected = true;
        state.redis_clock.sync(reply.now_us);
        if is_heartbeat {
            state.process.replica_count.record(reply.live_processes);
        }
        if state.lock_queue().circuit.record_success() {
            state.local_limiter.clear();
            tracing::info!("redis is back; limits and usage are shared again");
        }

        Ok(reply)
    }

    async fn send_call(&mut self, call: &AdmitCall<'_>) -> Result<Value> {
        let RunConnection { connection, run_id } = match &mut self.connection {
            Some(connection) => connection,
            none => none.insert(connect_to_run(&self.client).await?),
        };

        let command = call.encode(run_id);
        match send_command(connection, &command).await {
            Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                ADMIT_SCRIPT.load_async(connection).await?;
                Ok(send_command(connection, &command).await?)
            }
            result => Ok(result?),
        }
    }
}

async fn connect_to_run(client: &Client) -> RedisResult<RunConnection> {
    let mut connection = connect_without_timeout(client).await?;
    let run_id = fetch_run_id(&mut connection).await?;
    Ok(RunConnection { connection, run_id })
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
