//! Curves as paths of SVG, drawn without floats.

use std::fmt::Write;

use vintem_domain::Decimal;
use vintem_domain::series::DatedValue;

/// A curve and the area under it, in a box of this size.
pub(crate) struct SvgCurve {
    pub(crate) width: u32,
    pub(crate) height: u32,
    pub(crate) line: String,
    pub(crate) area: String,
}

/// So that the line's own width is not cut off.
const CURVE_MARGIN: u32 = 2;

/// Of values in the order of their days. Where several days fall on one column, what is drawn of them is the lowest and
/// the highest.
pub(crate) fn draw_curve(points: &[DatedValue], width: u32, height: u32) -> SvgCurve {
    let mut curve = SvgCurve { width, height, line: String::new(), area: String::new() };
    let (Some(first), Some(last)) = (points.first(), points.last()) else { return curve };
    let whole = to_scaled_integers(points);
    let (lowest, highest) = (whole.iter().min().copied().unwrap_or(0), whole.iter().max().copied().unwrap_or(0));
    let room = i64::from(height - 2 * CURVE_MARGIN);
    // What never changes lies in the middle.
    let level = |value: i64| match highest - lowest {
        0 => i64::from(height / 2) * TENTHS_PER_POINT,
        rise => (highest - value) * room * TENTHS_PER_POINT / rise + i64::from(CURVE_MARGIN) * TENTHS_PER_POINT,
    };
    let span = (last.0 - first.0).num_days().max(1);
    let column = |at: usize| (points[at].0 - first.0).num_days() * i64::from(width) / span;
    let mut at = 0;
    while at < points.len() {
        let (x, mut low, mut high) = (column(at), at, at);
        while at < points.len() && column(at) == x {
            low = if whole[at] < whole[low] { at } else { low };
            high = if whole[at] > whole[high] { at } else { high };
            at += 1;
        }
        let both = [low.min(high), low.max(high)];
        for drawn in &both[..if low == high { 1 } else { 2 }] {
            let (command, y) = (if curve.line.is_empty() { 'M' } else { 'L' }, level(whole[*drawn]));
            write!(curve.line, "{command}{x} {}.{}", y / TENTHS_PER_POINT, y % TENTHS_PER_POINT)
                .expect("a String takes everything");
        }
    }
    curve.area = format!("{}V{height}H0Z", curve.line);
    curve
}

/// A tenth of a point is finer than anyone sees.
const TENTHS_PER_POINT: i64 = 10;

/// The values as whole numbers of their smallest unit: far faster to reckon with than decimals.
fn to_scaled_integers(points: &[DatedValue]) -> Vec<i64> {
    let scale = points.iter().map(|(_, value)| value.scale()).max().unwrap_or(0);
    let whole = |value: Decimal| value.mantissa() * 10_i128.pow(scale - value.scale());
    points.iter().map(|(_, value)| i64::try_from(whole(*value)).unwrap_or(i64::MAX)).collect()
}

/// The lowest and the highest, the first of each.
pub(crate) fn lowest_and_highest(points: &[DatedValue]) -> Option<(DatedValue, DatedValue)> {
    let whole = to_scaled_integers(points);
    let lowest = (0..whole.len()).min_by_key(|at| whole[*at])?;
    let highest = (0..whole.len()).rev().max_by_key(|at| whole[*at])?;
    Some((points[lowest], points[highest]))
}

#[cfg(test)]
mod tests {
    use chrono::NaiveDate;

    use super::*;

    fn daily_points(values: &[&str]) -> Vec<DatedValue> {
        let first = NaiveDate::from_ymd_opt(2026, 1, 1).unwrap();
        let day = |at: usize| first + chrono::Days::new(at as u64);
        values.iter().enumerate().map(|(at, value)| (day(at), value.parse().unwrap())).collect()
    }

    #[test]
    fn highest_value_is_at_the_top_and_time_runs_to_the_right() {
        let curve = draw_curve(&daily_points(&["1.00", "3.00", "2.00"]), 100, 44);
        assert_eq!(curve.line, "M0 42.0L50 2.0L100 22.0");
        assert_eq!(curve.area, "M0 42.0L50 2.0L100 22.0V44H0Z");
    }

    #[test]
    fn days_sharing_a_column_are_drawn_as_lowest_and_highest() {
        let values: Vec<String> = (0..1000).map(|at| if at == 505 { "9".to_owned() } else { "1".to_owned() }).collect();
        let curve = draw_curve(&daily_points(&values.iter().map(String::as_str).collect::<Vec<_>>()), 10, 44);
        assert!(curve.line.contains(" 2.0L"), "{}", curve.line);
        assert!(curve.line.len() < 200);
    }

    #[test]
    fn empty_and_constant_series_are_drawn() {
        assert_eq!(draw_curve(&[], 10, 44).line, "");
        assert_eq!(draw_curve(&daily_points(&["2", "2"]), 10, 44).line, "M0 22.0L10 22.0");
        assert_eq!(draw_curve(&daily_points(&["2"]), 10, 44).line, "M0 22.0");
    }
}
