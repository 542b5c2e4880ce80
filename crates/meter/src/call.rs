//! What one call to Redis carries and brings back. A call has a number, so that nothing of it ever counts twice.

use std::collections::HashMap;
use std::fmt::Write;
use std::sync::LazyLock;

use redis::{Cmd, Script, Value};
use vintem_domain::KeyId;
use vintem_domain::usage::{Outcome, RouteGroup};

use crate::keys::{KeyNames, Log};
use crate::sliding_log::Standing;
use crate::{MeterError, Result};

pub const LOG_LUA: &str = include_str!("log.lua");

pub static ADMIT: LazyLock<Script> = LazyLock::new(|| Script::new(&[LOG_LUA, include_str!("admit.lua")].concat()));

/// A day in microseconds, as the scripts number days.
pub const DAY_US: u64 = 24 * 3600 * 1_000_000;

/// What a request is counted under.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    /// It was made.
    Request,
    /// It ended so.
    Outcome(Outcome),
}

impl Class {
    pub const ALL: [Self; 5] = [
        Self::Request,
        Self::Outcome(Outcome::Successful),
        Self::Outcome(Outcome::ClientError),
        Self::Outcome(Outcome::ServerError),
        Self::Outcome(Outcome::RateLimited),
    ];

    pub const fn letter(self) -> char {
        match self {
            Self::Request => 'r',
            Self::Outcome(Outcome::Successful) => 's',
            Self::Outcome(Outcome::ClientError) => 'c',
            Self::Outcome(Outcome::ServerError) => 'e',
            Self::Outcome(Outcome::RateLimited) => 'l',
        }
    }
}

/// One count of live usage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Field {
    pub key_id: KeyId,
    pub group: RouteGroup,
    pub class: Class,
    /// Since 1970.
    pub day: u64,
}

impl Field {
    /// Without the day, which a script adds.
    pub fn write_beginning(key_id: KeyId, group: RouteGroup, class: Class, text: &mut String) {
        text.clear();
        write!(text, "{key_id}:{}:{}:", group.id(), class.letter()).expect("a String takes everything");
    }

    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split(':');
        let key_id = parts.next()?.parse().ok()?;
        let group = RouteGroup::from_id(parts.next()?)?;
        let letter: char = parts.next()?.parse().ok()?;
        let class = Class::ALL.into_iter().find(|class| class.letter() == letter)?;
        Some(Self { key_id, group, class, day: parts.next()?.parse().ok()? })
    }
}

/// With a fast hash: two of these are looked into for every request, and nobody outside chooses their keys.
pub type FieldCounts = HashMap<Field, u64, foldhash::fast::RandomState>;

/// One look at, or one of, a caller's log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ask {
    pub log: Log,
    pub limit: u32,
    pub takes: bool,
    /// The key and the group of routes in whose usage it is counted.
    pub counted: Option<(KeyId, RouteGroup)>,
}

/// Counts that belong to the call of this number.
#[derive(Debug, Clone)]
pub struct CountGroup {
    pub number: u64,
    pub counts: FieldCounts,
}

#[derive(Debug)]
pub struct Call<'a> {
    pub names: &'a KeyNames,
    pub window_us: u64,
    /// 0 is Redis' own clock.
    pub now_us: u64,
    pub process: &'a str,
    pub number: u64,
    pub is_beat: bool,
    pub groups: &'a [CountGroup],
    /// Those that are alike beside each other.
    pub asks: &'a [Ask],
}

#[derive(Debug, PartialEq, Eq)]
pub struct Answer {
    pub now_us: u64,
    /// Processes that count here, if the call was a sign of life.
    pub live: u32,
    pub standings: Vec<Standing>,
}

impl Call<'_> {
    pub fn encode(&self) -> Cmd {
        let mut command = Cmd::new();
        command.arg("EVALSHA").arg(ADMIT.get_hash()).arg(4 + self.asks.len());
        command.arg(self.names.latest()).arg(self.names.current_batch());
        command.arg(self.names.last_calls()).arg(self.names.processes());
        let mut text = String::new();
        for ask in self.asks {
            self.names.write_log(ask.log, &mut text);
            command.arg(&text);
        }
        command.arg(self.window_us).arg(self.now_us).arg(self.names.batch_prefix()).arg(self.process).arg(self.number);
        command.arg(if self.is_beat { "beat" } else { "" }).arg(self.groups.len());
        for group in self.groups {
            command.arg(group.number).arg(group.counts.len());
            for (field, count) in &group.counts {
                Field::write_beginning(field.key_id, field.group, field.class, &mut text);
                write!(text, "{}", field.day).expect("a String takes everything");
                command.arg(&text).arg(*count);
            }
        }
        for run in self.asks.chunk_by(|one, other| (one.limit, one.takes) == (other.limit, other.takes)) {
            command.arg(run[0].limit).arg(if run[0].takes { "take" } else { "look" }).arg(run.len());
            for ask in run {
                text.clear();
                if let Some((key_id, group)) = ask.counted {
                    Field::write_beginning(key_id, group, Class::Request, &mut text);
                }
                command.arg(&text);
            }
        }
        command
    }

    pub fn decode(&self, answer: Value) -> Result<Answer> {
        let foreign = || MeterError::Foreign("of an admission".into());
        let Value::Array(values) = answer else { return Err(foreign()) };
        let mut numbers = values.into_iter().map(|value| match value {
            Value::Int(number) => Ok(number),
            _ => Err(foreign()),
        });
        let mut next = || numbers.next().unwrap_or_else(|| Err(foreign()));
        let unsigned = |number: i64| u64::try_from(number).map_err(|_| foreign());
        let small = |number: i64| u32::try_from(number).map_err(|_| foreign());
        let (now_us, live) = (unsigned(next()?)?, small(next()?)?);
        let mut standings = Vec::with_capacity(self.asks.len());
        for _ in self.asks {
            let first = next()?;
            standings.push(if first >= 0 {
                let reset_at_us = now_us + self.window_us;
                Standing { admitted: true, remaining: small(first)?, wait_us: 0, reset_at_us }
            } else {
                Standing {
                    admitted: first == -1,
                    remaining: small(next()?)?,
                    wait_us: unsigned(next()?)?,
                    reset_at_us: unsigned(next()?)?,
                }
            });
        }
        Ok(Answer { now_us, live, standings })
    }
}
