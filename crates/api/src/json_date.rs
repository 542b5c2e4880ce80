//! Dates in JSON. Lists of statements have thousands, and the general formatter takes ten times as long.

use chrono::{Datelike, NaiveDate};
use serde::{Serialize, Serializer};

/// For `#[serde(serialize_with)]`: writes `YYYY-MM-DD`, as chrono does.
pub fn serialize_date<S: Serializer>(date: &NaiveDate, serializer: S) -> Result<S::Ok, S::Error> {
    let Some(text) = iso_text(*date) else { return date.serialize(serializer) };
    serializer.serialize_str(str::from_utf8(&text).map_err(serde::ser::Error::custom)?)
}

pub fn serialize_optional_date<S: Serializer>(date: &Option<NaiveDate>, serializer: S) -> Result<S::Ok, S::Error> {
    match date {
        Some(date) => serialize_date(date, serializer),
        None => serializer.serialize_none(),
    }
}

/// `None` for a year that does not have four digits.
fn iso_text(date: NaiveDate) -> Option<[u8; 10]> {
    let year = u32::try_from(date.year()).ok().filter(|year| (1000..=9999).contains(year))?;
    let mut text = *b"0000-00-00";
    for (number, last) in [(year, 3), (date.month(), 6), (date.day(), 9)] {
        let mut rest = number;
        for digit in text[..=last].iter_mut().rev().take_while(|character| **character != b'-') {
            *digit = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Serialize)]
    struct Dates {
        #[serde(serialize_with = "serialize_date")]
        date: NaiveDate,
        #[serde(serialize_with = "serialize_optional_date")]
        other: Option<NaiveDate>,
    }

    #[test]
    fn dates_are_written_as_chrono_writes_them() {
        let first = NaiveDate::from_ymd_opt(1899, 12, 25).unwrap();
        for date in first.iter_days().step_by(17).take(7_000).chain([NaiveDate::MIN, NaiveDate::MAX]) {
            let written = serde_json::to_value(Dates { date, other: Some(date) }).unwrap();
            let expected = serde_json::to_value(date).unwrap();
            assert_eq!((&written["date"], &written["other"]), (&expected, &expected));
        }
        assert!(serde_json::to_value(Dates { date: first, other: None }).unwrap()["other"].is_null());
    }
}
