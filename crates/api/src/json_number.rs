//! Decimals on the wire: exact JSON numbers, or the same characters as a string.

use std::fmt::Display;

use serde::{Serialize, Serializer};
use serde_json::value::RawValue;
use vintem_domain::Decimal;

/// What is shown as the digits of a number.
#[derive(Debug, Clone, Copy)]
pub struct JsonNumber<T = Decimal> {
    pub value: T,
    pub as_text: bool,
}

impl<T: Display> Serialize for JsonNumber<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let characters = self.value.to_string();
        if self.as_text {
            return serializer.serialize_str(&characters);
        }
        // A decimal's own text is a JSON number: written as it is, it passes through no float.
        RawValue::from_string(characters).map_err(serde::ser::Error::custom)?.serialize(serializer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_serialize_with_their_exact_digits() {
        for text in ["15.00", "0.053400", "-0.23", "438898.12", "0.00000001", "1234567890123456789012345678"] {
            let value: Decimal = text.parse().unwrap();
            assert_eq!(serde_json::to_string(&JsonNumber { value, as_text: false }).unwrap(), text);
            assert_eq!(serde_json::to_string(&JsonNumber { value, as_text: true }).unwrap(), format!("\"{text}\""));
        }
    }
}
