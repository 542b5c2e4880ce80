//! What the accounts of each chart of accounts say about a period.
//!
//! Every fixed account is filed, as companies do: those that a company doesn't use are zero.

use std::collections::BTreeMap;

use vintem_domain::statement::{ChartOfAccounts, Statement, StatementScope, fixed_accounts};

use super::books::{BookedPeriod, Quarter};

/// An account with its value in thousands of reais.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DemoAccount {
    pub code: &'static str,
    pub name: &'static str,
    pub value: i64,
    pub is_fixed: bool,
}

/// The accounts of a statement, apart from changes in equity, which have columns.
pub fn accounts_of(
    chart: ChartOfAccounts,
    statement: Statement,
    scope: StatementScope,
    period: &BookedPeriod,
) -> Vec<DemoAccount> {
    let values = match statement {
        Statement::BalanceSheetAssets => assets(chart, &period.figures),
        Statement::BalanceSheetLiabilities => liabilities(chart, &period.figures),
        Statement::Income => income(chart, &period.figures),
        Statement::ComprehensiveIncome => comprehensive_income(&period.figures),
        Statement::CashFlow => cash_flow(period),
        Statement::ValueAdded => value_added(chart, &period.figures),
        Statement::EquityChanges => BTreeMap::new(),
    };

    let of_statement = fixed_accounts().iter().filter(|fixed| fixed.chart == chart && fixed.statement == statement);
    let mut names: BTreeMap<&'static str, Vec<&'static str>> = BTreeMap::new();
    for fixed in of_statement.filter(|fixed| is_filed_in(scope, fixed.name.pt)) {
        names.entry(fixed.account).or_default().push(fixed.name.pt);
    }
    let mut accounts: Vec<DemoAccount> = names
        .into_iter()
        .map(|(code, names)| {
            let value = values.get(code).copied().unwrap_or_default();
            DemoAccount { code, name: name_in(scope, &names), value, is_fixed: true }
        })
        .collect();
    let own = own_accounts(chart).iter().filter_map(|(code, name)| Some((code, name, values.get(code)?)));
    accounts.extend(own.map(|(code, name, value)| DemoAccount { code, name, value: *value, is_fixed: false }));
    accounts
}

/// A company alone has no owners of subsidiaries.
fn is_filed_in(scope: StatementScope, name: &str) -> bool {
    let is_of_group = name.starts_with("Atribuído a") || name == "Participação dos Acionistas Não Controladores";
    scope == StatementScope::Consolidated || !is_of_group
}

/// Where an account has two names, one says that it is consolidated.
fn name_in(scope: StatementScope, names: &[&'static str]) -> &'static str {
    let is_consolidated = scope == StatementScope::Consolidated;
    names
        .iter()
        .find(|name| name.contains("Consolidado") == is_consolidated)
        .or(names.first())
        .copied()
        .unwrap_or_default()
}

/// Accounts that companies add below the fixed ones.
fn own_accounts(chart: ChartOfAccounts) -> &'static [(&'static str, &'static str)] {
    match chart {
        ChartOfAccounts::Commercial => &[
            ("1.02.04.01.02", "Softwares e Marcas"),
            ("3.04.02.01", "Pessoal e Encargos"),
            ("3.04.02.02", "Demais Despesas Administrativas"),
        ],
        ChartOfAccounts::Bank => &[("1.02.03.01", "Operações de Crédito"), ("2.03.01", "Depósitos e Captações")],
        ChartOfAccounts::Insurer => &[
            ("1.01", "Ativo Circulante"),
            ("1.01.01", "Disponível"),
            ("1.01.02", "Aplicações"),
            ("1.01.03", "Créditos das Operações com Seguros e Resseguros"),
            ("1.02", "Ativo Não Circulante"),
            ("1.02.02", "Investimentos"),
            ("1.02.03", "Imobilizado"),
            ("1.02.04", "Intangível"),
            ("2.03.01", "Capital Social Realizado"),
            ("2.03.05", "Lucros/Prejuízos Acumulados"),
            ("2.03.09", "Participação dos Acionistas Não Controladores"),
        ],
    }
}

type Values = BTreeMap<&'static str, i64>;

fn assets(chart: ChartOfAccounts, q: &Quarter) -> Values {
    let current = q.cash + q.receivables + q.inventories;
    let non_current = q.property + q.intangibles + q.investments;
    let total = ("1", q.total_assets());
    match chart {
        ChartOfAccounts::Commercial => Values::from([
            total,
            ("1.01", current),
            ("1.01.01", q.cash),
            ("1.01.03", q.receivables),
            ("1.01.03.01", q.receivables),
            ("1.01.04", q.inventories),
            ("1.02", non_current),
            ("1.02.02", q.investments),
            ("1.02.02.01", q.investments),
            ("1.02.02.01.01", q.investments),
            ("1.02.03", q.property),
            ("1.02.03.01", q.property),
            ("1.02.04", q.intangibles),
            ("1.02.04.01", q.intangibles),
            ("1.02.04.01.02", q.intangibles),
        ]),
        ChartOfAccounts::Bank => Values::from([
            total,
            ("1.01", q.cash),
            ("1.02", q.inventories + q.receivables),
            ("1.02.01", q.inventories),
            ("1.02.01.01", q.inventories),
            ("1.02.03", q.receivables),
            ("1.02.03.01", q.receivables),
            ("1.05", q.investments),
            ("1.05.01", q.investments),
            ("1.06", q.property),
            ("1.06.01", q.property),
            ("1.07", q.intangibles),
            ("1.07.01", q.intangibles),
        ]),
        ChartOfAccounts::Insurer => Values::from([
            total,
            ("1.01", current),
            ("1.01.01", q.cash),
            ("1.01.02", q.inventories),
            ("1.01.03", q.receivables),
            ("1.02", non_current),
            ("1.02.02", q.investments),
            ("1.02.03", q.property),
            ("1.02.04", q.intangibles),
        ]),
    }
}

fn liabilities(chart: ChartOfAccounts, q: &Quarter) -> Values {
    let total = ("2", q.total_assets());
    let debt = q.short_term_debt + q.long_term_debt;
    match chart {
        ChartOfAccounts::Commercial => Values::from([
            total,
            ("2.01", q.payables + q.short_term_debt),
            ("2.01.02", q.payables),
            ("2.01.02.01", q.payables),
            ("2.01.04", q.short_term_debt),
            ("2.01.04.01", q.short_term_debt),
            ("2.01.04.01.01", q.short_term_debt),
            ("2.02", q.long_term_debt),
            ("2.02.01", q.long_term_debt),
            ("2.02.01.01", q.long_term_debt),
            ("2.02.01.01.01", q.long_term_debt),
            ("2.03", q.equity()),
            ("2.03.01", q.capital),
            ("2.03.05", q.retained),
            ("2.03.09", q.minority),
        ]),
        ChartOfAccounts::Bank => Values::from([
            total,
            ("2.03", debt),
            ("2.03.01", debt),
            ("2.06", q.payables),
            ("2.08", q.equity()),
            ("2.08.01", q.capital),
            ("2.08.05", q.retained),
            ("2.08.09", q.minority),
        ]),
        ChartOfAccounts::Insurer => Values::from([
            total,
            ("2.01", q.payables + q.short_term_debt),
            ("2.01.02.01", q.payables),
            ("2.01.02.04", q.short_term_debt),
            ("2.02", q.long_term_debt),
            ("2.02.01", q.long_term_debt),
            ("2.02.01.02.04", q.long_term_debt),
            ("2.03", q.equity()),
            ("2.03.01", q.capital),
            ("2.03.05", q.retained),
            ("2.03.09", q.minority),
        ]),
    }
}

fn income(chart: ChartOfAccounts, q: &Quarter) -> Values {
    let operating_expenses = -q.selling - q.administrative;
    let financial_result = q.financial_income - q.financial_expense;
    let owners_profit = q.net_profit() - q.minority_profit;
    match chart {
        ChartOfAccounts::Commercial => Values::from([
            ("3.01", q.revenue),
            ("3.02", -q.cost),
            ("3.03", q.revenue - q.cost),
            ("3.04", operating_expenses + q.equity_income),
            ("3.04.01", -q.selling),
            ("3.04.02", -q.administrative),
            ("3.04.02.01", -q.administrative * 6 / 10),
            ("3.04.02.02", -q.administrative + q.administrative * 6 / 10),
            ("3.04.06", q.equity_income),
            ("3.05", q.operating_profit()),
            ("3.06", financial_result),
            ("3.06.01", q.financial_income),
            ("3.06.02", -q.financial_expense),
            ("3.07", q.pretax_profit()),
            ("3.08", -q.tax),
            ("3.08.01", -q.tax),
            ("3.09", q.net_profit()),
            ("3.11", q.net_profit()),
            ("3.11.01", owners_profit),
            ("3.11.02", q.minority_profit),
        ]),
        // Lending is the business of a bank, so its financial result is not apart from it.
        ChartOfAccounts::Bank => Values::from([
            ("3.01", q.revenue + q.financial_income),
            ("3.02", -q.cost - q.financial_expense),
            ("3.03", q.revenue - q.cost + financial_result),
            ("3.04", operating_expenses + q.equity_income),
            ("3.04.02", -q.selling),
            ("3.04.03", -q.administrative),
            ("3.04.07", q.equity_income),
            ("3.05", q.pretax_profit()),
            ("3.06", -q.tax),
            ("3.06.01", -q.tax),
            ("3.07", q.net_profit()),
            ("3.09", q.net_profit()),
            ("3.09.01", owners_profit),
            ("3.09.02", q.minority_profit),
        ]),
        ChartOfAccounts::Insurer => Values::from([
            ("3.01", q.revenue),
            ("3.02", -q.cost),
            ("3.03", q.revenue - q.cost),
            ("3.04", operating_expenses),
            ("3.04.01", -q.selling),
            ("3.04.08", -q.administrative),
            ("3.06", q.equity_income),
            ("3.06.01", q.equity_income),
            ("3.07", q.operating_profit()),
            ("3.08", financial_result),
            ("3.09", q.pretax_profit()),
            ("3.10", -q.tax),
            ("3.11", q.net_profit()),
            ("3.13", q.net_profit()),
        ]),
    }
}

fn comprehensive_income(q: &Quarter) -> Values {
    let total = q.net_profit() + q.other_comprehensive_income;
    Values::from([
        ("4.01", q.net_profit()),
        ("4.02", q.other_comprehensive_income),
        ("4.03", total),
        ("4.03.01", total - q.minority_profit),
        ("4.03.02", q.minority_profit),
    ])
}

/// Investing and financing follow from the balances, and operations are what remains of the change in cash.
fn cash_flow(period: &BookedPeriod) -> Values {
    let BookedPeriod { opening, figures: q } = period;
    let long_lived = |quarter: &Quarter| quarter.property + quarter.intangibles + quarter.investments;
    let debt = |quarter: &Quarter| quarter.short_term_debt + quarter.long_term_debt;
    let change = q.cash - opening.cash;
    let investing = long_lived(opening) - long_lived(q) - q.depreciation + q.equity_income;
    let financing = debt(q) - debt(opening) - q.dividends;
    let operating = change - investing - financing;
    let generated = q.net_profit() + q.depreciation - q.equity_income;
    Values::from([
        ("6.01", operating),
        ("6.01.01", generated),
        ("6.01.02", operating - generated),
        ("6.02", investing),
        ("6.03", financing),
        ("6.05", change),
        ("6.05.01", opening.cash),
        ("6.05.02", q.cash),
    ])
}

fn value_added(chart: ChartOfAccounts, q: &Quarter) -> Values {
    let wages = q.administrative + q.selling / 2;
    let inputs = q.cost - q.depreciation + q.selling - q.selling / 2;
    let gross = q.revenue - inputs;
    let net = gross - q.depreciation;
    let received = q.equity_income + q.financial_income;
    let owners_profit = q.net_profit() - q.minority_profit;
    match chart {
        ChartOfAccounts::Commercial => Values::from([
            ("7.01", q.revenue),
            ("7.01.01", q.revenue),
            ("7.02", -inputs),
            ("7.02.02", -inputs),
            ("7.03", gross),
            ("7.04", -q.depreciation),
            ("7.04.01", -q.depreciation),
            ("7.05", net),
            ("7.06", received),
            ("7.06.01", q.equity_income),
            ("7.06.02", q.financial_income),
            ("7.07", net + received),
            ("7.08", net + received),
            ("7.08.01", wages),
            ("7.08.01.01", wages),
            ("7.08.02", q.tax),
            ("7.08.02.01", q.tax),
            ("7.08.03", q.financial_expense),
            ("7.08.03.01", q.financial_expense),
            ("7.08.04", q.net_profit()),
            ("7.08.04.03", owners_profit),
            ("7.08.04.04", q.minority_profit),
        ]),
        ChartOfAccounts::Bank => Values::from([
            ("7.01", q.revenue + q.financial_income),
            ("7.01.01", q.revenue + q.financial_income),
            ("7.02", -q.financial_expense),
            ("7.03", -inputs),
            ("7.03.01", -inputs),
            ("7.04", gross + q.financial_income - q.financial_expense),
            ("7.05", -q.depreciation),
            ("7.05.01", -q.depreciation),
            ("7.06", net + q.financial_income - q.financial_expense),
            ("7.07", q.equity_income),
            ("7.07.01", q.equity_income),
            ("7.08", net + received - q.financial_expense),
            ("7.09", net + received - q.financial_expense),
            ("7.09.01", wages),
            ("7.09.01.01", wages),
            ("7.09.02", q.tax),
            ("7.09.02.01", q.tax),
            ("7.09.04", q.net_profit()),
            ("7.09.04.03", owners_profit),
            ("7.09.04.04", q.minority_profit),
        ]),
        // Insurers file none here.
        ChartOfAccounts::Insurer => Values::new(),
    }
}

#[cfg(test)]
mod tests {
    use chrono::NaiveDate;

    use super::super::books::Books;
    use super::super::companies::generate_registry;
    use super::super::reporting::pick_reporters;
    use super::*;

    /// The value of an account.
    fn value(accounts: &[DemoAccount], code: &str) -> i64 {
        accounts.iter().find(|account| account.code == code).map_or(0, |account| account.value)
    }

    /// Accounts right below another one add up to it.
    fn assert_children_add_up(accounts: &[DemoAccount], parent: &str) {
        let children = accounts.iter().filter(|account| {
            account
                .code
                .strip_prefix(parent)
                .is_some_and(|rest| rest.starts_with('.') && rest.matches('.').count() == 1)
        });
        let sum: i64 = children.map(|account| account.value).sum();
        assert_eq!(sum, value(accounts, parent), "{parent}: {accounts:#?}");
    }

    #[test]
    fn statements_obey_the_identities_in_every_chart() {
        let until: NaiveDate = "2026-11-13".parse().unwrap();
        let companies = generate_registry(300, until).current;
        for reporter in pick_reporters(&companies, 3_000, until) {
            let books = Books::generate(&reporter, 12);
            for scope in StatementScope::ALL {
                let period = books.period(scope, 3..=6);
                let of = |statement| accounts_of(reporter.chart, statement, scope, &period);
                let [assets, liabilities] = [of(Statement::BalanceSheetAssets), of(Statement::BalanceSheetLiabilities)];
                assert_eq!(value(&assets, "1"), value(&liabilities, "2"));
                assert_children_add_up(&assets, "1");
                assert_children_add_up(&liabilities, "2");

                let income = of(Statement::Income);
                let (net_profit, cash) = match reporter.chart {
                    ChartOfAccounts::Commercial => ("3.11", "1.01.01"),
                    ChartOfAccounts::Bank => ("3.09", "1.01"),
                    ChartOfAccounts::Insurer => ("3.13", "1.01.01"),
                };
                assert_eq!(value(&income, net_profit), period.figures.net_profit());
                assert_eq!(value(&income, "3.01") + value(&income, "3.02"), value(&income, "3.03"));
                assert_children_add_up(&income, "3.04");
                assert_eq!(value(&of(Statement::ComprehensiveIncome), "4.01"), value(&income, net_profit));

                let cash_flow = of(Statement::CashFlow);
                let flows = ["6.01", "6.02", "6.03", "6.04"].map(|code| value(&cash_flow, code));
                assert_eq!(flows.iter().sum::<i64>(), value(&cash_flow, "6.05"));
                assert_eq!(value(&cash_flow, "6.05.02"), value(&assets, cash));

                let value_added = of(Statement::ValueAdded);
                let distribution = if reporter.chart == ChartOfAccounts::Bank { "7.09" } else { "7.08" };
                assert_children_add_up(&value_added, distribution);
            }
        }
    }
}
