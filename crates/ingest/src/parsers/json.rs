//! JSON parsing that keeps numbers as the characters that were sent, so that no value ever becomes a float.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::FormatError;
use super::text::quote_truncated;

/// No object that we parse has half as many. Bounds the memory that a response can make us use.
const MAX_KEYS: usize = 32;

/// The keys and raw values of one object, in their order.
#[derive(Debug)]
pub struct JsonObject<'j>(Vec<(String, &'j RawValue)>);

impl<'j> JsonObject<'j> {
    pub fn parse(json: &'j str) -> Result<Self, String> {
        serde_json::from_str(json).map_err(|error| format!("it is not an object: {error}"))
    }

    /// The characters of a value. A duplicate key is an error, because it is unclear which value is meant.
    pub fn raw_value(&self, key: &str) -> Result<&'j str, String> {
        let mut values = self.0.iter().filter(|(name, _)| name == key).map(|(_, value)| value.get());
        let value = values.next().ok_or_else(|| format!("it has no {key}"))?;
        if values.next().is_some() {
            return Err(format!("it has {key} twice"));
        }
        Ok(value)
    }

    pub fn string_value(&self, key: &str) -> Result<String, String> {
        let token = self.raw_value(key)?;
        serde_json::from_str(token).map_err(|_| format!("{key} is {}, not a string", quote_truncated(token)))
    }

    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| name.as_str())
    }
}

/// The elements of an array as raw JSON.
pub fn parse_array(json: &str) -> Result<Vec<&RawValue>, String> {
    serde_json::from_str(json).map_err(|error| format!("it is not a whole JSON array: {error}"))
}

/// The text of a body, without the byte order mark that some servers send and without surrounding whitespace.
pub fn checked_body_text<'b>(body: &'b [u8], expected: &'static str, max_bytes: usize) -> Result<&'b str, FormatError> {
    if body.len() > max_bytes {
        return Err(FormatError::TooLarge { max_bytes });
    }

    let text = std::str::from_utf8(body)
        .map_err(|_| FormatError::UnexpectedFormat { expected, found: "it is not UTF-8".to_owned() })?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text).trim();

    if text.is_empty() {
        return Err(FormatError::Empty);
    }
    if text.starts_with('<') {
        return Err(FormatError::UnexpectedFormat {
            expected,
            found: format!("it is a page: {}", quote_truncated(text)),
        });
    }
    Ok(text)
}

impl<'de> Deserialize<'de> for JsonObject<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct JsonObjectVisitor;

        impl<'de> Visitor<'de> for JsonObjectVisitor {
            type Value = JsonObject<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut fields = Vec::new();
                while let Some(field) = map.next_entry()? {
                    if fields.len() == MAX_KEYS {
                        return Err(A::Error::custom("too many keys"));
                    }
                    fields.push(field);
                }
                Ok(JsonObject(fields))
            }
        }

        deserializer.deserialize_map(JsonObjectVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_their_exact_digits() {
        let fields = JsonObject::parse(r#"{"a": 5.90880, "b": "x", "c": 1e308, "d": null}"#).unwrap();
        assert_eq!(fields.raw_value("a").unwrap(), "5.90880");
        assert_eq!(fields.raw_value("c").unwrap(), "1e308");
        assert_eq!(fields.string_value("b").unwrap(), "x");
        assert_eq!(fields.string_value("d").unwrap_err(), "d is \"null\", not a string");
        assert_eq!(fields.raw_value("e").unwrap_err(), "it has no e");
    }

    #[test]
    fn a_duplicate_key_is_an_error() {
        let fields = JsonObject::parse(r#"{"a":1,"a":2}"#).unwrap();
        assert_eq!(fields.raw_value("a").unwrap_err(), "it has a twice");
    }

    #[test]
    fn non_objects_and_objects_with_too_many_keys_are_rejected() {
        for json in ["[]", "1", "\"x\"", "{", "null"] {
            assert!(JsonObject::parse(json).is_err(), "{json}");
        }
        let keys: Vec<String> = (0..33).map(|number| format!("\"k{number}\":0")).collect();
        assert!(JsonObject::parse(&format!("{{{}}}", keys.join(","))).unwrap_err().contains("too many keys"));
    }
}
