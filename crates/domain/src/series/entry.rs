//! An entry of the catalog: what is known about a series, and how its values are dated, checked and accumulated.

use chrono::NaiveDate;

use super::attributes::{License, Publisher, SeriesGroup};
use super::frequency::Frequency;
use super::release::{Release, Schedule};
use crate::Decimal;
use crate::fx::BRL_START_DATE;
use crate::lang::LocalizedText;
use crate::unit::Unit;

#[derive(Debug)]
pub struct Series {
    pub id: &'static str,
    /// The code in the central bank's time-series system (SGS); `None` if we compute the series.
    pub sgs_code: Option<u32>,
    pub name: LocalizedText,
    pub group: SeriesGroup,
    /// Further words that people search for, in both languages.
    pub tags: &'static [&'static str],
    pub unit: Unit,
    pub basis: LocalizedText,
    /// Prevents common mix-ups: says what the series is not, and what a surprising sign means.
    pub is_not: LocalizedText,
    pub publisher: Publisher,
    pub license: License,
    /// Public sources that name the code as this series.
    pub evidence: &'static [&'static str],
    pub frequency: Frequency,
    pub release: Release,
    pub shape: Shape,
    /// The first known date. Ingestion also looks for earlier values.
    pub starts_on: NaiveDate,
    pub decimals: u32,
    pub plausible: PlausibleRange,
    pub accumulation: Accumulation,
    /// The daily series from which we compute missing values of this series.
    pub gap_fill_series: Option<&'static str>,
    /// How we compute the series, if the central bank does not publish it.
    pub formula: Option<Formula>,
}

/// What a row of a series is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// The value of its date; it rarely changes.
    Value,
    /// The rate from its date until a later day, which each row names. Rows overlap, so they are never compounded.
    Period,
    /// The value of the running month grows every day, and is provisional until the month is over.
    RunningMonth,
    /// Each release estimates the whole history again.
    Reestimated,
}

/// The lowest and the highest plausible value, hyperinflation included. Anything outside is an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlausibleRange {
    pub min: i64,
    pub max: i64,
    /// Whether a value may be more than ten times the one before it, or less than a tenth of it.
    pub may_jump: bool,
    pub reason: &'static str,
}

/// The rates that are combined when a series is accumulated over a period.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accumulation {
    /// Its own values: each is the rate of one day or month, and they are multiplied.
    OwnValues,
    /// The daily rates behind its annual rates, as the id of their series.
    DailyTwin(&'static str),
    /// One row a month: that of the anniversary.
    Anniversaries,
    /// Its own monthly values, added up: simple interest.
    SimpleInterest,
    /// None: each value already covers several months, or is not a rate. `instead` is the series to accumulate.
    Refused { instead: Option<&'static str> },
}

/// How a series is computed from others.
#[derive(Debug)]
pub struct Formula {
    pub description: LocalizedText,
    /// The ids of the input series.
    pub inputs: &'static [&'static str],
    /// Takes the values of each input, oldest first.
    pub compute: fn(&[Vec<DatedValue>]) -> Vec<DatedValue>,
}

/// A date and its value.
pub type DatedValue = (NaiveDate, Decimal);

/// Compares ids, because the tables hold each series once.
impl PartialEq for Series {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl Eq for Series {}

impl std::hash::Hash for Series {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.id.hash(state);
    }
}

impl Series {
    /// The ids of the published series that its values come from: its own, or the inputs of its formula.
    pub(super) fn inputs(&self) -> &[&'static str] {
        self.formula.as_ref().map_or(std::slice::from_ref(&self.id), |formula| formula.inputs)
    }

    /// The first day whose value is served. Amounts from before the real are in the currency of their day.
    pub fn served_since(&self) -> NaiveDate {
        if self.unit.is_in_reais() { BRL_START_DATE } else { NaiveDate::MIN }
    }

    pub const fn schedule(&self) -> Schedule {
        Schedule { frequency: self.frequency, release: self.release }
    }

    /// Whether the value of `date` may still grow, if it was fetched on this day.
    pub fn is_provisional(&self, date: NaiveDate, fetched_on: NaiveDate) -> bool {
        self.shape == Shape::RunningMonth && fetched_on < self.schedule().certainly_published_on(date)
    }
}
