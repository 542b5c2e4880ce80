//! Admission: whether a request may pass now, how much quota remains, and when it is free again.

use vintem_domain::usage::RouteGroup;
use vintem_domain::{AddressBucket, KeyId};

use crate::admit_call::LimitCheck;
use crate::meter::Meter;
use crate::redis_keys::AdmissionLogId;
use crate::shard::LimitDecision;

/// Whose quota is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuotaOwner {
    Key(KeyId),
    Address(AddressBucket),
}

/// What a request consumes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AdmissionCharge {
    /// One request of the owner's quota.
    OwnQuota,
    /// One page view of the address. The owner's quota is reported but not consumed.
    PageView { address: AddressBucket, limit: u32 },
    /// One search on the pages, likewise.
    PageSearch { address: AddressBucket, limit: u32 },
}

#[derive(Debug, Clone, Copy)]
pub struct AdmissionRequest {
    pub quota_owner: QuotaOwner,
    pub limit: u32,
    pub charge: AdmissionCharge,
    /// Route group to count the request under, if the owner is a key and the request consumes its quota.
    pub usage_group: Option<RouteGroup>,
}

/// The decision on a request. Times are Redis' own, in microseconds since 1970; while Redis is unavailable, they are
/// estimates of its clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AdmissionDecision {
    pub admitted: bool,
    /// Requests left in the owner's quota.
    pub remaining: u32,
    /// Until a request of this kind will be admitted; zero if this one was.
    pub wait_us: u64,
    /// When the whole quota is free again.
    pub reset_at_us: u64,
    pub now_us: u64,
}

impl Meter {
    /// Admits or refuses a request and counts it for its key. This is exact over all replicas as long as Redis answers
    /// in time; otherwise this replica decides by its share of the limit.
    pub async fn admit(&self, request: &AdmissionRequest) -> AdmissionDecision {
        let quota_log = match request.quota_owner {
            QuotaOwner::Key(id) => AdmissionLogId::Key(id),
            QuotaOwner::Address(address) => AdmissionLogId::Address(address),
        };

        let (page_log, page_limit) = match request.charge {
            AdmissionCharge::PageView { address, limit } => (AdmissionLogId::Pages(address), limit),
            AdmissionCharge::PageSearch { address, limit } => (AdmissionLogId::Searches(address), limit),
            AdmissionCharge::OwnQuota => {
                let counted_usage = match request.quota_owner {
                    QuotaOwner::Key(id) => request.usage_group.map(|group| (id, group)),
                    QuotaOwner::Address(_) => None,
                };
                let check = LimitCheck { log_id: quota_log, limit: request.limit, consumes: true, counted_usage };
                return admission_decision(self.check_limit(check).await);
            }
        };

        let page_check = LimitCheck { log_id: page_log, limit: page_limit, consumes: true, counted_usage: None };
        let quota_check = LimitCheck { log_id: quota_log, limit: request.limit, consumes: false, counted_usage: None };
        let (page, quota) = tokio::join!(self.check_limit(page_check), self.check_limit(quota_check));

        AdmissionDecision { admitted: page.status.admitted, wait_us: page.status.wait_us, ..admission_decision(quota) }
    }

    async fn check_limit(&self, check: LimitCheck) -> LimitDecision {
        let shard = match check.log_id {
            AdmissionLogId::Key(id) => self.shard_for_key(id),
            AdmissionLogId::Address(address) | AdmissionLogId::Pages(address) | AdmissionLogId::Searches(address) => {
                match address {
                    AddressBucket::V4(address) => self.shard_for_hash(u64::from(address.to_bits())),
                    AddressBucket::V6 { network, .. } => self.shard_for_hash((network.to_bits() >> 64) as u64),
                }
            }
        };

        shard.check_limit(check).await
    }
}

fn admission_decision(decision: LimitDecision) -> AdmissionDecision {
    let LimitDecision { status, now_us } = decision;
    AdmissionDecision {
        admitted: status.admitted,
        remaining: status.remaining,
        wait_us: status.wait_us,
        reset_at_us: status.reset_at_us,
        now_us,
    }
}
