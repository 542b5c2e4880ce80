//! Admission: who may pass now, what remains, and when it will be free again.

use std::time::Duration;

use vintem_domain::usage::RouteGroup;
use vintem_domain::{AddressBucket, KeyId};

use crate::Meter;
use crate::admit_call::LimitCheck;
use crate::redis_keys::AdmissionLogId;
use crate::shard::{LimitDecision, RedisShard};

/// Whose quota is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuotaOwner {
    Key(KeyId),
    Address(AddressBucket),
}

/// What the visit takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AdmissionCharge {
    /// One of the visitor's quota.
    OwnQuota,
    /// Nothing of the quota, which is only shown; one of what an address may read of pages.
    PageView { address: AddressBucket, limit: u32 },
    /// The same of searches on the pages.
    PageSearch { address: AddressBucket, limit: u32 },
}

#[derive(Debug, Clone, Copy)]
pub struct AdmissionRequest {
    pub quota_owner: QuotaOwner,
    pub limit: u32,
    pub charge: AdmissionCharge,
    /// Where it is counted in the visitor's usage, if that is a key and it takes of its quota.
    pub usage_group: Option<RouteGroup>,
}

/// The answer to a visit. Instants are Redis' own, in microseconds since 1970; while Redis is away they are what its
/// clock is reckoned to show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AdmissionDecision {
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
    pub async fn admit(&self, request: &AdmissionRequest) -> AdmissionDecision {
        let log = match request.quota_owner {
            QuotaOwner::Key(id) => AdmissionLogId::Key(id),
            QuotaOwner::Address(address) => AdmissionLogId::Address(address),
        };
        let (of_pages, limit) = match request.charge {
            AdmissionCharge::PageView { address, limit } => (AdmissionLogId::Pages(address), limit),
            AdmissionCharge::PageSearch { address, limit } => (AdmissionLogId::Searches(address), limit),
            AdmissionCharge::OwnQuota => {
                let counted = match request.quota_owner {
                    QuotaOwner::Key(id) => request.usage_group.map(|group| (id, group)),
                    QuotaOwner::Address(_) => None,
                };
                return admission_decision(
                    self.check_limit(LimitCheck {
                        log_id: log,
                        limit: request.limit,
                        consumes: true,
                        counted_usage: counted,
                    })
                    .await,
                );
            }
        };
        let (page, quota) = tokio::join!(
            self.check_limit(LimitCheck { log_id: of_pages, limit, consumes: true, counted_usage: None }),
            self.check_limit(LimitCheck { log_id: log, limit: request.limit, consumes: false, counted_usage: None })
        );
        AdmissionDecision { admitted: page.status.admitted, wait_us: page.status.wait_us, ..admission_decision(quota) }
    }

    async fn check_limit(&self, ask: LimitCheck) -> LimitDecision {
        let shard = match ask.log_id {
            AdmissionLogId::Key(id) => self.shard_for_key(id),
            AdmissionLogId::Address(address) | AdmissionLogId::Pages(address) | AdmissionLogId::Searches(address) => {
                match address {
                    AddressBucket::V4(address) => self.shard_for_hash(u64::from(address.to_bits())),
                    AddressBucket::V6 { network, .. } => self.shard_for_hash((network.to_bits() >> 64) as u64),
                }
            }
        };
        shard.check_limit(ask).await
    }

    pub(crate) fn shard_for_key(&self, id: KeyId) -> &RedisShard {
        self.shard_for_hash(id.cast_unsigned())
    }

    /// The same in every replica of every version: a caller must not change servers within a window.
    fn shard_for_hash(&self, caller_hash: u64) -> &RedisShard {
        // Fibonacci hashing: neighbours are spread evenly.
        let mixed = caller_hash.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        &self.shards[(mixed % self.shards.len() as u64) as usize]
    }
}

fn admission_decision(decision: LimitDecision) -> AdmissionDecision {
    let LimitDecision { status: standing, now_us } = decision;
    AdmissionDecision {
        admitted: standing.admitted,
        remaining: standing.remaining,
        wait_us: standing.wait_us,
        reset_at_us: standing.reset_at_us,
        now_us,
    }
}

pub fn duration_micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
