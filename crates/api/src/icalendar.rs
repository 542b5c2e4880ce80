//! iCalendar files (RFC 5545) of all-day events, which calendar applications import or subscribe to.

use chrono::NaiveDate;

pub const CONTENT_TYPE: &str = "text/calendar; charset=utf-8";

/// The longest line in bytes, without its line break. RFC 5545 asks for longer ones to be folded.
const MAX_LINE_BYTES: usize = 75;

/// An event that lasts one day and blocks no time.
pub struct AllDayEvent {
    /// The same in every file that contains this event, so that applications update it instead of adding another.
    pub uid: String,
    pub date: NaiveDate,
    pub summary: &'static str,
}

pub fn write_calendar(title: &str, events: &[AllDayEvent]) -> String {
    let mut file = String::new();
    for line in ["BEGIN:VCALENDAR", "VERSION:2.0", "PRODID:-//Vintém//Calendar//EN", "CALSCALE:GREGORIAN"] {
        push_line(&mut file, line);
    }
    push_line(&mut file, &format!("X-WR-CALNAME:{}", escape_text(title)));
    for event in events {
        push_event(&mut file, event);
    }
    push_line(&mut file, "END:VCALENDAR");
    file
}

fn push_event(file: &mut String, event: &AllDayEvent) {
    let date = event.date.format("%Y%m%d");
    push_line(file, "BEGIN:VEVENT");
    push_line(file, &format!("UID:{}", event.uid));
    // Required, and the same in every response: the file depends on nothing but its parameters.
    push_line(file, &format!("DTSTAMP:{date}T000000Z"));
    push_line(file, &format!("DTSTART;VALUE=DATE:{date}"));
    push_line(file, &format!("SUMMARY:{}", escape_text(event.summary)));
    push_line(file, "TRANSP:TRANSPARENT");
    push_line(file, "END:VEVENT");
}

/// Appends a line, folded between characters: each further part begins with a space.
fn push_line(file: &mut String, line: &str) {
    let mut line_bytes = 0;
    for character in line.chars() {
        if line_bytes + character.len_utf8() > MAX_LINE_BYTES {
            file.push_str("\r\n ");
            line_bytes = 1;
        }
        file.push(character);
        line_bytes += character.len_utf8();
    }
    file.push_str("\r\n");
}

fn escape_text(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\\' | ';' | ',' => escaped.extend(['\\', character]),
            '\n' => escaped.push_str("\\n"),
            '\r' => {}
            _ => escaped.push(character),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_are_folded_between_characters_and_can_be_unfolded() {
        let line = format!("SUMMARY:{}", "São João ".repeat(30));
        let mut file = String::new();
        push_line(&mut file, &line);

        assert!(file.ends_with("\r\n"));
        assert!(file.lines().count() > 3);
        assert!(file.split("\r\n").all(|part| part.len() <= MAX_LINE_BYTES));
        assert_eq!(file.replace("\r\n ", "").trim_end_matches("\r\n"), line);
    }

    #[test]
    fn text_is_escaped() {
        assert_eq!(escape_text("a, b; c\\d\r\ne"), "a\\, b\\; c\\\\d\\ne");
    }

    #[test]
    fn an_event_has_all_required_properties() {
        let date = NaiveDate::from_ymd_opt(2027, 1, 1).unwrap();
        let event = AllDayEvent { uid: "a@vintem".to_owned(), date, summary: "New Year's Day" };
        assert_eq!(
            write_calendar("Holidays", &[event]),
            "BEGIN:VCALENDAR\r\nVERSION:2.0\r\nPRODID:-//Vintém//Calendar//EN\r\nCALSCALE:GREGORIAN\r\n\
             X-WR-CALNAME:Holidays\r\nBEGIN:VEVENT\r\nUID:a@vintem\r\nDTSTAMP:20270101T000000Z\r\n\
             DTSTART;VALUE=DATE:20270101\r\nSUMMARY:New Year's Day\r\nTRANSP:TRANSPARENT\r\nEND:VEVENT\r\n\
             END:VCALENDAR\r\n"
        );
    }
}
