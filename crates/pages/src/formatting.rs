//! Numbers and dates as people read them, in each language.

use chrono::{DateTime, Datelike, NaiveDate, Utc};
use vintem_domain::lang::Lang;
use vintem_domain::series::Frequency;
use vintem_domain::{Decimal, dates};

const MONTHS_EN: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const MONTHS_PT: [&str; 12] = ["jan", "fev", "mar", "abr", "mai", "jun", "jul", "ago", "set", "out", "nov", "dez"];

/// `2,000` in English, `2.000` in Portuguese.
pub(crate) fn format_integer(number: usize, lang: Lang) -> String {
    group_digits(&number.to_string(), lang)
}

/// Keeps all digits of the value: `1,234.50` in English, `1.234,50` in Portuguese.
pub(crate) fn format_decimal(value: Decimal, lang: Lang) -> String {
    let text = value.abs().to_string();
    let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));

    let mut formatted = if value.is_sign_negative() && !value.is_zero() { "−".to_owned() } else { String::new() };
    formatted.push_str(&group_digits(whole, lang));
    if !fraction.is_empty() {
        formatted.push(match lang {
            Lang::En => '.',
            Lang::Pt => ',',
        });
        formatted.push_str(fraction);
    }
    formatted
}

fn group_digits(digits: &str, lang: Lang) -> String {
    let separator = match lang {
        Lang::En => ',',
        Lang::Pt => '.',
    };

    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(separator);
        }
        text.push(digit);
    }
    text
}

/// `13 Nov 2026`, `13 nov 2026`.
pub(crate) fn format_date(day: NaiveDate, lang: Lang) -> String {
    format!("{}\u{a0}{}", day.day(), format_month(day, lang))
}

/// `Nov 2026`, `nov 2026`.
pub(crate) fn format_month(day: NaiveDate, lang: Lang) -> String {
    let months = match lang {
        Lang::En => MONTHS_EN,
        Lang::Pt => MONTHS_PT,
    };
    // A non-breaking space keeps the date on one line.
    format!("{}\u{a0}{}", months[day.month0() as usize], day.year())
}

/// The period of a value: its month, quarter or year, else its date.
pub(crate) fn format_period(date: NaiveDate, frequency: Frequency, lang: Lang) -> String {
    match (frequency, lang) {
        (Frequency::Monthly, _) => format_month(date, lang),
        (Frequency::Quarterly, Lang::En) => format!("Q{}\u{a0}{}", date.month0() / 3 + 1, date.year()),
        (Frequency::Quarterly, Lang::Pt) => format!("{}º\u{a0}tri\u{a0}{}", date.month0() / 3 + 1, date.year()),
        (Frequency::Annual, _) => date.year().to_string(),
        _ => format_date(date, lang),
    }
}

/// `13 Nov 2026, 20:20` in São Paulo time, because the data is from Brazil.
pub(crate) fn format_date_time(at: DateTime<Utc>, lang: Lang) -> String {
    let local = dates::sao_paulo_datetime(at);
    format!("{}, {}", format_date(local.date(), lang), local.format("%H:%M"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digit_grouping_follows_the_language() {
        for (number, en, pt) in
            [(30, "30", "30"), (500, "500", "500"), (2000, "2,000", "2.000"), (1234567, "1,234,567", "1.234.567")]
        {
            assert_eq!(format_integer(number, Lang::En), en);
            assert_eq!(format_integer(number, Lang::Pt), pt);
        }
    }

    #[test]
    fn decimals_keep_their_digits() {
        for (value, en, pt) in
            [("13.50", "13.50", "13,50"), ("-0.04", "−0.04", "−0,04"), ("12345.6700", "12,345.6700", "12.345,6700")]
        {
            assert_eq!(format_decimal(value.parse().unwrap(), Lang::En), en);
            assert_eq!(format_decimal(value.parse().unwrap(), Lang::Pt), pt);
        }
    }

    #[test]
    fn dates_are_formatted_in_each_language() {
        let date = NaiveDate::from_ymd_opt(2026, 2, 3).unwrap();
        assert_eq!(format_date(date, Lang::En), "3\u{a0}Feb\u{a0}2026");
        assert_eq!(format_period(date, Frequency::Monthly, Lang::Pt), "fev\u{a0}2026");
        assert_eq!(format_period(date, Frequency::Quarterly, Lang::En), "Q1\u{a0}2026");
        assert_eq!(format_period(date, Frequency::Quarterly, Lang::Pt), "1º\u{a0}tri\u{a0}2026");
        assert_eq!(format_period(date, Frequency::Annual, Lang::En), "2026");
        let at = "2026-11-14T01:05:00Z".parse().unwrap();
        assert_eq!(format_date_time(at, Lang::Pt), "13\u{a0}nov\u{a0}2026, 22:05");
    }
}
