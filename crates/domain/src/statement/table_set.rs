//! The tables that a document has.

use super::{StatementScope, StatementTable};

/// A set of [`StatementTable`]s, one bit for each in the order of [`StatementTable::ALL`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StatementTableSet(u32);

impl StatementTableSet {
    /// Names of tables that this version does not know are left out.
    pub fn from_names<'n>(names: impl IntoIterator<Item = &'n str>) -> Self {
        let known = names.into_iter().filter_map(StatementTable::with_name);
        Self(known.fold(0, |bits, table| bits | bit_of(table)))
    }

    pub const fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    pub const fn bits(self) -> u32 {
        self.0
    }

    pub fn contains(self, table: StatementTable) -> bool {
        self.0 & bit_of(table) != 0
    }

    /// The scopes in which the document has statements.
    pub fn scopes(self) -> impl Iterator<Item = StatementScope> {
        StatementScope::ALL.into_iter().filter(move |scope| self.iter().any(|table| table.scope() == Some(*scope)))
    }

    pub fn iter(self) -> impl Iterator<Item = StatementTable> {
        StatementTable::ALL.into_iter().filter(move |table| self.contains(*table))
    }
}

fn bit_of(table: StatementTable) -> u32 {
    StatementTable::ALL.iter().position(|other| *other == table).map_or(0, |index| 1 << index)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_has_the_tables_that_were_named() {
        let set = StatementTableSet::from_names(["DRE_con", "composicao_capital", "DRE_con", "parecer"]);
        let names: Vec<&str> = set.iter().map(|table| table.name).collect();
        assert_eq!(names, ["DRE_con", "composicao_capital"]);
        assert_eq!(StatementTableSet::from_bits(set.bits()), set);
        assert_eq!(StatementTableSet::from_names(StatementTable::ALL.map(|table| table.name)).iter().count(), 17);
    }
}
