//! Filings as JSON and as table rows.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt::Display;
use std::sync::Arc;

use chrono::NaiveDate;
use serde::{Serialize, Serializer};
use vintem_deliver::table::{CellWriter, Column, OutputTable};
use vintem_domain::Dataset;
use vintem_domain::dates::{SaoPauloMidnight, sao_paulo_date};
use vintem_domain::point_in_time::Certainty;
use vintem_snapshot::{FilingView, Filings, RowPage, Snapshot};

use super::provenance::{TraceBody, TraceOptions, provenance_bodies};
use super::search::{HighlightBody, highlight_body};

#[derive(Serialize)]
pub struct FilingBody<'s> {
    id: &'s str,
    #[serde(serialize_with = "as_text")]
    company_id: u32,
    company_name: &'s str,
    category: &'s str,
    #[serde(serialize_with = "as_text")]
    date: SaoPauloMidnight,
    description: Cow<'s, str>,
    #[serde(rename = "type")]
    doc_type: &'s str,
    kind: &'s str,
    reference_date: Option<NaiveDate>,
    version: u16,
    is_latest: bool,
    protocol: &'s str,
    url: &'s str,
    source: &'static str,
    /// The day of `date`.
    filed_on: NaiveDate,
    #[serde(skip_serializing_if = "Option::is_none")]
    highlight: Option<HighlightBody<'s>>,
    #[serde(flatten)]
    trace: TraceBody,
}

impl<'s> From<FilingView<'s>> for FilingBody<'s> {
    fn from(view: FilingView<'s>) -> Self {
        let FilingView { filing, is_latest } = view;
        Self {
            id: filing.id,
            company_id: filing.company_id,
            company_name: filing.company_name,
            category: filing.category,
            date: SaoPauloMidnight(filing.delivered_on),
            description: view.description(),
            doc_type: filing.doc_type,
            kind: filing.kind,
            reference_date: filing.reference_date,
            version: filing.version,
            is_latest,
            protocol: filing.protocol,
            url: filing.url,
            source: filing.cvm_dataset.source_name(),
            filed_on: filing.delivered_on,
            highlight: None,
            trace: TraceBody::default(),
        }
    }
}

/// A column of a table, and how its cell is written.
type FilingField = (Column, fn(&FilingBody<'_>, &mut dyn CellWriter));

const FILING_FIELDS: [FilingField; 15] = [
    (Column::text("id"), |row, cells| cells.write_text(row.id)),
    (Column::text("company_id"), |row, cells| cells.write_code(row.company_id)),
    (Column::text("company_name"), |row, cells| cells.write_text(row.company_name)),
    (Column::text("category"), |row, cells| cells.write_text(row.category)),
    (Column::date_as_midnight("date"), |row, cells| cells.write_date_as_midnight(row.date.0)),
    (Column::text("description"), |row, cells| cells.write_text(&row.description)),
    (Column::text("type"), |row, cells| cells.write_text(row.doc_type)),
    (Column::text("kind"), |row, cells| cells.write_text(row.kind)),
    (Column::date("reference_date"), |row, cells| cells.write_date(row.reference_date)),
    (Column::integer("version"), |row, cells| cells.write_integer(row.version.into())),
    (Column::boolean("is_latest"), |row, cells| cells.write_boolean(row.is_latest)),
    (Column::text("protocol"), |row, cells| cells.write_text(row.protocol)),
    (Column::text("url"), |row, cells| cells.write_text(row.url)),
    (Column::text("source"), |row, cells| cells.write_text(row.source)),
    (Column::date("filed_on"), |row, cells| cells.write_date(Some(row.filed_on))),
];

impl FilingBody<'_> {
    fn write_cells(&self, cells: &mut dyn CellWriter) {
        for (_, write) in &FILING_FIELDS {
            write(self, cells);
        }
        self.trace.write_cells(cells);
    }
}

/// A table of these rows. Each row is built when it is sent.
pub fn filings_table(
    snapshot: &Arc<Snapshot>,
    filings: &Filings,
    row_page: RowPage,
    trace_options: TraceOptions,
) -> OutputTable {
    let snapshot = snapshot.clone();
    let filings = filings.clone();
    let columns = FILING_FIELDS.into_iter().map(|(column, _)| column).chain(trace_options.columns()).collect();
    let mut rows = row_page.rows.into_iter();

    OutputTable::new("filings", columns, move |cells| {
        let row = rows.next();
        row.map(|row| traced_filing_body(&trace_options, &snapshot, &filings, row).write_cells(cells)).is_some()
    })
}

impl<'s> FilingBody<'s> {
    pub fn add_highlight(&mut self, view: &FilingView<'s>, words: &HashSet<String>) {
        let filing = &view.filing;
        let texts = [
            // The subject alone, without the words that we put before it.
            ("description", filing.subject),
            ("company_name", filing.company_name),
            ("category", filing.category),
            ("type", filing.doc_type),
        ];
        self.highlight = Some(highlight_body(&texts, words));
    }
}

/// A filing with its provenance and certainty, if requested.
pub fn traced_filing_body<'s>(
    trace_options: &TraceOptions,
    snapshot: &Snapshot,
    filings: &'s Filings,
    row: u32,
) -> FilingBody<'s> {
    let mut view = filings.get(row);
    let certainty = trace_options.as_of.map(|day| {
        view.is_latest = filings.is_latest_as_of(row, day);
        // A filing is public from its delivery; we observed that only if we had fetched it by that day.
        let was_observed = sao_paulo_date(view.filing.provenance.known_at()) <= day;
        if was_observed { Certainty::Observed } else { Certainty::Estimated }
    });

    let source = Dataset::Filings.source_name();
    let trace = TraceBody {
        provenance: trace_options.provenance.then(|| provenance_bodies(snapshot, source, &[view.filing.provenance])),
        known: certainty.map(Certainty::id),
    };
    FilingBody { trace, ..FilingBody::from(view) }
}

pub fn filing_bodies<'s>(filings: &'s Filings, row_page: &RowPage) -> Vec<FilingBody<'s>> {
    row_page.rows.iter().map(|row| FilingBody::from(filings.get(*row))).collect()
}

fn as_text<S: Serializer>(value: &impl Display, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}
