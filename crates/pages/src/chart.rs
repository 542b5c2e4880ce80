//! Line charts as SVG paths, computed without floats.

use std::fmt::Write;

use vintem_domain::Decimal;
use vintem_domain::series::DatedValue;

/// SVG paths of a curve and of the area under it, with the size of their box.
pub(crate) struct SvgCurve {
    pub(crate) width: u32,
    pub(crate) height: u32,
    pub(crate) line: String,
    pub(crate) area: String,
}

/// Keeps the stroke from being cut off.
const CURVE_MARGIN: u32 = 2;

/// Draws values that are sorted by date. Where several days share a column, only the lowest and the highest are drawn.
pub(crate) fn draw_curve(points: &[DatedValue], width: u32, height: u32) -> SvgCurve {
    let mut curve = SvgCurve { width, height, line: String::new(), area: String::new() };
    let (Some(first), Some(last)) = (points.first(), points.last()) else { return curve };

    let values = to_scaled_integers(points);
    let lowest = values.iter().min().copied().unwrap_or(0);
    let highest = values.iter().max().copied().unwrap_or(0);
    let plot_height = i64::from(height - 2 * CURVE_MARGIN);
    // A constant series is drawn in the middle.
    let y_tenths = |value: i64| match highest - lowest {
        0 => i64::from(height / 2) * TENTHS_PER_POINT,
        range => {
            (highest - value) * plot_height * TENTHS_PER_POINT / range + i64::from(CURVE_MARGIN) * TENTHS_PER_POINT
        }
    };
    let span = (last.0 - first.0).num_days().max(1);
    let column = |index: usize| (points[index].0 - first.0).num_days() * i64::from(width) / span;

    let mut index = 0;
    while index < points.len() {
        let x = column(index);
        let mut low = index;
        let mut high = index;
        while index < points.len() && column(index) == x {
            low = if values[index] < values[low] { index } else { low };
            high = if values[index] > values[high] { index } else { high };
            index += 1;
        }

        let extremes = [low.min(high), low.max(high)];
        for point in &extremes[..if low == high { 1 } else { 2 }] {
            let command = if curve.line.is_empty() { 'M' } else { 'L' };
            let y = y_tenths(values[*point]);
            write!(curve.line, "{command}{x} {}.{}", y / TENTHS_PER_POINT, y % TENTHS_PER_POINT)
                .expect("a String takes everything");
        }
    }

    curve.area = format!("{}V{height}H0Z", curve.line);
    curve
}

/// Coordinates have one decimal: a tenth of a point is finer than anyone sees.
const TENTHS_PER_POINT: i64 = 10;

/// The values as integers in units of their last decimal place: far faster to compute with than decimals.
fn to_scaled_integers(points: &[DatedValue]) -> Vec<i64> {
    let scale = points.iter().map(|(_, value)| value.scale()).max().unwrap_or(0);
    let scaled = |value: Decimal| value.mantissa() * 10_i128.pow(scale - value.scale());
    points.iter().map(|(_, value)| i64::try_from(scaled(*value)).unwrap_or(i64::MAX)).collect()
}

/// The lowest and the highest point. If several points are equal, the first one counts.
pub(crate) fn lowest_and_highest(points: &[DatedValue]) -> Option<(DatedValue, DatedValue)> {
    let values = to_scaled_integers(points);
    let lowest = (0..values.len()).min_by_key(|index| values[*index])?;
    let highest = (0..values.len()).rev().max_by_key(|index| values[*index])?;
    Some((points[lowest], points[highest]))
}

#[cfg(test)]
mod tests {
    use chrono::NaiveDate;

    use super::*;

    fn daily_points(values: &[&str]) -> Vec<DatedValue> {
        let first = NaiveDate::from_ymd_opt(2026, 1, 1).unwrap();
        let day = |index: usize| first + chrono::Days::new(index as u64);
        values.iter().enumerate().map(|(index, value)| (day(index), value.parse().unwrap())).collect()
    }

    #[test]
    fn highest_value_is_at_the_top_and_time_runs_to_the_right() {
        let curve = draw_curve(&daily_points(&["1.00", "3.00", "2.00"]), 100, 44);
        assert_eq!(curve.line, "M0 42.0L50 2.0L100 22.0");
        assert_eq!(curve.area, "M0 42.0L50 2.0L100 22.0V44H0Z");
    }

    #[test]
    fn days_sharing_a_column_are_drawn_as_lowest_and_highest() {
        let values: Vec<String> =
            (0..1000).map(|index| if index == 505 { "9".to_owned() } else { "1".to_owned() }).collect();
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
