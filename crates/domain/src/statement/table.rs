//! The tables of an archive of statements: one for each statement and scope, and one with share counts.

use super::StatementSet;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Statement {
    BalanceSheetAssets,
    BalanceSheetLiabilities,
    Income,
    ComprehensiveIncome,
    CashFlow,
    ValueAdded,
    EquityChanges,
}

/// How a statement of cash flows is drawn up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CashFlowMethod {
    Direct,
    Indirect,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum StatementScope {
    Consolidated,
    Individual,
}

/// A table of the archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StatementTable {
    pub name: &'static str,
    pub content: TableContent,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TableContent {
    Accounts { statement: Statement, method: Option<CashFlowMethod>, scope: StatementScope },
    Shares,
}

/// Which columns a table has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TableLayout {
    /// Of one day.
    Balance,
    /// Of a period.
    Flow,
    /// Of a period, with a column for each component of equity.
    EquityChanges,
    /// Share counts, which name the company by its CNPJ alone.
    Shares,
}

/// The columns of each layout, without those that say which document a row belongs to.
pub const BALANCE_CONTENT_COLUMNS: [&str; 9] = [
    "GRUPO_DFP",
    "MOEDA",
    "ESCALA_MOEDA",
    "ORDEM_EXERC",
    "DT_FIM_EXERC",
    "CD_CONTA",
    "DS_CONTA",
    "VL_CONTA",
    "ST_CONTA_FIXA",
];
pub const FLOW_CONTENT_COLUMNS: [&str; 10] = [
    "GRUPO_DFP",
    "MOEDA",
    "ESCALA_MOEDA",
    "ORDEM_EXERC",
    "DT_INI_EXERC",
    "DT_FIM_EXERC",
    "CD_CONTA",
    "DS_CONTA",
    "VL_CONTA",
    "ST_CONTA_FIXA",
];
pub const EQUITY_CHANGES_CONTENT_COLUMNS: [&str; 11] = [
    "GRUPO_DFP",
    "MOEDA",
    "ESCALA_MOEDA",
    "ORDEM_EXERC",
    "DT_INI_EXERC",
    "DT_FIM_EXERC",
    "COLUNA_DF",
    "CD_CONTA",
    "DS_CONTA",
    "VL_CONTA",
    "ST_CONTA_FIXA",
];
pub const SHARES_CONTENT_COLUMNS: [&str; 6] = [
    "QT_ACAO_ORDIN_CAP_INTEGR",
    "QT_ACAO_PREF_CAP_INTEGR",
    "QT_ACAO_TOTAL_CAP_INTEGR",
    "QT_ACAO_ORDIN_TESOURO",
    "QT_ACAO_PREF_TESOURO",
    "QT_ACAO_TOTAL_TESOURO",
];

/// The first year with share counts.
const FIRST_YEAR_WITH_SHARES: i32 = 2020;

impl Statement {
    pub const ALL: [Self; 7] = [
        Self::BalanceSheetAssets,
        Self::BalanceSheetLiabilities,
        Self::Income,
        Self::ComprehensiveIncome,
        Self::CashFlow,
        Self::ValueAdded,
        Self::EquityChanges,
    ];

    pub fn from_id(id: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|statement| statement.id() == id)
    }

    /// The statement that has an account: the first digit of its code says so.
    pub fn with_account(account: &str) -> Option<Self> {
        match account.bytes().next()? {
            b'1' => Some(Self::BalanceSheetAssets),
            b'2' => Some(Self::BalanceSheetLiabilities),
            b'3' => Some(Self::Income),
            b'4' => Some(Self::ComprehensiveIncome),
            b'5' => Some(Self::EquityChanges),
            b'6' => Some(Self::CashFlow),
            b'7' => Some(Self::ValueAdded),
            _ => None,
        }
    }

    pub const fn id(self) -> &'static str {
        match self {
            Self::BalanceSheetAssets => "balance-sheet-assets",
            Self::BalanceSheetLiabilities => "balance-sheet-liabilities",
            Self::Income => "income",
            Self::ComprehensiveIncome => "comprehensive-income",
            Self::CashFlow => "cash-flow",
            Self::ValueAdded => "value-added",
            Self::EquityChanges => "equity-changes",
        }
    }
}

impl CashFlowMethod {
    pub const fn id(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Indirect => "indirect",
        }
    }
}

impl StatementScope {
    pub const ALL: [Self; 2] = [Self::Consolidated, Self::Individual];

    pub const fn id(self) -> &'static str {
        match self {
            Self::Consolidated => "consolidated",
            Self::Individual => "individual",
        }
    }
}

impl StatementTable {
    /// In the order of the canonical form. Share counts come last, because the other tables tell which company has a
    /// CNPJ.
    pub const ALL: [Self; 17] = {
        use CashFlowMethod::{Direct, Indirect};
        use Statement::{
            BalanceSheetAssets, BalanceSheetLiabilities, CashFlow, ComprehensiveIncome, EquityChanges, Income,
            ValueAdded,
        };
        use StatementScope::{Consolidated, Individual};

        [
            Self::of_accounts("BPA_con", BalanceSheetAssets, None, Consolidated),
            Self::of_accounts("BPA_ind", BalanceSheetAssets, None, Individual),
            Self::of_accounts("BPP_con", BalanceSheetLiabilities, None, Consolidated),
            Self::of_accounts("BPP_ind", BalanceSheetLiabilities, None, Individual),
            Self::of_accounts("DFC_MD_con", CashFlow, Some(Direct), Consolidated),
            Self::of_accounts("DFC_MD_ind", CashFlow, Some(Direct), Individual),
            Self::of_accounts("DFC_MI_con", CashFlow, Some(Indirect), Consolidated),
            Self::of_accounts("DFC_MI_ind", CashFlow, Some(Indirect), Individual),
            Self::of_accounts("DMPL_con", EquityChanges, None, Consolidated),
            Self::of_accounts("DMPL_ind", EquityChanges, None, Individual),
            Self::of_accounts("DRA_con", ComprehensiveIncome, None, Consolidated),
            Self::of_accounts("DRA_ind", ComprehensiveIncome, None, Individual),
            Self::of_accounts("DRE_con", Income, None, Consolidated),
            Self::of_accounts("DRE_ind", Income, None, Individual),
            Self::of_accounts("DVA_con", ValueAdded, None, Consolidated),
            Self::of_accounts("DVA_ind", ValueAdded, None, Individual),
            Self { name: "composicao_capital", content: TableContent::Shares },
        ]
    };

    const fn of_accounts(
        name: &'static str,
        statement: Statement,
        method: Option<CashFlowMethod>,
        scope: StatementScope,
    ) -> Self {
        Self { name, content: TableContent::Accounts { statement, method, scope } }
    }

    /// The scope of its values; share counts have none.
    pub const fn scope(self) -> Option<StatementScope> {
        match self.content {
            TableContent::Accounts { scope, .. } => Some(scope),
            TableContent::Shares => None,
        }
    }

    /// The statement that it belongs to; share counts belong to none.
    pub const fn statement(self) -> Option<Statement> {
        match self.content {
            TableContent::Accounts { statement, .. } => Some(statement),
            TableContent::Shares => None,
        }
    }

    pub fn with_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|table| table.name == name)
    }

    /// The tables in the archive of a year.
    pub fn all_of_year(year: i32) -> impl Iterator<Item = Self> {
        Self::ALL
            .into_iter()
            .filter(move |table| table.content != TableContent::Shares || year >= FIRST_YEAR_WITH_SHARES)
    }

    pub fn archive_member_name(self, set: StatementSet, year: i32) -> String {
        format!("{}_cia_aberta_{}_{year}.csv", set.id(), self.name)
    }

    pub const fn layout(self) -> TableLayout {
        match self.content {
            TableContent::Accounts { statement, .. } => match statement {
                Statement::BalanceSheetAssets | Statement::BalanceSheetLiabilities => TableLayout::Balance,
                Statement::EquityChanges => TableLayout::EquityChanges,
                Statement::Income | Statement::ComprehensiveIncome | Statement::CashFlow | Statement::ValueAdded => {
                    TableLayout::Flow
                }
            },
            TableContent::Shares => TableLayout::Shares,
        }
    }
}

impl TableLayout {
    pub const fn content_columns(self) -> &'static [&'static str] {
        match self {
            Self::Balance => &BALANCE_CONTENT_COLUMNS,
            Self::Flow => &FLOW_CONTENT_COLUMNS,
            Self::EquityChanges => &EQUITY_CHANGES_CONTENT_COLUMNS,
            Self::Shares => &SHARES_CONTENT_COLUMNS,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_statement_has_a_table_for_each_scope_and_method() {
        for statement in Statement::ALL {
            let tables = StatementTable::ALL.into_iter().filter(
                |table| matches!(table.content, TableContent::Accounts { statement: other, .. } if other == statement),
            );
            assert_eq!(tables.count(), if statement == Statement::CashFlow { 4 } else { 2 }, "{statement:?}");
        }
    }

    #[test]
    fn share_counts_begin_in_2020() {
        assert_eq!(StatementTable::all_of_year(2019).count(), 16);
        let names: Vec<String> =
            StatementTable::all_of_year(2020).map(|table| table.archive_member_name(StatementSet::Itr, 2020)).collect();
        assert_eq!((names.len(), &*names[16]), (17, "itr_cia_aberta_composicao_capital_2020.csv"));
    }
}
