//! Admission: who may pass now, what remains, and when it will be free again.

use std::sync::LazyLock;
use std::time::Duration;

use redis::Script;
use vintem_domain::{AddressBucket, KeyId};

use crate::{Meter, MeterError, Result, within_budget};

/// Whose quota is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Visitor {
    Key(KeyId),
    Address(AddressBucket),
}

/// What the visit takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Charge {
    /// One of the visitor's quota.
    Quota,
    /// Nothing of the quota, which is only shown; one of what an address may read of pages.
    Page { address: AddressBucket, limit: u32 },
}

#[derive(Debug, Clone, Copy)]
pub struct Visit {
    pub visitor: Visitor,
    pub limit: u32,
    pub charge: Charge,
    /// The key in whose usage the visit is counted.
    pub counted_for: Option<KeyId>,
}

/// The answer to a visit. Instants are Redis' own, in microseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verdict {
    pub admitted: bool,
    /// Of the visitor's quota.
    pub remaining: u32,
    /// Until one visit of this kind will pass; zero if this one did.
    pub wait_us: u64,
    /// When all of the quota is free again.
    pub reset_at_us: u64,
    pub now_us: u64,
}

/// A cap on how often something may happen within a day.
#[derive(Debug, Clone)]
pub struct Cap {
    /// What is capped, e.g. an address or the fingerprint of an e-mail.
    pub what: String,
    pub limit: u32,
}

pub(crate) const LOG_LUA: &str = include_str!("log.lua");

static ADMIT: LazyLock<Script> = LazyLock::new(|| Script::new(&[LOG_LUA, include_str!("admit.lua")].concat()));
static CAPS: LazyLock<Script> = LazyLock::new(|| Script::new(&[LOG_LUA, include_str!("caps.lua")].concat()));

const DAY: Duration = Duration::from_secs(24 * 3600);

impl Meter {
    /// Admits or refuses, and counts the visit for its key: one call, exact over all replicas.
    pub async fn admit(&self, visit: &Visit) -> Result<Verdict> {
        self.admit_at(visit, 0).await
    }

    /// As [`Meter::admit`], at an instant of the caller's choice; 0 is Redis' clock.
    pub(crate) async fn admit_at(&self, visit: &Visit, now_us: u64) -> Result<Verdict> {
        let log = match visit.visitor {
            Visitor::Key(id) => self.keys.key_log(id),
            Visitor::Address(address) => self.keys.address_log(address),
        };
        let counted_for = visit.counted_for.map(|id| id.to_string()).unwrap_or_default();
        let mut call = ADMIT.key(self.keys.current_batch());
        call.key(log)
            .arg(micros(self.window))
            .arg(now_us)
            .arg(self.keys.batch_prefix())
            .arg(self.outcomes.nonce())
            .arg(visit.limit)
            .arg(if visit.charge == Charge::Quota { "take" } else { "look" })
            .arg(counted_for);
        if let Charge::Page { address, limit } = visit.charge {
            call.key(self.keys.page_log(address)).arg(limit).arg("take").arg("");
        }
        let answer: Vec<u64> = self.invoke(&call).await?;
        verdict(&answer)
    }

    /// Takes one of each cap, or none of any: `Err(wait)` says in how many microseconds all would pass.
    pub async fn take_daily(&self, caps: &[Cap]) -> Result<std::result::Result<(), u64>> {
        let mut call = CAPS.prepare_invoke();
        for cap in caps {
            call.key(self.keys.registration_log(&cap.what));
        }
        call.arg(micros(DAY));
        for cap in caps {
            call.arg(cap.limit);
        }
        let wait_us: u64 = self.invoke(&call).await?;
        Ok(if wait_us == 0 { Ok(()) } else { Err(wait_us) })
    }
}

impl Meter {
    /// Gives back what was taken for something that then did not happen.
    pub async fn give_back_daily(&self, caps: &[Cap]) -> Result<()> {
        let mut redis = self.redis.clone();
        let mut pipe = redis::pipe();
        for cap in caps {
            pipe.cmd("RPOP").arg(self.keys.registration_log(&cap.what)).ignore();
        }
        within_budget(pipe.exec_async(&mut redis)).await
    }
}

/// `now`, the state of the quota, and for a page the state of the pages' own limit.
fn verdict(answer: &[u64]) -> Result<Verdict> {
    let foreign = || MeterError::Foreign(format!("{answer:?}"));
    let (&now_us, states) = answer.split_first().ok_or_else(foreign)?;
    let &[admitted, remaining, wait_us, reset_at_us] = states.first_chunk().ok_or_else(foreign)?;
    let mut verdict = Verdict {
        admitted: admitted == 1,
        remaining: u32::try_from(remaining).map_err(|_| foreign())?,
        wait_us,
        reset_at_us,
        now_us,
    };
    if let Some(&[admitted, _, wait_us, _]) = states.get(4..).and_then(<[u64]>::first_chunk) {
        verdict.admitted = admitted == 1;
        verdict.wait_us = wait_us;
    }
    Ok(verdict)
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW_US: u64 = 6_000_000;

    fn meter() -> Meter {
        let url = std::env::var("VINTEM_TEST_REDIS").unwrap_or_else(|_| "redis://127.0.0.1:6379".into());
        let prefix = format!("test:model:{:016x}:", rand::random::<u64>());
        Meter::open(&url, &prefix, Duration::from_micros(WINDOW_US)).unwrap()
    }

    /// What the script promises, told plainly: a list of all admissions, looked through each time.
    #[derive(Default)]
    struct Model {
        admitted_at: Vec<u64>,
    }

    impl Model {
        fn visit(&mut self, limit: u32, takes: bool, now_us: u64) -> Verdict {
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
            let held_then = self.admitted_at.len();
            Verdict {
                admitted,
                remaining: limit.saturating_sub(held_then) as u32,
                wait_us: if admitted { 0 } else { self.admitted_at[held - limit] + WINDOW_US - at },
                reset_at_us: self.admitted_at.last().map_or(at, |last| last + WINDOW_US),
                now_us,
            }
        }
    }

    #[tokio::test]
    async fn the_script_agrees_with_a_model_whatever_the_clock_and_the_limit_do() {
        let meter = meter();
        for sequence in 0..60u32 {
            let address = AddressBucket::V4(std::net::Ipv4Addr::from(sequence));
            let mut model = Model::default();
            let (mut now_us, mut limit) = (1_794_700_000_000_000u64, 5u32);
            for step in 0..120 {
                match rand::random::<u32>() % 20 {
                    0 => limit = 1 + rand::random::<u32>() % 8,
                    1 => now_us -= rand::random::<u64>() % 8 * 250_000,
                    2 => now_us -= 3 * WINDOW_US,
                    3 => now_us += WINDOW_US,
                    4..8 => {}
                    // In steps that add up to windows exactly, so that both sides of every end are met.
                    _ => now_us += rand::random::<u64>() % 6 * 250_000,
                }
                let takes = !rand::random::<u32>().is_multiple_of(5);
                let charge = if takes { Charge::Quota } else { Charge::Page { address, limit: 1_000_000 } };
                let visit = Visit { visitor: Visitor::Address(address), limit, charge, counted_for: None };
                let verdict = meter.admit_at(&visit, now_us).await.unwrap();
                let mut expected = model.visit(limit, takes, now_us);
                if !takes {
                    // A page is judged by its own limit and only shows the quota.
                    (expected.admitted, expected.wait_us) = (true, 0);
                }
                assert_eq!(verdict, expected, "sequence {sequence}, step {step}");
            }
            let mut redis = meter.redis.clone();
            let logs = [meter.keys.address_log(address), meter.keys.page_log(address)];
            redis::cmd("DEL").arg(&logs).exec_async(&mut redis).await.unwrap();
        }
    }

    #[tokio::test]
    async fn caps_are_taken_together_or_not_at_all() {
        let meter = meter();
        let cap = |what: &str, limit| Cap { what: what.into(), limit };
        let (a, b) = (cap("a", 2), cap("b", 1));
        assert_eq!(meter.take_daily(&[a.clone(), b.clone()]).await.unwrap(), Ok(()));
        let refused = meter.take_daily(&[a.clone(), b.clone()]).await.unwrap();
        assert!(refused.is_err_and(|wait_us| wait_us > 23 * 3_600_000_000));
        // The refused call took nothing of `a`, so one is left.
        assert_eq!(meter.take_daily(std::slice::from_ref(&a)).await.unwrap(), Ok(()));
        assert!(meter.take_daily(&[a]).await.unwrap().is_err());
        let logs = ["a", "b"].map(|what| meter.keys.registration_log(what));
        redis::cmd("DEL").arg(&logs).exec_async(&mut meter.redis.clone()).await.unwrap();
    }
}
