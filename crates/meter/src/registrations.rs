//! How often something may happen within a day: caps that are taken together or not at all.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex};
use std::time::Duration;

use redis::Script;

use crate::admission::micros;
use crate::call::LOG_LUA;
use crate::shard::Shard;
use crate::sliding_log::SlidingLog;
use crate::{Meter, Result};

static CAPS: LazyLock<Script> = LazyLock::new(|| Script::new(&[LOG_LUA, include_str!("caps.lua")].concat()));

const DAY: Duration = Duration::from_secs(24 * 3600);

/// A cap on how often something may happen within a day.
#[derive(Debug, Clone)]
pub struct Cap {
    /// What is capped, e.g. an address or the fingerprint of an e-mail.
    pub what: String,
    pub limit: u32,
}

/// What was taken while Redis was away, until it is back.
#[derive(Debug, Default)]
pub struct LocalCaps(Mutex<HashMap<String, SlidingLog>>);

impl Meter {
    /// Takes one of each cap, or none of any: `Err(wait)` says in how many microseconds all would pass.
    pub async fn take_daily(&self, caps: &[Cap]) -> std::result::Result<(), u64> {
        let server = self.caps_server();
        if server.is_shared() {
            match self.take_shared(server, caps).await {
                Ok(taken) => return taken,
                Err(error) => tracing::warn!(%error, "registrations are capped by this process alone"),
            }
        }
        self.take_here(server, caps)
    }

    async fn take_shared(&self, server: &Shard, caps: &[Cap]) -> Result<std::result::Result<(), u64>> {
        let mut call = CAPS.prepare_invoke();
        for cap in caps {
            call.key(server.names.registration_log(&cap.what));
        }
        call.arg(micros(DAY));
        for cap in caps {
            call.arg(cap.limit);
        }
        let wait_us: u64 = server.aside.ask(async |redis| call.invoke_async(redis).await).await?;
        self.common.caps.0.lock().expect("never held across a panic").clear();
        Ok(if wait_us == 0 { Ok(()) } else { Err(wait_us) })
    }

    fn take_here(&self, server: &Shard, caps: &[Cap]) -> std::result::Result<(), u64> {
        let mut logs = self.common.caps.0.lock().expect("never held across a panic");
        let now_us = server.clock.now_us();
        let mut ask = |cap: &Cap, takes| {
            let limit = self.common.replicas.share_of(cap.limit);
            logs.entry(cap.what.clone()).or_default().ask(limit, takes, micros(DAY), now_us)
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
    pub async fn give_back_daily(&self, caps: &[Cap]) {
        let server = self.caps_server();
        if server.is_shared() {
            let mut pipe = redis::pipe();
            for cap in caps {
                pipe.cmd("RPOP").arg(server.names.registration_log(&cap.what)).ignore();
            }
            if let Err(error) = server.aside.ask(async |redis| pipe.exec_async(redis).await).await {
                tracing::warn!(%error, "a registration that failed counts against its caps");
            }
        } else {
            let mut logs = self.common.caps.0.lock().expect("never held across a panic");
            for cap in caps {
                if let Some(log) = logs.get_mut(&cap.what) {
                    log.give_back();
                }
            }
        }
    }

    /// One server holds them all, so that those of a registration are taken together.
    fn caps_server(&self) -> &Shard {
        &self.shards[0]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MeterSettings;

    fn settings(url: &str) -> MeterSettings<'_> {
        let (window, budget) = (Duration::from_secs(60), Duration::from_secs(5));
        MeterSettings { redis_urls: vec![url], prefix: "test:caps:", window, budget, assumed_replicas: 1 }
    }

    async fn taken_together(meter: &Meter) {
        let cap = |what: &str, limit| Cap { what: format!("{what}-{:016x}", rand::random::<u64>()), limit };
        let (a, b) = (cap("a", 2), cap("b", 1));
        assert_eq!(meter.take_daily(&[a.clone(), b.clone()]).await, Ok(()));
        let refused = meter.take_daily(&[a.clone(), b.clone()]).await;
        assert!(refused.is_err_and(|wait_us| wait_us > 23 * 3_600_000_000));
        // The refused call took nothing of `a`, so one is left.
        assert_eq!(meter.take_daily(std::slice::from_ref(&a)).await, Ok(()));
        assert!(meter.take_daily(std::slice::from_ref(&a)).await.is_err());
        meter.give_back_daily(std::slice::from_ref(&a)).await;
        assert_eq!(meter.take_daily(std::slice::from_ref(&a)).await, Ok(()));
        let logs = [a, b].map(|cap| meter.caps_server().names.registration_log(&cap.what));
        let _ = meter.caps_server().aside.ask(async |redis| redis::cmd("DEL").arg(&logs).exec_async(redis).await).await;
    }

    #[tokio::test]
    async fn caps_are_taken_together_or_not_at_all() {
        let url = std::env::var("VINTEM_TEST_REDIS").unwrap_or_else(|_| "redis://127.0.0.1:6379".into());
        taken_together(&Meter::open(&settings(&url)).unwrap()).await;
    }

    #[tokio::test]
    async fn without_redis_too() {
        // Nobody listens on this port of this machine.
        let meter = Meter::open(&settings("redis://127.0.0.1:1")).unwrap();
        while meter.are_shared().all(|is_shared| is_shared) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        taken_together(&meter).await;
    }
}
