//! Admission: who may pass now, what remains, and when it will be free again.

use std::time::Duration;

use vintem_domain::usage::RouteGroup;
use vintem_domain::{AddressBucket, KeyId};

use crate::Meter;
use crate::call::Ask;
use crate::keys::Log;
use crate::shard::{Decision, Shard};

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
    /// The same of searches on the pages.
    Search { address: AddressBucket, limit: u32 },
}

#[derive(Debug, Clone, Copy)]
pub struct Visit {
    pub visitor: Visitor,
    pub limit: u32,
    pub charge: Charge,
    /// Where it is counted in the visitor's usage, if that is a key and it takes of its quota.
    pub counted: Option<RouteGroup>,
}

/// The answer to a visit. Instants are Redis' own, in microseconds since 1970; while Redis is away they are what its
/// clock is reckoned to show.
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

impl Meter {
    /// Admits or refuses, and counts the visit for its key: exact over all replicas as long as Redis answers in time,
    /// and else by this replica's part of the limit.
    pub async fn admit(&self, visit: &Visit) -> Verdict {
        let log = match visit.visitor {
            Visitor::Key(id) => Log::Key(id),
            Visitor::Address(address) => Log::Address(address),
        };
        let (of_pages, limit) = match visit.charge {
            Charge::Page { address, limit } => (Log::Pages(address), limit),
            Charge::Search { address, limit } => (Log::Searches(address), limit),
            Charge::Quota => {
                let counted = match visit.visitor {
                    Visitor::Key(id) => visit.counted.map(|group| (id, group)),
                    Visitor::Address(_) => None,
                };
                return verdict(self.ask(Ask { log, limit: visit.limit, takes: true, counted }).await);
            }
        };
        let (page, quota) = tokio::join!(
            self.ask(Ask { log: of_pages, limit, takes: true, counted: None }),
            self.ask(Ask { log, limit: visit.limit, takes: false, counted: None })
        );
        Verdict { admitted: page.standing.admitted, wait_us: page.standing.wait_us, ..verdict(quota) }
    }

    async fn ask(&self, ask: Ask) -> Decision {
        let shard = match ask.log {
            Log::Key(id) => self.shard_of_key(id),
            Log::Address(address) | Log::Pages(address) | Log::Searches(address) => match address {
                AddressBucket::V4(address) => self.shard_of(u64::from(address.to_bits())),
                AddressBucket::V6 { network, .. } => self.shard_of((network.to_bits() >> 64) as u64),
            },
        };
        shard.decide(ask).await
    }

    pub(crate) fn shard_of_key(&self, id: KeyId) -> &Shard {
        self.shard_of(id.cast_unsigned())
    }

    /// The same in every replica of every version: a caller must not change servers within a window.
    fn shard_of(&self, caller: u64) -> &Shard {
        // Fibonacci hashing: neighbours are spread evenly.
        let mixed = caller.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        &self.shards[(mixed % self.shards.len() as u64) as usize]
    }
}

fn verdict(decision: Decision) -> Verdict {
    let Decision { standing, now_us } = decision;
    Verdict {
        admitted: standing.admitted,
        remaining: standing.remaining,
        wait_us: standing.wait_us,
        reset_at_us: standing.reset_at_us,
        now_us,
    }
}

pub fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
