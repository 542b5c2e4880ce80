//! The promise of the rate limit, checked afterwards from when each answer was decided.

use std::time::Duration;

/// One answer: when it was decided, to the microsecond, how, and when it says that all will be free again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decision {
    pub at_us: u64,
    pub admitted: bool,
    pub reset_at_seconds: u64,
}

impl Decision {
    /// Of an answer that is either good or refused for its limit; a request's id begins with the instant of its decision.
    pub fn of(answer: &reqwest::Response) -> anyhow::Result<Self> {
        let admitted = match answer.status().as_u16() {
            200 => true,
            429 => false,
            status => anyhow::bail!("{status} from {}", answer.url()),
        };
        let text = |name: &str| answer.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let instant = text("x-request-id").split('-').next().unwrap_or_default();
        let (at_us, reset_at_seconds) = (u64::from_str_radix(instant, 16)?, text("x-ratelimit-reset").parse()?);
        Ok(Self { at_us, admitted, reset_at_seconds })
    }
}

/// What became of a caller's requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Findings {
    pub decisions: usize,
    pub admitted: usize,
    /// The most that were admitted in any window.
    pub most: usize,
    /// Admitted although the limit was reached within the window before.
    pub wrongly_admitted: usize,
    /// Refused although it was not.
    pub wrongly_refused: usize,
    /// All is free a window after the last admission; so many said otherwise.
    pub wrong_resets: usize,
}

impl Findings {
    pub fn violations(&self) -> usize {
        self.wrongly_admitted + self.wrongly_refused + self.wrong_resets
    }
}

/// All decisions about one caller, in any order, held to one limit.
pub fn hold(decisions: &[Decision], limit: usize, window: Duration) -> Findings {
    let window_us = window.as_micros() as u64;
    let mut admitted: Vec<u64> =
        decisions.iter().filter(|decision| decision.admitted).map(|decision| decision.at_us).collect();
    admitted.sort_unstable();
    let until = |end_us: u64| admitted.partition_point(|at| *at <= end_us);
    // A window that begins just after an instant ends a window later, that instant included.
    let within = |end_us: u64| until(end_us) - admitted.partition_point(|at| at + window_us <= end_us);
    let is_reset_true = |decision: &&Decision| {
        let last = until(decision.at_us).checked_sub(1).map_or(0, |last| admitted[last]);
        decision.reset_at_seconds == (last + window_us).div_ceil(1_000_000)
    };
    let counts = || admitted.iter().map(|at| within(*at));
    let refused = decisions.iter().filter(|decision| !decision.admitted);
    Findings {
        decisions: decisions.len(),
        admitted: admitted.len(),
        most: counts().max().unwrap_or(0),
        wrongly_admitted: counts().filter(|count| *count > limit).count(),
        wrongly_refused: refused.filter(|refused| within(refused.at_us) < limit).count(),
        wrong_resets: decisions.len() - decisions.iter().filter(is_reset_true).count(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Duration = Duration::from_secs(100);

    fn decided(seconds: u64, admitted: bool, reset_at_seconds: u64) -> Decision {
        Decision { at_us: seconds * 1_000_000, admitted, reset_at_seconds }
    }

    #[test]
    fn a_limiter_that_keeps_its_word_is_found_to() {
        let kept = [
            decided(10, true, 110),
            decided(20, true, 120),
            decided(25, false, 120),
            decided(109, false, 120),
            decided(110, true, 210),
            decided(119, false, 210),
            decided(120, true, 220),
        ];
        let findings = hold(&kept, 2, WINDOW);
        assert_eq!((findings.decisions, findings.admitted, findings.most), (7, 4, 2));
        assert_eq!(findings.violations(), 0);
    }

    #[test]
    fn one_too_many_one_too_few_and_a_wrong_reset_are_found() {
        let two = [decided(10, true, 110), decided(20, true, 120)];
        let and = |third| hold(&[two[0], two[1], third], 2, WINDOW);
        let one_too_many = and(decided(109, true, 209));
        assert_eq!((one_too_many.most, one_too_many.wrongly_admitted, one_too_many.violations()), (3, 1, 1));
        let one_too_few = and(decided(110, false, 120));
        assert_eq!((one_too_few.most, one_too_few.wrongly_refused, one_too_few.violations()), (2, 1, 1));
        let wrong_reset = and(decided(109, false, 121));
        assert_eq!((wrong_reset.wrong_resets, wrong_reset.violations()), (1, 1));
    }
}
