//! Usage: what is counted for a key on a day.

use chrono::{DateTime, NaiveDate};

use crate::KeyId;

/// How an admitted request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    Successful,
    ClientError,
    ServerError,
    /// Admitted, and then refused by a limit of the route's own.
    RateLimited,
}

impl Outcome {
    pub const fn of_status(status: u16) -> Self {
        match status {
            ..400 => Self::Successful,
            429 => Self::RateLimited,
            400..500 => Self::ClientError,
            500.. => Self::ServerError,
        }
    }
}

/// `requests` is all that was asked; what is in no class is under way, or its replica died.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    pub requests: u64,
    pub successful: u64,
    pub client_errors: u64,
    pub server_errors: u64,
    pub rate_limited: u64,
}

impl Counts {
    pub fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        self.successful += other.successful;
        self.client_errors += other.client_errors;
        self.server_errors += other.server_errors;
        self.rate_limited += other.rate_limited;
    }

    pub fn unfinished(&self) -> u64 {
        let finished = self.successful + self.client_errors + self.server_errors + self.rate_limited;
        self.requests.saturating_sub(finished)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyDay {
    pub key_id: KeyId,
    pub day: NaiveDate,
    pub counts: Counts,
}

/// The UTC day of an instant in microseconds since 1970.
pub fn utc_day(micros: i64) -> NaiveDate {
    DateTime::from_timestamp_micros(micros).unwrap_or_default().date_naive()
}
