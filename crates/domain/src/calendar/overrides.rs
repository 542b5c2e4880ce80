//! Exceptions to the holiday rules, read from the CSV files in this folder.

use chrono::NaiveDate;

use crate::dates::parse_date;
use crate::lang::LocalizedText;

/// A day on which banks or the exchange were open or closed contrary to the rules.
pub struct CalendarOverride {
    pub date: NaiveDate,
    /// The name of the holiday; `None` if the day was open.
    pub holiday: Option<LocalizedText>,
}

/// Reads a file with the columns date, state, source, occasion, name_en and name_pt. The names of an open day are empty.
pub fn parse_overrides(csv: &'static str) -> Vec<CalendarOverride> {
    csv.lines().skip(1).map(parse_override).collect()
}

fn parse_override(line: &'static str) -> CalendarOverride {
    let columns: Vec<&'static str> = line.split(',').collect();
    let &[date, state, _source, _occasion, name_en, name_pt] = columns.as_slice() else {
        panic!("each line has six columns: {line}");
    };

    let date = parse_date(date).expect("each line begins with a day");
    let holiday = (state == "closed").then(|| LocalizedText::new(name_en, name_pt));
    CalendarOverride { date, holiday }
}
