//! The pepper: keys are hashed with it before they are stored.

use hmac::{Hmac, Mac};
use sha2::{Digest, Sha256};
use vintem_domain::ApiKey;
use vintem_domain::text::hex_encode;
use vintem_store::keys::{NewSecret, PepperMark};

/// The secret with which keys are hashed before they are stored. It exists only in the environment.
#[derive(Clone)]
pub struct Pepper {
    mark: PepperMark,
    /// Already initialized with the secret, which saves half of the work per key.
    keyed_hmac: Hmac<Sha256>,
}

impl Pepper {
    /// Shorter peppers could be guessed.
    pub const MIN_LENGTH: usize = 32;

    /// `None` if the secret is too short.
    pub fn new(secret: &str) -> Option<Self> {
        if secret.len() < Self::MIN_LENGTH {
            return None;
        }
        let digest = Sha256::digest([b"vintem pepper ".as_slice(), secret.as_bytes()].concat());
        let id = hex_encode(&digest[..4]);
        let keyed_hmac = Hmac::new_from_slice(secret.as_bytes()).expect("HMAC takes a key of any length");
        let mut pepper = Self { mark: PepperMark { id, verifier: [0; 32] }, keyed_hmac };
        pepper.mark.verifier = pepper.hmac(VERIFIED_TEXT);
        Some(pepper)
    }

    pub fn hmac(&self, text: &str) -> [u8; 32] {
        self.authenticate(&[text.as_bytes()])
    }

    /// A code for these bytes, one after another, that only this pepper can make.
    pub fn authenticate(&self, parts: &[&[u8]]) -> [u8; 32] {
        let mut hmac = self.keyed_hmac.clone();
        for part in parts {
            hmac.update(part);
        }
        hmac.finalize().into_bytes().into()
    }

    /// Identifies the pepper without revealing it.
    pub fn mark(&self) -> &PepperMark {
        &self.mark
    }

    /// A key as it is stored.
    pub fn new_secret<'a>(&'a self, key: &'a ApiKey) -> NewSecret<'a> {
        NewSecret { hmac: self.hmac(key.reveal()), pepper: &self.mark, display_prefix: key.display_prefix() }
    }
}

/// No key looks like this, so the verifier is the hash of none.
const VERIFIED_TEXT: &str = "vintem pepper verifier";

impl std::fmt::Debug for Pepper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pepper({})", self.mark.id)
    }
}
