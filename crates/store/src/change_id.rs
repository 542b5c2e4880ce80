//! Ids that tell one history of a database from another.

use crate::{Result, StoreError};

/// The random id of a load or of a change of a key. After a restore the same numbers are counted again, but with other
/// ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChangeId(u128);

impl ChangeId {
    pub const fn from_u128(number: u128) -> Self {
        Self(number)
    }

    pub const fn to_u128(self) -> u128 {
        self.0
    }

    /// Reads a UUID as PostgreSQL writes it.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let digits = text.replace('-', "");
        let number = u128::from_str_radix(&digits, 16);
        number.map(Self).map_err(|_| StoreError::UnreadableData(format!("the id of a change: {text}")))
    }

    /// A UUID that PostgreSQL reads.
    pub(crate) fn to_uuid(self) -> String {
        format!("{:032x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uuids_are_read_and_written() {
        let id = ChangeId::parse("00000000-0000-0000-0000-00000000ff01").unwrap();
        assert_eq!(id, ChangeId::from_u128(0xff01));
        assert_eq!(id.to_uuid(), "0000000000000000000000000000ff01");
        assert!(ChangeId::parse("no uuid").is_err());
    }
}
