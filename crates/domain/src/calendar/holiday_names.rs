//! The names of the holidays that follow a rule.

use bdays::easter::easter_naive_date;
use chrono::{Datelike, NaiveDate, Weekday};

use crate::lang::LocalizedText;

/// The first year in which November 20 is a national holiday (law 14.759 of 2023).
const FIRST_NATIONAL_AWARENESS_DAY: i32 = 2024;

/// The name of the holiday on this day. Each calendar decides whether it observes it.
pub fn holiday_name(day: NaiveDate) -> Option<LocalizedText> {
    match (easter_holiday_name(day), fixed_holiday_name(day)) {
        // In years with Easter on April 23, such as 2000, two holidays share a day.
        (Some(_), Some(_)) => {
            Some(LocalizedText::new("Good Friday and Tiradentes Day", "Sexta-feira Santa e Tiradentes"))
        }
        (easter, fixed) => easter.or(fixed),
    }
}

fn easter_holiday_name(day: NaiveDate) -> Option<LocalizedText> {
    let easter = easter_naive_date(day.year()).ok()?;
    let name = match (day - easter).num_days() {
        -48 => LocalizedText::new("Carnival Monday", "Segunda-feira de Carnaval"),
        -47 => LocalizedText::new("Carnival Tuesday", "Terça-feira de Carnaval"),
        -2 => LocalizedText::new("Good Friday", "Sexta-feira Santa"),
        60 => LocalizedText::new("Corpus Christi", "Corpus Christi"),
        _ => return None,
    };
    Some(name)
}

fn fixed_holiday_name(day: NaiveDate) -> Option<LocalizedText> {
    let name = match (day.month(), day.day()) {
        (1, 1) => LocalizedText::new("New Year's Day", "Confraternização Universal"),
        (1, 25) => LocalizedText::new("Anniversary of São Paulo", "Aniversário de São Paulo"),
        (4, 21) => LocalizedText::new("Tiradentes Day", "Tiradentes"),
        (5, 1) => LocalizedText::new("Labor Day", "Dia do Trabalho"),
        (7, 9) => LocalizedText::new("Constitutionalist Revolution Day", "Revolução Constitucionalista"),
        (9, 7) => LocalizedText::new("Independence Day", "Independência do Brasil"),
        (10, 12) => LocalizedText::new("Our Lady of Aparecida", "Nossa Senhora Aparecida"),
        (11, 2) => LocalizedText::new("All Souls' Day", "Finados"),
        (11, 15) => LocalizedText::new("Republic Proclamation Day", "Proclamação da República"),
        (11, 20) if day.year() >= FIRST_NATIONAL_AWARENESS_DAY => LocalizedText::new(
            "National Day of Zumbi and Black Awareness",
            "Dia Nacional de Zumbi e da Consciência Negra",
        ),
        (11, 20) => LocalizedText::new("Black Awareness Day", "Dia da Consciência Negra"),
        (12, 24) => LocalizedText::new("Christmas Eve", "Véspera de Natal"),
        (12, 25) => LocalizedText::new("Christmas Day", "Natal"),
        (12, 31) => LocalizedText::new("New Year's Eve", "Véspera de Ano-Novo"),
        // The exchange closes on the last weekday of the year.
        (12, 29 | 30) if day.weekday() == Weekday::Fri => {
            LocalizedText::new("Last weekday of the year", "Último dia de semana do ano")
        }
        _ => return None,
    };
    Some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holidays_are_named_by_their_date_and_year() {
        let name = |date: &str| holiday_name(date.parse().unwrap()).map(|name| name.en);
        assert_eq!(name("2027-02-09"), Some("Carnival Tuesday"));
        assert_eq!(name("2027-03-26"), Some("Good Friday"));
        assert_eq!(name("2027-05-27"), Some("Corpus Christi"));
        assert_eq!(name("2000-04-21"), Some("Good Friday and Tiradentes Day"));
        assert_eq!(name("2019-11-20"), Some("Black Awareness Day"));
        assert_eq!(name("2024-11-20"), Some("National Day of Zumbi and Black Awareness"));
        assert_eq!(name("2023-12-29"), Some("Last weekday of the year"));
        assert_eq!(name("2026-12-29"), None);
        assert_eq!(name("2027-03-25"), None);
    }
}
