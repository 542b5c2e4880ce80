//! Usage: request counts per key, UTC day and part of the API.

use chrono::{DateTime, NaiveDate};

use crate::KeyId;

/// How an admitted request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RequestOutcome {
    Successful,
    ClientError,
    ServerError,
    /// Admitted, then rejected by the route's own limit.
    RateLimited,
}

impl RequestOutcome {
    pub const fn from_status(status: u16) -> Self {
        match status {
            ..400 => Self::Successful,
            429 => Self::RateLimited,
            400..500 => Self::ClientError,
            500.. => Self::ServerError,
        }
    }
}

/// `requests` counts all admitted requests. Requests without an outcome are still in flight, or their replica died.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct UsageCounts {
    pub requests: u64,
    pub successful: u64,
    pub client_errors: u64,
    pub server_errors: u64,
    pub rate_limited: u64,
}

impl UsageCounts {
    pub fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        self.successful += other.successful;
        self.client_errors += other.client_errors;
        self.server_errors += other.server_errors;
        self.rate_limited += other.rate_limited;
    }

    pub fn unfinished_requests(&self) -> u64 {
        let finished = self.successful + self.client_errors + self.server_errors + self.rate_limited;
        self.requests.saturating_sub(finished)
    }
}

/// The part of the API that usage is grouped by: the first path segment under `/api/v1`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RouteGroup {
    Market,
    Calendar,
    Companies,
    Filings,
    Statements,
    Search,
    Export,
    Events,
    Webhooks,
    Plans,
    Keys,
    Status,
    /// Paths that do not exist, and the index at `/api/v1` itself.
    Other,
}

impl RouteGroup {
    pub const ALL: [Self; 13] = [
        Self::Market,
        Self::Calendar,
        Self::Companies,
        Self::Filings,
        Self::Statements,
        Self::Search,
        Self::Export,
        Self::Events,
        Self::Webhooks,
        Self::Plans,
        Self::Keys,
        Self::Status,
        Self::Other,
    ];

    pub const fn id(self) -> &'static str {
        match self {
            Self::Market => "market",
            Self::Calendar => "calendar",
            Self::Companies => "companies",
            Self::Filings => "filings",
            Self::Statements => "statements",
            Self::Search => "search",
            Self::Export => "export",
            Self::Events => "events",
            Self::Webhooks => "webhooks",
            Self::Plans => "plans",
            Self::Keys => "keys",
            Self::Status => "status",
            Self::Other => "other",
        }
    }

    pub fn from_id(id: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|group| group.id() == id)
    }

    /// `None` outside of `/api/v1`, where nothing is counted.
    pub fn from_path(path: &str) -> Option<Self> {
        let rest = path.strip_prefix("/api/v1")?;
        if rest.is_empty() {
            return Some(Self::Other);
        }

        let segment = rest.strip_prefix('/')?.split('/').next()?;
        Some(Self::from_id(segment).unwrap_or(Self::Other))
    }
}

/// A key's usage of one part of the API on one day.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UsageRow {
    pub key_id: KeyId,
    pub day: NaiveDate,
    pub group: RouteGroup,
    pub counts: UsageCounts,
}

/// Id of a chunk of counts that is stored as a whole. Never given twice.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct UsageChunkId(String);

impl UsageChunkId {
    pub fn new(id: String) -> Self {
        Self(id)
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The UTC day on which the chunk's batch was opened, by the microseconds that its id begins with. `None` for a batch
    /// of versions up to 0.3, whose ids have no chunks (`/1:0`) and are stored in a table of their own.
    pub fn created_on(&self) -> Option<NaiveDate> {
        let (batch, _) = self.0.split_once('/')?;
        let micros = batch.split('-').next()?.parse().ok()?;
        Some(utc_date_from_micros(micros))
    }
}

/// A checksum of what rows say, whatever their order.
pub fn usage_checksum(rows: &[UsageRow]) -> u32 {
    let mut lines: Vec<String> = rows.iter().map(|row| format!("{row:?}")).collect();
    lines.sort_unstable();
    crc32fast::hash(lines.join("\n").as_bytes())
}

/// The UTC date of an instant in microseconds since 1970.
pub fn utc_date_from_micros(micros: i64) -> NaiveDate {
    DateTime::from_timestamp_micros(micros).unwrap_or_default().date_naive()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::route::ROUTES;

    #[test]
    fn every_api_route_has_a_usage_group() {
        for route in ROUTES {
            let group = RouteGroup::from_path(route.path);
            assert_eq!(group.is_some(), route.is_api(), "{}", route.path);
            let is_index = route.path == "/api/v1";
            assert_eq!(group == Some(RouteGroup::Other), is_index, "{} needs a group", route.path);
        }
        assert_eq!(RouteGroup::from_path("/api/v10/market"), None);
    }
}
