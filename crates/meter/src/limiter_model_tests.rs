//! The limiter in Redis and the one in the process, each held to a plain model of what is promised.

use std::collections::HashMap;
use std::net::Ipv4Addr;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use redis::aio::MultiplexedConnection;
use vintem_domain::AddressBucket;
use vintem_domain::usage::{RequestOutcome, RouteGroup};

use crate::admit_call::{
    ADMIT_SCRIPT, AdmitCall, AdmitReply, CallCounts, DAY_US, LimitCheck, UsageClass, UsageField, UsageFieldCounts,
};
use crate::connection::connect_without_timeout;
use crate::redis_keys::{AdmissionLogId, RedisKeys};
use crate::sliding_log::{LimitStatus, SlidingLog};

const WINDOW_US: u64 = 6_000_000;
const NOON_US: u64 = 1_794_744_000_000_000;

/// A Redis, and names in it that no other test has; they are gone when the test is.
struct TestRedis {
    connection: MultiplexedConnection,
    redis_keys: RedisKeys,
    prefix: String,
}

impl TestRedis {
    async fn open() -> Self {
        let url = std::env::var("VINTEM_TEST_REDIS").unwrap_or_else(|_| "redis://127.0.0.1:6379".into());
        // Without a limit of time: beside many other tests a call may wait for its turn.
        let mut redis = connect_without_timeout(&redis::Client::open(url).unwrap()).await.unwrap();
        ADMIT_SCRIPT.load_async(&mut redis).await.unwrap();
        let prefix = format!("test:model:{:016x}:", rand::random::<u64>());
        Self { connection: redis, redis_keys: RedisKeys::new(&prefix), prefix }
    }

    async fn admit(
        &mut self,
        call_number: u64,
        now_us: u64,
        call_counts: &[CallCounts],
        checks: &[LimitCheck],
    ) -> AdmitReply {
        let call = AdmitCall {
            redis_keys: &self.redis_keys,
            window_us: WINDOW_US,
            now_us,
            process_id: "process",
            call_number,
            is_heartbeat: false,
            call_counts,
            checks,
        };
        let answer = self.connection.send_packed_command(&call.encode()).await.unwrap();
        call.decode_reply(answer).unwrap()
    }

    /// What a restart without its data leaves: nothing.
    async fn delete_test_keys(&mut self) {
        let mut cursor = 0u64;
        loop {
            let (next, keys): (u64, Vec<String>) = redis::cmd("SCAN")
                .arg(cursor)
                .arg("MATCH")
                .arg(format!("{}*", self.prefix))
                .arg("COUNT")
                .arg(1000)
                .query_async(&mut self.connection)
                .await
                .unwrap();
            if !keys.is_empty() {
                redis::cmd("DEL").arg(keys).exec_async(&mut self.connection).await.unwrap();
            }
            cursor = next;
            if cursor == 0 {
                return;
            }
        }
    }

    async fn fetch_usage_counts(&mut self) -> HashMap<String, u64> {
        let id: String =
            redis::cmd("GET").arg(self.redis_keys.current_batch()).query_async(&mut self.connection).await.unwrap();
        redis::cmd("HGETALL").arg(self.redis_keys.batch(&id)).query_async(&mut self.connection).await.unwrap()
    }
}

/// What is promised, told plainly: a list of all admissions, looked through each time.
#[derive(Default)]
struct ReferenceLimiter {
    admitted_at: Vec<u64>,
}

impl ReferenceLimiter {
    fn check(&mut self, limit: u32, consume: bool, now_us: u64) -> LimitStatus {
        let limit = limit as usize;
        let last = self.admitted_at.last().copied().unwrap_or(0);
        let mut at = now_us;
        if last > now_us + WINDOW_US {
            self.admitted_at.clear();
        } else {
            at = at.max(last);
        }
        self.admitted_at.retain(|admitted| admitted + WINDOW_US > at);
        let held = self.admitted_at.len();
        let admitted = held < limit;
        if admitted && consume {
            self.admitted_at.push(at);
        }
        LimitStatus {
            admitted,
            remaining: limit.saturating_sub(self.admitted_at.len()) as u32,
            wait_us: if admitted { 0 } else { self.admitted_at[held - limit] + WINDOW_US - at },
            reset_at_us: self.admitted_at.last().map_or(at, |last| last + WINDOW_US),
        }
    }
}

fn address_log_id(number: u32) -> AdmissionLogId {
    AdmissionLogId::Address(AddressBucket::V4(Ipv4Addr::from(number)))
}

/// 10,000 callers, 200 steps each: 100 callers share the clock and a call, each has a limit of its own that changes.
#[tokio::test]
async fn redis_and_local_limiters_match_the_reference_limiter() {
    const CALLERS: usize = 100;
    let seed = rand::random::<u64>();
    println!("seed: {seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let mut server = TestRedis::open().await;
    let (mut decisions, mut refusals) = (0u64, 0u64);
    for round in 0..100 {
        let mut models: Vec<(ReferenceLimiter, SlidingLog)> = (0..CALLERS).map(|_| Default::default()).collect();
        let mut limits: Vec<u32> = (0..CALLERS).map(|_| random.random_range(1..9)).collect();
        let mut now_us = NOON_US;
        for step in 1..=200u64 {
            match random.random_range(0..40) {
                0 => limits.iter_mut().for_each(|limit| *limit = random.random_range(1..9)),
                1 => now_us -= random.random_range(0..8) * 250_000,
                2 => now_us -= random.random_range(1..7200) * 1_000_000,
                3 => now_us += WINDOW_US,
                4 => now_us += random.random_range(1..7200) * 1_000_000,
                5 => {
                    server.delete_test_keys().await;
                    models.iter_mut().for_each(|models| *models = Default::default());
                }
                6..14 => {}
                // In steps that add up to windows exactly, so that both sides of every end are met.
                _ => now_us += random.random_range(0..6) * 250_000,
            }
            let mut asks: Vec<(usize, LimitCheck)> = Vec::new();
            for (caller, limit) in limits.iter().enumerate() {
                if random.random_ratio(3, 4) {
                    let consumes = random.random_ratio(4, 5);
                    asks.push((
                        caller,
                        LimitCheck {
                            log_id: address_log_id(caller as u32),
                            limit: *limit,
                            consumes,
                            counted_usage: None,
                        },
                    ));
                }
            }
            asks.sort_by_key(|(_, ask)| (ask.limit, ask.consumes));
            let calls: Vec<LimitCheck> = asks.iter().map(|(_, ask)| *ask).collect();
            let answer = server.admit(round * 1000 + step, now_us, &[], &calls).await;
            assert_eq!((answer.now_us, answer.statuses.len()), (now_us, asks.len()));
            for ((caller, ask), standing) in asks.into_iter().zip(answer.statuses) {
                let (model, log) = &mut models[caller];
                let expected = model.check(ask.limit, ask.consumes, now_us);
                assert_eq!(standing, expected, "Redis, seed {seed}, round {round}, step {step}, {ask:?}");
                let here = log.check(ask.limit, ask.consumes, WINDOW_US, now_us);
                assert_eq!(here, expected, "process, seed {seed}, round {round}, step {step}, {ask:?}");
                decisions += 1;
                refusals += u64::from(!expected.admitted);
            }
        }
        server.delete_test_keys().await;
    }
    println!("decisions: {decisions}, refusals: {refusals}");
    assert!(refusals > decisions / 20 && refusals < decisions / 2, "both kinds were met");
}

/// Redis forgets a log only when none of its admissions lies within the window. What it does with its own clock is seen
/// from the life that a call leaves a log with: a long one, given before each call, stays unless the call renews it.
#[tokio::test]
async fn redis_keeps_a_log_while_an_admission_is_in_the_window() {
    const LONG_TTL_MS: u64 = 1_000_000_000;
    const MIN_TTL_MS: u64 = WINDOW_US / 1000;
    let mut server = TestRedis::open().await;
    let (mut now_us, mut renewals, mut others) = (NOON_US, 0, 0);
    for caller in 0..40 {
        let (log, mut key, mut forgotten_at_us) = (address_log_id(caller), String::new(), 0);
        server.redis_keys.write_log_key(log, &mut key);
        let pace_us = rand::random_range(1..2 * WINDOW_US);
        for step in 1..=50 {
            now_us += rand::random_range(0..pace_us);
            let consumes = rand::random_ratio(2, 3);
            let ask = LimitCheck { log_id: log, limit: 1000, consumes, counted_usage: None };
            redis::cmd("PEXPIRE").arg(&key).arg(LONG_TTL_MS).exec_async(&mut server.connection).await.unwrap();
            let standing = server.admit(u64::from(caller) * 1000 + step, now_us, &[], &[ask]).await.statuses[0];
            let left_ms: i64 = redis::cmd("PTTL").arg(&key).query_async(&mut server.connection).await.unwrap();
            let Ok(left_ms) = u64::try_from(left_ms) else {
                assert_eq!(standing.remaining, 1000, "only an empty log is gone");
                continue;
            };
            // A call takes milliseconds, a window six seconds.
            if left_ms < LONG_TTL_MS / 2 {
                assert!(left_ms > MIN_TTL_MS);
                forgotten_at_us = now_us + left_ms.next_multiple_of(MIN_TTL_MS) * 1000;
                renewals += 1;
            } else {
                others += 1;
            }
            assert!(forgotten_at_us >= standing.reset_at_us, "caller {caller}, step {step}, pace {pace_us}");
        }
    }
    assert!(renewals > 200 && others > 200, "both were met: {renewals} and {others}");
    server.delete_test_keys().await;
}

fn key_limit_check(key_id: i64) -> LimitCheck {
    LimitCheck {
        log_id: AdmissionLogId::Key(key_id),
        limit: 1000,
        consumes: true,
        counted_usage: Some((key_id, RouteGroup::Market)),
    }
}

fn single_call_count(number: u64, key_id: i64, class: UsageClass) -> CallCounts {
    let field = UsageField { key_id, group: RouteGroup::Market, class, day: NOON_US / DAY_US };
    CallCounts { call_number: number, counts: UsageFieldCounts::from_iter([(field, 1)]) }
}

/// Of calls that may have arrived, what they brought is sent again: it counts if they did not arrive, and does not if
/// they did, in whatever order they come.
#[tokio::test]
async fn counts_are_applied_once_when_calls_are_resent_or_late() {
    let mut server = TestRedis::open().await;
    let day = NOON_US / DAY_US;
    let of = |key_id: i64| format!("{key_id}:market:r:{day}");
    server.admit(1, NOON_US, &[], &[key_limit_check(1)]).await;
    // The second arrived, its answer was lost: the third brings it again.
    server
        .admit(
            2,
            NOON_US + 1,
            &[single_call_count(2, 7, UsageClass::Outcome(RequestOutcome::Successful))],
            &[key_limit_check(2)],
        )
        .await;
    let again = [
        single_call_count(2, 2, UsageClass::Request),
        single_call_count(2, 7, UsageClass::Outcome(RequestOutcome::Successful)),
    ];
    server.admit(3, NOON_US + 2, &again, &[]).await;
    // The fourth is late: the fifth, which brings it too, comes before.
    server.admit(5, NOON_US + 3, &[single_call_count(4, 4, UsageClass::Request)], &[key_limit_check(5)]).await;
    let late = server.admit(4, NOON_US + 4, &[], &[]).await;
    assert_eq!(late.statuses, []);
    server.admit(5, NOON_US + 5, &[single_call_count(4, 4, UsageClass::Request)], &[]).await;
    let success = format!("7:market:s:{day}");
    let expected = HashMap::from([(of(1), 1), (of(2), 1), (success, 1), (of(4), 1), (of(5), 1)]);
    assert_eq!(server.fetch_usage_counts().await, expected);
    server.delete_test_keys().await;
}

/// Each request lies in exactly one day: that of Redis' clock when it was decided.
#[tokio::test]
async fn a_request_at_midnight_is_counted_in_one_day() {
    let mut server = TestRedis::open().await;
    let midnight_us = (NOON_US / DAY_US + 1) * DAY_US;
    for (number, now_us) in (1..).zip(midnight_us - 50..midnight_us + 50) {
        server.admit(number, now_us, &[], &[key_limit_check(1), key_limit_check(1)]).await;
    }
    let days: HashMap<String, u64> = server.fetch_usage_counts().await;
    let of = |day: u64| format!("1:market:r:{day}");
    assert_eq!(days, HashMap::from([(of(NOON_US / DAY_US), 100), (of(NOON_US / DAY_US + 1), 100)]));
    server.delete_test_keys().await;
}
