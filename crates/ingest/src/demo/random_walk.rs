//! A random walk for made-up values.

use super::rng::DemoRng;

/// A random walk that is pulled back to its mean, so that it never drifts away.
pub struct MeanRevertingWalk {
    value: i64,
    pub rng: DemoRng,
}

impl MeanRevertingWalk {
    pub fn new(label: &str, value: i64) -> Self {
        Self { value, rng: DemoRng::new(&format!("walk {label}")) }
    }

    /// Advances one step: a fortieth of the way to the mean, then a random change of up to `ten_thousandths`.
    pub fn step(&mut self, mean: i64, ten_thousandths: i64) -> i64 {
        self.value += (mean - self.value) / 40;
        self.value += self.value * self.rng.between(-ten_thousandths, ten_thousandths) / 10_000;
        self.value
    }
}
