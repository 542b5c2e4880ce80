//! The limiter in Redis and the one in the process, each held to a plain model of what is promised.

use std::collections::HashMap;
use std::net::Ipv4Addr;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use redis::aio::MultiplexedConnection;
use vintem_domain::AddressBucket;
use vintem_domain::usage::{Outcome, RouteGroup};

use crate::call::{ADMIT, Answer, Ask, Call, Class, CountGroup, DAY_US, Field, FieldCounts};
use crate::keys::{KeyNames, Log};
use crate::link::connect;
use crate::sliding_log::{SlidingLog, Standing};

const WINDOW_US: u64 = 6_000_000;
const NOON_US: u64 = 1_794_744_000_000_000;

/// A Redis, and names in it that no other test has; they are gone when the test is.
struct Server {
    redis: MultiplexedConnection,
    names: KeyNames,
    prefix: String,
}

impl Server {
    async fn open() -> Self {
        let url = std::env::var("VINTEM_TEST_REDIS").unwrap_or_else(|_| "redis://127.0.0.1:6379".into());
        // Without a limit of time: beside many other tests a call may wait for its turn.
        let mut redis = connect(&redis::Client::open(url).unwrap()).await.unwrap();
        ADMIT.load_async(&mut redis).await.unwrap();
        let prefix = format!("test:model:{:016x}:", rand::random::<u64>());
        Self { redis, names: KeyNames::new(&prefix), prefix }
    }

    async fn call(&mut self, number: u64, now_us: u64, groups: &[CountGroup], asks: &[Ask]) -> Answer {
        let call = Call {
            names: &self.names,
            window_us: WINDOW_US,
            now_us,
            process: "process",
            number,
            is_beat: false,
            groups,
            asks,
        };
        let answer = self.redis.send_packed_command(&call.encode()).await.unwrap();
        call.decode(answer).unwrap()
    }

    /// What a restart without its data leaves: nothing.
    async fn forget_all(&mut self) {
        let mut cursor = 0u64;
        loop {
            let (next, keys): (u64, Vec<String>) = redis::cmd("SCAN")
                .arg(cursor)
                .arg("MATCH")
                .arg(format!("{}*", self.prefix))
                .arg("COUNT")
                .arg(1000)
                .query_async(&mut self.redis)
                .await
                .unwrap();
            if !keys.is_empty() {
                redis::cmd("DEL").arg(keys).exec_async(&mut self.redis).await.unwrap();
            }
            cursor = next;
            if cursor == 0 {
                return;
            }
        }
    }

    async fn counts(&mut self) -> HashMap<String, u64> {
        let id: String = redis::cmd("GET").arg(self.names.current_batch()).query_async(&mut self.redis).await.unwrap();
        redis::cmd("HGETALL").arg(self.names.batch(&id)).query_async(&mut self.redis).await.unwrap()
    }
}

/// What is promised, told plainly: a list of all admissions, looked through each time.
#[derive(Default)]
struct Model {
    admitted_at: Vec<u64>,
}

impl Model {
    fn ask(&mut self, limit: u32, takes: bool, now_us: u64) -> Standing {
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
        if admitted && takes {
            self.admitted_at.push(at);
        }
        Standing {
            admitted,
            remaining: limit.saturating_sub(self.admitted_at.len()) as u32,
            wait_us: if admitted { 0 } else { self.admitted_at[held - limit] + WINDOW_US - at },
            reset_at_us: self.admitted_at.last().map_or(at, |last| last + WINDOW_US),
        }
    }
}

fn address(number: u32) -> Log {
    Log::Address(AddressBucket::V4(Ipv4Addr::from(number)))
}

/// 10,000 callers, 200 steps each: 100 callers share the clock and a call, each has a limit of its own that changes.
#[tokio::test]
async fn both_limiters_agree_with_a_model_whatever_clock_limits_and_redis_do() {
    const CALLERS: usize = 100;
    let seed = rand::random::<u64>();
    println!("seed: {seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let mut server = Server::open().await;
    let (mut decisions, mut refusals) = (0u64, 0u64);
    for round in 0..100 {
        let mut models: Vec<(Model, SlidingLog)> = (0..CALLERS).map(|_| Default::default()).collect();
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
                    server.forget_all().await;
                    models.iter_mut().for_each(|models| *models = Default::default());
                }
                6..14 => {}
                // In steps that add up to windows exactly, so that both sides of every end are met.
                _ => now_us += random.random_range(0..6) * 250_000,
            }
            let mut asks: Vec<(usize, Ask)> = Vec::new();
            for (caller, limit) in limits.iter().enumerate() {
                if random.random_ratio(3, 4) {
                    let takes = random.random_ratio(4, 5);
                    asks.push((caller, Ask { log: address(caller as u32), limit: *limit, takes, counted: None }));
                }
            }
            asks.sort_by_key(|(_, ask)| (ask.limit, ask.takes));
            let calls: Vec<Ask> = asks.iter().map(|(_, ask)| *ask).collect();
            let answer = server.call(round * 1000 + step, now_us, &[], &calls).await;
            assert_eq!((answer.now_us, answer.standings.len()), (now_us, asks.len()));
            for ((caller, ask), standing) in asks.into_iter().zip(answer.standings) {
                let (model, log) = &mut models[caller];
                let expected = model.ask(ask.limit, ask.takes, now_us);
                assert_eq!(standing, expected, "Redis, seed {seed}, round {round}, step {step}, {ask:?}");
                let here = log.ask(ask.limit, ask.takes, WINDOW_US, now_us);
                assert_eq!(here, expected, "process, seed {seed}, round {round}, step {step}, {ask:?}");
                decisions += 1;
                refusals += u64::from(!expected.admitted);
            }
        }
        server.forget_all().await;
    }
    println!("decisions: {decisions}, refusals: {refusals}");
    assert!(refusals > decisions / 20 && refusals < decisions / 2, "both kinds were met");
}

/// Redis forgets a log only when none of its admissions lies within the window. What it does with its own clock is seen
/// from the life that a call leaves a log with: a long one, given before each call, stays unless the call renews it.
#[tokio::test]
async fn a_log_is_kept_as_long_as_one_of_its_admissions_counts() {
    const LONG_MS: u64 = 1_000_000_000;
    const SHORTEST_MS: u64 = WINDOW_US / 1000;
    let mut server = Server::open().await;
    let (mut now_us, mut renewals, mut others) = (NOON_US, 0, 0);
    for caller in 0..40 {
        let (log, mut key, mut forgotten_at_us) = (address(caller), String::new(), 0);
        server.names.write_log(log, &mut key);
        let pace_us = rand::random_range(1..2 * WINDOW_US);
        for step in 1..=50 {
            now_us += rand::random_range(0..pace_us);
            let takes = rand::random_ratio(2, 3);
            let ask = Ask { log, limit: 1000, takes, counted: None };
            redis::cmd("PEXPIRE").arg(&key).arg(LONG_MS).exec_async(&mut server.redis).await.unwrap();
            let standing = server.call(u64::from(caller) * 1000 + step, now_us, &[], &[ask]).await.standings[0];
            let left_ms: i64 = redis::cmd("PTTL").arg(&key).query_async(&mut server.redis).await.unwrap();
            let Ok(left_ms) = u64::try_from(left_ms) else {
                assert_eq!(standing.remaining, 1000, "only an empty log is gone");
                continue;
            };
            // A call takes milliseconds, a window six seconds.
            if left_ms < LONG_MS / 2 {
                assert!(left_ms > SHORTEST_MS);
                forgotten_at_us = now_us + left_ms.next_multiple_of(SHORTEST_MS) * 1000;
                renewals += 1;
            } else {
                others += 1;
            }
            assert!(forgotten_at_us >= standing.reset_at_us, "caller {caller}, step {step}, pace {pace_us}");
        }
    }
    assert!(renewals > 200 && others > 200, "both were met: {renewals} and {others}");
    server.forget_all().await;
}

fn request(key_id: i64) -> Ask {
    Ask { log: Log::Key(key_id), limit: 1000, takes: true, counted: Some((key_id, RouteGroup::Market)) }
}

fn one(number: u64, key_id: i64, class: Class) -> CountGroup {
    let field = Field { key_id, group: RouteGroup::Market, class, day: NOON_US / DAY_US };
    CountGroup { number, counts: FieldCounts::from_iter([(field, 1)]) }
}

/// Of calls that may have arrived, what they brought is sent again: it counts if they did not arrive, and does not if
/// they did, in whatever order they come.
#[tokio::test]
async fn what_a_call_carries_counts_once_however_often_and_late_it_arrives() {
    let mut server = Server::open().await;
    let day = NOON_US / DAY_US;
    let of = |key_id: i64| format!("{key_id}:market:r:{day}");
    server.call(1, NOON_US, &[], &[request(1)]).await;
    // The second arrived, its answer was lost: the third brings it again.
    server.call(2, NOON_US + 1, &[one(2, 7, Class::Outcome(Outcome::Successful))], &[request(2)]).await;
    let again = [one(2, 2, Class::Request), one(2, 7, Class::Outcome(Outcome::Successful))];
    server.call(3, NOON_US + 2, &again, &[]).await;
    // The fourth is late: the fifth, which brings it too, comes before.
    server.call(5, NOON_US + 3, &[one(4, 4, Class::Request)], &[request(5)]).await;
    let late = server.call(4, NOON_US + 4, &[], &[]).await;
    assert_eq!(late.standings, []);
    server.call(5, NOON_US + 5, &[one(4, 4, Class::Request)], &[]).await;
    let success = format!("7:market:s:{day}");
    let expected = HashMap::from([(of(1), 1), (of(2), 1), (success, 1), (of(4), 1), (of(5), 1)]);
    assert_eq!(server.counts().await, expected);
    server.forget_all().await;
}

/// Each request lies in exactly one day: that of Redis' clock when it was decided.
#[tokio::test]
async fn a_request_at_midnight_lies_in_one_day() {
    let mut server = Server::open().await;
    let midnight_us = (NOON_US / DAY_US + 1) * DAY_US;
    for (number, now_us) in (1..).zip(midnight_us - 50..midnight_us + 50) {
        server.call(number, now_us, &[], &[request(1), request(1)]).await;
    }
    let days: HashMap<String, u64> = server.counts().await;
    let of = |day: u64| format!("1:market:r:{day}");
    assert_eq!(days, HashMap::from([(of(NOON_US / DAY_US), 100), (of(NOON_US / DAY_US + 1), 100)]));
    server.forget_all().await;
}
