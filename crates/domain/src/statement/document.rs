//! Reads the canonical form of a document: tables one after the other, each with its name in brackets, the names of its
//! columns and its rows, separated by semicolons.
//!
//! Rows keep what was filed. A document is never refused for single rows: those that cannot be read, and those that
//! contradict each other, are set aside.

use rust_decimal::Decimal;

use super::account::{AccountKey, AccountRow};
use super::row::{ShareCounts, TableRow};
use super::table::{StatementTable, TableContent};

/// Bounds memory only: a document has some 840 rows.
const MAX_ROWS: usize = 100_000;

/// What a document says.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct StatementContent<'t> {
    /// Ordered by [`AccountRow::key`].
    pub accounts: Vec<AccountRow<'t>>,
    /// `None`, too, if the document states several.
    pub shares: Option<ShareCounts>,
    pub contradictory_shares: Vec<ShareCounts>,
    pub contradictions: Vec<ContradictingRows<'t>>,
    pub unreadable: Vec<UnreadableRow<'t>>,
}

/// Rows with the same key and different values. None of them is more credible than another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContradictingRows<'t> {
    pub key: AccountKey<'t>,
    /// As filed.
    pub raw_values: Vec<Decimal>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnreadableRow<'t> {
    /// Counted from 1 in the canonical form.
    pub line: usize,
    pub text: &'t str,
    /// The column at fault; `None` if the row has too few or too many fields.
    pub column: Option<&'static str>,
}

/// Why a text is not a document in its canonical form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DocumentFormatError {
    TextBeforeFirstTable,
    UnknownTable { line: usize },
    WrongColumns { table: &'static str },
    TooManyRows,
}

impl std::fmt::Display for DocumentFormatError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::TextBeforeFirstTable => write!(f, "it does not begin with a table"),
            Self::UnknownTable { line } => write!(f, "line {line} names an unknown table"),
            Self::WrongColumns { table } => write!(f, "the table {table} does not have its columns"),
            Self::TooManyRows => write!(f, "it has more than {MAX_ROWS} rows"),
        }
    }
}

impl std::error::Error for DocumentFormatError {}

impl<'t> StatementContent<'t> {
    pub fn parse(canonical: &'t str) -> Result<Self, DocumentFormatError> {
        Self::parse_tables(canonical, |_| true)
    }

    /// Reads only some of the tables, which takes far less time than reading all.
    pub fn parse_tables(
        canonical: &'t str,
        is_wanted: impl Fn(StatementTable) -> bool,
    ) -> Result<Self, DocumentFormatError> {
        Self::parse_rows(canonical, |table, _| is_wanted(table))
    }

    /// The same without the comparatives, which are half of the rows.
    pub fn parse_tables_as_filed(
        canonical: &'t str,
        is_wanted: impl Fn(StatementTable) -> bool,
    ) -> Result<Self, DocumentFormatError> {
        Self::parse_rows(canonical, |table, row| is_wanted(table) && !row.is_comparative())
    }

    fn parse_rows(
        canonical: &'t str,
        is_wanted: impl Fn(StatementTable, TableRow<'_>) -> bool,
    ) -> Result<Self, DocumentFormatError> {
        let mut content = Self::default();
        let mut read_rows: Vec<AccountRow<'t>> = Vec::new();
        let mut share_counts: Vec<ShareCounts> = Vec::new();
        let mut table: Option<StatementTable> = None;
        let mut lines = canonical.lines().enumerate();
        while let Some((index, line)) = lines.next() {
            if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
                let found = StatementTable::with_name(name);
                let found = found.ok_or(DocumentFormatError::UnknownTable { line: index + 1 })?;
                let columns = lines.next().map_or("", |(_, columns)| columns);
                if !columns.split(';').eq(found.layout().content_columns().iter().copied()) {
                    return Err(DocumentFormatError::WrongColumns { table: found.name });
                }
                table = Some(found);
                continue;
            }
            let table = table.ok_or(DocumentFormatError::TextBeforeFirstTable)?;
            if index > MAX_ROWS {
                return Err(DocumentFormatError::TooManyRows);
            }
            let row = TableRow { layout: table.layout(), text: line };
            if !is_wanted(table, row) {
                continue;
            }

            let outcome = match table.content {
                TableContent::Accounts { statement, method, scope } => {
                    row.to_account_row(statement, method, scope).map(|row| read_rows.push(row))
                }
                TableContent::Shares => row.to_share_counts().map(|shares| share_counts.push(shares)),
            };
            if let Err(column) = outcome {
                content.unreadable.push(UnreadableRow { line: index + 1, text: line, column });
            }
        }

        match share_counts[..] {
            [shares] => content.shares = Some(shares),
            _ => content.contradictory_shares = share_counts,
        }
        read_rows.sort_by_key(|row| row.key);
        for same in read_rows.chunk_by(|row, next| row.key == next.key) {
            if same.iter().all(|row| (row.value, row.unit) == (same[0].value, same[0].unit)) {
                content.accounts.push(same[0]);
            } else {
                let raw_values = same.iter().map(|row| row.raw_value).collect();
                content.contradictions.push(ContradictingRows { key: same[0].key, raw_values });
            }
        }
        Ok(content)
    }
}

/// The tables of a canonical form, in its order. Together they are the whole text.
pub fn split_into_tables(canonical: &str) -> impl Iterator<Item = &str> {
    let mut rest = canonical;
    std::iter::from_fn(move || {
        let end = rest.find("\n[").map_or(rest.len(), |line_end| line_end + 1);
        let (table, following) = rest.split_at(end);
        rest = following;
        Some(table).filter(|table| !table.is_empty())
    })
}

#[cfg(test)]
mod tests {
    use chrono::NaiveDate;
    use proptest::prelude::*;

    use super::super::account::ScaleOfValues;
    use super::super::table::{CashFlowMethod, TableLayout};
    use super::*;

    /// A table in its canonical form. The rows have all that follows the name of the statement.
    fn table(name: &str, rows: &[&str]) -> String {
        let columns = StatementTable::with_name(name).unwrap().layout().content_columns().join(";");
        let rows: String = rows.iter().map(|row| format!("DF;REAL;{row}\n")).collect();
        format!("[{name}]\n{columns}\n{rows}")
    }

    fn day(text: &str) -> NaiveDate {
        text.parse().unwrap()
    }

    fn decimal(text: &str) -> Decimal {
        text.parse().unwrap()
    }

    #[test]
    fn every_statement_is_read_with_its_scope_method_period_and_column() {
        let text = [
            table("BPA_con", &["MIL;ÚLTIMO;2024-12-31;1;Ativo Total;41489701.0000000000;S"]),
            table("BPP_ind", &["MIL;ÚLTIMO;2024-12-31;2.03;Patrimônio Líquido;21.5000000000;S"]),
            table("DFC_MD_con", &["MIL;ÚLTIMO;2024-01-01;2024-12-31;6.01;Caixa Líquido;-3.0000000000;S"]),
            table("DFC_MI_ind", &["MIL;ÚLTIMO;2024-01-01;2024-12-31;6.01;Caixa Líquido;4.0000000000;S"]),
            table(
                "DMPL_con",
                &["MIL;ÚLTIMO;2024-01-01;2024-12-31;Capital Social Integralizado;5.01;Saldos Iniciais;7.0000000000;S"],
            ),
            table("DRA_con", &["MIL;ÚLTIMO;2024-01-01;2024-12-31;4.03;Resultado Abrangente;9.0000000000;S"]),
            table("DRE_ind", &["MIL;PENÚLTIMO;2023-04-01;2024-03-31;3.01;Receita;8.0000000000;N"]),
            table("DVA_con", &["UNIDADE;ÚLTIMO;2024-01-01;2024-12-31;7.01;Receitas;6.0000000000;S"]),
        ]
        .concat();
        let content = StatementContent::parse(&text).unwrap();
        assert_eq!((&content.unreadable, &content.contradictions), (&vec![], &vec![]));

        let described: Vec<String> = content
            .accounts
            .iter()
            .map(|row| {
                let AccountKey { statement, method, scope, is_comparative, period_start, column, account, .. } =
                    row.key;
                format!(
                    "{} {} {} {} {is_comparative} {} {account} {}",
                    statement.id(),
                    method.map_or("-", CashFlowMethod::id),
                    scope.id(),
                    period_start.map_or_else(|| "-".to_owned(), |start| start.to_string()),
                    column.unwrap_or("-"),
                    row.value
                )
            })
            .collect();
        assert_eq!(
            described,
            [
                "balance-sheet-assets - consolidated - false - 1 41489701000",
                "balance-sheet-liabilities - individual - false - 2.03 21500",
                "income - individual 2023-04-01 true - 3.01 8000",
                "comprehensive-income - consolidated 2024-01-01 false - 4.03 9000",
                "cash-flow direct consolidated 2024-01-01 false - 6.01 -3000",
                "cash-flow indirect individual 2024-01-01 false - 6.01 4000",
                "value-added - consolidated 2024-01-01 false - 7.01 6",
                "equity-changes - consolidated 2024-01-01 false Capital Social Integralizado 5.01 7000",
            ]
        );
        let revenue = content.accounts[2];
        assert_eq!((revenue.name, revenue.is_fixed, revenue.key.period_end), ("Receita", false, day("2024-03-31")));
        assert_eq!((revenue.raw_value.to_string().as_str(), revenue.scale), ("8.0000000000", ScaleOfValues::Thousands));
    }

    #[test]
    fn tables_are_split_where_their_names_begin() {
        let tables = [
            table("BPA_con", &["MIL;ÚLTIMO;2024-12-31;1;Ativo [Total];1.0000000000;S"]),
            table("DRE_ind", &[]),
            table("DVA_con", &["UNIDADE;ÚLTIMO;2024-01-01;2024-12-31;7.01;Receitas;6.0000000000;S"]),
        ];
        let text = tables.concat();
        assert_eq!(split_into_tables(&text).collect::<Vec<_>>(), tables);
        assert_eq!(split_into_tables("").count(), 0);
        assert_eq!(split_into_tables("no table").collect::<Vec<_>>(), ["no table"]);
    }

    #[test]
    fn figures_of_one_share_are_never_scaled() {
        let text = table(
            "DRE_con",
            &[
                "MIL;ÚLTIMO;2024-01-01;2024-12-31;3.11;Lucro;6042600.0000000000;S",
                "MIL;ÚLTIMO;2024-01-01;2024-12-31;3.99;Lucro por Ação;0.0000000000;S",
                "MIL;ÚLTIMO;2024-01-01;2024-12-31;3.99.01.01;ON;1.4401300000;N",
                "MIL;ÚLTIMO;2024-01-01;2024-12-31;3.990;Outra;2.0000000000;N",
                "MIL;ÚLTIMO;2024-01-01;2024-12-31;4;Zero;-0.0000000000;N",
                "MIL;ÚLTIMO;2024-01-01;2024-12-31;4.01;Frações;-1.0250000000;N",
            ],
        );
        let content = StatementContent::parse(&text).unwrap();
        let values: Vec<_> =
            content.accounts.iter().map(|row| (row.key.account, row.value.to_string(), row.unit.id())).collect();
        let expected = [
            ("3.11", "6042600000", "BRL"),
            ("3.99", "0", "BRL/share"),
            ("3.99.01.01", "1.44013", "BRL/share"),
            ("3.990", "2000", "BRL"),
            ("4", "0", "BRL"),
            ("4.01", "-1025", "BRL"),
        ];
        assert_eq!(values, expected.map(|(account, value, unit)| (account, value.to_owned(), unit)));
    }

    #[test]
    fn rows_that_contradict_each_other_are_set_aside_and_equal_ones_are_one() {
        let row = |period: &str, value: &str, name: &str| format!("MIL;ÚLTIMO;{period};3.01;{name};{value};S");
        let quarter = "2025-04-01;2025-06-30";
        let year_to_date = "2025-01-01;2025-06-30";
        let rows = [
            row(quarter, "10.0000000000", "Receita"),
            row(year_to_date, "19.0000000000", "Receita"),
            row(year_to_date, "19.0", "Receita de Venda"),
            row(quarter, "11.0000000000", "Receita"),
        ];
        let text = table("DRE_con", &rows.each_ref().map(String::as_str));
        let content = StatementContent::parse(&text).unwrap();
        assert_eq!(content.accounts.len(), 1, "{content:?}");
        assert_eq!(content.accounts[0].key.period_start, Some(day("2025-01-01")));
        let [contradiction] = &content.contradictions[..] else { panic!("{content:?}") };
        assert_eq!(contradiction.key.to_string(), "3.01 of consolidated income, 2025-04-01 to 2025-06-30");
        assert_eq!(contradiction.key.period_start, Some(day("2025-04-01")));
        assert_eq!(contradiction.raw_values, [decimal("10"), decimal("11")]);
    }

    #[test]
    fn rows_that_cannot_be_read_say_why_and_refuse_nothing() {
        let good = "MIL;ÚLTIMO;2024-12-31;1;Ativo Total;1.0000000000;S";
        for (row, column) in [
            ("MIL;ANTEPENÚLTIMO;2024-12-31;1.01;x;1.0;S", Some("ORDEM_EXERC")),
            ("BILHÃO;ÚLTIMO;2024-12-31;1.01;x;1.0;S", Some("ESCALA_MOEDA")),
            ("MIL;ÚLTIMO;31/12/2024;1.01;x;1.0;S", Some("DT_FIM_EXERC")),
            ("MIL;ÚLTIMO;2024-12-31;;x;1.0;S", Some("CD_CONTA")),
            ("MIL;ÚLTIMO;2024-12-31;1.01;x;1,0;S", Some("VL_CONTA")),
            ("MIL;ÚLTIMO;2024-12-31;1.01;x;9999999999999999999999999999;S", Some("VL_CONTA")),
            ("MIL;ÚLTIMO;2024-12-31;1.01;x;0.00000000001;S", Some("VL_CONTA")),
            ("MIL;ÚLTIMO;2024-12-31;1.01;x;10000000000000000000000000;S", Some("VL_CONTA")),
            ("MIL;ÚLTIMO;2024-12-31;1.01;x;1.0;X", Some("ST_CONTA_FIXA")),
            ("MIL;ÚLTIMO;2024-12-31;1.01;x;1.0", None),
            ("MIL;ÚLTIMO;2024-12-31;1.01;x;1.0;S;S", None),
        ] {
            let text = table("BPA_con", &[good, row]);
            let content = StatementContent::parse(&text).unwrap();
            assert_eq!(content.accounts.len(), 1, "{row}");
            let [unreadable] = content.unreadable[..] else { panic!("{row}: {content:?}") };
            assert_eq!((unreadable.line, unreadable.column), (4, column), "{row}");
        }
        let dollars = table("BPA_con", &[good]).replace(";REAL;", ";DÓLAR;");
        assert_eq!(StatementContent::parse(&dollars).unwrap().unreadable[0].column, Some("MOEDA"));
    }

    #[test]
    fn tables_that_are_not_wanted_are_skipped() {
        let assets = table("BPA_con", &["MIL;ÚLTIMO;2024-12-31;1;Ativo Total;1.0000000000;S"]);
        let income = table("DRE_con", &["MIL;ÚLTIMO;2024-01-01;2024-12-31;3.01;Receita;2.0000000000;S", "unreadable"]);
        let text = [assets, income].concat();
        let is_wanted = |wanted| move |table: StatementTable| table.name == wanted;

        let content = StatementContent::parse_tables(&text, is_wanted("BPA_con")).unwrap();
        assert_eq!((content.accounts.len(), content.accounts[0].key.account, content.unreadable.len()), (1, "1", 0));
        let content = StatementContent::parse_tables(&text, is_wanted("DRE_con")).unwrap();
        assert_eq!((content.accounts.len(), content.accounts[0].key.account, content.unreadable.len()), (1, "3.01", 1));
    }

    #[test]
    fn comparatives_can_be_left_out() {
        let balances = ["MIL;ÚLTIMO;2024-12-31;1;Ativo;1.0;S", "MIL;PENÚLTIMO;2023-12-31;1;Ativo;2.0;S"];
        let changes = [
            "MIL;ÚLTIMO;2024-01-01;2024-12-31;Capital;5.01;Saldos;3.0;S",
            "MIL;PENÚLTIMO;2023-01-01;2023-12-31;Capital;5.01;Saldos;4.0;S",
            "unreadable",
        ];
        let shares = TableLayout::Shares.content_columns().join(";");
        let shares = format!("[composicao_capital]\n{shares}\n1;0;1;0;0;0\n");
        let text = [table("BPA_con", &balances), table("DMPL_con", &changes), shares].concat();
        let all = StatementContent::parse(&text).unwrap();
        let filed = StatementContent::parse_tables_as_filed(&text, |_| true).unwrap();
        let expected: Vec<_> = all.accounts.iter().filter(|row| !row.key.is_comparative).collect();
        assert_eq!((filed.accounts.iter().collect::<Vec<_>>(), all.accounts.len()), (expected, 4));
        assert_eq!((filed.shares, filed.unreadable), (all.shares, all.unreadable));
    }

    #[test]
    fn share_counts_are_as_filed() {
        let columns = TableLayout::Shares.content_columns().join(";");
        let text = format!("[composicao_capital]\n{columns}\n4197317998;0;4197317998;2000;0;2000\n");
        let shares = StatementContent::parse(&text).unwrap().shares.unwrap();
        assert_eq!((shares.total, shares.treasury_total), (decimal("4197317998"), decimal("2000")));

        let contradicting = format!("{text}4197317998;0;4197317998;3000;0;3000\n");
        let content = StatementContent::parse(&contradicting).unwrap();
        assert_eq!((content.shares, content.contradictory_shares.len()), (None, 2));
    }

    #[test]
    fn text_that_is_not_a_document_is_refused() {
        for (text, error) in [
            ("1;2\n".to_owned(), DocumentFormatError::TextBeforeFirstTable),
            ("[parecer]\n".to_owned(), DocumentFormatError::UnknownTable { line: 1 }),
            ("[BPA_con]\nVL_CONTA\n".to_owned(), DocumentFormatError::WrongColumns { table: "BPA_con" }),
            (table("BPA_con", &vec![""; MAX_ROWS]), DocumentFormatError::TooManyRows),
        ] {
            assert_eq!(StatementContent::parse(&text), Err(error));
        }
    }

    /// Rows of which many have the same key, and some cannot be read.
    fn any_row() -> impl Strategy<Value = String> {
        let order = prop::sample::select(vec!["ÚLTIMO", "PENÚLTIMO", "ANTERIOR"]);
        let start = prop::sample::select(vec!["2025-01-01", "2025-04-01", ""]);
        let account = prop::sample::select(vec!["3.01", "3.99", "3.99.01"]);
        let value = prop::sample::select(vec!["1.0", "1.00", "2.0", "x"]);
        (order, start, account, value).prop_map(|(order, start, account, value)| {
            format!("MIL;{order};{start};2025-06-30;{account};Conta;{value};S")
        })
    }

    proptest! {
        #[test]
        fn every_row_is_served_set_aside_or_equal_to_another(rows in proptest::collection::vec(any_row(), 0..20)) {
            let rows: Vec<&str> = rows.iter().map(String::as_str).collect();
            let text = table("DRE_con", &rows);
            let content = StatementContent::parse(&text).unwrap();

            let mut unreadable = 0;
            let mut values: std::collections::BTreeMap<Vec<&str>, Vec<Decimal>> = std::collections::BTreeMap::new();
            for row in &rows {
                let fields: Vec<&str> = row.split(';').collect();
                match fields[6].parse() {
                    Ok(value) if fields[1] != "ANTERIOR" && !fields[2].is_empty() => {
                        values.entry(fields[1..5].to_vec()).or_default().push(value);
                    }
                    _ => unreadable += 1,
                }
            }
            let is_agreed = |values: &&Vec<Decimal>| values.iter().all(|value| *value == values[0]);
            let agreed = values.values().filter(is_agreed).count();
            prop_assert_eq!(content.unreadable.len(), unreadable);
            prop_assert_eq!(content.accounts.len(), agreed);
            prop_assert_eq!(content.contradictions.len(), values.len() - agreed);
            let contradicting: usize = content.contradictions.iter().map(|rows| rows.raw_values.len()).sum();
            let expected: usize = values.values().filter(|values| !is_agreed(values)).map(Vec::len).sum();
            prop_assert_eq!(contradicting, expected);
        }

        #[test]
        fn parsing_never_panics(text in "(\\[(BPA_con|DMPL_ind|composicao_capital)\\]\n)?[A-ZÚ0-9;.\\[\\]\n-]{0,200}") {
            let _ = StatementContent::parse(&text);
        }
    }
}
