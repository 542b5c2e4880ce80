//! What a later form of a document changes.

use std::collections::{BTreeMap, BTreeSet};

use rust_decimal::Decimal;

use super::{AccountKey, AccountRow, StatementContent};
use crate::text::normalize_text;

/// An account whose value differs between two forms of a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ValueChange<'t> {
    /// As the later form has it, or the earlier one if the later form lacks the account.
    pub row: AccountRow<'t>,
    /// `None` if the form lacks the account.
    pub old: Option<Decimal>,
    pub new: Option<Decimal>,
}

/// The values of the filed period that differ, by account. Comparatives are left out, because they repeat what other
/// documents say, and so are accounts that a form states with several values. An account without a value equals one of
/// zero: forms list unused accounts or leave them out. A new name alone is no change.
pub fn changed_values<'t>(old: &StatementContent<'t>, new: &StatementContent<'t>) -> Vec<ValueChange<'t>> {
    let mut accounts: BTreeMap<AccountIdentity<'t>, [Option<&AccountRow<'t>>; 2]> = BTreeMap::new();
    for (side, content) in [old, new].into_iter().enumerate() {
        for row in content.accounts.iter().filter(|row| !row.key.is_comparative) {
            accounts.entry(identity(row)).or_default()[side] = Some(row);
        }
    }

    let [before, after] = [old, new].map(values_by_key);
    let is_renamed = |key: &AccountKey<'t>| before.contains_key(key) && before.get(key) == after.get(key);
    let contradictions = old.contradictions.iter().chain(&new.contradictions);
    let contradictory: BTreeSet<AccountKey<'t>> = contradictions.map(|rows| rows.key).collect();
    // An account that is missing may be one of those that could not be read.
    let may_lack = [old, new].map(|content| content.unreadable.is_empty());
    let change = |((key, _), rows): (AccountIdentity<'t>, [Option<&AccountRow<'t>>; 2])| {
        let [old, new] = rows.map(|row| row.map(|row| row.value));
        let is_known = rows.iter().zip(may_lack).all(|(row, may_lack)| row.is_some() || may_lack);
        let is_changed = old.unwrap_or_default() != new.unwrap_or_default() && !is_renamed(&key);
        let row = rows[1].or(rows[0]).filter(|_| is_known && is_changed && !contradictory.contains(&key));
        row.map(|row| ValueChange { row: *row, old, new })
    };
    accounts.into_iter().filter_map(change).collect()
}

fn values_by_key<'t>(content: &StatementContent<'t>) -> BTreeMap<AccountKey<'t>, Decimal> {
    content.accounts.iter().filter(|row| !row.key.is_comparative).map(|row| (row.key, row.value)).collect()
}

/// Companies reuse the codes of accounts of their own, which are therefore told apart by their names.
type AccountIdentity<'t> = (AccountKey<'t>, Option<String>);

fn identity<'t>(row: &AccountRow<'t>) -> AccountIdentity<'t> {
    (row.key, (!row.is_fixed).then(|| normalize_text(row.name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: &str =
        "GRUPO_DFP;MOEDA;ESCALA_MOEDA;ORDEM_EXERC;DT_FIM_EXERC;CD_CONTA;DS_CONTA;VL_CONTA;ST_CONTA_FIXA";

    /// Each row has its order, account, name and value; accounts of the company's own are called so.
    fn document(rows: &[[&str; 4]]) -> String {
        let row = |[order, account, name, value]: &[&str; 4]| {
            let fixed = if name.starts_with("Own") { 'N' } else { 'S' };
            format!("DF;REAL;MIL;{order};2024-12-31;{account};{name};{value}.0000000000;{fixed}\n")
        };
        format!("[BPA_con]\n{COLUMNS}\n{}", rows.iter().map(row).collect::<String>())
    }

    fn changes(old: &str, new: &str) -> Vec<String> {
        let text = |value: Option<Decimal>| value.map_or("-".to_owned(), |value| value.to_string());
        let (old, new) = (StatementContent::parse(old).unwrap(), StatementContent::parse(new).unwrap());
        let line = |change: &ValueChange<'_>| {
            format!("{} {} {} {}", change.row.key.account, change.row.name, text(change.old), text(change.new))
        };
        changed_values(&old, &new).iter().map(line).collect()
    }

    #[test]
    fn only_values_of_the_filed_period_that_differ_are_changes() {
        let old = document(&[
            ["ÚLTIMO", "1", "Total", "10"],
            ["ÚLTIMO", "1.01", "Cash", "4"],
            ["ÚLTIMO", "1.02", "Stock", "6"],
            ["ÚLTIMO", "1.03", "Unused", "0"],
            ["PENÚLTIMO", "1", "Total", "7"],
        ]);
        let new = document(&[
            ["ÚLTIMO", "1", "Total", "11"],
            ["ÚLTIMO", "1.01", "Cash", "4"],
            ["ÚLTIMO", "1.04", "Land", "7"],
            ["ÚLTIMO", "1.05", "Unused", "0"],
            ["PENÚLTIMO", "1", "Total", "8"],
        ]);
        assert_eq!(changes(&old, &new), ["1 Total 10000 11000", "1.02 Stock 6000 -", "1.04 Land - 7000"]);
        assert_eq!(changes(&new, &new), Vec::<String>::new());
    }

    #[test]
    fn own_accounts_that_share_a_code_are_told_apart_and_fixed_ones_may_be_renamed() {
        let old = document(&[["ÚLTIMO", "1.01", "Caixa", "4"], ["ÚLTIMO", "1.01.01", "Own dividends", "10"]]);
        let new = document(&[["ÚLTIMO", "1.01", "Caixa e bancos", "5"], ["ÚLTIMO", "1.01.01", "Own advances", "3"]]);
        let expected =
            ["1.01 Caixa e bancos 4000 5000", "1.01.01 Own advances - 3000", "1.01.01 Own dividends 10000 -"];
        assert_eq!(changes(&old, &new), expected);
    }

    #[test]
    fn a_new_name_alone_is_no_change() {
        let old = document(&[["ÚLTIMO", "1.01.01", "Own other", "5"], ["ÚLTIMO", "1.01.02", "Own advances", "3"]]);
        let new = document(&[["ÚLTIMO", "1.01.01", "Own receivables", "5"], ["ÚLTIMO", "1.01.02", "Advances", "3"]]);
        assert_eq!(changes(&old, &new), Vec::<String>::new());
    }

    #[test]
    fn rows_that_contradict_each_other_or_cannot_be_read_are_no_changes() {
        let plain = document(&[["ÚLTIMO", "1", "Total", "10"], ["ÚLTIMO", "1.01", "Cash", "4"]]);
        let contradictory = document(&[
            ["ÚLTIMO", "1", "Total", "10"],
            ["ÚLTIMO", "1", "Total", "12"],
            ["ÚLTIMO", "1.01", "Cash", "5"],
        ]);
        assert_eq!(changes(&plain, &contradictory), ["1.01 Cash 4000 5000"]);
        assert_eq!(changes(&contradictory, &plain), ["1.01 Cash 5000 4000"]);

        let unreadable = document(&[["ÚLTIMO", "1", "Total", "11"], ["LAST", "1.01", "Cash", "4"]]);
        assert_eq!(changes(&plain, &unreadable), ["1 Total 10000 11000"]);
        assert_eq!(changes(&unreadable, &plain), ["1 Total 11000 10000"]);
    }
}
