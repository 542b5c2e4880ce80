//! The documents of a company that were known on a day: the archived ones, joined with the index of filings.
//!
//! The index has every version that was ever delivered; the archive only those that we saw. A version is known from its
//! delivery or, if the index lacks it, from when we first saw it.

use std::collections::{BTreeMap, HashSet};

use chrono::NaiveDate;
use vintem_domain::dates::sao_paulo_date;
use vintem_domain::point_in_time::Certainty;
use vintem_domain::{CompanyId, StatementSet};
use vintem_store::reader::FilingRow;

use super::{StatementForm, Statements};
use crate::filings::Filings;

/// The statements of a set at a date, with every version that was known.
#[derive(Debug, Clone)]
pub struct VersionedDocument<'s> {
    pub set: StatementSet,
    pub reference_date: NaiveDate,
    /// The highest first; at least one.
    pub versions: Vec<StatementVersion<'s>>,
}

#[derive(Debug, Clone, Copy)]
pub struct StatementVersion<'s> {
    pub version: u16,
    /// `None` if the index of filings lacks it.
    pub filing: Option<FilingRow<'s>>,
    /// As published on that day. `None` if we never archived this version.
    pub form: Option<&'s StatementForm>,
}

impl StatementVersion<'_> {
    /// Whether we had seen the document by a day, or know only from its delivery that it was public.
    pub fn certainty_on(&self, day: NaiveDate) -> Certainty {
        let is_observed = self.form.is_some_and(|form| sao_paulo_date(form.provenance.known_at()) <= day);
        if is_observed { Certainty::Observed } else { Certainty::Estimated }
    }
}

type DocumentVersionKey = (StatementSet, NaiveDate, u16);

/// The newest first; annual statements before quarterly ones of the same date.
pub fn statement_documents<'s>(
    statements: &'s Statements,
    filings: Option<&'s Filings>,
    company: CompanyId,
    day: NaiveDate,
) -> Vec<VersionedDocument<'s>> {
    let mut versions: BTreeMap<DocumentVersionKey, StatementVersion<'s>> = BTreeMap::new();
    // Their forms are not known yet, whenever we saw them.
    let mut delivered_later: HashSet<DocumentVersionKey> = HashSet::new();
    for filing in filings.map_or_else(Vec::new, |filings| filings.statement_filings(company)) {
        let set = StatementSet::from_cvm_dataset(filing.cvm_dataset);
        let (Some(set), Some(reference_date)) = (set, filing.reference_date) else { continue };
        let key = (set, reference_date, filing.version);
        if filing.delivered_on > day {
            delivered_later.insert(key);
        } else {
            let version = StatementVersion { version: filing.version, filing: Some(filing), form: None };
            versions.entry(key).or_insert(version);
        }
    }

    for forms in statements.of_company(company).chunk_by(|form, next| form.document_key() == next.document_key()) {
        let first = &forms[0];
        let key = (first.set, first.reference_date, first.version);
        let is_seen = |form: &&StatementForm| sao_paulo_date(form.provenance.known_at()) <= day;
        let newest_seen = forms.iter().rev().find(is_seen);
        match versions.get_mut(&key) {
            // Delivered by then, even if we saw it later.
            Some(version) => version.form = newest_seen.or(Some(first)),
            None if delivered_later.contains(&key) => (),
            None => {
                if let Some(form) = newest_seen {
                    let version = StatementVersion { version: first.version, filing: None, form: Some(form) };
                    versions.insert(key, version);
                }
            }
        }
    }
    group_by_document(versions.into_iter().map(|((set, reference_date, _), version)| (set, reference_date, version)))
}

fn group_by_document<'s>(
    versions: impl Iterator<Item = (StatementSet, NaiveDate, StatementVersion<'s>)>,
) -> Vec<VersionedDocument<'s>> {
    let mut documents: Vec<VersionedDocument<'s>> = Vec::new();
    for (set, reference_date, version) in versions {
        match documents.last_mut() {
            Some(last) if (last.set, last.reference_date) == (set, reference_date) => last.versions.insert(0, version),
            _ => documents.push(VersionedDocument { set, reference_date, versions: vec![version] }),
        }
    }
    documents.sort_by(|one, other| other.reference_date.cmp(&one.reference_date).then(one.set.cmp(&other.set)));
    documents
}
