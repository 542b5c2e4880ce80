//! The company whose statements are requested.

use std::sync::Arc;

use axum::extract::Path;
use axum::extract::rejection::PathRejection;
use chrono::NaiveDate;
use vintem_domain::{CompanyId, Dataset};
use vintem_snapshot::{Snapshot, Statements, VersionedDocument, statement_documents};

use crate::api_error::ApiError;
use crate::bodies::require_loaded;
use crate::routes::companies::find_company_in_path;
use crate::snapshot_request::SnapshotRequest;

/// What responses with statements are made of: documents, their filings and the company that the path names.
pub const STATEMENT_DATASETS: [Dataset; 3] = [Dataset::Statements, Dataset::Filings, Dataset::Companies];

/// A company whose statements are requested.
#[derive(Clone)]
pub struct CompanyStatements {
    pub snapshot: Arc<Snapshot>,
    pub company_id: CompanyId,
}

impl CompanyStatements {
    pub fn statements(&self) -> Result<&Statements, ApiError> {
        require_loaded(self.snapshot.statements(), Dataset::Statements)
    }

    pub fn documents(&self, day: NaiveDate) -> Vec<VersionedDocument<'_>> {
        self.snapshot.statements().map_or_else(Vec::new, |statements| {
            statement_documents(statements, self.snapshot.filings(), self.company_id, day)
        })
    }

    pub fn canonical_path(&self, resource: &str) -> String {
        format!("/api/v1/companies/{}/{resource}", self.company_id)
    }
}

/// The company that the path names, if statements are loaded.
pub fn find_statements(
    request: &SnapshotRequest,
    id: Result<Path<String>, PathRejection>,
) -> Result<CompanyStatements, ApiError> {
    let snapshot = request.snapshot()?;
    let companies = require_loaded(snapshot.companies(), Dataset::Companies)?;
    let company_id = companies.get(find_company_in_path(companies, id)?).id;
    require_loaded(snapshot.statements(), Dataset::Statements)?;
    Ok(CompanyStatements { snapshot, company_id })
}
