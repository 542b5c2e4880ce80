//! The data of events about financial statements.

use chrono::NaiveDate;
use serde::{Deserialize, Serialize};
use vintem_domain::decimal::parse_exact_decimal;
use vintem_domain::statement::english_account_name;
use vintem_domain::{CompanyId, StatementSet};
use vintem_snapshot::{Snapshot, VersionedDocument, statement_documents};

use super::statement::{DocumentOfRows, DocumentVersionBody, StatementPeriodBody};
use crate::json_number::JsonNumber;

/// A document, as the load recorded it. Events of other kinds have none.
#[derive(Debug, Default, Deserialize)]
pub struct StatementSubject {
    set: Option<String>,
    reference_date: Option<NaiveDate>,
    version: Option<u16>,
    previous_version: Option<u16>,
    change_count: Option<usize>,
    changes: Option<Vec<ChangeSubject>>,
}

#[derive(Debug, Deserialize)]
struct ChangeSubject {
    statement: String,
    method: Option<String>,
    scope: String,
    equity_column: Option<String>,
    account: String,
    name: String,
    unit: String,
    period_start: Option<NaiveDate>,
    period_end: NaiveDate,
    old: Option<String>,
    new: Option<String>,
}

#[derive(Debug, Serialize)]
pub struct PublishedStatementBody {
    company_id: String,
    #[serde(flatten)]
    period: StatementPeriodBody,
}

#[derive(Debug, Serialize)]
pub struct RestatedStatementBody {
    company_id: String,
    #[serde(flatten)]
    document: DocumentVersionBody,
    previous_version: u16,
    total_changes: usize,
    changes: Vec<ValueChangeBody>,
}

#[derive(Debug, Serialize)]
struct ValueChangeBody {
    statement: String,
    method: Option<String>,
    scope: String,
    column: Option<String>,
    account: String,
    name: String,
    name_en: Option<&'static str>,
    unit: String,
    period_start: Option<NaiveDate>,
    period_end: NaiveDate,
    old: Option<JsonNumber>,
    new: Option<JsonNumber>,
}

/// A version of a company's document, as it was known on a day, and whether it is the newest one.
fn find_version<'s>(
    snapshot: &'s Snapshot,
    company_id: CompanyId,
    subject: &StatementSubject,
    today: NaiveDate,
) -> Option<(DocumentOfRows<'s>, bool)> {
    let set = StatementSet::from_id(subject.set.as_deref()?)?;
    let reference_date = subject.reference_date?;
    let documents = statement_documents(snapshot.statements()?, snapshot.filings(), company_id, today);
    let is_document =
        |document: &VersionedDocument<'_>| document.set == set && document.reference_date == reference_date;
    let document = documents.into_iter().find(is_document)?;
    let index = document.versions.iter().position(|version| Some(version.version) == subject.version)?;
    let version = document.versions[index];
    Some((DocumentOfRows { set, reference_date, version, certainty: None }, index == 0))
}

pub fn published_statement(
    snapshot: &Snapshot,
    company_id: CompanyId,
    subject: &StatementSubject,
    today: NaiveDate,
) -> Option<PublishedStatementBody> {
    let (document, is_latest) = find_version(snapshot, company_id, subject, today)?;
    Some(PublishedStatementBody {
        company_id: company_id.to_string(),
        period: StatementPeriodBody::new(&document, is_latest),
    })
}

pub fn restated_statement(
    snapshot: &Snapshot,
    company_id: CompanyId,
    subject: StatementSubject,
    today: NaiveDate,
) -> Option<RestatedStatementBody> {
    let (document, _) = find_version(snapshot, company_id, &subject, today)?;
    Some(RestatedStatementBody {
        company_id: company_id.to_string(),
        document: DocumentVersionBody::of(&document),
        previous_version: subject.previous_version?,
        total_changes: subject.change_count?,
        changes: subject.changes?.into_iter().map(ChangeSubject::into_body).collect(),
    })
}

impl ChangeSubject {
    fn into_body(self) -> ValueChangeBody {
        let number = |text: Option<String>| {
            text.and_then(|text| parse_exact_decimal(&text)).map(|value| JsonNumber { value, as_text: false })
        };
        ValueChangeBody {
            name_en: english_account_name(&self.name),
            statement: self.statement,
            method: self.method,
            scope: self.scope,
            column: self.equity_column,
            account: self.account,
            name: self.name,
            unit: self.unit,
            period_start: self.period_start,
            period_end: self.period_end,
            old: number(self.old),
            new: number(self.new),
        }
    }
}
