//! Daily caps: how often something may happen within a day. Several caps are taken together or not at all.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard};

use redis::Script;

use crate::admit_call::{DAY_US, SLIDING_LOG_LUA};
use crate::error::Result;
use crate::shard::{ProcessState, RedisShard};
use crate::sliding_log::SlidingLog;

static CAPS_SCRIPT: LazyLock<Script> =
    LazyLock::new(|| Script::new(&[SLIDING_LOG_LUA, include_str!("caps.lua")].concat()));

/// A cap on how often something may happen within a day.
#[derive(Debug, Clone)]
pub struct DailyCap {
    /// What is capped, e.g. an address or the fingerprint of an e-mail address.
    pub subject: String,
    pub limit: u32,
}

/// The caps taken so far: in Redis, or in this process while Redis is unavailable.
pub struct DailyCaps {
    shards: Arc<[RedisShard]>,
    process: Arc<ProcessState>,
    /// By subject: caps taken while Redis was unavailable, until it is back.
    local_logs: Mutex<HashMap<String, SlidingLog>>,
}

impl DailyCaps {
    pub fn new(shards: Arc<[RedisShard]>, process: Arc<ProcessState>) -> Self {
        Self { shards, process, local_logs: Mutex::default() }
    }

    /// Takes one from each cap, or nothing: `Err(wait)` is the number of microseconds until all caps would pass.
    pub async fn try_take(&self, caps: &[DailyCap]) -> std::result::Result<(), u64> {
        if self.shard().is_redis_available() {
            match self.take_in_redis(caps).await {
                Ok(taken) => return taken,
                Err(error) => tracing::warn!(%error, "redis unreachable; capping registrations locally"),
            }
        }

        self.take_locally(caps)
    }

    /// Returns what was taken for something that then did not happen.
    pub async fn refund(&self, caps: &[DailyCap]) {
        let shard = self.shard();
        if shard.is_redis_available() {
            let mut pipe = redis::pipe();
            for cap in caps {
                pipe.cmd("RPOP").arg(shard.redis_keys().registration_log(&cap.subject)).ignore();
            }
            if let Err(error) = shard.background_connection.run(async |redis| pipe.exec_async(redis).await).await {
                tracing::warn!(%error, "cannot refund a failed registration; it still counts against the caps");
            }
        } else {
            let mut logs = self.lock_local_logs();
            for cap in caps {
                if let Some(log) = logs.get_mut(&cap.subject) {
                    log.refund_last();
                }
            }
        }
    }

    async fn take_in_redis(&self, caps: &[DailyCap]) -> Result<std::result::Result<(), u64>> {
        let shard = self.shard();
        let mut call = CAPS_SCRIPT.prepare_invoke();
        for cap in caps {
            call.key(shard.redis_keys().registration_log(&cap.subject));
        }
        call.arg(DAY_US);
        for cap in caps {
            call.arg(cap.limit);
        }

        let wait_us: u64 = shard.background_connection.run(async |redis| call.invoke_async(redis).await).await?;
        self.lock_local_logs().clear();
        Ok(if wait_us == 0 { Ok(()) } else { Err(wait_us) })
    }

    fn take_locally(&self, caps: &[DailyCap]) -> std::result::Result<(), u64> {
        let mut logs = self.lock_local_logs();
        let now_us = self.shard().now_us();
        let mut check = |cap: &DailyCap, consume| {
            let limit = self.process.replica_count.share_of(cap.limit);
            logs.entry(cap.subject.clone()).or_default().check(limit, consume, DAY_US, now_us)
        };

        let wait_us = caps.iter().map(|cap| check(cap, false).wait_us).max().unwrap_or(0);
        if wait_us > 0 {
            return Err(wait_us);
        }

        for cap in caps {
            check(cap, true);
        }
        Ok(())
    }

    /// One server holds all caps, so that the caps of a registration are taken together.
    fn shard(&self) -> &RedisShard {
        &self.shards[0]
    }

    fn lock_local_logs(&self) -> MutexGuard<'_, HashMap<String, SlidingLog>> {
        self.local_logs.lock().expect("never held across a panic")
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{Meter, MeterSettings};

    fn test_settings(url: &str) -> MeterSettings<'_> {
        MeterSettings {
            redis_urls: vec![url],
            redis_certificates: None,
            prefix: "test:caps:",
            window: Duration::from_secs(60),
            redis_timeout: Duration::from_secs(5),
            assumed_replicas: 1,
        }
    }

    async fn assert_caps_are_taken_together(meter: &Meter) {
        let cap = |name: &str, limit| DailyCap { subject: format!("{name}-{:016x}", rand::random::<u64>()), limit };
        let a = cap("a", 2);
        let b = cap("b", 1);

        assert_eq!(meter.try_take_daily_caps(&[a.clone(), b.clone()]).await, Ok(()));
        let refused = meter.try_take_daily_caps(&[a.clone(), b.clone()]).await;
        assert!(refused.is_err_and(|wait_us| wait_us > 23 * 3_600_000_000));

        // The refused call took nothing from `a`, so one is left.
        assert_eq!(meter.try_take_daily_caps(std::slice::from_ref(&a)).await, Ok(()));
        assert!(meter.try_take_daily_caps(std::slice::from_ref(&a)).await.is_err());

        meter.refund_daily_caps(std::slice::from_ref(&a)).await;
        assert_eq!(meter.try_take_daily_caps(std::slice::from_ref(&a)).await, Ok(()));

        let shard = meter.daily_caps.shard();
        let logs = [a, b].map(|cap| shard.redis_keys().registration_log(&cap.subject));
        let _ =
            shard.background_connection.run(async |redis| redis::cmd("DEL").arg(&logs).exec_async(redis).await).await;
    }

    #[tokio::test]
    async fn caps_are_taken_together_or_not_at_all() {
        let url = std::env::var("VINTEM_TEST_REDIS").unwrap_or_else(|_| "redis://127.0.0.1:6379".into());
        assert_caps_are_taken_together(&Meter::open(&test_settings(&url)).unwrap()).await;
    }

    #[tokio::test]
    async fn caps_are_taken_together_without_redis() {
        // Nothing listens on this port.
        let meter = Meter::open(&test_settings("redis://127.0.0.1:1")).unwrap();
        while meter.redis_availability().all(|is_available| is_available) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_caps_are_taken_together(&meter).await;
    }
}
