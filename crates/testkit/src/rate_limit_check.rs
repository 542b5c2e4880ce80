//! Checks the rate limit after the fact, from the decision time in each response.

use std::time::Duration;

/// One decision: its time in microseconds, its outcome, and when the response says the full limit is available again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ObservedDecision {
    pub decided_at_us: u64,
    pub admitted: bool,
    pub reset_at_seconds: u64,
}

impl ObservedDecision {
    /// Reads a 200 or 429 response; any other status is an error. A request id begins with the time of the decision.
    pub fn from_response(response: &reqwest::Response) -> anyhow::Result<Self> {
        let admitted = match response.status().as_u16() {
            200 => true,
            429 => false,
            status => anyhow::bail!("{status} from {}", response.url()),
        };

        let text = |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let time_in_hex = text("x-request-id").split('-').next().unwrap_or_default();
        let decided_at_us = u64::from_str_radix(time_in_hex, 16)?;
        let reset_at_seconds = text("x-ratelimit-reset").parse()?;
        Ok(Self { decided_at_us, admitted, reset_at_seconds })
    }
}

/// The result of checking one caller's requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RateLimitReport {
    pub total: usize,
    pub admitted: usize,
    /// The maximum number of admissions in any window.
    pub max_in_window: usize,
    /// Admitted although the limit was already used up within the preceding window.
    pub wrongly_admitted: usize,
    /// Refused although the limit was not used up.
    pub wrongly_refused: usize,
    /// Responses whose reset time is not one window after the last admission.
    pub wrong_resets: usize,
}

impl RateLimitReport {
    pub fn violation_count(&self) -> usize {
        self.wrongly_admitted + self.wrongly_refused + self.wrong_resets
    }
}

/// Checks all decisions about one caller, in any order, against one limit.
pub fn check_rate_limit(decisions: &[ObservedDecision], limit: usize, window: Duration) -> RateLimitReport {
    let window_us = window.as_micros() as u64;
    let mut admitted: Vec<u64> =
        decisions.iter().filter(|decision| decision.admitted).map(|decision| decision.decided_at_us).collect();
    admitted.sort_unstable();

    let admitted_until = |end_us: u64| admitted.partition_point(|at| *at <= end_us);
    // A window excludes its start and includes its end.
    let admitted_in_window =
        |end_us: u64| admitted_until(end_us) - admitted.partition_point(|at| at + window_us <= end_us);
    let is_reset_correct = |decision: &&ObservedDecision| {
        let last_admission = admitted_until(decision.decided_at_us).checked_sub(1).map_or(0, |last| admitted[last]);
        decision.reset_at_seconds == (last_admission + window_us).div_ceil(1_000_000)
    };

    let counts = || admitted.iter().map(|at| admitted_in_window(*at));
    let refused = decisions.iter().filter(|decision| !decision.admitted);
    RateLimitReport {
        total: decisions.len(),
        admitted: admitted.len(),
        max_in_window: counts().max().unwrap_or(0),
        wrongly_admitted: counts().filter(|count| *count > limit).count(),
        wrongly_refused: refused.filter(|refused| admitted_in_window(refused.decided_at_us) < limit).count(),
        wrong_resets: decisions.len() - decisions.iter().filter(is_reset_correct).count(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Duration = Duration::from_secs(100);

    fn decision_at(seconds: u64, admitted: bool, reset_at_seconds: u64) -> ObservedDecision {
        ObservedDecision { decided_at_us: seconds * 1_000_000, admitted, reset_at_seconds }
    }

    #[test]
    fn a_correct_limiter_has_no_violations() {
        let decisions = [
            decision_at(10, true, 110),
            decision_at(20, true, 120),
            decision_at(25, false, 120),
            decision_at(109, false, 120),
            decision_at(110, true, 210),
            decision_at(119, false, 210),
            decision_at(120, true, 220),
        ];

        let report = check_rate_limit(&decisions, 2, WINDOW);
        assert_eq!((report.total, report.admitted, report.max_in_window), (7, 4, 2));
        assert_eq!(report.violation_count(), 0);
    }

    #[test]
    fn wrong_admissions_refusals_and_resets_are_counted() {
        let two = [decision_at(10, true, 110), decision_at(20, true, 120)];
        let check_with = |third| check_rate_limit(&[two[0], two[1], third], 2, WINDOW);

        let one_too_many = check_with(decision_at(109, true, 209));
        assert_eq!(
            (one_too_many.max_in_window, one_too_many.wrongly_admitted, one_too_many.violation_count()),
            (3, 1, 1)
        );

        let one_too_few = check_with(decision_at(110, false, 120));
        assert_eq!((one_too_few.max_in_window, one_too_few.wrongly_refused, one_too_few.violation_count()), (2, 1, 1));

        let wrong_reset = check_with(decision_at(109, false, 121));
        assert_eq!((wrong_reset.wrong_resets, wrong_reset.violation_count()), (1, 1));
    }
}
