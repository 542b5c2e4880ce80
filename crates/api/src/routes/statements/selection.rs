//! Which documents of a company a request asks for, and which of their rows.

use chrono::NaiveDate;
use vintem_domain::statement::{
    AccountRow, CashFlowMethod, DocumentFormatError, Statement, StatementContent, StatementScope, StatementTable,
    StatementTableSet, TableContent,
};
use vintem_domain::{DateRange, LocalizedText, Problem, StatementSet};
use vintem_snapshot::{Statements, VersionedDocument};

use crate::api_error::ApiError;
use crate::bodies::statement::{DocumentOfRows, DocumentVersionBody};
use crate::params::{QueryParams, invalid_param};

/// The documents of a company that a request asks for.
#[derive(Debug, Clone)]
pub struct DocumentSelection {
    /// Of their reference dates.
    pub dates: DateRange,
    pub set: Option<StatementSet>,
    /// `None` for the newest of each document.
    pub version: Option<u16>,
    /// Only what was known on this day.
    pub day: NaiveDate,
    /// Whether the day was given.
    pub is_point_in_time: bool,
}

/// The rows of those documents that a request asks for.
#[derive(Debug, Clone, Copy)]
pub struct RowSelection {
    pub statement: Option<Statement>,
    pub scope: ScopeSelection,
    pub period: Option<FiledPeriod>,
    pub with_comparatives: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScopeSelection {
    /// Consolidated statements; individual ones of a company that files no others.
    Best,
    One(StatementScope),
    All,
}

/// The length of a filed period.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FiledPeriod {
    Annual,
    Quarter,
    YearToDate,
}

/// Three months have at most 92 days. Some companies begin a period on the last day of the one before.
const MAX_QUARTER_DAYS: i64 = 95;

/// The selected version of each document.
#[derive(Debug, Default)]
pub struct SelectedDocuments<'s> {
    pub documents: Vec<DocumentOfRows<'s>>,
    /// Versions that were public, but that we never archived.
    pub unavailable: Vec<DocumentVersionBody>,
}

impl DocumentSelection {
    pub fn from_query(query: &QueryParams, today: NaiveDate) -> Result<Self, Problem> {
        let as_of = query.date("as_of")?.map(|day| day.min(today));
        Ok(Self {
            dates: query.date_range()?,
            set: None,
            version: query.version()?,
            day: as_of.unwrap_or(today),
            is_point_in_time: as_of.is_some(),
        })
    }

    pub fn select<'s>(&self, documents: &[VersionedDocument<'s>]) -> SelectedDocuments<'s> {
        let mut selected = SelectedDocuments::default();
        let is_selected = |document: &&VersionedDocument<'s>| {
            self.dates.contains(document.reference_date) && self.set.is_none_or(|set| set == document.set)
        };
        for document in documents.iter().filter(is_selected) {
            self.select_version(document, &mut selected);
        }
        selected
    }

    /// The newest version that we have. A later version is never given in place of an earlier one, and every version that
    /// is newer than the given one is listed.
    fn select_version<'s>(&self, document: &VersionedDocument<'s>, selected: &mut SelectedDocuments<'s>) {
        let VersionedDocument { set, reference_date, versions } = document;
        for version in versions.iter().filter(|version| self.version.is_none_or(|number| number == version.version)) {
            if version.form.is_some() {
                let certainty = self.is_point_in_time.then(|| version.certainty_on(self.day));
                let (set, reference_date, version) = (*set, *reference_date, *version);
                selected.documents.push(DocumentOfRows { set, reference_date, version, certainty });
                return;
            }
            selected.unavailable.push(DocumentVersionBody::new(*set, *reference_date, version));
        }
    }
}

impl RowSelection {
    pub fn from_query(query: &QueryParams, default_scope: ScopeSelection) -> Result<Self, Problem> {
        Ok(Self {
            statement: parse_statement(query)?,
            scope: ScopeSelection::from_query(query)?.unwrap_or(default_scope),
            period: FiledPeriod::from_query(query)?,
            with_comparatives: query.flag("comparatives")?,
        })
    }

    /// Calls `visit` with every selected row of a document.
    pub fn for_each_row(
        &self,
        statements: &Statements,
        document: &DocumentOfRows<'_>,
        mut visit: impl FnMut(&AccountRow<'_>),
    ) -> Result<(), ApiError> {
        let Some(form) = document.version.form else { return Ok(()) };
        let is_wanted = |table: StatementTable| self.has_table(form.tables, table);
        if !form.tables.iter().any(is_wanted) {
            return Ok(());
        }

        let text = statements.read_tables(form, is_wanted)?;
        let parse = if self.with_comparatives {
            StatementContent::parse_tables
        } else {
            StatementContent::parse_tables_as_filed
        };
        let content = parse(&text, is_wanted).map_err(unreadable_document)?;
        for table in content.accounts.chunk_by(|row, next| table_of(row) == table_of(next)) {
            let is_selected =
                |row: &&AccountRow<'_>| self.period.is_none_or(|period| period.has(document.set, table, row));
            table.iter().filter(is_selected).for_each(&mut visit);
        }
        Ok(())
    }

    fn has_table(&self, tables: StatementTableSet, table: StatementTable) -> bool {
        let TableContent::Accounts { statement, scope, .. } = table.content else { return false };
        self.statement.is_none_or(|wanted| wanted == statement) && self.scope.has(tables, scope)
    }
}

pub fn unreadable_document(error: DocumentFormatError) -> ApiError {
    tracing::error!(%error, "an archived statement cannot be read");
    ApiError(Problem::Internal)
}

/// Rows of one table follow each other: first the period filed, then the comparatives.
fn table_of(row: &AccountRow<'_>) -> (Statement, Option<CashFlowMethod>, StatementScope, bool) {
    (row.key.statement, row.key.method, row.key.scope, row.key.is_comparative)
}

impl ScopeSelection {
    fn from_query(query: &QueryParams) -> Result<Option<Self>, Problem> {
        let must = LocalizedText::new(
            "must be `best`, `consolidated`, `individual` or `all`",
            "deve ser `best`, `consolidated`, `individual` ou `all`",
        );
        let choice = query.choice("scope", &["best", "consolidated", "individual", "all"], must)?;
        Ok(choice.map(|text| match text {
            "consolidated" => Self::One(StatementScope::Consolidated),
            "individual" => Self::One(StatementScope::Individual),
            "all" => Self::All,
            _ => Self::Best,
        }))
    }

    /// A document is either taken consolidated or individual as a whole, so that its statements fit together.
    fn has(self, tables: StatementTableSet, scope: StatementScope) -> bool {
        match self {
            Self::Best => tables.scopes().next() == Some(scope),
            Self::One(wanted) => wanted == scope,
            Self::All => true,
        }
    }
}

impl FiledPeriod {
    fn from_query(query: &QueryParams) -> Result<Option<Self>, Problem> {
        let must = LocalizedText::new("must be `annual`, `quarter` or `ytd`", "deve ser `annual`, `quarter` ou `ytd`");
        let choice = query.choice("period", &["annual", "quarter", "ytd"], must)?;
        Ok(choice.map(|text| match text {
            "quarter" => Self::Quarter,
            "ytd" => Self::YearToDate,
            _ => Self::Annual,
        }))
    }

    pub fn set(self) -> StatementSet {
        match self {
            Self::Annual => StatementSet::Dfp,
            Self::Quarter | Self::YearToDate => StatementSet::Itr,
        }
    }

    /// Whether a row of a table, whose first period begins earliest, is of such a period. Balances of a day belong to every
    /// period that ends on it. The first quarter is a quarter and the year to date.
    fn has(self, set: StatementSet, table: &[AccountRow<'_>], row: &AccountRow<'_>) -> bool {
        let (is_of_set, start) = (set == self.set(), row.key.period_start);
        is_of_set
            && start.is_none_or(|start| match self {
                Self::Annual => true,
                Self::Quarter => (row.key.period_end - start).num_days() <= MAX_QUARTER_DAYS,
                Self::YearToDate => table[0].key.period_start == Some(start),
            })
    }
}

pub fn parse_statement(query: &QueryParams) -> Result<Option<Statement>, Problem> {
    let Some(text) = query.single_value("statement")? else { return Ok(None) };
    let must = LocalizedText::new(
        "must be `balance-sheet-assets`, `balance-sheet-liabilities`, `income`, `comprehensive-income`, `cash-flow`, `value-added` or `equity-changes`",
        "deve ser `balance-sheet-assets`, `balance-sheet-liabilities`, `income`, `comprehensive-income`, `cash-flow`, `value-added` ou `equity-changes`",
    );
    Statement::from_id(text).map_or_else(|| invalid_param("statement", must), |statement| Ok(Some(statement)))
}
