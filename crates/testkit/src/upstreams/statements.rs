//! Synthetic tables of financial statements, in the layout of the regulator's archives: accounts have codes and names
//! like real ones, and values without meaning. Like the regulator, a table has only the newest version of each document.

use chrono::{Datelike, Days, NaiveDate};

use super::calendar::{sunday_on_or_before, ymd};
use super::company_registry::encode_latin1;
use super::seeded_random::SeededRandom;
use super::structured_filings::{IndexedDocument, StructuredSet};
use super::zip_archive::ZipMember;

/// The first year with share counts.
const FIRST_YEAR_WITH_SHARES: i32 = 2020;

const SHARES_HEADER: &str = concat!(
    "CNPJ_CIA;DT_REFER;VERSAO;DENOM_CIA;QT_ACAO_ORDIN_CAP_INTEGR;QT_ACAO_PREF_CAP_INTEGR;QT_ACAO_TOTAL_CAP_INTEGR;",
    "QT_ACAO_ORDIN_TESOURO;QT_ACAO_PREF_TESOURO;QT_ACAO_TOTAL_TESOURO"
);

const EQUITY_COLUMNS: [&str; 3] = ["Capital Social Integralizado", "Reservas de Lucro", "Patrimônio Líquido"];

/// Size and stability of the synthetic statements.
#[derive(Debug, Clone, Copy)]
pub struct StatementOptions {
    /// Approximate; a real document has 840 rows.
    pub rows_per_document: usize,
    /// The share of documents that change each Sunday without a new version.
    pub restated_per_thousand_weekly: usize,
}

#[derive(Debug, Clone, Copy)]
struct Statement {
    name: &'static str,
    title: &'static str,
    first_digit: u32,
    has_start: bool,
    has_equity_columns: bool,
}

const STATEMENTS: [Statement; 8] = [
    Statement::new("BPA", "Balanço Patrimonial Ativo", 1),
    Statement::new("BPP", "Balanço Patrimonial Passivo", 2),
    Statement::new("DFC_MD", "Demonstração do Fluxo de Caixa (Método Direto)", 6),
    Statement::new("DFC_MI", "Demonstração do Fluxo de Caixa (Método Indireto)", 6),
    Statement::new("DMPL", "Demonstração das Mutações do Patrimônio Líquido", 5),
    Statement::new("DRA", "Demonstração de Resultado Abrangente", 4),
    Statement::new("DRE", "Demonstração do Resultado", 3),
    Statement::new("DVA", "Demonstração de Valor Adicionado", 7),
];

impl Statement {
    const fn new(name: &'static str, title: &'static str, first_digit: u32) -> Self {
        Self { name, title, first_digit, has_start: first_digit > 2, has_equity_columns: first_digit == 5 }
    }

    fn csv_header(self) -> String {
        let start = if self.has_start { "DT_INI_EXERC;" } else { "" };
        let column = if self.has_equity_columns { "COLUNA_DF;" } else { "" };
        format!(
            "CNPJ_CIA;DT_REFER;VERSAO;DENOM_CIA;CD_CVM;GRUPO_DFP;MOEDA;ESCALA_MOEDA;ORDEM_EXERC;{start}DT_FIM_EXERC;\
             {column}CD_CONTA;DS_CONTA;VL_CONTA;ST_CONTA_FIXA\r\n"
        )
    }
}

/// What a company always does.
struct FilingHabits {
    is_consolidated: bool,
    cash_flow: &'static str,
    scale: &'static str,
}

impl FilingHabits {
    fn of(cnpj: &str) -> Self {
        let mut random = SeededRandom::new(&format!("statements of {cnpj}"));
        Self {
            is_consolidated: random.chance_per_thousand(650),
            cash_flow: if random.chance_per_thousand(40) { "DFC_MD" } else { "DFC_MI" },
            scale: if random.chance_per_thousand(150) { "UNIDADE" } else { "MIL" },
        }
    }

    fn files(&self, statement: Statement, scope: &str) -> bool {
        (scope == "ind" || self.is_consolidated)
            && (!statement.name.starts_with("DFC") || statement.name == self.cash_flow)
    }

    const fn table_count(&self) -> usize {
        if self.is_consolidated { 14 } else { 7 }
    }
}

/// The newest version of a document, and how often it was changed without another version.
struct PublishedDocument<'a> {
    set: StructuredSet,
    document: &'a IndexedDocument<'a>,
    habits: FilingHabits,
    restatements: usize,
}

/// The tables of a year as of the dump of this day.
pub fn build_tables(
    set: StructuredSet,
    year: i32,
    documents: &[IndexedDocument],
    dumped_on: NaiveDate,
    options: StatementOptions,
) -> Vec<ZipMember> {
    let published = find_newest_versions(set, documents, dumped_on, options);
    let name = |table: &str| format!("{}_cia_aberta_{table}_{year}.csv", set.id());

    let mut members = Vec::new();
    for statement in STATEMENTS {
        for (scope, scope_name) in [("con", "Consolidado"), ("ind", "Individual")] {
            let mut table = statement.csv_header();
            for document in published.iter().filter(|document| document.habits.files(statement, scope)) {
                let group = format!("DF {scope_name} - {}", statement.title);
                document.write_statement(&mut table, statement, &group, options.rows_per_document);
            }
            members.push(ZipMember::new(name(&format!("{}_{scope}", statement.name)), encode_latin1(&table)));
        }
    }
    if year >= FIRST_YEAR_WITH_SHARES {
        members.push(ZipMember::new(name("composicao_capital"), render_shares(&published)));
    }
    members
}

/// `documents` are sorted by company, reference date and version.
fn find_newest_versions<'a>(
    set: StructuredSet,
    documents: &'a [IndexedDocument<'a>],
    dumped_on: NaiveDate,
    options: StatementOptions,
) -> Vec<PublishedDocument<'a>> {
    let is_same_statement = |one: &IndexedDocument, other: &IndexedDocument| {
        one.company.cnpj == other.company.cnpj && one.reference_date == other.reference_date
    };
    let versions_of_statements = documents.chunk_by(is_same_statement);
    versions_of_statements
        .filter_map(<[IndexedDocument]>::last)
        .map(|document| PublishedDocument {
            set,
            document,
            habits: FilingHabits::of(&document.company.cnpj),
            restatements: count_restatements(document, dumped_on, options.restated_per_thousand_weekly),
        })
        .collect()
}

fn count_restatements(document: &IndexedDocument, dumped_on: NaiveDate, per_thousand_weekly: usize) -> usize {
    if per_thousand_weekly == 0 {
        return 0;
    }
    let first_dump = sunday_on_or_before(document.received_on) + Days::new(7);
    let later_dumps = first_dump.iter_weeks().skip(1).take_while(|sunday| *sunday <= dumped_on);
    let label = format!("restatement of {}", document.id);
    later_dumps.filter(|day| SeededRandom::for_day(&label, *day).chance_per_thousand(per_thousand_weekly)).count()
}

impl PublishedDocument<'_> {
    fn write_statement(&self, table: &mut String, statement: Statement, group: &str, rows_per_document: usize) {
        let IndexedDocument { company, reference_date, version, .. } = self.document;
        let cnpj = &company.cnpj;
        let name = &company.name;
        let code = company.code;
        let scale = self.habits.scale;
        let periods = self.periods(statement);
        let columns: &[&str] = if statement.has_equity_columns { &EQUITY_COLUMNS } else { &[""] };
        let accounts = (rows_per_document / (self.habits.table_count() * periods.len() * columns.len())).max(1);

        let mut random = SeededRandom::new(&format!("{} {cnpj} {reference_date} {version} {group}", self.set.id()));
        // One account changes with each restatement.
        let restated_account = self.restatements % accounts;
        let restated_by = if statement.name == "BPA" { self.restatements } else { 0 };
        for index in 0..accounts {
            let account = account_code(statement.first_digit, index);
            let is_fixed = if index < 12 { 'S' } else { 'N' };
            for (order, start, end) in &periods {
                let start = if statement.has_start { format!("{start};") } else { String::new() };
                for column in columns {
                    let column = if column.is_empty() { String::new() } else { format!("{column};") };
                    let amount = random.in_range(-900_000, 9_000_000);
                    let amount = if index == restated_account { amount + restated_by as i64 } else { amount };
                    let row = format!(
                        "{cnpj};{reference_date};{version};{name};{code:06};{group};REAL;{scale};{order};{start}{end};\
                         {column}{account};Conta {account} sintética;{amount}.0000000000;{is_fixed}\r\n"
                    );
                    table.push_str(&row);
                    // Real tables have some rows twice.
                    if index == 0 && code % 100 == 7 {
                        table.push_str(&row);
                    }
                }
            }
        }
    }

    /// The label of each period in the statement, and its first and last day.
    fn periods(&self, statement: Statement) -> Vec<(&'static str, NaiveDate, NaiveDate)> {
        let end = self.document.reference_date;
        let year_before = |day: NaiveDate| ymd(day.year() - 1, day.month(), day.day());
        let year_start = ymd(end.year(), 1, 1);
        let quarter_start = ymd(end.year(), (end.month() - 1) / 3 * 3 + 1, 1);
        let with_comparative =
            |start: NaiveDate| [("PENÚLTIMO", year_before(start), year_before(end)), ("ÚLTIMO", start, end)];

        let mut periods = with_comparative(year_start).to_vec();
        let has_quarters = self.set == StructuredSet::Itr && matches!(statement.name, "DRE" | "DRA");
        if has_quarters && quarter_start > year_start {
            periods.extend(with_comparative(quarter_start));
        }
        periods
    }
}

/// `1`, `1.01`, `1.01.01` and so on, as charts of accounts number them.
fn account_code(first_digit: u32, index: usize) -> String {
    match index {
        0 => format!("{first_digit}"),
        1..=9 => format!("{first_digit}.{index:02}"),
        _ => format!("{first_digit}.{:02}.{:02}", (index - 10) / 20 + 1, (index - 10) % 20 + 1),
    }
}

/// Companies are named by their CNPJ alone.
fn render_shares(documents: &[PublishedDocument]) -> Vec<u8> {
    let mut file = format!("{SHARES_HEADER}\r\n");
    for PublishedDocument { document, .. } in documents {
        let IndexedDocument { company, reference_date, version, .. } = document;
        let mut random = SeededRandom::new(&format!("shares of {}", company.cnpj));
        let common = random.in_range(1_000_000, 900_000_000);
        let treasury = random.in_range(0, 10_000);
        let cnpj = &company.cnpj;
        let name = &company.name;
        file += &format!("{cnpj};{reference_date};{version};{name};{common};0;{common};{treasury};0;{treasury}\r\n");
    }
    encode_latin1(&file)
}
