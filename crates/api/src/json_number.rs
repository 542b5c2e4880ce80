//! Decimals in JSON: exact numbers, or the same digits as a string.

use std::fmt::Display;

use serde::{Serialize, Serializer};
use serde_json::value::RawValue;
use vintem_domain::Decimal;

/// A number that serializes with exactly the digits of its `Display`.
#[derive(Debug, Clone, Copy)]
pub struct JsonNumber<T = Decimal> {
    pub value: T,
    pub as_text: bool,
}

impl<T: Display> Serialize for JsonNumber<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let digits = self.value.to_string();
        if self.as_text {
            return serializer.serialize_str(&digits);
        }
        // The text of a decimal is a valid JSON number. Writing it raw avoids a detour through floats.
        RawValue::from_string(digits).map_err(serde::ser::Error::custom)?.serialize(serializer)
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
