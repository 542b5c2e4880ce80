//! JSON read down to its own characters: numbers stay the tokens that were sent, so no float is ever made of them.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::Refused;
use super::text::quoted;

/// No object of ours has half as many; a bound on what a stranger can make us keep.
const MOST_KEYS: usize = 32;

/// The keys and values of one object, in their order.
#[derive(Debug)]
pub struct Fields<'j>(Vec<(String, &'j RawValue)>);

impl<'j> Fields<'j> {
    pub fn parse(json: &'j str) -> Result<Self, String> {
        serde_json::from_str(json).map_err(|error| format!("it is not an object: {error}"))
    }

    /// The characters of a value. A key that stands twice has none, because nobody can say which is meant.
    pub fn token(&self, key: &str) -> Result<&'j str, String> {
        let mut values = self.0.iter().filter(|(name, _)| name == key).map(|(_, value)| value.get());
        let value = values.next().ok_or_else(|| format!("it has no {key}"))?;
        if values.next().is_some() {
            return Err(format!("it has {key} twice"));
        }
        Ok(value)
    }

    pub fn string(&self, key: &str) -> Result<String, String> {
        let token = self.token(key)?;
        serde_json::from_str(token).map_err(|_| format!("{key} is {}, not a string", quoted(token)))
    }

    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| name.as_str())
    }
}

/// The elements of an array, each as it was sent.
pub fn elements(json: &str) -> Result<Vec<&RawValue>, String> {
    serde_json::from_str(json).map_err(|error| format!("it is not a whole JSON array: {error}"))
}

/// The text of a body, without the mark that some servers put before it and without spaces around.
pub fn body_text<'b>(body: &'b [u8], expected: &'static str, most_bytes: usize) -> Result<&'b str, Refused> {
    if body.len() > most_bytes {
        return Err(Refused::TooLarge { most_bytes });
    }
    let text = std::str::from_utf8(body)
        .map_err(|_| Refused::NotTheFormat { expected, found: "it is not UTF-8".to_owned() })?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text).trim();
    if text.is_empty() {
        return Err(Refused::Empty);
    }
    if text.starts_with('<') {
        return Err(Refused::NotTheFormat { expected, found: format!("it is a page: {}", quoted(text)) });
    }
    Ok(text)
}

impl<'de> Deserialize<'de> for Fields<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct FieldsVisitor;

        impl<'de> Visitor<'de> for FieldsVisitor {
            type Value = Fields<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut fields = Vec::new();
                while let Some(field) = map.next_entry()? {
                    if fields.len() == MOST_KEYS {
                        return Err(A::Error::custom("too many keys"));
                    }
                    fields.push(field);
                }
                Ok(Fields(fields))
            }
        }

        deserializer.deserialize_map(FieldsVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_their_characters() {
        let fields = Fields::parse(r#"{"a": 5.90880, "b": "x", "c": 1e308, "d": null}"#).unwrap();
        assert_eq!(fields.token("a").unwrap(), "5.90880");
        assert_eq!(fields.token("c").unwrap(), "1e308");
        assert_eq!(fields.string("b").unwrap(), "x");
        assert_eq!(fields.string("d").unwrap_err(), "d is \"null\", not a string");
        assert_eq!(fields.token("e").unwrap_err(), "it has no e");
    }

    #[test]
    fn a_key_that_stands_twice_says_nothing() {
        let fields = Fields::parse(r#"{"a":1,"a":2}"#).unwrap();
        assert_eq!(fields.token("a").unwrap_err(), "it has a twice");
    }

    #[test]
    fn only_objects_with_few_keys_are_objects() {
        for json in ["[]", "1", "\"x\"", "{", "null"] {
            assert!(Fields::parse(json).is_err(), "{json}");
        }
        let keys: Vec<String> = (0..33).map(|number| format!("\"k{number}\":0")).collect();
        assert!(Fields::parse(&format!("{{{}}}", keys.join(","))).unwrap_err().contains("too many keys"));
    }
}
