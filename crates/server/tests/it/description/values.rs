//! What the description repeats from the code. A source writes `${name}` for a value; limits have the names of their
//! constants.

use std::collections::BTreeMap;

use vintem_api::limits;
use vintem_deliver::webhook::{MAX_URL_LENGTH, REQUEST_TIMEOUT};
use vintem_domain::dates::{MAX_DATE, MIN_DATE};
use vintem_domain::email::MAX_EMAIL_LENGTH;
use vintem_domain::event::EventKind;
use vintem_domain::key::{MAX_LABEL_LENGTH, UNUSED_KEY_DAYS};
use vintem_domain::lang::{Lang, LocalizedText};
use vintem_domain::problem::ErrorCode;
use vintem_domain::series::{Frequency, SeriesGroup, published_series};
use vintem_domain::statement::{ChartOfAccounts, Statement};
use vintem_domain::webhook::{DeliveryState, MAX_WEBHOOKS_PER_KEY};
use vintem_domain::{Calendar, Currency, Plan, VERSION};
use vintem_store::keys::MAX_DAILY_KEY_CHANGES;
use vintem_store::webhooks::dispatch::MAX_ATTEMPTS_KEPT;

const FREQUENCIES: [Frequency; 7] = [
    Frequency::Daily,
    Frequency::BusinessDaily,
    Frequency::Anniversaries,
    Frequency::Weekly(chrono::Weekday::Fri),
    Frequency::Monthly,
    Frequency::Quarterly,
    Frequency::Annual,
];

#[derive(Debug, Clone)]
pub enum StatedValue {
    /// Written in place of `${name}`.
    Text(String),
    /// Written as a list below the key: `enum: ${name}`.
    List(Vec<&'static str>),
}

/// The values by their names, written as in this language.
pub fn stated_values(lang: Lang) -> BTreeMap<String, StatedValue> {
    let mut values = BTreeMap::new();
    values.extend(lists().map(|(name, items)| (name.to_owned(), StatedValue::List(items))));
    values.extend(texts(lang).map(|(name, text)| (name.to_owned(), StatedValue::Text(text))));
    values.extend(parameter_limits(lang).map(|(name, limit)| (name.to_owned(), StatedValue::Text(limit))));
    values.extend(key_limits().map(|(name, limit)| (name.to_owned(), StatedValue::Text(limit))));

    for plan in Plan::ALL {
        let price = plan.monthly_price_usd().to_string();
        let requests = plan.default_requests_per_minute().to_string();
        values.insert(format!("price.{}", plan.id()), StatedValue::Text(price));
        values.insert(format!("requests.{}", plan.id()), StatedValue::Text(requests));
    }

    for series in published_series() {
        let code = series.sgs_code.map(|code| StatedValue::Text(code.to_string()));
        values.extend(code.map(|code| (format!("sgs.{}", series.id), code)));
    }

    values
}

fn lists() -> [(&'static str, Vec<&'static str>); 9] {
    [
        ("calendars", Calendar::ALL.map(Calendar::id).into()),
        ("charts_of_accounts", ChartOfAccounts::ALL.map(ChartOfAccounts::id).into()),
        ("delivery_states", DeliveryState::ALL.map(DeliveryState::id).into()),
        ("error_codes", ErrorCode::ALL.map(ErrorCode::id).into()),
        ("frequencies", FREQUENCIES.map(Frequency::id).into()),
        ("series_groups", SeriesGroup::ALL.map(SeriesGroup::id).into()),
        ("event_types", EventKind::ALL.map(EventKind::id).into()),
        ("statements", Statement::ALL.map(Statement::id).into()),
        ("plan_ids", Plan::ALL.map(Plan::id).into()),
    ]
}

fn texts(lang: Lang) -> [(&'static str, String); 5] {
    let event_types = EventKind::ALL.map(|kind| kind.id().replace('.', r"\."));
    [
        ("currencies", enumerate(&Currency::ALL.map(Currency::code), lang)),
        ("event_type_pattern", event_types.join("|")),
        ("max_date", MAX_DATE.to_string()),
        ("min_date", MIN_DATE.to_string()),
        ("version", VERSION.to_owned()),
    ]
}

/// The limits of queries and bodies.
fn parameter_limits(lang: Lang) -> [(&'static str, String); 22] {
    [
        ("default_limit", limits::DEFAULT_LIMIT.to_string()),
        ("default_usage_days", limits::DEFAULT_USAGE_DAYS.to_string()),
        ("max_amount", limits::AMOUNT_BOUNDS.max.to_string()),
        ("max_body_kilobytes", (limits::MAX_BODY_BYTES / 1024).to_string()),
        ("max_compared_values", group_digits(limits::MAX_COMPARED_VALUES, lang)),
        ("max_csv_companies", group_digits(limits::MAX_CSV_COMPANIES, lang)),
        ("max_csv_filings", group_digits(limits::MAX_CSV_FILINGS, lang)),
        ("max_email_length", MAX_EMAIL_LENGTH.to_string()),
        ("max_filter_chars", limits::MAX_FILTER_CHARS.to_string()),
        ("max_name_chars", limits::MAX_NAME_CHARS.to_string()),
        ("max_observations", limits::MAX_OBSERVATIONS.to_string()),
        ("max_page_rows", limits::MAX_PAGE_ROWS.to_string()),
        ("max_percent", limits::PERCENT_BOUNDS.max.to_string()),
        ("max_range_years", limits::MAX_RANGE_YEARS.to_string()),
        ("max_search_chars", limits::MAX_SEARCH_CHARS.to_string()),
        ("max_search_hits", limits::MAX_SEARCH_HITS.to_string()),
        ("max_spread", limits::SPREAD_BOUNDS.max.to_string()),
        ("max_statement_rows", limits::MAX_STATEMENT_ROWS.to_string()),
        ("max_step_days", limits::MAX_STEP_DAYS.to_string()),
        ("max_usage_days", limits::MAX_USAGE_DAYS.to_string()),
        ("max_wait_seconds", limits::MAX_WAIT_SECONDS.to_string()),
        ("min_spread", limits::SPREAD_BOUNDS.min.to_string()),
    ]
}

/// The limits of keys and webhooks.
fn key_limits() -> [(&'static str, String); 10] {
    [
        ("delivery_timeout_seconds", REQUEST_TIMEOUT.as_secs().to_string()),
        ("max_attempts_kept", MAX_ATTEMPTS_KEPT.to_string()),
        ("max_daily_key_changes", MAX_DAILY_KEY_CHANGES.to_string()),
        ("max_filter_values", limits::MAX_FILTER_VALUES.to_string()),
        ("max_grace_seconds", limits::MAX_GRACE_SECONDS.to_string()),
        ("max_label_length", MAX_LABEL_LENGTH.to_string()),
        ("max_long_polls_per_key", limits::MAX_LONG_POLLS.to_string()),
        ("max_webhook_url_length", MAX_URL_LENGTH.to_string()),
        ("max_webhooks_per_key", MAX_WEBHOOKS_PER_KEY.to_string()),
        ("unused_key_days", UNUSED_KEY_DAYS.to_string()),
    ]
}

/// `a, b and c`
fn enumerate(items: &[&str], lang: Lang) -> String {
    match items {
        [] => String::new(),
        [only] => (*only).to_owned(),
        [most @ .., last] => format!("{} {} {last}", most.join(", "), LocalizedText::new("and", "e").in_lang(lang)),
    }
}

/// `1,000,000`
fn group_digits(number: usize, lang: Lang) -> String {
    let digits = number.to_string();
    let groups: Vec<&str> =
        digits.as_bytes().rchunks(3).rev().map(|group| std::str::from_utf8(group).unwrap_or_default()).collect();
    groups.join(LocalizedText::new(",", ".").in_lang(lang))
}
