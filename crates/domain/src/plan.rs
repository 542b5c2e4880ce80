//! The four plans, with price and rate limit. Which routes a plan includes is in [`crate::route`].

/// Ordered by rank: each plan includes everything in the lower plans.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Plan {
    Free,
    Bronze,
    Gold,
    Platinum,
}

impl Plan {
    pub const ALL: [Self; 4] = [Self::Free, Self::Bronze, Self::Gold, Self::Platinum];

    pub const fn id(self) -> &'static str {
        match self {
            Self::Free => "free",
            Self::Bronze => "bronze",
            Self::Gold => "gold",
            Self::Platinum => "platinum",
        }
    }

    pub const fn name(self) -> &'static str {
        match self {
            Self::Free => "Free",
            Self::Bronze => "Bronze",
            Self::Gold => "Gold",
            Self::Platinum => "Platinum",
        }
    }

    pub const fn monthly_price_usd(self) -> u32 {
        match self {
            Self::Free => 0,
            Self::Bronze => 29,
            Self::Gold => 99,
            Self::Platinum => 299,
        }
    }

    /// The rate limit in requests per minute, unless the operator configures another one.
    pub const fn default_requests_per_minute(self) -> u32 {
        match self {
            Self::Free => 30,
            Self::Bronze => 100,
            Self::Gold => 500,
            Self::Platinum => 2000,
        }
    }

    pub fn from_id(id: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|plan| plan.id() == id)
    }

    /// The index in [`Plan::ALL`], for tables by plan.
    pub const fn rank(self) -> usize {
        self as usize
    }
}

/// The plans as configured by the operator.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PlanConfig {
    pub limits: PlanLimits,
    /// Whether the highest plan includes priority support.
    pub priority_support: bool,
}

/// The configured rate limit of each plan: requests per window.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanLimits {
    pub window_seconds: u32,
    pub requests_by_plan: [u32; 4],
}

impl PlanLimits {
    pub fn for_plan(&self, plan: Plan) -> u32 {
        self.requests_by_plan[plan.rank()]
    }
}

impl Default for PlanLimits {
    fn default() -> Self {
        Self { window_seconds: 60, requests_by_plan: Plan::ALL.map(Plan::default_requests_per_minute) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plan_ids_round_trip_in_rank_order() {
        for (rank, plan) in Plan::ALL.into_iter().enumerate() {
            assert_eq!(Plan::from_id(plan.id()), Some(plan));
            assert_eq!(plan.rank(), rank);
        }
        assert_eq!(Plan::from_id("Gold"), None);
    }
}
