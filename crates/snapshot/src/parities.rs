//! The parities of bulletins. Each distinct one is kept once: hundreds of thousands of bulletins share far fewer.

use std::collections::HashMap;
use std::num::NonZeroU32;

use vintem_domain::{Decimal, Quote};

/// Names a parity of a [`ParityTable`], or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct ParityId(Option<NonZeroU32>);

#[derive(Debug, Default)]
pub(crate) struct ParityTable {
    distinct: Vec<Quote>,
}

impl ParityTable {
    pub(crate) fn get(&self, id: ParityId) -> Option<Quote> {
        let position = id.0?.get() - 1;
        self.distinct.get(position as usize).copied()
    }
}

/// The digits of both sides, because 0.70 and 0.7 are served differently.
type ParityDigits = [(i128, u32); 2];

#[derive(Debug, Default)]
pub(crate) struct ParityTableBuilder {
    table: ParityTable,
    ids: HashMap<ParityDigits, ParityId>,
}

impl ParityTableBuilder {
    pub(crate) fn insert(&mut self, parity: Option<Quote>) -> ParityId {
        let Some(parity) = parity else { return ParityId::default() };

        let digits = |side: Decimal| (side.mantissa(), side.scale());
        let table = &mut self.table;
        *self.ids.entry([digits(parity.buy), digits(parity.sell)]).or_insert_with(|| {
            table.distinct.push(parity);
            ParityId(u32::try_from(table.distinct.len()).ok().and_then(NonZeroU32::new))
        })
    }

    pub(crate) fn finish(mut self) -> ParityTable {
        self.table.distinct.shrink_to_fit();
        self.table
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_parities_are_kept_once_and_digits_are_never_lost() {
        let parity = |buy: &str, sell: &str| Quote { buy: buy.parse().unwrap(), sell: sell.parse().unwrap() };
        let mut builder = ParityTableBuilder::default();
        let ids = [
            builder.insert(Some(parity("0.70", "0.72"))),
            builder.insert(Some(parity("0.7", "0.72"))),
            builder.insert(Some(parity("0.70", "0.72"))),
            builder.insert(None),
        ];
        assert_eq!(ids[0], ids[2]);

        let table = builder.finish();
        let buy = |id: ParityId| table.get(id).map(|parity| parity.buy.to_string());
        assert_eq!(ids.map(buy), [Some("0.70".into()), Some("0.7".into()), Some("0.70".into()), None]);
        assert_eq!(table.distinct.len(), 2);
        assert_eq!(size_of::<ParityId>(), 4);
    }
}
