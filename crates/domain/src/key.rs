//! API keys: `vtm_`, 37 random base62 characters (220 bits), 6 base62 characters of CRC32 over what precedes.

use std::fmt;

/// The number under which a key is stored, counted and limited; it outlives a rotation of the secret.
pub type KeyId = i64;

const PREFIX: &[u8; 4] = b"vtm_";
const RANDOM_LENGTH: usize = 37;
const CHECKSUM_LENGTH: usize = 6;
/// What the checksum is over.
const SIGNED_LENGTH: usize = PREFIX.len() + RANDOM_LENGTH;
const LENGTH: usize = SIGNED_LENGTH + CHECKSUM_LENGTH;
/// What is kept in clear for people to tell their keys apart.
const SHOWN_LENGTH: usize = 12;
const BASE62: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// A well-formed key in clear. It is shown once, to its owner; `Debug` hides it.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKey([u8; LENGTH]);

impl ApiKey {
    /// A new key from a source of random bytes.
    pub fn generate(mut random_byte: impl FnMut() -> u8) -> Self {
        let mut key = [0; LENGTH];
        key[..PREFIX.len()].copy_from_slice(PREFIX);
        let mut length = PREFIX.len();
        while length < SIGNED_LENGTH {
            let byte = random_byte();
            // 248 = 4 × 62: bytes above would make some characters likelier than others.
            if byte < 248 {
                key[length] = BASE62[usize::from(byte) % 62];
                length += 1;
            }
        }
        let sum = checksum(&key[..SIGNED_LENGTH]);
        key[SIGNED_LENGTH..].copy_from_slice(&sum);
        Self(key)
    }

    /// `None` unless prefix, length, alphabet and checksum are right: garbage costs no look-up.
    pub fn parse(text: &str) -> Option<Self> {
        let key: [u8; LENGTH] = text.as_bytes().try_into().ok()?;
        let (signed, sum) = key.split_at(SIGNED_LENGTH);
        let is_shaped = key.starts_with(PREFIX) && key[PREFIX.len()..].iter().all(u8::is_ascii_alphanumeric);
        (is_shaped && checksum(signed) == sum).then_some(Self(key))
    }

    /// The key itself: for its owner's eyes and for the HMAC.
    pub fn reveal(&self) -> &str {
        str::from_utf8(&self.0).expect("a key is plain letters and digits")
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The first 12 characters.
    pub fn shown(&self) -> &str {
        &self.reveal()[..SHOWN_LENGTH]
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ApiKey({}…)", self.shown())
    }
}

fn checksum(signed: &[u8]) -> [u8; CHECKSUM_LENGTH] {
    let mut rest = crc32fast::hash(signed);
    let mut characters = [b'0'; CHECKSUM_LENGTH];
    for character in characters.iter_mut().rev() {
        *character = BASE62[(rest % 62) as usize];
        rest /= 62;
    }
    characters
}

const LONGEST_LABEL: usize = 100;

/// Whether this may stand on a key for its owner to know it by: up to 100 characters, none of them a control character.
pub fn is_label(text: &str) -> bool {
    text.chars().count() <= LONGEST_LABEL && !text.chars().any(char::is_control)
}

/// What can happen to a key, as its history says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyChange {
    Created,
    Plan,
    Label,
    Expiry,
    Rotated,
    Revoked,
    Erased,
}

impl KeyChange {
    pub const ALL: [Self; 7] =
        [Self::Created, Self::Plan, Self::Label, Self::Expiry, Self::Rotated, Self::Revoked, Self::Erased];

    pub const fn id(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Plan => "plan",
            Self::Label => "label",
            Self::Expiry => "expiry",
            Self::Rotated => "rotated",
            Self::Revoked => "revoked",
            Self::Erased => "erased",
        }
    }

    pub fn from_id(id: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|change| change.id() == id)
    }
}

/// Who changes a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum KeyActor {
    /// On the command line.
    #[default]
    Operator,
    /// With the key itself.
    Owner,
    /// Somebody who asked for a free key.
    Registration,
}

impl KeyActor {
    pub const ALL: [Self; 3] = [Self::Operator, Self::Owner, Self::Registration];

    pub const fn id(self) -> &'static str {
        match self {
            Self::Operator => "operator",
            Self::Owner => "owner",
            Self::Registration => "registration",
        }
    }

    pub fn from_id(id: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|actor| actor.id() == id)
    }
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
