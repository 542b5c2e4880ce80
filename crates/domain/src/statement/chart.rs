//! The accounts that the regulator's charts of accounts fix, in both languages.
//!
//! `fixed_accounts.csv` lists them by chart. Companies add accounts of their own below them, which have no English name.

use std::collections::HashMap;
use std::sync::LazyLock;

use super::Statement;
use crate::lang::LocalizedText;

/// Which accounts a company must use. It depends on its business, and no document says which one it uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ChartOfAccounts {
    Commercial,
    Bank,
    Insurer,
}

/// An account of a chart, as published documents name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FixedAccount {
    pub chart: ChartOfAccounts,
    pub statement: Statement,
    pub account: &'static str,
    pub name: LocalizedText,
}

impl ChartOfAccounts {
    pub const ALL: [Self; 3] = [Self::Commercial, Self::Bank, Self::Insurer];

    pub const fn id(self) -> &'static str {
        match self {
            Self::Commercial => "commercial",
            Self::Bank => "bank",
            Self::Insurer => "insurer",
        }
    }

    pub fn from_id(id: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|chart| chart.id() == id)
    }
}

/// By chart, then by account. An account can have several names: consolidated statements name some differently.
pub fn fixed_accounts() -> &'static [FixedAccount] {
    static ACCOUNTS: LazyLock<Vec<FixedAccount>> = LazyLock::new(|| {
        let lines = include_str!("fixed_accounts.csv").lines().skip(1);
        lines.map(|line| parse_line(line).unwrap_or_else(|| panic!("not a fixed account: {line}"))).collect()
    });
    &ACCOUNTS
}

fn parse_line(line: &'static str) -> Option<FixedAccount> {
    let fields: Vec<&str> = line.split(';').collect();
    let [chart, account, name, english_name] = fields[..] else { return None };
    Some(FixedAccount {
        chart: ChartOfAccounts::from_id(chart)?,
        statement: Statement::with_account(account)?,
        account,
        name: LocalizedText::new(english_name, name),
    })
}

/// The English name of a fixed account. `None` if we don't know it: a chart can get new accounts.
pub fn english_account_name(name: &str) -> Option<&'static str> {
    static NAMES: LazyLock<HashMap<&str, &str>> =
        LazyLock::new(|| fixed_accounts().iter().map(|account| (account.name.pt, account.name.en)).collect());
    NAMES.get(name).copied()
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;

    #[test]
    fn every_chart_has_accounts_of_every_statement() {
        for chart in ChartOfAccounts::ALL {
            let statements: BTreeSet<Statement> = fixed_accounts()
                .iter()
                .filter(|account| account.chart == chart)
                .map(|account| account.statement)
                .collect();
            // No document of an insurer that we have seen has a statement of value added.
            let expected = if chart == ChartOfAccounts::Insurer { 6 } else { 7 };
            assert_eq!(statements.len(), expected, "{chart:?}");
        }
        assert!(fixed_accounts().is_sorted_by_key(|account| (account.chart, account.account)));
    }

    #[test]
    fn a_name_has_one_translation() {
        let mut translations: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for account in fixed_accounts() {
            translations.entry(account.name.pt).or_default().insert(account.name.en);
        }
        let ambiguous: Vec<_> = translations.iter().filter(|(_, names)| names.len() > 1).collect();
        assert!(ambiguous.is_empty(), "{ambiguous:?}");
        assert_eq!(english_account_name("Ativo Total"), Some("Total assets"));
        assert_eq!(english_account_name("Loja da esquina"), None);
    }
}
