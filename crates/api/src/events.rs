//! What an event says: the resource that it tells of, as the API itself shows it.

use chrono::{DateTime, NaiveDate, Utc};
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use vintem_domain::Pair;
use vintem_domain::dates::sao_paulo_day;
use vintem_domain::decimal::parse_exact;
use vintem_domain::event::{EventKind, WEBHOOK_TEST};
use vintem_domain::webhook::Topic;
use vintem_snapshot::Snapshot;
use vintem_store::events::{Publication, UnpublishedEvent};

use crate::number::Number;
use crate::routes::companies::CompanyBody;
use crate::routes::filings::FilingBody;
use crate::routes::market::{fx_source, of_day, series_source};
use crate::routes::status::instant;

#[derive(Serialize)]
struct EventBody<'e> {
    id: &'e str,
    r#type: &'e str,
    timestamp: String,
    data: Box<RawValue>,
}

/// What a load noted of it.
#[derive(Deserialize)]
struct Subject {
    filing: Option<String>,
    company: Option<u32>,
    series: Option<String>,
    pair: Option<String>,
    date: Option<NaiveDate>,
    old: Option<Told>,
    new: Option<Told>,
}

/// A value, or the two of an exchange rate.
#[derive(Deserialize)]
#[serde(untagged)]
enum Told {
    Value(String),
    Quote { buy: String, sell: String },
}

#[derive(Serialize)]
struct TestData<'t> {
    webhook_id: &'t str,
}

#[derive(Serialize)]
struct RevisedBody {
    series: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pair: Option<String>,
    date: NaiveDate,
    old: ToldBody,
    new: ToldBody,
    known_at: String,
}

#[derive(Serialize)]
#[serde(untagged)]
enum ToldBody {
    Value(Number),
    Quote { buy: Number, sell: Number },
}

impl Told {
    fn body(&self) -> Option<ToldBody> {
        let number = |text: &str| parse_exact(text).map(|value| Number { value, as_text: false });
        Some(match self {
            Self::Value(value) => ToldBody::Value(number(value)?),
            Self::Quote { buy, sell } => ToldBody::Quote { buy: number(buy)?, sell: number(sell)? },
        })
    }
}

/// The event as callers get it, from a snapshot that has what it tells of.
pub fn publication(snapshot: &Snapshot, event: &UnpublishedEvent) -> Publication {
    let subject: Option<Subject> = serde_json::from_str(&event.subject).ok();
    let topic = subject.as_ref().map(|subject| topic(snapshot, subject)).unwrap_or_default();
    let told = subject.and_then(|subject| data(snapshot, event, subject));
    // What is gone again since is told of as it was noted.
    let noted = || RawValue::from_string(event.subject.clone()).ok();
    let body = EventBody {
        id: &event.id,
        r#type: &event.kind,
        timestamp: instant(event.occurred_at),
        data: told.or_else(noted).unwrap_or_default(),
    };
    let body = serde_json::to_string(&body).expect("bodies have text keys only");
    Publication { sequence: event.sequence, body, topic }
}

fn topic(snapshot: &Snapshot, subject: &Subject) -> Topic {
    let filings = snapshot.filings().zip(subject.filing.as_deref());
    let filing = filings.and_then(|(filings, id)| Some(filings.get(filings.by_id(id)?).filing));
    let company = subject.company.or_else(|| filing.as_ref().map(|filing| filing.company_id));
    Topic {
        company: company.map(|company| company.to_string()),
        category: filing.map(|filing| filing.category.to_owned()),
        series: subject.series.clone(),
        pair: subject.pair.clone(),
    }
}

/// What a webhook is sent when its owner tries it.
pub fn test_body(event: &str, webhook: &str, now: DateTime<Utc>) -> String {
    let body = EventBody {
        id: event,
        r#type: WEBHOOK_TEST,
        timestamp: instant(now),
        data: raw(&TestData { webhook_id: webhook }).unwrap_or_default(),
    };
    serde_json::to_string(&body).expect("bodies have text keys only")
}

fn data(snapshot: &Snapshot, event: &UnpublishedEvent, subject: Subject) -> Option<Box<RawValue>> {
    let today = sao_paulo_day(event.occurred_at);
    match EventKind::from_id(&event.kind)? {
        EventKind::FilingPublished => {
            let filings = snapshot.filings()?;
            raw(&FilingBody::from(filings.get(filings.by_id(&subject.filing?)?)))
        }
        EventKind::CompanyUpdated => {
            let companies = snapshot.companies()?;
            raw(&CompanyBody::from(companies.get(companies.resolve(&subject.company?.to_string())?)))
        }
        EventKind::RatePublished => {
            raw(&of_day(&series_source(snapshot, &subject.series?).ok()?, subject.date?, today)?)
        }
        EventKind::FxPublished => {
            let pair = Pair::parse(&subject.pair?)?;
            raw(&of_day(&fx_source(snapshot, pair).ok()?, subject.date?, today)?)
        }
        EventKind::SeriesRevised => revised(subject, event.occurred_at),
    }
}

fn revised(subject: Subject, known_at: DateTime<Utc>) -> Option<Box<RawValue>> {
    raw(&RevisedBody {
        series: subject.series?,
        pair: subject.pair,
        date: subject.date?,
        old: subject.old?.body()?,
        new: subject.new?.body()?,
        known_at: instant(known_at),
    })
}

fn raw(body: &impl Serialize) -> Option<Box<RawValue>> {
    to_raw_value(body).ok()
}
