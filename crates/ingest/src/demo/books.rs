//! The books of made-up companies: figures of each quarter that add up, from which their statements are drawn.

use std::ops::RangeInclusive;

use vintem_domain::statement::{ChartOfAccounts, StatementScope};

use super::reporting::Reporter;
use super::rng::DemoRng;

/// A quarter in thousands of reais: what happened in it, and what there was at its end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Quarter {
    pub revenue: i64,
    pub cost: i64,
    pub selling: i64,
    pub administrative: i64,
    pub depreciation: i64,
    pub equity_income: i64,
    pub financial_income: i64,
    pub financial_expense: i64,
    pub tax: i64,
    pub minority_profit: i64,
    pub other_comprehensive_income: i64,
    pub dividends: i64,
    pub cash: i64,
    pub receivables: i64,
    pub inventories: i64,
    pub property: i64,
    pub intangibles: i64,
    pub investments: i64,
    pub payables: i64,
    pub short_term_debt: i64,
    pub long_term_debt: i64,
    pub capital: i64,
    pub retained: i64,
    pub minority: i64,
}

impl Quarter {
    pub fn operating_profit(&self) -> i64 {
        self.revenue - self.cost - self.selling - self.administrative + self.equity_income
    }

    pub fn pretax_profit(&self) -> i64 {
        self.operating_profit() + self.financial_income - self.financial_expense
    }

    pub fn net_profit(&self) -> i64 {
        self.pretax_profit() - self.tax
    }

    pub fn total_assets(&self) -> i64 {
        self.cash + self.receivables + self.inventories + self.property + self.intangibles + self.investments
    }

    pub fn equity(&self) -> i64 {
        self.capital + self.retained + self.minority
    }

    /// The quarters as one period: flows are added up, balances are those at its end.
    pub fn sum(quarters: &[Self]) -> Self {
        let last = quarters.last().copied().unwrap_or_default();
        let total = |flow: fn(&Self) -> i64| quarters.iter().map(flow).sum();
        Self {
            revenue: total(|quarter| quarter.revenue),
            cost: total(|quarter| quarter.cost),
            selling: total(|quarter| quarter.selling),
            administrative: total(|quarter| quarter.administrative),
            depreciation: total(|quarter| quarter.depreciation),
            equity_income: total(|quarter| quarter.equity_income),
            financial_income: total(|quarter| quarter.financial_income),
            financial_expense: total(|quarter| quarter.financial_expense),
            tax: total(|quarter| quarter.tax),
            minority_profit: total(|quarter| quarter.minority_profit),
            other_comprehensive_income: total(|quarter| quarter.other_comprehensive_income),
            dividends: total(|quarter| quarter.dividends),
            ..last
        }
    }

    /// With costs and stocks in the wrong places, as a company that has to correct its statements filed them first. All
    /// totals stay the same.
    pub fn misstated(self, per_thousand: i64) -> Self {
        let cost_shift = self.cost * per_thousand / 1000;
        let stock_shift = self.receivables * per_thousand / 1000;
        Self {
            cost: self.cost - cost_shift,
            administrative: self.administrative + cost_shift,
            receivables: self.receivables - stock_shift,
            inventories: self.inventories + stock_shift,
            ..self
        }
    }
}

/// A period with the balances before it.
#[derive(Debug, Clone, Copy)]
pub struct BookedPeriod {
    pub opening: Quarter,
    pub figures: Quarter,
}

/// The figures of a company over many quarters.
#[derive(Debug)]
pub struct Books {
    group: Vec<Quarter>,
    parent: Vec<Quarter>,
    /// Does not change.
    pub share_count: i64,
}

impl Books {
    /// The first quarter only has the balances from which the next one begins.
    pub fn generate(reporter: &Reporter<'_>, quarter_count: usize) -> Self {
        let mut rng = DemoRng::new(&format!("books of {}", reporter.company.id));
        let mut group: Vec<Quarter> = Vec::with_capacity(quarter_count);
        let mut parent: Vec<Quarter> = Vec::with_capacity(quarter_count);
        let mut revenue = rng.between(80_000, 3_000_000);
        let share_count = rng.between(40_000, 900_000) * 1_000;
        let minority_per_thousand = if reporter.is_individual_only { 0 } else { rng.between(0, 120) };
        let capital = revenue * rng.between(900, 1_600) / 1000;
        let first = Quarter { capital, property: revenue * 3, intangibles: revenue / 4, ..Quarter::default() };

        for _ in 0..quarter_count {
            revenue = revenue * rng.between(955, 1_075) / 1000;
            let last = group.last().copied().unwrap_or(first);
            let quarter = next_group_quarter(reporter.chart, revenue, minority_per_thousand, &last, &mut rng);
            parent.push(if reporter.is_individual_only { quarter } else { parent_of(&quarter) });
            group.push(quarter);
        }
        Self { group, parent, share_count }
    }

    pub fn period(&self, scope: StatementScope, quarters: RangeInclusive<usize>) -> BookedPeriod {
        let all = match scope {
            StatementScope::Consolidated => &self.group,
            StatementScope::Individual => &self.parent,
        };
        BookedPeriod { opening: all[quarters.start() - 1], figures: Quarter::sum(&all[quarters]) }
    }
}

fn next_group_quarter(
    chart: ChartOfAccounts,
    revenue: i64,
    minority_per_thousand: i64,
    last: &Quarter,
    rng: &mut DemoRng,
) -> Quarter {
    let mut share_of_revenue = |low: i64, high: i64| revenue * rng.between(low, high) / 1000;
    let depreciation = last.property / 50;
    let mut quarter = Quarter {
        revenue,
        cost: share_of_revenue(560, 700) + depreciation,
        selling: share_of_revenue(60, 90),
        administrative: share_of_revenue(40, 80),
        depreciation,
        equity_income: share_of_revenue(0, 12),
        financial_income: share_of_revenue(8, 25),
        financial_expense: share_of_revenue(20, 60),
        other_comprehensive_income: share_of_revenue(-6, 6),
        // Four fifths of a quarter's sales are not paid yet; a bank lends many times its income.
        receivables: share_of_revenue(700, 850) * if chart == ChartOfAccounts::Commercial { 1 } else { 9 },
        inventories: share_of_revenue(350, 480),
        property: last.property - depreciation + share_of_revenue(50, 110),
        intangibles: last.intangibles + share_of_revenue(0, 4),
        cash: share_of_revenue(300, 520),
        payables: share_of_revenue(380, 520),
        capital: last.capital,
        ..Quarter::default()
    };
    quarter.tax = (quarter.pretax_profit() * 34 / 100).max(0);
    quarter.minority_profit = quarter.net_profit() * minority_per_thousand / 1000;
    let profit = quarter.net_profit() - quarter.minority_profit;
    quarter.dividends = (profit * 30 / 100).max(0);
    quarter.retained = last.retained + profit + quarter.other_comprehensive_income - quarter.dividends;
    quarter.minority = last.minority + quarter.minority_profit;
    quarter.investments = last.investments + quarter.equity_income;
    balance_with_debt(quarter)
}

/// What the company owns without its subsidiaries. Its profit is what the group has earned for its owners.
fn parent_of(group: &Quarter) -> Quarter {
    let part = |value: i64, per_cent: i64| value * per_cent / 100;
    let mut parent = Quarter {
        revenue: part(group.revenue, 40),
        cost: part(group.cost, 41),
        selling: part(group.selling, 40),
        administrative: part(group.administrative, 55),
        depreciation: part(group.depreciation, 30),
        equity_income: 0,
        financial_income: part(group.financial_income, 50),
        financial_expense: part(group.financial_expense, 60),
        tax: part(group.tax, 20),
        minority_profit: 0,
        cash: part(group.cash, 30),
        receivables: part(group.receivables, 40),
        inventories: part(group.inventories, 40),
        property: part(group.property, 30),
        intangibles: part(group.intangibles, 20),
        payables: part(group.payables, 40),
        short_term_debt: part(group.short_term_debt, 50),
        long_term_debt: part(group.long_term_debt, 50),
        minority: 0,
        ..*group
    };
    parent.equity_income = group.net_profit() - group.minority_profit - parent.net_profit();
    let financed = parent.equity() + parent.payables + parent.short_term_debt + parent.long_term_debt;
    parent.investments = 0;
    parent.investments = financed - parent.total_assets();
    if parent.investments < 0 {
        parent.long_term_debt -= parent.investments;
        parent.investments = 0;
    }
    parent
}

/// Debt pays for what equity and suppliers don't; what is left over is cash.
fn balance_with_debt(mut quarter: Quarter) -> Quarter {
    let debt = quarter.total_assets() - quarter.equity() - quarter.payables;
    if debt < 0 {
        quarter.cash -= debt;
    } else {
        quarter.short_term_debt = debt * 30 / 100;
        quarter.long_term_debt = debt - quarter.short_term_debt;
    }
    quarter
}

#[cfg(test)]
mod tests {
    use chrono::NaiveDate;

    use super::super::companies::generate_registry;
    use super::super::reporting::pick_reporters;
    use super::*;

    #[test]
    fn assets_equal_liabilities_and_profits_of_parent_and_group_agree() {
        let until: NaiveDate = "2026-11-13".parse().unwrap();
        let companies = generate_registry(300, until).current;
        for reporter in pick_reporters(&companies, 3_000, until) {
            let books = Books::generate(&reporter, 40);
            for (group, parent) in books.group.iter().zip(&books.parent) {
                for quarter in [group, parent, &group.misstated(20)] {
                    let debt = quarter.short_term_debt + quarter.long_term_debt;
                    assert_eq!(quarter.total_assets(), quarter.equity() + quarter.payables + debt);
                    assert!(quarter.cash > 0 && quarter.investments >= 0 && debt >= 0, "{quarter:?}");
                }
                let owners_profit = group.net_profit() - group.minority_profit;
                assert_eq!((parent.net_profit(), parent.equity()), (owners_profit, group.equity() - group.minority));
            }
        }
    }
}
