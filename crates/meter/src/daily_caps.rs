//! How often something may happen within a day: caps that are taken together or not at all.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex};
use std::time::Duration;

use redis::Script;

use crate::admission::duration_micros;
use crate::admit_call::SLIDING_LOG_LUA;
use crate::shard::RedisShard;
use crate::sliding_log::SlidingLog;
use crate::{Meter, Result};

static CAPS_SCRIPT: LazyLock<Script> =
    LazyLock::new(|| Script::new(&[SLIDING_LOG_LUA, include_str!("caps.lua")].concat()));

const DAY: Duration = Duration::from_secs(24 * 3600);

/// A cap on how often something may happen within a day.
#[derive(Debug, Clone)]
pub struct DailyCap {
    /// What is capped, e.g. an address or the fingerprint of an e-mail.
    pub subject: String,
    pub limit: u32,
}

/// What was taken while Redis was away, until it is back.
#[derive(Debug, Default)]
pub struct LocalDailyCaps(Mutex<HashMap<String, SlidingLog>>);

impl Meter {
    /// Takes one of each cap, or none of any: `Err(wait)` says in how many microseconds all would pass.
    pub async fn try_take_daily_caps(&self, caps: &[DailyCap]) -> std::result::Result<(), u64> {
        let server = self.caps_shard();
        if server.is_redis_available() {
            match self.take_caps_in_redis(server, caps).await {
                Ok(taken) => return taken,
                Err(error) => tracing::warn!(%error, "registrations are capped by this process alone"),
            }
        }
        self.take_caps_locally(server, caps)
    }

    async fn take_caps_in_redis(&self, shard: &RedisShard, caps: &[DailyCap]) -> Result<std::result::Result<(), u64>> {
        let mut call = CAPS_SCRIPT.prepare_invoke();
        for cap in caps {
            call.key(shard.redis_keys.registration_log(&cap.subject));
        }
        call.arg(duration_micros(DAY));
        for cap in caps {
            call.arg(cap.limit);
        }
        let wait_us: u64 = shard.background_connection.run(async |redis| call.invoke_async(redis).await).await?;
        self.shared.local_caps.0.lock().expect("never held across a panic").clear();
        Ok(if wait_us == 0 { Ok(()) } else { Err(wait_us) })
    }

    fn take_caps_locally(&self, shard: &RedisShard, caps: &[DailyCap]) -> std::result::Result<(), u64> {
        let mut logs = self.shared.local_caps.0.lock().expect("never held across a panic");
        let now_us = shard.redis_clock.now_us();
        let mut ask = |cap: &DailyCap, takes| {
            let limit = self.shared.replica_count.share_of(cap.limit);
            logs.entry(cap.subject.clone()).or_default().check(limit, takes, duration_micros(DAY), now_us)
        };
        let wait_us = caps.iter().map(|cap| ask(cap, false).wait_us).max().unwrap_or(0);
        if wait_us > 0 {
            return Err(wait_us);
        }
        for cap in caps {
            ask(cap, true);
        }
        Ok(())
    }

    /// Gives back what was taken for something that then did not happen.
    pub async fn refund_daily_caps(&self, caps: &[DailyCap]) {
        let server = self.caps_shard();
        if server.is_redis_available() {
            let mut pipe = redis::pipe();
            for cap in caps {
                pipe.cmd("RPOP").arg(server.redis_keys.registration_log(&cap.subject)).ignore();
            }
            if let Err(error) = server.background_connection.run(async |redis| pipe.exec_async(redis).await).await {
                tracing::warn!(%error, "a registration that failed counts against its caps");
            }
        } else {
            let mut logs = self.shared.local_caps.0.lock().expect("never held across a panic");
            for cap in caps {
                if let Some(log) = logs.get_mut(&cap.subject) {
                    log.refund_last();
                }
            }
        }
    }

    /// One server holds them all, so that those of a registration are taken together.
    fn caps_shard(&self) -> &RedisShard {
        &self.shards[0]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MeterSettings;

    fn test_settings(url: &str) -> MeterSettings<'_> {
        let (window, budget) = (Duration::from_secs(60), Duration::from_secs(5));
        MeterSettings {
            redis_urls: vec![url],
            prefix: "test:caps:",
            window,
            redis_timeout: budget,
            assumed_replicas: 1,
        }
    }

    async fn assert_caps_are_taken_together(meter: &Meter) {
        let cap = |what: &str, limit| DailyCap { subject: format!("{what}-{:016x}", rand::random::<u64>()), limit };
        let (a, b) = (cap("a", 2), cap("b", 1));
        assert_eq!(meter.try_take_daily_caps(&[a.clone(), b.clone()]).await, Ok(()));
        let refused = meter.try_take_daily_caps(&[a.clone(), b.clone()]).await;
        assert!(refused.is_err_and(|wait_us| wait_us > 23 * 3_600_000_000));
        // The refused call took nothing of `a`, so one is left.
        assert_eq!(meter.try_take_daily_caps(std::slice::from_ref(&a)).await, Ok(()));
        assert!(meter.try_take_daily_caps(std::slice::from_ref(&a)).await.is_err());
        meter.refund_daily_caps(std::slice::from_ref(&a)).await;
        assert_eq!(meter.try_take_daily_caps(std::slice::from_ref(&a)).await, Ok(()));
        let logs = [a, b].map(|cap| meter.caps_shard().redis_keys.registration_log(&cap.subject));
        let _ = meter
            .caps_shard()
            .background_connection
            .run(async |redis| redis::cmd("DEL").arg(&logs).exec_async(redis).await)
            .await;
    }

    #[tokio::test]
    async fn caps_are_taken_together_or_not_at_all() {
        let url = std::env::var("VINTEM_TEST_REDIS").unwrap_or_else(|_| "redis://127.0.0.1:6379".into());
        assert_caps_are_taken_together(&Meter::open(&test_settings(&url)).unwrap()).await;
    }

    #[tokio::test]
    async fn caps_are_taken_together_without_redis() {
        // Nobody listens on this port of this machine.
        let meter = Meter::open(&test_settings("redis://127.0.0.1:1")).unwrap();
        while meter.redis_availability().all(|is_shared| is_shared) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_caps_are_taken_together(&meter).await;
    }
}
