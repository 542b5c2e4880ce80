//! Encodes one call of the admit script and decodes its reply. A call has a number, so that none of its counts is ever
//! applied twice.

use std::collections::HashMap;
use std::fmt::Write;
use std::sync::LazyLock;

use redis::{Cmd, Script, Value};
use vintem_domain::KeyId;
use vintem_domain::usage::{RequestOutcome, RouteGroup};

use crate::error::{MeterError, Result};
use crate::redis_keys::{AdmissionLogId, RedisKeys};
use crate::sliding_log::LimitStatus;

pub const SLIDING_LOG_LUA: &str = include_str!("log.lua");
pub const BATCHES_LUA: &str = include_str!("batches.lua");

pub static ADMIT_SCRIPT: LazyLock<Script> =
    LazyLock::new(|| Script::new(&[SLIDING_LOG_LUA, BATCHES_LUA, include_str!("admit.lua")].concat()));

/// A day in microseconds. The scripts number days since 1970 by it.
pub const DAY_US: u64 = 24 * 3600 * 1_000_000;

/// The counter that a request goes into.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum UsageClass {
    /// The request was made.
    Request,
    /// The request ended with this outcome.
    Outcome(RequestOutcome),
}

impl UsageClass {
    pub const ALL: [Self; 5] = [
        Self::Request,
        Self::Outcome(RequestOutcome::Successful),
        Self::Outcome(RequestOutcome::ClientError),
        Self::Outcome(RequestOutcome::ServerError),
        Self::Outcome(RequestOutcome::RateLimited),
    ];

    pub const fn code_letter(self) -> char {
        match self {
            Self::Request => 'r',
            Self::Outcome(RequestOutcome::Successful) => 's',
            Self::Outcome(RequestOutcome::ClientError) => 'c',
            Self::Outcome(RequestOutcome::ServerError) => 'e',
            Self::Outcome(RequestOutcome::RateLimited) => 'l',
        }
    }
}

/// Name of one count of live usage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct UsageField {
    pub key_id: KeyId,
    pub group: RouteGroup,
    pub class: UsageClass,
    /// Days since 1970.
    pub day: u64,
}

impl UsageField {
    /// Writes the field name without the day, which a script appends.
    pub fn write_field_prefix(key_id: KeyId, group: RouteGroup, class: UsageClass, text: &mut String) {
        text.clear();
        write!(text, "{key_id}:{}:{}:", group.id(), class.code_letter()).expect("a String takes everything");
    }

    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split(':');
        let key_id = parts.next()?.parse().ok()?;
        let group = RouteGroup::from_id(parts.next()?)?;
        let letter: char = parts.next()?.parse().ok()?;
        let class = UsageClass::ALL.into_iter().find(|class| class.code_letter() == letter)?;
        let day = parts.next()?.parse().ok()?;

        Some(Self { key_id, group, class, day })
    }
}

/// Uses a fast hash: every request looks into two of these maps, and no outsider chooses their keys.
pub type UsageFieldCounts = HashMap<UsageField, u64, foldhash::fast::RandomState>;

/// A check of one caller's log. It only looks, or consumes one admission.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LimitCheck {
    pub log_id: AdmissionLogId,
    pub limit: u32,
    pub consumes: bool,
    /// Key and route group whose usage counts the request.
    pub counted_usage: Option<(KeyId, RouteGroup)>,
}

/// Usage counts that belong to the call with this number.
#[derive(Debug, Clone)]
pub struct CallCounts {
    pub call_number: u64,
    pub counts: UsageFieldCounts,
}

#[derive(Debug)]
pub struct AdmitCall<'a> {
    pub redis_keys: &'a RedisKeys,
    pub window_us: u64,
    /// 0 means Redis' own clock.
    pub now_us: u64,
    pub process_id: &'a str,
    pub call_number: u64,
    pub is_heartbeat: bool,
    pub call_counts: &'a [CallCounts],
    /// Checks with equal `limit` and `consumes` are adjacent.
    pub checks: &'a [LimitCheck],
}

#[derive(Debug, PartialEq, Eq)]
pub struct AdmitReply {
    pub now_us: u64,
    /// Live processes, if the call was a heartbeat; otherwise 0.
    pub live_processes: u32,
    /// Number of this process's last call before this one, as far as Redis knows.
    pub previous_call_number: u64,
    pub statuses: Vec<LimitStatus>,
}

impl AdmitCall<'_> {
    /// Whether anything is counted.
    pub fn counts_usage(&self) -> bool {
        !self.call_counts.is_empty() || self.checks.iter().any(|check| check.counted_usage.is_some())
    }

    /// The command for a server in this run.
    pub fn encode(&self, run_id: &str) -> Cmd {
        let mut command = Cmd::new();
        command.arg("EVALSHA").arg(ADMIT_SCRIPT.get_hash()).arg(5 + self.checks.len());
        command.arg(self.redis_keys.latest_clock_time());
        command.arg(self.redis_keys.open_batch()).arg(self.redis_keys.closed_batches());
        command.arg(self.redis_keys.last_call_numbers()).arg(self.redis_keys.live_processes());

        let mut text = String::new();
        for check in self.checks {
            self.redis_keys.write_log_key(check.log_id, &mut text);
            command.arg(&text);
        }
        command
            .arg(self.window_us)
            .arg(self.now_us)
            .arg(self.redis_keys.chunk_prefix())
            .arg(run_id)
            .arg(self.process_id)
            .arg(self.call_number);
        command.arg(if self.is_heartbeat { "beat" } else { "" }).arg(self.call_counts.len());

        for call in self.call_counts {
            command.arg(call.call_number).arg(call.counts.len());
            for (field, count) in &call.counts {
                UsageField::write_field_prefix(field.key_id, field.group, field.class, &mut text);
                write!(text, "{}", field.day).expect("a String takes everything");
                command.arg(&text).arg(*count);
            }
        }

        for run in self.checks.chunk_by(|one, other| (one.limit, one.consumes) == (other.limit, other.consumes)) {
            command.arg(run[0].limit).arg(if run[0].consumes { "take" } else { "look" }).arg(run.len());
            for check in run {
                text.clear();
                if let Some((key_id, group)) = check.counted_usage {
                    UsageField::write_field_prefix(key_id, group, UsageClass::Request, &mut text);
                }
                command.arg(&text);
            }
        }
        command
    }

    pub fn decode_reply(&self, reply: Value) -> Result<AdmitReply> {
        let unexpected = || MeterError::UnexpectedReply("of an admission".into());
        let to_u64 = |number: i64| u64::try_from(number).map_err(|_| unexpected());
        let to_u32 = |number: i64| u32::try_from(number).map_err(|_| unexpected());

        let Value::Array(values) = reply else { return Err(unexpected()) };
        let mut numbers = values.into_iter().map(|value| match value {
            Value::Int(number) => Ok(number),
            _ => Err(unexpected()),
        });
        let mut next = || numbers.next().unwrap_or_else(|| Err(unexpected()));

        let now_us = to_u64(next()?)?;
        let live_processes = to_u32(next()?)?;
        let previous_call_number = to_u64(next()?)?;
        let mut statuses = Vec::with_capacity(self.checks.len());
        for _ in self.checks {
            let first = next()?;
            statuses.push(if first >= 0 {
                let reset_at_us = now_us + self.window_us;
                LimitStatus { admitted: true, remaining: to_u32(first)?, wait_us: 0, reset_at_us }
            } else {
                LimitStatus {
                    admitted: first == -1,
                    remaining: to_u32(next()?)?,
                    wait_us: to_u64(next()?)?,
                    reset_at_us: to_u64(next()?)?,
                }
            });
        }

        Ok(AdmitReply { now_us, live_processes, previous_call_number, statuses })
    }
}
