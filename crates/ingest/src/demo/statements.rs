//! Generates the financial statements of made-up companies, in the canonical form in which real ones are archived.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::ops::RangeInclusive;

use chrono::{Days, Months, NaiveDate};
use vintem_domain::statement::{
    CashFlowMethod, ChartOfAccounts, Statement, StatementScope, StatementTable, TableContent,
};
use vintem_domain::{CompanyId, StatementSet};
use vintem_store::load::{Filing, StatementDocument};

use super::books::{BookedPeriod, Books};
use super::reporting::{Reporter, first_reported_day, quarter_ends};
use super::rng::DemoRng;
use super::statement_accounts::accounts_of;
use crate::fetch::compress_statement_for_archive;
use crate::parsers::statements::canonical_table;

/// Before the first reported quarter: a year to compare with, a year to compare that with, and opening balances.
const QUARTERS_BEFORE: u64 = 9;

/// The regulator's archives only have the newest version of a document, so older versions are there only since we keep
/// them.
const ARCHIVED_SINCE: Days = Days::new(730);

/// What a company that corrects its statements had in the wrong place.
const MISSTATED_PER_THOUSAND: i64 = 24;

const COMPONENTS_OF_EQUITY: [&str; 3] =
    ["Capital Social Integralizado", "Lucros ou Prejuízos Acumulados", "Patrimônio Líquido"];

/// Draws the statements of all delivered reports.
pub struct StatementGenerator<'a> {
    companies: BTreeMap<CompanyId, CompanyBooks<'a>>,
    until: NaiveDate,
}

struct CompanyBooks<'a> {
    reporter: Reporter<'a>,
    books: Books,
    /// The last day of each quarter in the books.
    quarter_ends: Vec<NaiveDate>,
}

/// A report that a company delivered, with the number of its last version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeliveredReport {
    pub set: StatementSet,
    pub company_id: CompanyId,
    pub reference_date: NaiveDate,
    pub version: u16,
    pub last_version: u16,
}

impl<'a> StatementGenerator<'a> {
    pub fn new(reporters: &[Reporter<'a>], until: NaiveDate) -> Self {
        let first = first_reported_day(until) - Months::new(3 * u32::try_from(QUARTERS_BEFORE).unwrap_or(0));
        let quarter_ends: Vec<NaiveDate> = quarter_ends(first, until).collect();
        let books_of = |reporter: &Reporter<'a>| CompanyBooks {
            reporter: *reporter,
            books: Books::generate(reporter, quarter_ends.len()),
            quarter_ends: quarter_ends.clone(),
        };
        Self { companies: reporters.iter().map(|reporter| (reporter.company.id, books_of(reporter))).collect(), until }
    }

    /// Whether a filing has statements.
    pub fn reports(&self, filing: &Filing) -> bool {
        StatementSet::from_cvm_dataset(filing.cvm_dataset).is_some() && self.companies.contains_key(&filing.company_id)
    }

    /// `None` for a version that was replaced before we began to keep them.
    pub fn generate(&self, report: &DeliveredReport) -> Option<StatementDocument> {
        let is_kept = report.version == report.last_version || report.reference_date >= self.until - ARCHIVED_SINCE;
        let company = self.companies.get(&report.company_id).filter(|_| is_kept)?;
        company.generate(report)
    }
}

/// The versions of all reports, from their filings in order of delivery.
pub fn delivered_reports(filings: &[Filing]) -> Vec<DeliveredReport> {
    let mut last_versions: BTreeMap<(StatementSet, CompanyId, NaiveDate), u16> = BTreeMap::new();
    for filing in filings {
        let key = StatementSet::from_cvm_dataset(filing.cvm_dataset).zip(filing.reference_date);
        if let Some((set, reference_date)) = key {
            last_versions.insert((set, filing.company_id, reference_date), filing.version);
        }
    }
    let versions = last_versions.into_iter().flat_map(|((set, company_id, reference_date), last_version)| {
        let report = move |version| DeliveredReport { set, company_id, reference_date, version, last_version };
        (1..=last_version).map(report)
    });
    versions.collect()
}

impl CompanyBooks<'_> {
    fn generate(&self, report: &DeliveredReport) -> Option<StatementDocument> {
        let end = self.quarter_ends.iter().position(|day| *day == report.reference_date)?;
        let months_of_year = match report.set {
            StatementSet::Dfp => 4,
            StatementSet::Itr => self.quarter_of_fiscal_year(end),
        };
        let year_to_date = end + 1 - months_of_year..=end;
        year_to_date.start().checked_sub(5)?;

        let drawing = Drawing { company: self, report, year_to_date, quarter: end };
        let mut tables = Vec::new();
        let mut row_count = 0;
        let mut body = String::new();
        for table in StatementTable::all_of_year(chrono::Datelike::year(&report.reference_date)) {
            let rows = drawing.rows_of(table);
            if !rows.is_empty() {
                let (text, rows) = canonical_table(table, rows);
                tables.push(table.name.to_owned());
                row_count += rows;
                body.push_str(&text);
            }
        }
        Some(StatementDocument {
            set: report.set,
            company_id: report.company_id,
            reference_date: report.reference_date,
            version: report.version,
            tables,
            row_count: u32::try_from(row_count).ok()?,
            body: compress_statement_for_archive(&body).ok()?,
        })
    }

    /// From 1 to 4.
    fn quarter_of_fiscal_year(&self, quarter: usize) -> usize {
        let month = chrono::Datelike::month(&self.quarter_ends[quarter]);
        let months_into_year = (month + 11 - self.reporter.fiscal_year_end_month) % 12 + 1;
        months_into_year as usize / 3
    }

    fn day_after_quarter(&self, quarter: usize) -> NaiveDate {
        self.quarter_ends[quarter] + Days::new(1)
    }
}

/// A document being drawn.
struct Drawing<'d> {
    company: &'d CompanyBooks<'d>,
    report: &'d DeliveredReport,
    /// The quarters of the fiscal year up to the reference date.
    year_to_date: RangeInclusive<usize>,
    /// The last of them.
    quarter: usize,
}

/// A period that a table has.
struct DrawnPeriod {
    label: &'static str,
    start: NaiveDate,
    end: NaiveDate,
    period: BookedPeriod,
}

impl Drawing<'_> {
    fn rows_of(&self, table: StatementTable) -> Vec<String> {
        let TableContent::Accounts { statement, method, scope } = table.content else {
            let Books { share_count, .. } = self.company.books;
            return vec![format!("{share_count};0;{share_count};{0};0;{0}", share_count / 200)];
        };
        let reporter = &self.company.reporter;
        let has_scope = scope == StatementScope::Individual || !reporter.is_individual_only;
        let files_direct = if reporter.is_individual_only { CashFlowMethod::Direct } else { CashFlowMethod::Indirect };
        if !has_scope || method.is_some_and(|method| method != files_direct) {
            return Vec::new();
        }

        let mut rows = Vec::new();
        for period in self.periods(statement, scope) {
            match statement {
                Statement::EquityChanges => self.draw_equity_changes(&period, scope, &mut rows),
                _ => self.draw_accounts(statement, scope, &period, &mut rows),
            }
        }
        rows
    }

    /// Balances have the end of the last fiscal year beside them, flows the same period a year earlier.
    fn periods(&self, statement: Statement, scope: StatementScope) -> Vec<DrawnPeriod> {
        let is_balance = matches!(statement, Statement::BalanceSheetAssets | Statement::BalanceSheetLiabilities);
        // Cash flows and value added only have the year to date.
        let has_quarter = matches!(statement, Statement::Income | Statement::ComprehensiveIncome)
            && self.year_to_date.start() < self.year_to_date.end()
            && self.report.set == StatementSet::Itr;

        let mut ranges = vec![self.year_to_date.clone()];
        ranges.extend(has_quarter.then_some(self.quarter..=self.quarter));
        let mut periods = Vec::new();
        for range in ranges {
            let earlier = if is_balance {
                let last_year_end = range.start() - 1;
                last_year_end..=last_year_end
            } else {
                range.start() - 4..=range.end() - 4
            };
            periods.push(self.drawn_period("PENÚLTIMO", scope, earlier));
            let mut filed = self.drawn_period("ÚLTIMO", scope, range);
            filed.period.figures = filed.period.figures.misstated(self.misstated_per_thousand());
            periods.push(filed);
        }
        periods
    }

    fn drawn_period(&self, label: &'static str, scope: StatementScope, range: RangeInclusive<usize>) -> DrawnPeriod {
        let company = self.company;
        DrawnPeriod {
            label,
            start: company.day_after_quarter(range.start() - 1),
            end: company.quarter_ends[*range.end()],
            period: company.books.period(scope, range),
        }
    }

    /// The last version is right. A few companies never correct theirs, and only the comparatives of the next year do.
    fn misstated_per_thousand(&self) -> i64 {
        let DeliveredReport { company_id, reference_date, version, last_version, .. } = *self.report;
        let is_left_wrong =
            || DemoRng::new(&format!("left wrong {company_id} {reference_date}")).chance_per_thousand(80);
        let corrections_to_come = i64::from(last_version - version) + i64::from(last_version == 1 && is_left_wrong());
        corrections_to_come * MISSTATED_PER_THOUSAND
    }

    fn draw_accounts(&self, statement: Statement, scope: StatementScope, period: &DrawnPeriod, rows: &mut Vec<String>) {
        let has_no_start = matches!(statement, Statement::BalanceSheetAssets | Statement::BalanceSheetLiabilities);
        let start = if has_no_start { String::new() } else { format!("{};", period.start) };
        let head = format!("{};{};{start}{}", self.row_head(statement, scope), period.label, period.end);
        for account in accounts_of(self.company.reporter.chart, statement, scope, &period.period) {
            let is_fixed = if account.is_fixed { 'S' } else { 'N' };
            let value = self.written(account.value);
            rows.push(format!("{head};{};{};{value};{is_fixed}", account.code, account.name));
        }
        if statement == Statement::Income && self.company.reporter.chart != ChartOfAccounts::Insurer {
            self.draw_per_share(&head, period, rows);
        }
    }

    /// Figures of one share have the scale of the document beside them, but are not in it.
    fn draw_per_share(&self, head: &str, period: &DrawnPeriod, rows: &mut Vec<String>) {
        let figures = &period.period.figures;
        let profit = i128::from(figures.net_profit() - figures.minority_profit) * 1_000;
        let hundred_thousandths = profit * 100_000 / i128::from(self.company.books.share_count);
        let sign = if hundred_thousandths < 0 { "-" } else { "" };
        let digits = hundred_thousandths.unsigned_abs();
        let value = format!("{sign}{}.{:05}00000", digits / 100_000, digits % 100_000);
        for (code, name) in [
            ("3.99", "Lucro por Ação - (Reais / Ação)"),
            ("3.99.01", "Lucro Básico por Ação"),
            ("3.99.01.01", "ON"),
            ("3.99.02", "Lucro Diluído por Ação"),
            ("3.99.02.01", "ON"),
        ] {
            let value = if code.len() > 7 { &*value } else { "0.0000000000" };
            rows.push(format!("{head};{code};{name};{value};N"));
        }
    }

    fn draw_equity_changes(&self, period: &DrawnPeriod, scope: StatementScope, rows: &mut Vec<String>) {
        let head = format!(
            "{};{};{};{}",
            self.row_head(Statement::EquityChanges, scope),
            period.label,
            period.start,
            period.end
        );
        let BookedPeriod { opening, figures } = &period.period;
        let profit = figures.net_profit() - figures.minority_profit;
        let other = figures.other_comprehensive_income;
        for component in COMPONENTS_OF_EQUITY {
            let is_capital = component == COMPONENTS_OF_EQUITY[0];
            let is_total = component == COMPONENTS_OF_EQUITY[2];
            let of_component = |capital: i64, retained: i64| match (is_capital, is_total) {
                (true, _) => capital,
                (_, true) => capital + retained,
                _ => retained,
            };
            let opening_balance = of_component(opening.capital, opening.retained);
            for (code, name, value) in [
                ("5.01", "Saldos Iniciais", opening_balance),
                ("5.03", "Saldos Iniciais Ajustados", opening_balance),
                ("5.04", "Transações de Capital com os Sócios", of_component(0, -figures.dividends)),
                ("5.04.06", "Dividendos", of_component(0, -figures.dividends)),
                ("5.05", "Resultado Abrangente Total", of_component(0, profit + other)),
                ("5.05.01", "Lucro Líquido do Período", of_component(0, profit)),
                ("5.05.02", "Outros Resultados Abrangentes", of_component(0, other)),
                ("5.07", "Saldos Finais", of_component(figures.capital, figures.retained)),
            ] {
                rows.push(format!("{head};{component};{code};{name};{};S", self.written(value)));
            }
        }
    }

    /// The columns that all rows of a table share.
    fn row_head(&self, statement: Statement, scope: StatementScope) -> String {
        let group = match scope {
            StatementScope::Consolidated => "DF Consolidado",
            StatementScope::Individual => "DF Individual",
        };
        let title = match statement {
            Statement::BalanceSheetAssets => "Balanço Patrimonial Ativo",
            Statement::BalanceSheetLiabilities => "Balanço Patrimonial Passivo",
            Statement::Income => "Demonstração do Resultado",
            Statement::ComprehensiveIncome => "Demonstração de Resultado Abrangente",
            Statement::CashFlow => "Demonstração do Fluxo de Caixa",
            Statement::ValueAdded => "Demonstração de Valor Adicionado",
            Statement::EquityChanges => "Demonstração das Mutações do Patrimônio Líquido",
        };
        let scale = if self.company.reporter.counts_units { "UNIDADE" } else { "MIL" };
        format!("{group} - {title};REAL;{scale}")
    }

    /// A value in thousands, as the document writes it.
    fn written(&self, thousands: i64) -> String {
        let mut text = String::new();
        let factor = if self.company.reporter.counts_units { 1_000 } else { 1 };
        let _ = write!(text, "{}.0000000000", thousands * factor);
        text
    }
}
