//! API keys: `vtm_`, 37 random base62 characters (220 bits) and 6 base62 characters of CRC32 over
//! everything before them.

use std::fmt;

/// The number by which a key is stored, counted and rate limited. It survives a rotation of the secret.
pub type KeyId = i64;

const KEY_PREFIX: &[u8; 4] = b"vtm_";
const RANDOM_LENGTH: usize = 37;
const CHECKSUM_LENGTH: usize = 6;
/// The part that the checksum covers.
const CHECKSUMMED_LENGTH: usize = KEY_PREFIX.len() + RANDOM_LENGTH;
const KEY_LENGTH: usize = CHECKSUMMED_LENGTH + CHECKSUM_LENGTH;
/// Stored in clear text so that people can tell their keys apart.
const DISPLAY_PREFIX_LENGTH: usize = 12;
const BASE62_ALPHABET: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// A well-formed key in clear text. It is shown to its owner once; `Debug` hides it.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKey([u8; KEY_LENGTH]);

impl ApiKey {
    /// Generates a key from a source of random bytes.
    pub fn generate(mut random_byte: impl FnMut() -> u8) -> Self {
        let mut key = [0; KEY_LENGTH];
        key[..KEY_PREFIX.len()].copy_from_slice(KEY_PREFIX);

        let mut length = KEY_PREFIX.len();
        while length < CHECKSUMMED_LENGTH {
            let byte = random_byte();

            // 248 = 4 × 62. Larger bytes would make some characters likelier than others.
            if byte < 248 {
                key[length] = BASE62_ALPHABET[usize::from(byte) % 62];
                length += 1;
            }
        }

        let checksum = compute_checksum(&key[..CHECKSUMMED_LENGTH]);
        key[CHECKSUMMED_LENGTH..].copy_from_slice(&checksum);
        Self(key)
    }

    /// Returns `None` unless prefix, length, alphabet and checksum are right, so that garbage costs no database lookup.
    pub fn parse(text: &str) -> Option<Self> {
        let key: [u8; KEY_LENGTH] = text.as_bytes().try_into().ok()?;
        let (payload, checksum) = key.split_at(CHECKSUMMED_LENGTH);
        let is_well_formed =
            key.starts_with(KEY_PREFIX) && key[KEY_PREFIX.len()..].iter().all(u8::is_ascii_alphanumeric);
        (is_well_formed && compute_checksum(payload) == checksum).then_some(Self(key))
    }

    /// Whether a text starts like a key, even if it is truncated or mistyped.
    pub fn is_key_like(text: &str) -> bool {
        text.as_bytes().starts_with(KEY_PREFIX)
    }

    /// The key in clear text, for its owner and for the HMAC.
    pub fn reveal(&self) -> &str {
        str::from_utf8(&self.0).expect("a key is plain letters and digits")
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    pub fn display_prefix(&self) -> &str {
        &self.reveal()[..DISPLAY_PREFIX_LENGTH]
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ApiKey({}…)", self.display_prefix())
    }
}

fn compute_checksum(payload: &[u8]) -> [u8; CHECKSUM_LENGTH] {
    let mut remaining = crc32fast::hash(payload);
    let mut characters = [b'0'; CHECKSUM_LENGTH];
    for character in characters.iter_mut().rev() {
        *character = BASE62_ALPHABET[(remaining % 62) as usize];
        remaining /= 62;
    }
    characters
}

pub const MAX_LABEL_LENGTH: usize = 100;

/// Whether this is a valid label for a key: up to 100 characters, none of them a control character.
pub fn is_valid_label(text: &str) -> bool {
    text.chars().count() <= MAX_LABEL_LENGTH && !text.chars().any(char::is_control)
}

/// The kinds of changes in a key's history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyChange {
    Created,
    PlanChanged,
    LabelChanged,
    ExpiryChanged,
    Rotated,
    Revoked,
    Erased,
}

impl KeyChange {
    pub const ALL: [Self; 7] = [
        Self::Created,
        Self::PlanChanged,
        Self::LabelChanged,
        Self::ExpiryChanged,
        Self::Rotated,
        Self::Revoked,
        Self::Erased,
    ];

    pub const fn id(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::PlanChanged => "plan",
            Self::LabelChanged => "label",
            Self::ExpiryChanged => "expiry",
            Self::Rotated => "rotated",
            Self::Revoked => "revoked",
            Self::Erased => "erased",
        }
    }

    pub fn from_id(id: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|change| change.id() == id)
    }
}

/// A Free key that is not used for this many days expires, and its name and e-mail are erased.
pub const UNUSED_KEY_DAYS: u32 = 90;

/// Who changed a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum KeyActor {
    /// On the command line.
    #[default]
    Operator,
    /// Through the API, with the key itself.
    Owner,
    /// Somebody who registered for a free key.
    Registration,
    /// The service itself, because the key was not used.
    Service,
}

impl KeyActor {
    pub const ALL: [Self; 4] = [Self::Operator, Self::Owner, Self::Registration, Self::Service];

    pub const fn id(self) -> &'static str {
        match self {
            Self::Operator => "operator",
            Self::Owner => "owner",
            Self::Registration => "registration",
            Self::Service => "service",
        }
    }

    pub fn from_id(id: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|actor| actor.id() == id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deterministic_key() -> ApiKey {
        let mut next = 0u8;
        ApiKey::generate(|| {
            next = next.wrapping_add(41);
            next
        })
    }

    #[test]
    fn a_generated_key_has_the_documented_format() {
        let key = deterministic_key();
        assert_eq!(key.reveal().len(), 47);
        assert!(key.reveal().starts_with("vtm_"));
        assert_eq!(ApiKey::parse(key.reveal()), Some(key));
    }

    #[test]
    fn changing_any_character_makes_a_key_invalid() {
        let key = deterministic_key();
        for position in 0..key.reveal().len() {
            for replacement in BASE62_ALPHABET {
                let mut bytes = key.reveal().as_bytes().to_vec();
                if bytes[position] == *replacement {
                    continue;
                }
                bytes[position] = *replacement;
                assert_eq!(ApiKey::parse(std::str::from_utf8(&bytes).unwrap()), None, "position {position}");
            }
        }
    }

    #[test]
    fn debug_output_hides_the_key() {
        let key = deterministic_key();
        assert!(!format!("{key:?}").contains(&key.reveal()[12..]));
    }
}
