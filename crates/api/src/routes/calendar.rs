//! Business days and holidays: list them, add days to a date, and check a single date.

use axum::response::Response;
use axum::routing::get;
use chrono::{Datelike, Months, NaiveDate, Weekday};
use serde::Serialize;
use vintem_deliver::table::{Column, OutputTable};
use vintem_domain::{Calendar, DateRange, Holiday, Lang, LocalizedText, Problem};
use vintem_snapshot::Snapshot;

use crate::api_error::ApiError;
use crate::app::Handlers;
use crate::bodies::NamesBody;
use crate::csv::ListFormat;
use crate::icalendar::{self, AllDayEvent};
use crate::params::{QueryParams, invalid_param, ordered_date_range};
use crate::responses::{EtagResponder, WholeList};
use crate::snapshot_request::SnapshotRequest;

/// The longest range per request.
pub const MAX_RANGE_YEARS: u32 = 40;
/// The most business days that can be added or subtracted: 40 years of 252.
pub const MAX_STEP_DAYS: i64 = 40 * 252;

#[derive(Serialize)]
struct BusinessDaysBody {
    calendar: &'static str,
    from: NaiveDate,
    to: NaiveDate,
    #[serde(flatten)]
    position: WholeList,
    data: Vec<NaiveDate>,
}

#[derive(Serialize)]
struct AddedBusinessDaysBody {
    calendar: &'static str,
    date: NaiveDate,
    days: i64,
    result: NaiveDate,
}

#[derive(Serialize)]
struct CalendarDayBody {
    calendar: &'static str,
    date: NaiveDate,
    business_day: bool,
    /// `business-day`, `weekend` or `holiday`.
    kind: &'static str,
    /// Also on a weekend.
    holiday: Option<HolidayNameBody>,
    previous: Option<NaiveDate>,
    next: Option<NaiveDate>,
}

#[derive(Serialize)]
struct HolidaysBody {
    calendar: &'static str,
    year: i32,
    #[serde(flatten)]
    position: WholeList,
    data: Vec<HolidayBody>,
}

#[derive(Serialize)]
struct HolidayBody {
    date: NaiveDate,
    weekday: &'static str,
    #[serde(flatten)]
    name: HolidayNameBody,
}

#[derive(Serialize)]
struct HolidayNameBody {
    name: &'static str,
    names: NamesBody,
}

pub fn handlers() -> Handlers {
    vec![
        ("list_business_days", get(list_business_days)),
        ("add_business_days", get(add_business_days)),
        ("list_holidays", get(list_holidays)),
        ("get_holidays_ics", get(get_holidays_ics)),
        ("check_day", get(check_day)),
    ]
}

async fn list_business_days(request: SnapshotRequest, query: QueryParams) -> Result<Response, ApiError> {
    let from = query.required_date("from")?;
    let to = query.required_date("to")?;
    let calendar = parse_calendar(&query)?;
    let format = ListFormat::from_query(&query, request.prefers_csv)?;
    let range = ordered_date_range(from, to)?;
    if from + Months::new(12 * MAX_RANGE_YEARS) < to {
        return Ok(invalid_param(
            "to",
            LocalizedText::new("must be at most 40 years after `from`", "deve ser no máximo 40 anos após `from`"),
        )?);
    }

    let data: Vec<NaiveDate> = calendar.business_days(range).collect();
    let body = |data: Vec<NaiveDate>| BusinessDaysBody {
        calendar: calendar.id(),
        from,
        to,
        position: WholeList::of(data.len()),
        data,
    };
    Ok(calendar_responder(&request).respond_list(format, data, body, |data| {
        let columns = vec![Column::date("date"), Column::text("calendar")];
        OutputTable::from_rows("business-days", columns, data, move |date, cells| {
            cells.write_date(Some(*date));
            cells.write_text(calendar.id());
        })
    }))
}

async fn add_business_days(request: SnapshotRequest, query: QueryParams) -> Result<Response, ApiError> {
    let date = query.required_date("date")?;
    let calendar = parse_calendar(&query)?;

    let must = LocalizedText::new(
        "is required: an integer from -10080 to 10080, and the resulting date must be from 1900-01-01 to 2199-12-31",
        "é obrigatório: um número inteiro de -10080 a 10080, e a data resultante deve estar entre 1900-01-01 e 2199-12-31",
    );
    let days = query.single_value("days")?.and_then(parse_whole_number).filter(|days| days.abs() <= MAX_STEP_DAYS);
    let result = days.and_then(|days| Some((days, calendar.add_business_days(date, days)?)));
    let Some((days, result)) = result else { return Ok(invalid_param("days", must)?) };

    Ok(calendar_responder(&request).respond_json(|| AddedBusinessDaysBody {
        calendar: calendar.id(),
        date,
        days,
        result,
    }))
}

async fn list_holidays(request: SnapshotRequest, query: QueryParams) -> Result<Response, ApiError> {
    let year = required_year(&query)?;
    let calendar = parse_calendar(&query)?;
    let format = ListFormat::from_query(&query, request.prefers_csv)?;

    let lang = request.lang;
    let holidays = calendar.holidays(DateRange::for_year(year)).to_vec();
    let body = |holidays: Vec<Holiday>| {
        let data: Vec<HolidayBody> = holidays.iter().map(|holiday| holiday_body(holiday, lang)).collect();
        HolidaysBody { calendar: calendar.id(), year, position: WholeList::of(data.len()), data }
    };
    Ok(calendar_responder(&request).respond_list(format, holidays, body, |holidays| {
        let columns = vec![
            Column::date("date"),
            Column::text("weekday"),
            Column::text("name"),
            Column::text("name_en"),
            Column::text("name_pt"),
            Column::text("calendar"),
        ];
        OutputTable::from_rows("holidays", columns, holidays, move |holiday: &Holiday, cells| {
            cells.write_date(Some(holiday.date));
            cells.write_text(weekday_id(holiday.date.weekday()));
            cells.write_text(holiday.name.in_lang(lang));
            cells.write_text(holiday.name.en);
            cells.write_text(holiday.name.pt);
            cells.write_text(calendar.id());
        })
    }))
}

async fn get_holidays_ics(request: SnapshotRequest, query: QueryParams) -> Result<Response, ApiError> {
    let year = required_year(&query)?;
    let calendar = parse_calendar(&query)?;

    let title = match calendar {
        Calendar::Settlement => LocalizedText::new("Brazilian bank holidays", "Feriados bancários do Brasil"),
        Calendar::Exchange => LocalizedText::new("B3 holidays", "Feriados da B3"),
    };
    let event = |holiday: &Holiday| AllDayEvent {
        uid: format!("holiday-{}-{}@vintem", calendar.id(), holiday.date),
        date: holiday.date,
        summary: holiday.name.in_lang(request.lang),
    };
    Ok(calendar_responder(&request).respond_text(icalendar::CONTENT_TYPE, || {
        let events: Vec<AllDayEvent> = calendar.holidays(DateRange::for_year(year)).iter().map(event).collect();
        icalendar::write_calendar(title.in_lang(request.lang), &events)
    }))
}

async fn check_day(request: SnapshotRequest, query: QueryParams) -> Result<Response, ApiError> {
    let date = query.required_date("date")?;
    let calendar = parse_calendar(&query)?;

    let body = CalendarDayBody {
        calendar: calendar.id(),
        date,
        business_day: calendar.is_business_day(date),
        kind: calendar.day_kind(date).id(),
        holiday: calendar.holiday(date).map(|holiday| holiday_name_body(&holiday, request.lang)),
        previous: calendar.add_business_days(date, -1),
        next: calendar.add_business_days(date, 1),
    };
    Ok(calendar_responder(&request).respond_json(|| body))
}

fn holiday_body(holiday: &Holiday, lang: Lang) -> HolidayBody {
    HolidayBody {
        date: holiday.date,
        weekday: weekday_id(holiday.date.weekday()),
        name: holiday_name_body(holiday, lang),
    }
}

fn holiday_name_body(holiday: &Holiday, lang: Lang) -> HolidayNameBody {
    HolidayNameBody { name: holiday.name.in_lang(lang), names: holiday.name.into() }
}

const fn weekday_id(weekday: Weekday) -> &'static str {
    match weekday {
        Weekday::Mon => "monday",
        Weekday::Tue => "tuesday",
        Weekday::Wed => "wednesday",
        Weekday::Thu => "thursday",
        Weekday::Fri => "friday",
        Weekday::Sat => "saturday",
        Weekday::Sun => "sunday",
    }
}

/// Calendars are compiled in and depend on no dataset.
fn calendar_responder(request: &SnapshotRequest) -> EtagResponder<'_> {
    EtagResponder::new(request, &Snapshot::default(), &[], ())
}

fn parse_calendar(query: &QueryParams) -> Result<Calendar, Problem> {
    let Some(id) = query.single_value("calendar")? else { return Ok(Calendar::Settlement) };
    let must = LocalizedText::new("must be `settlement` or `exchange`", "deve ser `settlement` ou `exchange`");
    Calendar::from_id(id).map_or_else(|| invalid_param("calendar", must), Ok)
}

fn required_year(query: &QueryParams) -> Result<i32, Problem> {
    let must = LocalizedText::new("is required: a year from 1900 to 2199", "é obrigatório: um ano de 1900 a 2199");
    query.year()?.map_or_else(|| invalid_param("year", must), Ok)
}

/// Parses digits with an optional minus sign.
fn parse_whole_number(text: &str) -> Option<i64> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().ok()).flatten()
}
