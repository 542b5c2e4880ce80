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
use vintem_domain::usage::{Outcome, RouteGroup};

use crate::call::{ADMIT, Answer, Ask, Call, Class, CountGroup, DAY_US, Field, FieldCounts};
use crate::circuit::{Circuit, RemoteClock, Replicas};
use crate::keys::KeyNames;
use crate::link::{Link, connect};
use crate::local::LocalUsage;
use crate::registrations::LocalCaps;
use crate::sliding_log::{LocalLogs, Standing};
use crate::{MeterError, Result};

/// What all shards of a process have in common.
#[derive(Debug)]
pub struct Common {
    pub window_us: u64,
    /// What a call may take before its asks are decided here.
    pub budget: Duration,
    pub replicas: Replicas,
    pub usage: LocalUsage,
    pub caps: LocalCaps,
}

/// The decision on an ask, and when it fell.
#[derive(Debug, Clone, Copy)]
pub struct Decision {
    pub standing: Standing,
    pub now_us: u64,
}

pub struct Shard {
    pub names: KeyNames,
    /// For what is not an admission.
    pub aside: Link,
    /// Tells the calls and batches of this process from those of all others.
    pub process: String,
    pub clock: RemoteClock,
    common: Arc<Common>,
    logs: LocalLogs,
    queue: Mutex<Queue>,
    came: Notify,
    outcomes: Mutex<FieldCounts>,
    worker: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct Queue {
    circuit: Circuit,
    has_left: bool,
    asks: Vec<(Ask, oneshot::Sender<Decision>)>,
    flushes: Vec<oneshot::Sender<bool>>,
}

/// A sign of life this often; while Redis is away it is the probe that finds it again.
const BEAT: Duration = Duration::from_millis(250);
/// Outcomes are sent with every second beat: those of one caller meanwhile become one count.
const BEATS_BETWEEN_OUTCOMES: u32 = 2;
/// What a probe and the first connection may take: nobody waits for them.
const PROBE_BUDGET: Duration = Duration::from_millis(500);
/// When the time is up, an answer may be here and not read yet, if it was this process that stood still.
const LAST_LOOK: Duration = Duration::from_millis(1);
/// Who gave no sign of life for so long is not counted among the replicas (`admit.lua`).
const NOT_LIVE_US: u64 = 3_000_001;
/// One call carries no more, so that Redis is never busy for long with one.
const MOST_ASKS: usize = 512;
const MOST_OUTCOMES: usize = 2048;

impl Shard {
    /// Starts its worker; must be called within a Tokio runtime.
    pub fn start(client: Client, names: KeyNames, common: Arc<Common>) -> Arc<Self> {
        let shard = Arc::new(Self {
            names,
            aside: Link::new(client.clone()),
            process: format!("{:016x}", rand::random::<u64>()),
            clock: RemoteClock::default(),
            logs: LocalLogs::new(common.window_us),
            common,
            queue: Mutex::default(),
            came: Notify::new(),
            outcomes: Mutex::default(),
            worker: Mutex::default(),
        });
        let worker = Worker {
            shard: shard.clone(),
            client,
            connection: None,
            was_connected: false,
            number: 0,
            doubtful: Vec::new(),
        };
        let worker = tokio::spawn(worker.run());
        *shard.worker.lock().expect("never held across a panic") = Some(worker);
        shard
    }

    /// Whether Redis decides, or this process alone.
    pub fn is_shared(&self) -> bool {
        !self.queue().circuit.is_open()
    }

    pub async fn decide(&self, ask: Ask) -> Decision {
        let answer = {
            let mut queue = self.queue();
            if queue.circuit.is_open() || queue.has_left {
                drop(queue);
                return self.decide_here(&ask);
            }
            let (send, answer) = oneshot::channel();
            queue.asks.push((ask, send));
            answer
        };
        self.came.notify_one();
        match answer.await {
            Ok(decision) => decision,
            // The worker is gone.
            Err(_) => self.decide_here(&ask),
        }
    }

    pub fn note_outcome(&self, key_id: KeyId, group: RouteGroup, admitted_at_us: u64, outcome: Outcome) {
        let field = Field { key_id, group, class: Class::Outcome(outcome), day: admitted_at_us / DAY_US };
        let mut outcomes = self.outcomes.lock().expect("never held across a panic");
        *outcomes.entry(field).or_default() += 1;
    }

    /// Returns once all outcomes noted before are counted: true in Redis, false here.
    pub async fn flush(&self) -> bool {
        let (send, done) = oneshot::channel();
        {
            let mut queue = self.queue();
            if queue.has_left {
                return false;
            }
            queue.flushes.push(send);
        }
        self.came.notify_one();
        done.await.unwrap_or(false)
    }

    /// Ends the worker and counts as gone, as far as Redis can be told.
    pub async fn leave(&self) {
        self.queue().has_left = true;
        self.came.notify_one();
        let worker = self.worker.lock().expect("never held across a panic").take();
        if let Some(worker) = worker {
            // A sign of life that is under way must not come after the last word.
            let _ = worker.await;
        }
        if self.is_shared() {
            // Its calls are remembered on, in case one is still under way.
            let last_sign_us = self.clock.now_us().saturating_sub(NOT_LIVE_US);
            let gone = self.aside.ask(async |redis| {
                redis.zadd::<_, _, _, ()>(self.names.processes(), &self.process, last_sign_us).await
            });
            if let Err(error) = gone.await {
                tracing::warn!(%error, "this replica counts as live for some seconds more");
            }
        }
    }

    fn decide_here(&self, ask: &Ask) -> Decision {
        let decision = self.judge_here(ask);
        if let Some(field) = counted_field(ask, decision.now_us) {
            self.common.usage.add(field, 1);
        }
        decision
    }

    fn judge_here(&self, ask: &Ask) -> Decision {
        let now_us = self.clock.now_us();
        let limit = self.common.replicas.share_of(ask.limit);
        Decision { standing: self.logs.ask(ask.log, limit, ask.takes, now_us), now_us }
    }

    /// The counts of those outcomes that wait, as many as one call takes.
    fn take_outcomes(&self) -> FieldCounts {
        let mut outcomes = self.outcomes.lock().expect("never held across a panic");
        if outcomes.len() <= MOST_OUTCOMES {
            return std::mem::take(&mut outcomes);
        }
        let fields: Vec<Field> = outcomes.keys().take(MOST_OUTCOMES).copied().collect();
        fields.into_iter().filter_map(|field| outcomes.remove_entry(&field)).collect()
    }

    fn queue(&self) -> std::sync::MutexGuard<'_, Queue> {
        self.queue.lock().expect("never held across a panic")
    }
}

fn counted_field(ask: &Ask, now_us: u64) -> Option<Field> {
    let (key_id, group) = ask.counted?;
    Some(Field { key_id, group, class: Class::Request, day: now_us / DAY_US })
}

/// Why a call brought no answer, and whether it may have done its work all the same.
struct Failure {
    error: MeterError,
    may_have_arrived: bool,
}

struct Worker {
    shard: Arc<Shard>,
    client: Client,
    connection: Option<MultiplexedConnection>,
    was_connected: bool,
    /// Of the last call that was made.
    number: u64,
    /// What calls carried of which nobody knows whether they arrived.
    doubtful: Vec<CountGroup>,
}

impl Worker {
    /// As long as anybody holds the shard.
    async fn run(mut self) {
        let mut beats = interval(BEAT);
        beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut beat_count = 0u32;
        loop {
            let is_beat = tokio::select! {
                _ = beats.tick() => true,
                () = self.shard.came.notified() => false,
            };
            // The last handle is gone, but for this one.
            if Arc::strong_count(&self.shard) == 1 {
                return;
            }
            if self.shard.queue().has_left {
                self.count_here();
                return;
            }
            beat_count = beat_count.wrapping_add(u32::from(is_beat));
            if self.shard.is_shared() {
                self.make_calls(is_beat, is_beat && beat_count.is_multiple_of(BEATS_BETWEEN_OUTCOMES)).await;
            } else {
                self.count_here();
                if is_beat {
                    // A probe: if it arrives, the circuit is closed again.
                    if let Err(Failure { error, .. }) = self.call(&[], FieldCounts::default(), true, PROBE_BUDGET).await
                    {
                        tracing::debug!(%error, "Redis is still away");
                    }
                }
            }
        }
    }

    /// Until nothing waits any more.
    async fn make_calls(&mut self, mut is_beat: bool, mut with_outcomes: bool) {
        loop {
            let (asks, flushes) = {
                let mut queue = self.shard.queue();
                let most = queue.asks.len().min(MOST_ASKS);
                let asks: Vec<_> = queue.asks.drain(..most).collect();
                (asks, std::mem::take(&mut queue.flushes))
            };
            let outcomes =
                if with_outcomes || !flushes.is_empty() { self.shard.take_outcomes() } else { FieldCounts::default() };
            if asks.is_empty() && flushes.is_empty() && outcomes.is_empty() && !is_beat {
                return;
            }
            // More of them wait if this is all that a call takes.
            with_outcomes = outcomes.len() == MOST_OUTCOMES;
            let arrived = self.decide_together(asks, outcomes, is_beat).await;
            is_beat = false;
            if with_outcomes && arrived && !flushes.is_empty() {
                self.shard.queue().flushes.extend(flushes);
            } else {
                answer_flushes(flushes, arrived);
            }
            if !self.shard.is_shared() {
                self.count_here();
                return;
            }
        }
    }

    /// One call. True if it arrived; if not, its asks are decided here.
    async fn decide_together(
        &mut self,
        mut asks: Vec<(Ask, oneshot::Sender<Decision>)>,
        outcomes: FieldCounts,
        is_beat: bool,
    ) -> bool {
        // Alike beside each other; the sort is stable, so callers keep their turn.
        asks.sort_by_key(|(ask, _)| (ask.limit, ask.takes));
        let (asks, answers): (Vec<Ask>, Vec<_>) = asks.into_iter().unzip();
        let budget = if self.was_connected { self.shard.common.budget } else { PROBE_BUDGET };
        match self.call(&asks, outcomes.clone(), is_beat, budget).await {
            Ok(answer) => {
                for (send, standing) in answers.into_iter().zip(answer.standings) {
                    // Who hung up needs no answer.
                    let _ = send.send(Decision { standing, now_us: answer.now_us });
                }
                true
            }
            Err(Failure { error, may_have_arrived }) => {
                let mut counts = outcomes;
                for (ask, send) in asks.iter().zip(answers) {
                    let decision = self.shard.judge_here(ask);
                    if let Some(field) = counted_field(ask, decision.now_us) {
                        *counts.entry(field).or_default() += 1;
                    }
                    let _ = send.send(decision);
                }
                if may_have_arrived {
                    self.doubtful.push(CountGroup { number: self.number, counts });
                } else {
                    self.shard.common.usage.add_all(counts);
                }
                if self.shard.queue().circuit.note_failure() {
                    tracing::warn!(%error, "Redis is away: this process limits and counts by itself");
                }
                // Those that came meanwhile have waited too: no ask is to wait for a second call that may fail.
                self.decide_waiting_here();
                false
            }
        }
    }

    fn decide_waiting_here(&self) {
        let asks = std::mem::take(&mut self.shard.queue().asks);
        for (ask, send) in asks {
            let _ = send.send(self.shard.decide_here(&ask));
        }
    }

    /// What has come while Redis is away.
    fn count_here(&self) {
        self.decide_waiting_here();
        let flushes = std::mem::take(&mut self.shard.queue().flushes);
        let outcomes = std::mem::take(&mut *self.shard.outcomes.lock().expect("never held across a panic"));
        self.shard.common.usage.add_all(outcomes);
        answer_flushes(flushes, false);
    }

    async fn call(
        &mut self,
        asks: &[Ask],
        counts: FieldCounts,
        is_beat: bool,
        budget: Duration,
    ) -> std::result::Result<Answer, Failure> {
        self.number += 1;
        let shard = self.shard.clone();
        let mut groups = self.doubtful.clone();
        if !counts.is_empty() {
            groups.push(CountGroup { number: self.number, counts });
        }
        let call = Call {
            names: &shard.names,
            window_us: shard.common.window_us,
            now_us: 0,
            process: &shard.process,
            number: self.number,
            is_beat,
            groups: &groups,
            asks,
        };
        let answered = {
            let mut sending = std::pin::pin!(self.send(&call));
            match timeout(budget, &mut sending).await {
                Ok(answered) => answered,
                Err(_) => timeout(LAST_LOOK, sending).await.unwrap_or(Err(MeterError::Slow(budget))),
            }
        };
        let answer = match answered.and_then(|value| call.decode(value)) {
            Ok(answer) => answer,
            Err(error) => {
                // What is still under way on the connection must not come between. Without one nothing was sent.
                let may_have_arrived = self.connection.take().is_some();
                return Err(Failure { error, may_have_arrived });
            }
        };
        self.doubtful.clear();
        self.was_connected = true;
        shard.clock.note(answer.now_us);
        if is_beat {
            shard.common.replicas.note(answer.live);
        }
        if shard.queue().circuit.note_success() {
            shard.logs.forget();
            tracing::info!("Redis is back: limits and counts are shared again");
        }
        Ok(answer)
    }

    async fn send(&mut self, call: &Call<'_>) -> Result<Value> {
        let connection = match &mut self.connection {
            Some(connection) => connection,
            none => none.insert(connect(&self.client).await?),
        };
        let command = call.encode();
        match send(connection, &command).await {
            Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                ADMIT.load_async(connection).await?;
                Ok(send(connection, &command).await?)
            }
            answer => Ok(answer?),
        }
    }
}

async fn send(connection: &mut MultiplexedConnection, command: &Cmd) -> RedisResult<Value> {
    match connection.send_packed_command(command).await? {
        Value::ServerError(error) => Err(error.into()),
        answer => Ok(answer),
    }
}

fn answer_flushes(flushes: Vec<oneshot::Sender<bool>>, arrived: bool) {
    for flush in flushes {
        let _ = flush.send(arrived);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Meter, MeterSettings};

    #[tokio::test]
    async fn who_leaves_counts_as_live_no_longer() {
        let url = std::env::var("VINTEM_TEST_REDIS").unwrap_or_else(|_| "redis://127.0.0.1:6379".into());
        let prefix = format!("test:leave:{:016x}:", rand::random::<u64>());
        let budget = Duration::from_secs(5);
        let settings = MeterSettings {
            redis_urls: vec![&url],
            prefix: &prefix,
            window: Duration::from_secs(60),
            budget,
            assumed_replicas: 1,
        };
        let meter = Meter::open(&settings).unwrap();
        let mut redis = connect(&Client::open(url.as_str()).unwrap()).await.unwrap();
        let processes = KeyNames::new(&prefix).processes();
        let live = async |redis: &mut MultiplexedConnection| {
            let (seconds, micros): (u64, u64) = redis::cmd("TIME").query_async(redis).await.unwrap();
            let since = seconds * 1_000_000 + micros - NOT_LIVE_US + 1;
            redis.zcount::<_, _, _, u32>(&processes, since, "+inf").await.unwrap()
        };
        timeout(budget, async {
            while live(&mut redis).await == 0 {
                tokio::task::yield_now().await;
            }
        })
        .await
        .expect("its first sign of life");
        meter.leave().await;
        assert_eq!(live(&mut redis).await, 0);
        for name in redis.keys::<_, Vec<String>>(format!("{prefix}*")).await.unwrap() {
            redis.del::<_, ()>(name).await.unwrap();
        }
    }
}
