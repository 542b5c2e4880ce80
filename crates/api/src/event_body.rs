//! Event bodies: the resource that an event is about, in the same shape as in the API.

use chrono::{DateTime, NaiveDate, Utc};
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use vintem_domain::CurrencyPair;
use vintem_domain::dates::sao_paulo_date;
use vintem_domain::decimal::parse_exact_decimal;
use vintem_domain::event::{EventKind, WEBHOOK_TEST_EVENT};
use vintem_domain::webhook::EventAttributes;
use vintem_snapshot::Snapshot;
use vintem_store::events::{EventPublication, UnpublishedEvent};

use crate::bodies::company::CompanyBody;
use crate::bodies::filing::FilingBody;
use crate::bodies::format_instant;
use crate::bodies::market::{fx_source, rate_on_day, series_source};
use crate::bodies::statement_event::{StatementSubject, published_statement, restated_statement};
use crate::json_number::JsonNumber;

#[derive(Serialize)]
struct EventBody<'e> {
    id: &'e str,
    r#type: &'e str,
    timestamp: String,
    data: Box<RawValue>,
}

/// The subject of an event, as the load recorded it.
#[derive(Deserialize)]
struct EventSubject {
    filing: Option<String>,
    company: Option<u32>,
    series: Option<String>,
    pair: Option<String>,
    date: Option<NaiveDate>,
    old: Option<RevisedValue>,
    new: Option<RevisedValue>,
    revisions: Option<RevisionSummary>,
    #[serde(flatten)]
    statement: StatementSubject,
}

/// How many values of a series a load revised, if the publisher estimates all of them again.
#[derive(Serialize, Deserialize)]
struct RevisionSummary {
    count: u32,
    from: NaiveDate,
    to: NaiveDate,
}

/// A single value, or the two values of an exchange rate.
#[derive(Deserialize)]
#[serde(untagged)]
enum RevisedValue {
    Value(String),
    Quote { buy: String, sell: String },
}

#[derive(Serialize)]
struct TestEventData<'t> {
    webhook_id: &'t str,
}

#[derive(Serialize)]
struct SeriesRevisedBody {
    series: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pair: Option<String>,
    date: NaiveDate,
    old: RevisedValueBody,
    new: RevisedValueBody,
    known_at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    revisions: Option<RevisionSummary>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum RevisedValueBody {
    Value(JsonNumber),
    Quote { buy: JsonNumber, sell: JsonNumber },
}

impl RevisedValue {
    fn to_body(&self) -> Option<RevisedValueBody> {
        let number = |text: &str| parse_exact_decimal(text).map(|value| JsonNumber { value, as_text: false });
        Some(match self {
            Self::Value(value) => RevisedValueBody::Value(number(value)?),
            Self::Quote { buy, sell } => RevisedValueBody::Quote { buy: number(buy)?, sell: number(sell)? },
        })
    }
}

/// Renders the event as callers get it, from a snapshot that contains its subject.
pub fn build_publication(snapshot: &Snapshot, event: &UnpublishedEvent) -> EventPublication {
    let subject: Option<EventSubject> = serde_json::from_str(&event.subject_json).ok();
    let attributes = subject.as_ref().map(|subject| event_attributes(snapshot, subject)).unwrap_or_default();
    let data = subject.and_then(|subject| event_data(snapshot, event, subject));
    // If the resource has been removed since, send the recorded subject instead.
    let recorded_subject = || RawValue::from_string(event.subject_json.clone()).ok();

    let body = EventBody {
        id: &event.id,
        r#type: &event.kind,
        timestamp: format_instant(event.occurred_at),
        data: data.or_else(recorded_subject).unwrap_or_default(),
    };
    let body = serde_json::to_string(&body).expect("bodies have text keys only");
    EventPublication { sequence: event.sequence, body, attributes }
}

fn event_attributes(snapshot: &Snapshot, subject: &EventSubject) -> EventAttributes {
    let filings = snapshot.filings().zip(subject.filing.as_deref());
    let filing = filings.and_then(|(filings, id)| Some(filings.get(filings.find_by_id(id)?).filing));
    let company = subject.company.or_else(|| filing.as_ref().map(|filing| filing.company_id));

    EventAttributes {
        company: company.map(|company| company.to_string()),
        category: filing.map(|filing| filing.category.to_owned()),
        series: subject.series.clone(),
        pair: subject.pair.clone(),
    }
}

/// The event that a webhook receives when its owner sends a test.
pub fn render_test_event(event_id: &str, webhook_id: &str, now: DateTime<Utc>) -> String {
    let body = EventBody {
        id: event_id,
        r#type: WEBHOOK_TEST_EVENT,
        timestamp: format_instant(now),
        data: to_raw_json(&TestEventData { webhook_id }).unwrap_or_default(),
    };
    serde_json::to_string(&body).expect("bodies have text keys only")
}

fn event_data(snapshot: &Snapshot, event: &UnpublishedEvent, subject: EventSubject) -> Option<Box<RawValue>> {
    let today = sao_paulo_date(event.occurred_at);
    match EventKind::from_id(&event.kind)? {
        EventKind::FilingPublished => {
            let filings = snapshot.filings()?;
            to_raw_json(&FilingBody::from(filings.get(filings.find_by_id(&subject.filing?)?)))
        }
        EventKind::CompanyUpdated => {
            let companies = snapshot.companies()?;
            to_raw_json(&CompanyBody::from(companies.get(companies.resolve(&subject.company?.to_string())?)))
        }
        EventKind::RatePublished => {
            to_raw_json(&rate_on_day(&series_source(snapshot, &subject.series?).ok()?, subject.date?, today)?)
        }
        EventKind::FxPublished => {
            let pair = CurrencyPair::parse(&subject.pair?)?;
            to_raw_json(&rate_on_day(&fx_source(snapshot, pair).ok()?, subject.date?, today)?)
        }
        EventKind::SeriesRevised => revision_data(subject, event.occurred_at),
        EventKind::StatementPublished => {
            to_raw_json(&published_statement(snapshot, subject.company?, &subject.statement, today)?)
        }
        EventKind::StatementRestated => {
            to_raw_json(&restated_statement(snapshot, subject.company?, subject.statement, today)?)
        }
    }
}

fn revision_data(subject: EventSubject, known_at: DateTime<Utc>) -> Option<Box<RawValue>> {
    to_raw_json(&SeriesRevisedBody {
        series: subject.series?,
        pair: subject.pair,
        date: subject.date?,
        old: subject.old?.to_body()?,
        new: subject.new?.to_body()?,
        known_at: format_instant(known_at),
        revisions: subject.revisions,
    })
}

fn to_raw_json(body: &impl Serialize) -> Option<Box<RawValue>> {
    to_raw_value(body).ok()
}
