//! Parser for the tables of financial statements, `{dfp,itr}_cia_aberta_{table}_YYYY.csv`: collects the rows of each
//! document and brings them into the canonical form that is archived.
//!
//! The canonical form holds the document's tables one after the other, each with its name, the names of its columns, and
//! its rows in the order of their bytes, every row once. It leaves out the columns that say which document it is. So
//! equal content has an equal form, however the regulator orders or repeats rows. Values are kept as they were written;
//! only their encoding changes, from ISO-8859-1 to UTF-8.
//!
//! `parecer` is not read: it has the names of natural persons.

use std::collections::{BTreeMap, HashMap};

use chrono::NaiveDate;
use vintem_domain::CompanyId;
use vintem_domain::statement::{
    BALANCE_CONTENT_COLUMNS, ContradictingRows, EQUITY_CHANGES_CONTENT_COLUMNS, FLOW_CONTENT_COLUMNS,
    SHARES_CONTENT_COLUMNS, StatementContent, StatementTable, TableLayout,
};

use super::csv::{CsvRow, CsvTable, column_index};
use super::filing_rows::{parse_company_id, parse_version};
use super::text::decode_latin1;
use super::zip::MAX_MEMBER_BYTES;
use super::{BadRow, BadRowKind, FormatAlert, FormatError, ParsedRows, RowError};

/// Columns that say which document a row belongs to. The canonical form has the others, which follow.
const STATEMENT_IDENTITY_COLUMNS: [&str; 5] = ["CNPJ_CIA", "DT_REFER", "VERSAO", "DENOM_CIA", "CD_CVM"];
const SHARES_IDENTITY_COLUMNS: [&str; 4] = ["CNPJ_CIA", "DT_REFER", "VERSAO", "DENOM_CIA"];

const BALANCE_COLUMNS: [&str; 14] = concat_columns(STATEMENT_IDENTITY_COLUMNS, BALANCE_CONTENT_COLUMNS);
const FLOW_COLUMNS: [&str; 15] = concat_columns(STATEMENT_IDENTITY_COLUMNS, FLOW_CONTENT_COLUMNS);
const EQUITY_CHANGES_COLUMNS: [&str; 16] = concat_columns(STATEMENT_IDENTITY_COLUMNS, EQUITY_CHANGES_CONTENT_COLUMNS);
const SHARES_COLUMNS: [&str; 10] = concat_columns(SHARES_IDENTITY_COLUMNS, SHARES_CONTENT_COLUMNS);

/// The same in all layouts.
const CNPJ_COLUMN: usize = 0;
const REFERENCE_DATE_COLUMN: usize = column_index(&STATEMENT_IDENTITY_COLUMNS, "DT_REFER");
const VERSION_COLUMN: usize = column_index(&STATEMENT_IDENTITY_COLUMNS, "VERSAO");
const COMPANY_CODE_COLUMN: usize = column_index(&STATEMENT_IDENTITY_COLUMNS, "CD_CVM");

/// Tables that wait for the others of their document are compressed: a year of quarterly statements has 300 MB.
const WAITING_COMPRESSION_LEVEL: i32 = 1;

/// A document in its canonical form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CanonicalStatement {
    pub key: StatementKey,
    /// The names of its tables.
    pub tables: Vec<&'static str>,
    pub row_count: u32,
    pub body: String,
}

/// What makes a document: together with the set, these identify it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StatementKey {
    pub company_id: CompanyId,
    pub reference_date: NaiveDate,
    pub version: u16,
}

impl CanonicalStatement {
    /// Sets aside the rows that are archived as they were filed, but have no value that can be served.
    pub fn withhold_rows(&self, lines: &mut ParsedRows<()>) -> Result<(), FormatError> {
        let StatementKey { company_id, reference_date, version } = self.key;
        // Rows of a document are sorted, so their original line numbers are lost: they are numbered after the last line.
        let mut line = lines.total + lines.bad_row_count();
        let mut withhold = |kind: BadRowKind, text: &str, reason: String| {
            let reason = format!("company {company_id}, {reference_date}, version {version}: {reason}");
            line += 1;
            lines.rows.pop();
            lines.push_bad_row(BadRow::new(line, text, RowError { kind, reason }))
        };

        let content = match StatementContent::parse(&self.body) {
            Ok(content) => content,
            Err(error) => return withhold(BadRowKind::UnreadableAccount, "", error.to_string()),
        };
        for row in content.unreadable {
            let reason = row.column.map_or("the number of fields does not match the columns".to_owned(), |column| {
                format!("{column} cannot be read")
            });
            withhold(BadRowKind::UnreadableAccount, row.text, reason)?;
        }
        for shares in content.contradictory_shares {
            let reason = "there are other share counts".to_owned();
            withhold(BadRowKind::ContradictoryAccount, &format!("{} shares", shares.total), reason)?;
        }
        for ContradictingRows { key, raw_values } in content.contradictions {
            for value in raw_values {
                let reason = format!("there is another value of {key}");
                withhold(BadRowKind::ContradictoryAccount, &format!("{};{value}", key.account), reason)?;
            }
        }
        Ok(())
    }
}

/// Collects documents table by table, in the order of [`StatementTable::all_of_year`].
#[derive(Debug)]
pub struct StatementCollector {
    documents: BTreeMap<StatementKey, WaitingDocument>,
    companies_by_cnpj: HashMap<Vec<u8>, CompanyId>,
    /// The rows themselves are in the documents.
    lines: ParsedRows<()>,
}

impl Default for StatementCollector {
    fn default() -> Self {
        Self { documents: BTreeMap::new(), companies_by_cnpj: HashMap::new(), lines: ParsedRows::new(Vec::new()) }
    }
}

/// A document whose further tables are still to come.
#[derive(Debug, Default)]
struct WaitingDocument {
    tables: Vec<&'static str>,
    row_count: u32,
    /// Compressed; one zstd frame for each table.
    body: Vec<u8>,
}

impl StatementCollector {
    pub fn add_table(&mut self, table: StatementTable, bytes: &[u8]) -> Result<(), FormatError> {
        match table.layout() {
            TableLayout::Balance => self.add_statement(table, bytes, &BALANCE_COLUMNS),
            TableLayout::Flow => self.add_statement(table, bytes, &FLOW_COLUMNS),
            TableLayout::EquityChanges => self.add_statement(table, bytes, &EQUITY_CHANGES_COLUMNS),
            TableLayout::Shares => self.add_shares(table, bytes),
        }
    }

    /// The documents, and what there is to say of their lines.
    pub fn finish(self) -> (impl Iterator<Item = std::io::Result<CanonicalStatement>>, ParsedRows<()>) {
        let documents = self.documents.into_iter().map(|(key, waiting)| {
            let WaitingDocument { tables, row_count, body } = waiting;
            let body = String::from_utf8(zstd::stream::decode_all(&body[..])?).map_err(std::io::Error::other)?;
            Ok(CanonicalStatement { key, tables, row_count, body })
        });
        (documents, self.lines)
    }

    fn add_statement<const N: usize>(
        &mut self,
        table: StatementTable,
        bytes: &[u8],
        columns: &'static [&'static str; N],
    ) -> Result<(), FormatError> {
        self.add_rows(table, bytes, columns, STATEMENT_IDENTITY_COLUMNS.len(), |collector, row| {
            let company_id = parse_company_id(row, COMPANY_CODE_COLUMN)?;
            let cnpj = row.raw_fields(CNPJ_COLUMN..CNPJ_COLUMN + 1)[0];
            if collector.companies_by_cnpj.get(cnpj) != Some(&company_id) {
                collector.companies_by_cnpj.insert(cnpj.to_owned(), company_id);
            }
            parse_key(row, company_id)
        })
    }

    fn add_shares(&mut self, table: StatementTable, bytes: &[u8]) -> Result<(), FormatError> {
        self.add_rows(table, bytes, &SHARES_COLUMNS, SHARES_IDENTITY_COLUMNS.len(), |collector, row| {
            let unknown = |reason: &str| RowError { kind: BadRowKind::UnknownDocument, reason: reason.to_owned() };
            let cnpj = row.raw_fields(CNPJ_COLUMN..CNPJ_COLUMN + 1)[0];
            let company_id = collector.companies_by_cnpj.get(cnpj);
            let key = parse_key(row, *company_id.ok_or_else(|| unknown("no statement has its CNPJ"))?)?;
            if collector.documents.contains_key(&key) {
                Ok(key)
            } else {
                Err(unknown("no statement is of this document"))
            }
        })
    }

    /// Adds a table whose columns from `first_content_column` on belong to the canonical form.
    fn add_rows<const N: usize>(
        &mut self,
        table: StatementTable,
        bytes: &[u8],
        columns: &'static [&'static str; N],
        first_content_column: usize,
        parse_key: impl Fn(&mut Self, &CsvRow<'_, N>) -> Result<StatementKey, RowError>,
    ) -> Result<(), FormatError> {
        let max_bytes = usize::try_from(MAX_MEMBER_BYTES).unwrap_or(usize::MAX);
        let mut csv = CsvTable::open(bytes, columns, max_bytes)?;
        self.add_alerts(std::mem::take(&mut csv.alerts));

        // Lines of the file instead of copies: the largest table of a year has 50 MB.
        let mut lines_by_document: BTreeMap<StatementKey, Vec<&[u8]>> = BTreeMap::new();
        // Rows of a document follow each other, so most have the key of the row before.
        let mut last: Option<(CsvRow<'_, N>, StatementKey)> = None;
        let identity = 0..first_content_column;
        for line in csv.lines() {
            self.lines.total += 1;
            let parsed = line.row.map_err(RowError::from).and_then(|row| {
                let same_as_last = last
                    .as_ref()
                    .filter(|(last_row, _)| last_row.raw_fields(identity.clone()) == row.raw_fields(identity.clone()));
                let key = same_as_last.map_or_else(|| parse_key(self, &row), |(_, key)| Ok(*key))?;
                Ok((row, key))
            });
            match parsed {
                Ok((row, key)) => {
                    lines_by_document.entry(key).or_default().push(line.bytes);
                    last = Some((row, key));
                }
                Err(RowError { kind, reason }) => {
                    let reason = format!("{}, line {}: {reason}", table.name, line.number);
                    // Numbered across tables, because the same line of two tables may be bad.
                    let bad_row = BadRow::from_line(self.lines.total, line.bytes, RowError { kind, reason });
                    self.lines.push_bad_row(bad_row)?;
                }
            }
        }

        self.lines.blanks.append(&mut csv.column_blanks(&format!("{}.", table.name)));
        for (key, document_lines) in lines_by_document {
            let line_count = document_lines.len();
            let (text, row_count) = to_canonical_text(table, &csv, document_lines, first_content_column);
            self.lines.merged += (line_count - row_count) as u64;
            self.lines.rows.extend(std::iter::repeat_n((), row_count));

            let document = self.documents.entry(key).or_default();
            document.tables.push(table.name);
            document.row_count += u32::try_from(row_count).unwrap_or(u32::MAX);
            document.body.extend(
                zstd::bulk::compress(text.as_bytes(), WAITING_COMPRESSION_LEVEL)
                    .map_err(|error| FormatError::CorruptArchive(error.to_string()))?,
            );
        }
        Ok(())
    }

    fn add_alerts(&mut self, alerts: Vec<FormatAlert>) {
        for alert in alerts {
            if !self.lines.alerts.contains(&alert) {
                self.lines.alerts.push(alert);
            }
        }
    }
}

const fn concat_columns<const A: usize, const B: usize, const N: usize>(
    first: [&'static str; A],
    second: [&'static str; B],
) -> [&'static str; N] {
    assert!(A + B == N, "the length of both together");
    let mut columns = [""; N];
    let mut at = 0;
    while at < N {
        columns[at] = if at < A { first[at] } else { second[at - A] };
        at += 1;
    }
    columns
}

fn parse_key<const N: usize>(row: &CsvRow<'_, N>, company_id: CompanyId) -> Result<StatementKey, RowError> {
    Ok(StatementKey {
        company_id,
        reference_date: row.required_date(REFERENCE_DATE_COLUMN)?,
        version: parse_version(row, VERSION_COLUMN)?,
    })
}

/// The table's part of the canonical form, and how many rows it has.
fn to_canonical_text<'f, const N: usize>(
    table: StatementTable,
    csv: &CsvTable<'f, N>,
    lines: Vec<&'f [u8]>,
    first_content_column: usize,
) -> (String, usize) {
    let mut rows: Vec<String> = Vec::with_capacity(lines.len());
    for row in lines.into_iter().filter_map(|line| csv.split_line(line).ok()) {
        let fields = row.raw_fields(first_content_column..N).iter();
        rows.push(fields.map(|field| decode_latin1(field)).collect::<Vec<_>>().join(";"));
    }
    canonical_table(table, rows)
}

/// A table in the canonical form, and how many different rows it has.
pub fn canonical_table(table: StatementTable, mut rows: Vec<String>) -> (String, usize) {
    rows.sort_unstable();
    rows.dedup();

    let mut text = format!("[{}]\n{}\n", table.name, table.layout().content_columns().join(";"));
    for row in &rows {
        text.push_str(row);
        text.push('\n');
    }
    (text, rows.len())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const IDENTITY: &str = "84.429.695/0001-11;2024-12-31;1;WEG S.A.;005410";

    fn balance(rows: &[&str]) -> Vec<u8> {
        let lines: String = rows.iter().map(|row| format!("{row}\r\n")).collect();
        let file = format!("{}\r\n{lines}", BALANCE_COLUMNS.join(";"));
        file.chars().map(|character| u8::try_from(u32::from(character)).unwrap()).collect()
    }

    fn account(number: &str, name: &str, value: &str) -> String {
        format!("{IDENTITY};DF Consolidado;REAL;MIL;ÚLTIMO;2024-12-31;{number};{name};{value};S")
    }

    fn collect(tables: &[(&str, Vec<u8>)]) -> (Vec<CanonicalStatement>, ParsedRows<()>) {
        let mut collector = StatementCollector::default();
        for (name, bytes) in tables {
            let table = StatementTable::with_name(name).unwrap();
            collector.add_table(table, bytes).unwrap();
        }
        let (documents, lines) = collector.finish();
        (documents.map(Result::unwrap).collect(), lines)
    }

    fn shares(cnpj: &str, version: &str) -> Vec<u8> {
        format!(
            "{}\r\n{cnpj};2024-12-31;{version};WEG S.A.;4197317998;0;4197317998;2000;0;2000\r\n",
            SHARES_COLUMNS.join(";")
        )
        .into_bytes()
    }

    #[test]
    fn a_document_is_collected_from_all_tables() {
        let assets = account("1", "Ativo Total", "41489701.0000000000");
        let liabilities = account("2", "Passivo e Patrimônio Líquido", "41489701.0000000000");
        let (documents, lines) = collect(&[
            ("BPA_con", balance(&[&assets])),
            ("BPP_con", balance(&[&liabilities])),
            ("composicao_capital", shares("84.429.695/0001-11", "1")),
        ]);
        assert_eq!((lines.total, lines.rows.len(), lines.merged, lines.bad_row_count()), (3, 3, 0, 0));
        assert_eq!(documents.len(), 1);
        let document = &documents[0];
        assert_eq!(
            document.key,
            StatementKey { company_id: 5410, reference_date: "2024-12-31".parse().unwrap(), version: 1 }
        );
        assert_eq!(
            (document.tables.as_slice(), document.row_count),
            (&["BPA_con", "BPP_con", "composicao_capital"][..], 3)
        );
        assert_eq!(
            document.body,
            "[BPA_con]\n\
             GRUPO_DFP;MOEDA;ESCALA_MOEDA;ORDEM_EXERC;DT_FIM_EXERC;CD_CONTA;DS_CONTA;VL_CONTA;ST_CONTA_FIXA\n\
             DF Consolidado;REAL;MIL;ÚLTIMO;2024-12-31;1;Ativo Total;41489701.0000000000;S\n\
             [BPP_con]\n\
             GRUPO_DFP;MOEDA;ESCALA_MOEDA;ORDEM_EXERC;DT_FIM_EXERC;CD_CONTA;DS_CONTA;VL_CONTA;ST_CONTA_FIXA\n\
             DF Consolidado;REAL;MIL;ÚLTIMO;2024-12-31;2;Passivo e Patrimônio Líquido;41489701.0000000000;S\n\
             [composicao_capital]\n\
             QT_ACAO_ORDIN_CAP_INTEGR;QT_ACAO_PREF_CAP_INTEGR;QT_ACAO_TOTAL_CAP_INTEGR;QT_ACAO_ORDIN_TESOURO;\
             QT_ACAO_PREF_TESOURO;QT_ACAO_TOTAL_TESOURO\n\
             4197317998;0;4197317998;2000;0;2000\n"
        );
    }

    #[test]
    fn order_and_repetition_of_rows_do_not_matter_and_contradictions_are_kept() {
        let one = account("1", "Ativo Total", "10.0000000000");
        let other = account("1.01", "Ativo Circulante", "4.0000000000");
        let contradiction = account("1.01", "Ativo Circulante", "5.0000000000");
        let (documents, lines) = collect(&[("BPA_con", balance(&[&one, &other]))]);
        let (repeated, repeated_lines) = collect(&[("BPA_con", balance(&[&other, &one, &other]))]);
        assert_eq!(documents, repeated);
        assert_eq!((lines.merged, repeated_lines.merged, repeated_lines.total), (0, 1, 3));
        let (contradicting, _) = collect(&[("BPA_con", balance(&[&one, &other, &contradiction]))]);
        assert_eq!(contradicting[0].row_count, 3);
        assert_ne!(documents[0].body, contradicting[0].body);
    }

    #[test]
    fn rows_without_a_value_to_serve_are_archived_and_reported() {
        let good = account("1", "Ativo Total", "10.0000000000");
        let one = account("1.01", "Ativo Circulante", "4.0000000000");
        let other = account("1.01", "Ativo Circulante", "5.0000000000");
        let unreadable = account("1.02", "Ativo Não Circulante", "5,00");
        let (documents, mut lines) = collect(&[("BPA_con", balance(&[&good, &one, &other, &unreadable]))]);
        documents[0].withhold_rows(&mut lines).unwrap();
        assert_eq!(documents[0].row_count, 4);
        let expected = BTreeMap::from([(BadRowKind::UnreadableAccount, 1), (BadRowKind::ContradictoryAccount, 2)]);
        assert_eq!(lines.count_bad_rows(), expected);
        assert_eq!(
            lines.bad_rows[2].reason,
            "company 5410, 2024-12-31, version 1: there is another value of 1.01 of consolidated balance-sheet-assets, \
             2024-12-31"
        );
        assert_eq!(lines.bad_rows.iter().map(|bad| bad.line).collect::<Vec<_>>(), [5, 6, 7]);
        assert_eq!(lines.total, lines.rows.len() as u64 + lines.bad_row_count());
    }

    #[test]
    fn versions_and_companies_are_different_documents() {
        let first = account("1", "Ativo Total", "10.0000000000");
        let second = first.replacen(";1;WEG", ";2;WEG", 1);
        let other = first.replace("005410", "019348");
        let (documents, _) = collect(&[("BPA_con", balance(&[&first, &second, &other, &first]))]);
        let keys: Vec<_> = documents.iter().map(|document| (document.key.company_id, document.key.version)).collect();
        assert_eq!(keys, [(5410, 1), (5410, 2), (19348, 1)]);
    }

    #[test]
    fn rows_of_no_document_are_bad_and_say_where_they_were() {
        let good = account("1", "Ativo Total", "10.0000000000");
        let (documents, lines) = collect(&[
            ("BPA_con", balance(&[&good, &good.replace("2024-12-31;1", "31/12/2024;1"), "a;b"])),
            ("composicao_capital", shares("00.000.000/0001-91", "1")),
            ("composicao_capital", shares("84.429.695/0001-11", "2")),
        ]);
        assert_eq!((documents.len(), documents[0].row_count), (1, 1));
        let reasons: Vec<&str> = lines.bad_rows.iter().map(|bad| bad.reason.as_str()).collect();
        assert_eq!(
            reasons,
            [
                "BPA_con, line 3: DT_REFER is \"31/12/2024\", which is not a date as yyyy-MM-dd",
                "BPA_con, line 4: it has 2 fields, but the header has 14",
                "composicao_capital, line 2: no statement has its CNPJ",
                "composicao_capital, line 2: no statement is of this document",
            ]
        );
        assert!(lines.bad_rows.iter().map(|bad| bad.line).is_sorted());
        assert_eq!(lines.total, lines.rows.len() as u64 + lines.bad_row_count() + lines.merged);
    }

    #[test]
    fn a_renamed_column_rejects_the_table() {
        let renamed = String::from_utf8(balance(&[])).unwrap().replace("VL_CONTA", "VALOR");
        let result = StatementCollector::default().add_table(StatementTable::ALL[0], renamed.as_bytes());
        assert_eq!(result, Err(FormatError::MissingColumns(vec!["VL_CONTA"])));
    }

    proptest! {
        #[test]
        fn parsing_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            for table in StatementTable::ALL {
                let _ = StatementCollector::default().add_table(table, &bytes);
            }
            let file = [balance(&[&account("1", "Ativo Total", "1.0")]), bytes].concat();
            let mut collector = StatementCollector::default();
            if collector.add_table(StatementTable::ALL[0], &file).is_ok() {
                let (_, lines) = collector.finish();
                prop_assert_eq!(lines.total, lines.rows.len() as u64 + lines.bad_row_count() + lines.merged);
            }
        }
    }
}
