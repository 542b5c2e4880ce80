//! API keys: `vtm_`, 37 random base62 characters (220 bits), 6 base62 characters of CRC32 over what precedes.

use std::fmt;

/// The number under which a key is stored, counted and limited; it outlives a rotation of the secret.
pub type KeyId = i64;

const PREFIX: &str = "vtm_";
const RANDOM_LENGTH: usize = 37;
const CHECKSUM_LENGTH: usize = 6;
const LENGTH: usize = PREFIX.len() + RANDOM_LENGTH + CHECKSUM_LENGTH;
/// What is kept in clear for people to tell their keys apart.
const SHOWN_LENGTH: usize = 12;
const BASE62: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// A well-formed key in clear. It is shown once, to its owner; `Debug` hides it.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKey(String);

impl ApiKey {
    /// A new key from a source of random bytes.
    pub fn generate(mut random_byte: impl FnMut() -> u8) -> Self {
        let mut text = String::with_capacity(LENGTH);
        text.push_str(PREFIX);
        while text.len() < PREFIX.len() + RANDOM_LENGTH {
            let byte = random_byte();
            // 248 = 4 × 62: bytes above would make some characters likelier than others.
            if byte < 248 {
                text.push(char::from(BASE62[usize::from(byte) % 62]));
            }
        }
        let checksum = checksum(&text);
        text.push_str(&checksum);
        Self(text)
    }

    /// `None` unless prefix, length, alphabet and checksum are right: garbage costs no look-up.
    pub fn parse(text: &str) -> Option<Self> {
        let body = text.strip_prefix(PREFIX)?;
        if text.len() != LENGTH || !body.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            return None;
        }
        let (signed, sum) = text.split_at(LENGTH - CHECKSUM_LENGTH);
        (checksum(signed) == sum).then(|| Self(text.to_owned()))
    }

    /// The key itself: for its owner's eyes and for the HMAC.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// The first 12 characters.
    pub fn shown(&self) -> &str {
        &self.0[..SHOWN_LENGTH]
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ApiKey({}…)", self.shown())
    }
}

fn checksum(text: &str) -> String {
    let mut rest = crc32fast::hash(text.as_bytes());
    let mut characters = [b'0'; CHECKSUM_LENGTH];
    for character in characters.iter_mut().rev() {
        *character = BASE62[(rest % 62) as usize];
        rest /= 62;
    }
    String::from_utf8_lossy(&characters).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counting_key() -> ApiKey {
        let mut next = 0u8;
        ApiKey::generate(|| {
            next = next.wrapping_add(41);
            next
        })
    }

    #[test]
    fn a_generated_key_has_the_published_form() {
        let key = counting_key();
        assert_eq!(key.reveal().len(), 47);
        assert!(key.reveal().starts_with("vtm_"));
        assert_eq!(ApiKey::parse(key.reveal()), Some(key));
    }

    #[test]
    fn every_single_changed_character_is_detected() {
        let key = counting_key();
        for at in 0..key.reveal().len() {
            for other in BASE62 {
                let mut bytes = key.reveal().as_bytes().to_vec();
                if bytes[at] == *other {
                    continue;
                }
                bytes[at] = *other;
                assert_eq!(ApiKey::parse(std::str::from_utf8(&bytes).unwrap()), None, "position {at}");
            }
        }
    }

    #[test]
    fn debug_does_not_tell_the_key() {
        let key = counting_key();
        assert!(!format!("{key:?}").contains(&key.reveal()[12..]));
    }
}
