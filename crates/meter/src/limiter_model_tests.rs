//! Tests of the Redis limiter and the local limiter against a plain reference model.

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
const RUN_ID: &str = "run";

/// A Redis connection with keys that no other test uses. Tests delete their keys at the end.
struct TestRedis {
    connection: MultiplexedConnection,
    redis_keys: RedisKeys,
    prefix: String,
}

impl TestRedis {
    async fn open() -> Self {
        let url = std::env::var("VINTEM_TEST_REDIS").unwrap_or_else(|_| "redis://127.0.0.1:6379".into());
        // No timeout: a call may have to wait while many other tests run.
        let mut connection = connect_without_timeout(&redis::Client::open(url).unwrap()).await.unwrap();
        ADMIT_SCRIPT.load_async(&mut connection).await.unwrap();

        let prefix = format!("test:model:{:016x}:", rand::random::<u64>());
        Self { connection, redis_keys: RedisKeys::new(&prefix), prefix }
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
        let reply = self.connection.send_packed_command(&call.encode(RUN_ID)).await.unwrap();
        call.decode_reply(reply).unwrap()
    }

    /// Leaves Redis as after a restart without its data.
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
        let chunk = self.open_chunk().await;
        redis::cmd("HGETALL").arg(chunk).query_async(&mut self.connection).await.unwrap()
    }

    /// The key of the open batch's only chunk.
    async fn open_chunk(&mut self) -> String {
        let batch: String =
            redis::cmd("GET").arg(self.redis_keys.open_batch()).query_async(&mut self.connection).await.unwrap();
        self.redis_keys.chunk(&format!("{batch}:0"))
    }
}

/// The promised behavior in its plainest form: a list of all admissions that is scanned each time.
#[derive(Default)]
struct ReferenceLimiter {
    admitted_at: Vec<u64>,
}

impl ReferenceLimiter {
    fn check(&mut self, limit: u32, consume: bool, now_us: u64) -> LimitStatus {
        let limit = limit as usize;
        let last = self.admitted_at.last().copied().unwrap_or(0);
        let mut at_us = now_us;
        if last > now_us + WINDOW_US {
            self.admitted_at.clear();
        } else {
            at_us = at_us.max(last);
        }
        self.admitted_at.retain(|admitted| admitted + WINDOW_US > at_us);

        let count = self.admitted_at.len();
        let admitted = count < limit;
        if admitted && consume {
            self.admitted_at.push(at_us);
        }

        LimitStatus {
            admitted,
            remaining: limit.saturating_sub(self.admitted_at.len()) as u32,
            wait_us: if admitted { 0 } else { self.admitted_at[count - limit] + WINDOW_US - at_us },
            reset_at_us: self.admitted_at.last().map_or(at_us, |last| last + WINDOW_US),
        }
    }
}

fn address_log_id(number: u32) -> AdmissionLogId {
    AdmissionLogId::Address(AddressBucket::V4(Ipv4Addr::from(number)))
}

#[tokio::test]
async fn a_key_that_was_overwritten_starts_over_and_stops_nobody() {
    let mut redis = TestRedis::open().await;
    let check = |id| LimitCheck {
        log_id: AdmissionLogId::Key(id),
        limit: 2,
        consumes: true,
        counted_usage: Some((id, RouteGroup::Market)),
    };
    redis.admit(1, NOON_US, &[], &[check(1), check(2)]).await;

    let mut bad_log = String::new();
    redis.redis_keys.write_log_key(AdmissionLogId::Key(1), &mut bad_log);
    let overwritten =
        [bad_log, redis.open_chunk().await, redis.redis_keys.live_processes(), redis.redis_keys.last_call_numbers()];
    for key in &overwritten {
        redis::cmd("SET").arg(key).arg("something else").exec_async(&mut redis.connection).await.unwrap();
    }

    let reply = redis.admit(2, NOON_US + 1, &[], &[check(1), check(2), check(2)]).await;
    let statuses: Vec<_> = reply.statuses.iter().map(|status| (status.admitted, status.remaining)).collect();
    assert_eq!(statuses, [(true, 1), (true, 0), (false, 0)]);
    redis.delete_test_keys().await;
}

/// 10,000 callers with 200 steps each. 100 callers share a clock and a call; each has its own changing limit.
#[tokio::test]
async fn redis_and_local_limiters_match_the_reference_limiter() {
    const CALLERS: usize = 100;
    let seed = rand::random::<u64>();
    println!("seed: {seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let mut server = TestRedis::open().await;
    let mut decisions = 0u64;
    let mut refusals = 0u64;

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
                // Steps add up to exact windows, so that both sides of every window end are tested.
                _ => now_us += random.random_range(0..6) * 250_000,
            }

            let mut checks: Vec<(usize, LimitCheck)> = Vec::new();
            for (caller, limit) in limits.iter().enumerate() {
                if random.random_ratio(3, 4) {
                    let consumes = random.random_ratio(4, 5);
                    checks.push((
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
            checks.sort_by_key(|(_, check)| (check.limit, check.consumes));
            let call_checks: Vec<LimitCheck> = checks.iter().map(|(_, check)| *check).collect();
            let reply = server.admit(round * 1000 + step, now_us, &[], &call_checks).await;

            assert_eq!((reply.now_us, reply.statuses.len()), (now_us, checks.len()));
            for ((caller, check), status) in checks.into_iter().zip(reply.statuses) {
                let (model, log) = &mut models[caller];
                let expected = model.check(check.limit, check.consumes, now_us);
                assert_eq!(status, expected, "Redis, seed {seed}, round {round}, step {step}, {check:?}");
                let local_status = log.check(check.limit, check.consumes, WINDOW_US, now_us);
                assert_eq!(local_status, expected, "process, seed {seed}, round {round}, step {step}, {check:?}");
                decisions += 1;
                refusals += u64::from(!expected.admitted);
            }
        }
        server.delete_test_keys().await;
    }
    println!("decisions: {decisions}, refusals: {refusals}");
    assert!(refusals > decisions / 20 && refusals < decisions / 2, "both kinds were met");
}

/// Redis drops a log only when none of its admissions lies within the window. The expiry that a call leaves behind
/// shows this: before each call the test sets a long one, which stays unless the call renews it.
#[tokio::test]
async fn redis_keeps_a_log_while_an_admission_is_in_the_window() {
    const SENTINEL_TTL_MS: u64 = 1_000_000_000;
    const MIN_TTL_MS: u64 = WINDOW_US / 1000;
    let mut server = TestRedis::open().await;
    let mut now_us = NOON_US;
    let mut renewals = 0;
    let mut others = 0;

    for caller in 0..40 {
        let log_id = address_log_id(caller);
        let mut key = String::new();
        server.redis_keys.write_log_key(log_id, &mut key);
        let mut expires_at_us = 0;
        let pace_us = rand::random_range(1..2 * WINDOW_US);

        for step in 1..=50 {
            now_us += rand::random_range(0..pace_us);
            let consumes = rand::random_ratio(2, 3);
            let check = LimitCheck { log_id, limit: 1000, consumes, counted_usage: None };
            redis::cmd("PEXPIRE").arg(&key).arg(SENTINEL_TTL_MS).exec_async(&mut server.connection).await.unwrap();
            let status = server.admit(u64::from(caller) * 1000 + step, now_us, &[], &[check]).await.statuses[0];
            let ttl_ms: i64 = redis::cmd("PTTL").arg(&key).query_async(&mut server.connection).await.unwrap();

            let Ok(ttl_ms) = u64::try_from(ttl_ms) else {
                assert_eq!(status.remaining, 1000, "only an empty log is gone");
                continue;
            };
            // A call takes milliseconds, a window six seconds.
            if ttl_ms < SENTINEL_TTL_MS / 2 {
                assert!(ttl_ms > MIN_TTL_MS);
                expires_at_us = now_us + ttl_ms.next_multiple_of(MIN_TTL_MS) * 1000;
                renewals += 1;
            } else {
                others += 1;
            }
            assert!(expires_at_us >= status.reset_at_us, "caller {caller}, step {step}, pace {pace_us}");
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

/// Counts of calls that may have arrived are sent again. They count once, whether or not the call arrived, and in
/// whatever order the calls arrive.
#[tokio::test]
async fn counts_are_applied_once_when_calls_are_resent_or_late() {
    let mut server = TestRedis::open().await;
    let day = NOON_US / DAY_US;
    let request_field = |key_id: i64| format!("{key_id}:market:r:{day}");

    server.admit(1, NOON_US, &[], &[key_limit_check(1)]).await;
    // The second call arrived but its reply was lost: the third call sends its counts again.
    server
        .admit(
            2,
            NOON_US + 1,
            &[single_call_count(2, 7, UsageClass::Outcome(RequestOutcome::Successful))],
            &[key_limit_check(2)],
        )
        .await;
    let resent = [
        single_call_count(2, 2, UsageClass::Request),
        single_call_count(2, 7, UsageClass::Outcome(RequestOutcome::Successful)),
    ];
    server.admit(3, NOON_US + 2, &resent, &[]).await;

    // The fourth call is late: the fifth, which carries its counts too, arrives before it.
    server.admit(5, NOON_US + 3, &[single_call_count(4, 4, UsageClass::Request)], &[key_limit_check(5)]).await;
    let late = server.admit(4, NOON_US + 4, &[], &[]).await;
    assert_eq!(late.statuses, []);
    server.admit(5, NOON_US + 5, &[single_call_count(4, 4, UsageClass::Request)], &[]).await;

    let success_field = format!("7:market:s:{day}");
    let expected = HashMap::from([
        (request_field(1), 1),
        (request_field(2), 1),
        (success_field, 1),
        (request_field(4), 1),
        (request_field(5), 1),
    ]);
    assert_eq!(server.fetch_usage_counts().await, expected);
    server.delete_test_keys().await;
}

/// Each request counts in exactly one day: the day that Redis' clock showed when it was decided.
#[tokio::test]
async fn a_request_at_midnight_is_counted_in_one_day() {
    let mut server = TestRedis::open().await;
    let midnight_us = (NOON_US / DAY_US + 1) * DAY_US;
    for (number, now_us) in (1..).zip(midnight_us - 50..midnight_us + 50) {
        server.admit(number, now_us, &[], &[key_limit_check(1), key_limit_check(1)]).await;
    }

    let counts: HashMap<String, u64> = server.fetch_usage_counts().await;
    let field = |day: u64| format!("1:market:r:{day}");
    assert_eq!(counts, HashMap::from([(field(NOON_US / DAY_US), 100), (field(NOON_US / DAY_US + 1), 100)]));
    server.delete_test_keys().await;
}
