//! Random numbers that are the same on every machine, so that generated data can be requested twice.

use chrono::{Datelike, NaiveDate};

/// SplitMix64, one stream for each label.
#[derive(Debug, Clone)]
pub struct SeededRandom {
    state: u64,
}

impl SeededRandom {
    pub fn new(label: &str) -> Self {
        let fnv = label.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        Self { state: fnv }
    }

    /// A separate stream for each day, so that no day's draws depend on how many days were drawn before.
    pub fn for_day(label: &str, day: NaiveDate) -> Self {
        let mut random = Self::new(label);
        random.state ^= u64::from(day.num_days_from_ce().unsigned_abs()).wrapping_mul(0xd6e8_feb8_6659_fd93);
        random
    }

    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let number = self.state;
        let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        number ^ (number >> 31)
    }

    /// From 0 to `bound` − 1.
    pub fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.next_u64()) * bound as u128) >> 64) as usize
    }

    /// From `low` to `high`, both included.
    pub fn in_range(&mut self, low: i64, high: i64) -> i64 {
        low + self.below((high - low + 1) as usize) as i64
    }

    pub fn chance_per_thousand(&mut self, per_thousand: usize) -> bool {
        self.below(1000) < per_thousand
    }

    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len())]
    }

    /// From −1 to 1.
    pub fn signed_unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    }
}

/// A curve that wanders around zero, at most about 0.04 from it: monthly and weekly swings, plus a little daily noise.
pub fn smooth_noise(label: &str, day: NaiveDate) -> f64 {
    let days = i64::from(day.num_days_from_ce());
    let swing = |period: i64| {
        let value_at = |knot: i64| SeededRandom::new(&format!("{label} {period} {knot}")).signed_unit();
        let knot = days.div_euclid(period);
        let fraction = days.rem_euclid(period) as f64 / period as f64;
        value_at(knot) * (1.0 - fraction) + value_at(knot + 1) * fraction
    };
    0.025 * swing(30) + 0.01 * swing(7) + 0.0025 * SeededRandom::for_day(label, day).signed_unit()
}
