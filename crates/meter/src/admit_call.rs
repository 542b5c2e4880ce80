//! What one call to Redis carries and brings back. A call has a number, so that nothing of it ever counts twice.

use std::collections::HashMap;
use std::fmt::Write;
use std::sync::LazyLock;

use redis::{Cmd, Script, Value};
use vintem_domain::KeyId;
use vintem_domain::usage::{RequestOutcome, RouteGroup};

use crate::redis_keys::{AdmissionLogId, RedisKeys};
use crate::sliding_log::LimitStatus;
use crate::{MeterError, Result};

pub const SLIDING_LOG_LUA: &str = include_str!("log.lua");

pub static ADMIT_SCRIPT: LazyLock<Script> =
    LazyLock::new(|| Script::new(&[SLIDING_LOG_LUA, include_str!("admit.lua")].concat()));

/// A day in microseconds, as the scripts number days.
pub const DAY_US: u64 = 24 * 3600 * 1_000_000;

/// What a request is counted under.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum UsageClass {
    /// It was made.
    Request,
    /// It ended so.
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

/// One count of live usage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct UsageField {
    pub key_id: KeyId,
    pub group: RouteGroup,
    pub class: UsageClass,
    /// Since 1970.
    pub day: u64,
}

impl UsageField {
    /// Without the day, which a script adds.
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
        Some(Self { key_id, group, class, day: parts.next()?.parse().ok()? })
    }
}

/// With a fast hash: two of these are looked into for every request, and nobody outside chooses their keys.
pub type UsageFieldCounts = HashMap<UsageField, u64, foldhash::fast::RandomState>;

/// One look at, or one of, a caller's log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LimitCheck {
    pub log_id: AdmissionLogId,
    pub limit: u32,
    pub consumes: bool,
    /// The key and the group of routes in whose usage it is counted.
    pub counted_usage: Option<(KeyId, RouteGroup)>,
}

/// Counts that belong to the call of this number.
#[derive(Debug, Clone)]
pub struct CallCounts {
    pub call_number: u64,
    pub counts: UsageFieldCounts,
}

#[derive(Debug)]
pub struct AdmitCall<'a> {
    pub redis_keys: &'a RedisKeys,
    pub window_us: u64,
    /// 0 is Redis' own clock.
    pub now_us: u64,
    pub process_id: &'a str,
    pub call_number: u64,
    pub is_heartbeat: bool,
    pub call_counts: &'a [CallCounts],
    /// Those that are alike beside each other.
    pub checks: &'a [LimitCheck],
}

#[derive(Debug, PartialEq, Eq)]
pub struct AdmitReply {
    pub now_us: u64,
    /// Processes that count here, if the call was a sign of life.
    pub live_processes: u32,
    pub statuses: Vec<LimitStatus>,
}

impl AdmitCall<'_> {
    pub fn encode(&self) -> Cmd {
        let mut command = Cmd::new();
        command.arg("EVALSHA").arg(ADMIT_SCRIPT.get_hash()).arg(4 + self.checks.len());
        command.arg(self.redis_keys.latest_clock_time()).arg(self.redis_keys.current_batch());
        command.arg(self.redis_keys.last_call_numbers()).arg(self.redis_keys.live_processes());
        let mut text = String::new();
        for ask in self.checks {
            self.redis_keys.write_log_key(ask.log_id, &mut text);
            command.arg(&text);
        }
        command
            .arg(self.window_us)
            .arg(self.now_us)
            .arg(self.redis_keys.batch_prefix())
            .arg(self.process_id)
            .arg(self.call_number);
        command.arg(if self.is_heartbeat { "beat" } else { "" }).arg(self.call_counts.len());
        for group in self.call_counts {
            command.arg(group.call_number).arg(group.counts.len());
            for (field, count) in &group.counts {
                UsageField::write_field_prefix(field.key_id, field.group, field.class, &mut text);
                write!(text, "{}", field.day).expect("a String takes everything");
                command.arg(&text).arg(*count);
            }
        }
        for run in self.checks.chunk_by(|one, other| (one.limit, one.consumes) == (other.limit, other.consumes)) {
            command.arg(run[0].limit).arg(if run[0].consumes { "take" } else { "look" }).arg(run.len());
            for ask in run {
                text.clear();
                if let Some((key_id, group)) = ask.counted_usage {
                    UsageField::write_field_prefix(key_id, group, UsageClass::Request, &mut text);
                }
                command.arg(&text);
            }
        }
        command
    }

    pub fn decode_reply(&self, reply: Value) -> Result<AdmitReply> {
        let foreign = || MeterError::UnexpectedReply("of an admission".into());
        let Value::Array(values) = reply else { return Err(foreign()) };
        let mut numbers = values.into_iter().map(|value| match value {
            Value::Int(number) => Ok(number),
            _ => Err(foreign()),
        });
        let mut next = || numbers.next().unwrap_or_else(|| Err(foreign()));
        let unsigned = |number: i64| u64::try_from(number).map_err(|_| foreign());
        let small = |number: i64| u32::try_from(number).map_err(|_| foreign());
        let (now_us, live) = (unsigned(next()?)?, small(next()?)?);
        let mut standings = Vec::with_capacity(self.checks.len());
        for _ in self.checks {
            let first = next()?;
            standings.push(if first >= 0 {
                let reset_at_us = now_us + self.window_us;
                LimitStatus { admitted: true, remaining: small(first)?, wait_us: 0, reset_at_us }
            } else {
                LimitStatus {
                    admitted: first == -1,
                    remaining: small(next()?)?,
                    wait_us: unsigned(next()?)?,
                    reset_at_us: unsigned(next()?)?,
                }
            });
        }
        Ok(AdmitReply { now_us, live_processes: live, statuses: standings })
    }
}
