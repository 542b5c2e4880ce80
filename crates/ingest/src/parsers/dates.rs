//! Strict parsers for the upstreams' date and time formats: if a format changes, parsing fails instead of guessing.

use chrono::{NaiveDate, NaiveDateTime, NaiveTime};

/// `2026-02-11`, with any four-digit year that PostgreSQL can store, because typing errors such as 3026 do occur.
pub fn parse_iso_date(text: &str) -> Option<NaiveDate> {
    matches_shape(text, "dddd-dd-dd").then(|| date_from_parts(&text[..4], &text[5..7], &text[8..]))?
}

/// `11/02/2026`.
pub fn parse_brazilian_date(text: &str) -> Option<NaiveDate> {
    matches_shape(text, "dd/dd/dddd").then(|| date_from_parts(&text[6..], &text[3..5], &text[..2]))?
}

/// `2026-06-19 13:03:25.555497`, with up to nine fraction digits or none: their number varies from row to row. Digits
/// beyond microseconds are dropped, because PostgreSQL cannot store them.
pub fn parse_timestamp(text: &str) -> Option<NaiveDateTime> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let is_fraction = (1..=9).contains(&fraction.len()) && fraction.bytes().all(|byte| byte.is_ascii_digit());
    if !is_fraction || !matches_shape(whole, "dddd-dd-dd dd:dd:dd") {
        return None;
    }

    let microseconds: u32 = format!("{fraction:0<6}")[..6].parse().ok()?;
    let two_digits = |start: usize| whole[start..start + 2].parse().ok();
    let time = NaiveTime::from_hms_micro_opt(two_digits(11)?, two_digits(14)?, two_digits(17)?, microseconds)?;
    Some(parse_iso_date(&whole[..10])?.and_time(time))
}

/// Whether `text` has a digit wherever `shape` has a `d`, and the same character everywhere else.
fn matches_shape(text: &str, shape: &str) -> bool {
    text.len() == shape.len()
        && text.bytes().zip(shape.bytes()).all(|(byte, expected)| match expected {
            b'd' => byte.is_ascii_digit(),
            _ => byte == expected,
        })
}

fn date_from_parts(year: &str, month: &str, day: &str) -> Option<NaiveDate> {
    let year: i32 = year.parse().ok()?;
    // PostgreSQL has no year zero.
    if year == 0 {
        return None;
    }
    NaiveDate::from_ymd_opt(year, month.parse().ok()?, day.parse().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn dates_are_parsed_only_in_their_exact_format() {
        assert_eq!(parse_iso_date("2024-02-29").unwrap().to_string(), "2024-02-29");
        assert_eq!(parse_iso_date("3026-04-30").unwrap().to_string(), "3026-04-30");
        assert_eq!(parse_brazilian_date("01/12/1980").unwrap().to_string(), "1980-12-01");
        for text in
            ["", "2024-2-29", "2023-02-29", "29/02/2024", "2024-02-29 ", "0000-01-01", "+024-01-01", "2024/02/29"]
        {
            assert_eq!(parse_iso_date(text), None, "{text:?}");
        }
        for text in ["", "1/12/1980", "31/02/2020", "12/31/2020", "2020-12-01", "01-12-1980", "01/12/80", "é1/12/1980"]
        {
            assert_eq!(parse_brazilian_date(text), None, "{text:?}");
        }
    }

    #[test]
    fn fractions_of_a_second_may_have_up_to_nine_digits() {
        for (text, micros) in [
            ("1984-12-03 11:29:00.0", 0),
            ("2026-06-03 13:06:26.54", 540_000),
            ("2022-01-03 13:11:50.353", 353_000),
            ("2026-07-23 13:11:15.6614", 661_400),
            ("2026-06-19 13:03:25.555497", 555_497),
            ("2026-06-19 13:03:25.555497999", 555_497),
            ("2026-06-19 13:03:25", 0),
        ] {
            assert_eq!(parse_timestamp(text).unwrap().and_utc().timestamp_subsec_micros(), micros, "{text}");
        }

        for text in [
            "2026-06-19",
            "2026-06-19 13:03",
            "2026-06-19 13:03:25.",
            "2026-06-19 13:03:25.1234567890",
            "2026-06-19T13:03:25.1",
            "2026-06-19 24:03:25.1",
            "2026-06-19 13:03:60.1",
            "2026-6-19 13:03:25.1",
            "13:03:25.555497",
        ] {
            assert_eq!(parse_timestamp(text), None, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn parsing_never_panics(text in "\\PC*") {
            let _ = (parse_iso_date(&text), parse_brazilian_date(&text), parse_timestamp(&text));
        }
    }
}
