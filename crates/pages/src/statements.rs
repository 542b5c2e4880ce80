//! The annual statements on the page of a company: fixed accounts of the newest two fiscal years. For more years the
//! visitor's browser asks the API (`assets/statements.js`).

use std::collections::BTreeMap;

use chrono::{Days, Months, NaiveDate};
use vintem_domain::lang::{Lang, LocalizedText};
use vintem_domain::route::route_by_operation;
use vintem_domain::statement::{
    AccountRow, Statement, StatementContent, StatementScope, StatementTable, ValueUnit, english_account_name,
};
use vintem_domain::text::normalize_text;
use vintem_domain::{CompanyId, Decimal, StatementSet};
use vintem_snapshot::{Snapshot, StatementForm, VersionedDocument, statement_documents};

use crate::formatting::format_decimal;

/// As promised on the pricing page.
const YEARS_ON_PAGE: usize = 2;
const YEARS_IN_ALL: u32 = 5;

/// Accounts with longer codes are details.
const MAX_ACCOUNT_LEVEL: usize = 3;

pub(crate) struct AnnualStatements {
    /// The newest first.
    pub(crate) years: Vec<FiscalYear>,
    pub(crate) tables: Vec<StatementTableView>,
    pub(crate) scope: &'static str,
    pub(crate) summary: String,
    /// Says what the visitor needs for more years.
    pub(crate) more_hint: String,
    /// Values are shown divided by this.
    pub(crate) divisor: u32,
    /// The first day of the fiscal years that the API adds.
    pub(crate) more_from: NaiveDate,
    /// Whether an earlier version is shown, because we never archived the newest one.
    pub(crate) lacks_newest_version: bool,
}

pub(crate) struct FiscalYear {
    pub(crate) end: NaiveDate,
    pub(crate) label: String,
}

pub(crate) struct StatementTableView {
    pub(crate) heading: &'static str,
    pub(crate) id: &'static str,
    /// The ids of its statements in the API, separated by spaces.
    pub(crate) statements: String,
    pub(crate) lines: Vec<AccountLine>,
}

pub(crate) struct AccountLine {
    pub(crate) account: String,
    /// As filed.
    pub(crate) filed_name: String,
    pub(crate) name: String,
    pub(crate) level: usize,
    /// The bar of the chart that shows this account.
    pub(crate) figure: Option<&'static str>,
    /// One for each year.
    pub(crate) cells: Vec<Option<AccountCell>>,
}

pub(crate) struct AccountCell {
    pub(crate) value: String,
    pub(crate) label: String,
    /// The value in the statements of the next year, if it differs.
    pub(crate) restated: Option<String>,
}

/// The heading and the id of each table, and its statements.
const TABLES: [(LocalizedText, &str, &[Statement]); 3] = [
    (LocalizedText::new("Income statement", "Demonstração do resultado"), "income", &[Statement::Income]),
    (
        LocalizedText::new("Balance sheet", "Balanço patrimonial"),
        "balance-sheet",
        &[Statement::BalanceSheetAssets, Statement::BalanceSheetLiabilities],
    ),
    (
        LocalizedText::new("Cash flow statement", "Demonstração dos fluxos de caixa"),
        "cash-flow",
        &[Statement::CashFlow],
    ),
];

/// The statement, the code and the name of an account. Companies reuse codes, and statements order them.
type AccountId = (Statement, String, String);

/// The accounts of the years that are shown.
#[derive(Default)]
struct Figures {
    names: BTreeMap<AccountId, String>,
    values: BTreeMap<(AccountId, NaiveDate), Decimal>,
    /// The values of a year as the next year's statements repeat them.
    comparatives: BTreeMap<(AccountId, NaiveDate), Decimal>,
}

/// Whether there is anything to read, which takes far longer than to ask for.
pub(crate) fn has_annual_statements(snapshot: &Snapshot, company: CompanyId) -> bool {
    let is_annual = |form: &StatementForm| form.set == StatementSet::Dfp;
    snapshot.statements().is_some_and(|statements| statements.of_company(company).iter().any(is_annual))
}

/// `None` if we have no annual statements of the company. Reads tables of two documents from the local file and parses
/// them, which takes a millisecond or two.
pub(crate) fn annual_statements(
    snapshot: &Snapshot,
    company: CompanyId,
    today: NaiveDate,
    lang: Lang,
) -> Option<AnnualStatements> {
    let statements = snapshot.statements()?;
    let documents = statement_documents(statements, snapshot.filings(), company, today);
    let annual = documents.iter().filter(|document| document.set == StatementSet::Dfp);
    let archived: Vec<ArchivedYear<'_>> = annual.filter_map(newest_archived_version).collect();
    // Scopes are never mixed.
    let scope = archived.first()?.form.tables.scopes().next()?;
    let has_scope = |year: &&ArchivedYear<'_>| year.form.tables.scopes().any(|other| other == scope);
    let shown: Vec<&ArchivedYear<'_>> = archived.iter().filter(has_scope).take(YEARS_ON_PAGE).collect();

    let mut figures = Figures::default();
    for year in &shown {
        let text = statements
            .read_tables(year.form, |table| is_shown(table, scope))
            .inspect_err(|error| tracing::error!(%error, company, "cannot read statements for a page"))
            .ok()?;
        figures.add(&text, scope)?;
    }

    let years: Vec<FiscalYear> = shown.iter().map(|year| FiscalYear::ending_on(year.form.reference_date)).collect();
    let divisor = figures.divisor();
    let tables = TABLES.iter().map(|(heading, id, of_table)| StatementTableView {
        heading: heading.in_lang(lang),
        id,
        statements: of_table.iter().map(|statement| statement.id()).collect::<Vec<_>>().join(" "),
        lines: figures.lines(of_table, &years, divisor, lang),
    });
    let tables: Vec<StatementTableView> = tables.filter(|table| !table.lines.is_empty()).collect();
    let statements = AnnualStatements {
        scope: scope.id(),
        summary: summary(scope, divisor, lang),
        more_hint: more_hint(lang),
        divisor,
        more_from: (years.first()?.end + Days::new(1)).checked_sub_months(Months::new(12 * YEARS_IN_ALL))?,
        lacks_newest_version: shown.iter().any(|year| !year.is_newest),
        tables,
        years,
    };
    Some(statements).filter(|statements| !statements.tables.is_empty())
}

/// The annual statements of a year, in the newest version that we have.
struct ArchivedYear<'s> {
    form: &'s StatementForm,
    is_newest: bool,
}

fn newest_archived_version<'s>(document: &VersionedDocument<'s>) -> Option<ArchivedYear<'s>> {
    let is_newest = document.versions.first()?.form.is_some();
    document.versions.iter().find_map(|version| version.form).map(|form| ArchivedYear { form, is_newest })
}

impl FiscalYear {
    fn ending_on(end: NaiveDate) -> Self {
        Self { end, label: end.format("%m/%Y").to_string() }
    }
}

fn summary(scope: StatementScope, divisor: u32, lang: Lang) -> String {
    let scope = match scope {
        StatementScope::Consolidated => LocalizedText::new("Consolidated", "Demonstrações consolidadas"),
        StatementScope::Individual => LocalizedText::new("Individual", "Demonstrações individuais"),
    };
    let unit = match divisor {
        1 => LocalizedText::new("in reais", "em reais"),
        _ => LocalizedText::new("in thousands of reais", "em milhares de reais"),
    };
    let years = LocalizedText::new(
        "as filed. Each column is a fiscal year, labeled by the month in which it ends",
        "conforme entregues à CVM. Cada coluna é um exercício social, identificado pelo mês de encerramento",
    );
    format!("{}, {}, {}.", scope.in_lang(lang), unit.in_lang(lang), years.in_lang(lang))
}

fn more_hint(lang: Lang) -> String {
    let plan = route_by_operation("list_statements").plan.name();
    match lang {
        Lang::En => {
            format!("To load five years, you need a key on the {plan} plan or above. Enter it on the dashboard first.")
        }
        Lang::Pt => {
            format!(
                "Para ver cinco exercícios, você precisa de uma chave do plano {plan} ou superior. Informe-a antes no painel."
            )
        }
    }
}

fn is_shown(table: StatementTable, scope: StatementScope) -> bool {
    let is_on_page = |statement: Statement| TABLES.iter().any(|(_, _, of_table)| of_table.contains(&statement));
    table.scope() == Some(scope) && table.statement().is_some_and(is_on_page)
}

impl Figures {
    fn add(&mut self, text: &str, scope: StatementScope) -> Option<()> {
        let content = StatementContent::parse_tables(text, |table| is_shown(table, scope))
            .inspect_err(|error| tracing::error!(%error, "an archived statement cannot be read"))
            .ok()?;
        for row in content.accounts.iter().filter(|row| is_overview(row)) {
            let id = (row.key.statement, row.key.account.to_owned(), normalize_text(row.name));
            let values = if row.key.is_comparative { &mut self.comparatives } else { &mut self.values };
            values.insert((id.clone(), row.key.period_end), row.value);
            if !row.key.is_comparative {
                self.names.entry(id).or_insert_with(|| row.name.to_owned());
            }
        }
        Some(())
    }

    fn divisor(&self) -> u32 {
        let mut values = self.values.values().chain(self.comparatives.values());
        if values.all(|value| (value % Decimal::ONE_THOUSAND).is_zero()) { 1_000 } else { 1 }
    }

    fn lines(&self, statements: &[Statement], years: &[FiscalYear], divisor: u32, lang: Lang) -> Vec<AccountLine> {
        let of_table = self.names.iter().filter(|((statement, _, _), _)| statements.contains(statement));
        let format = |value: Decimal| format_decimal((value / Decimal::from(divisor)).normalize(), lang);
        let line = |(id, filed_name): (&AccountId, &String)| {
            let cell = |year: &FiscalYear| {
                let key = (id.clone(), year.end);
                let value = *self.values.get(&key)?;
                let restated = self.comparatives.get(&key).filter(|later| **later != value);
                Some(AccountCell {
                    value: value.to_string(),
                    label: format(value),
                    restated: restated.map(|later| format(*later)),
                })
            };
            let english_name = english_account_name(filed_name).filter(|_| lang == Lang::En);
            AccountLine {
                account: id.1.clone(),
                filed_name: filed_name.clone(),
                name: english_name.unwrap_or(filed_name).to_owned(),
                level: account_level(&id.1),
                figure: figure_of(id),
                cells: years.iter().map(cell).collect(),
            }
        };
        of_table.map(line).collect()
    }
}

fn is_overview(row: &AccountRow<'_>) -> bool {
    row.is_fixed && row.unit == ValueUnit::Brl && account_level(row.key.account) <= MAX_ACCOUNT_LEVEL
}

fn account_level(account: &str) -> usize {
    account.split('.').count()
}

/// Revenue is always the first account. Which account has the net income depends on the chart of accounts.
fn figure_of((statement, account, name): &AccountId) -> Option<&'static str> {
    let is_net_income = || account_level(account) == 2 && name.starts_with("lucro") && name.ends_with("do periodo");
    match statement {
        Statement::Income if account == "3.01" => Some("revenue"),
        Statement::Income if is_net_income() => Some("net-income"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use vintem_domain::statement::fixed_accounts;

    use super::*;

    #[test]
    fn every_chart_has_a_revenue_and_a_net_income() {
        let charts: Vec<_> = fixed_accounts()
            .iter()
            .filter_map(|account| {
                let id = (account.statement, account.account.to_owned(), normalize_text(account.name.pt));
                Some((account.chart.id(), account.account, figure_of(&id)?))
            })
            .collect();
        assert_eq!(
            charts,
            [
                ("commercial", "3.01", "revenue"),
                ("commercial", "3.11", "net-income"),
                ("commercial", "3.11", "net-income"),
                ("bank", "3.01", "revenue"),
                ("bank", "3.09", "net-income"),
                ("insurer", "3.01", "revenue"),
                ("insurer", "3.13", "net-income"),
            ]
        );
    }

    #[test]
    fn years_are_compared_with_what_the_next_one_repeats() {
        let columns = "GRUPO_DFP;MOEDA;ESCALA_MOEDA;ORDEM_EXERC;DT_INI_EXERC;DT_FIM_EXERC;CD_CONTA;DS_CONTA;VL_CONTA;ST_CONTA_FIXA";
        let row = |order, year, account, name, value| {
            format!("DF;REAL;MIL;{order};{year}-01-01;{year}-12-31;{account};{name};{value}.0000000000;S\n")
        };
        let document = |rows: &[String]| format!("[DRE_con]\n{columns}\n{}", rows.concat());
        let mut figures = Figures::default();
        let newest = document(&[
            row("ÚLTIMO", 2025, "3.01", "Receita de Venda de Bens e/ou Serviços", 30),
            row("PENÚLTIMO", 2024, "3.01", "Receita de Venda de Bens e/ou Serviços", 21),
            row("ÚLTIMO", 2025, "3.01.01.01", "Detalhe", 1),
            row("ÚLTIMO", 2025, "3.99", "Lucro por Ação", 2),
        ]);
        let older = document(&[row("ÚLTIMO", 2024, "3.01", "Receita de venda de bens e/ou serviços", 20)]);
        for body in [newest, older] {
            figures.add(&body, StatementScope::Consolidated).unwrap();
        }

        let year = |year| FiscalYear::ending_on(NaiveDate::from_ymd_opt(year, 12, 31).unwrap());
        let lines = figures.lines(&[Statement::Income], &[year(2025), year(2024)], figures.divisor(), Lang::En);
        assert_eq!((lines.len(), &*lines[0].name), (1, "Revenue from goods and services"));
        let cells: Vec<_> =
            lines[0].cells.iter().flatten().map(|cell| (&*cell.label, cell.restated.as_deref())).collect();
        assert_eq!(cells, [("30", None), ("20", Some("21"))]);
    }
}
