//! Secrets of webhooks: how they sign, how they are shown once, and how they are sealed for the database.

use std::fmt::{self, Debug, Formatter};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, Mac};
use rand::RngExt;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use sha2::Sha256;

/// What a secret begins with, by Standard Webhooks.
const SECRET_PREFIX: &str = "whsec_";
const SECRET_BYTES: usize = 32;
const NONCE_BYTES: usize = 12;
/// Of how secrets are sealed: the first byte of each.
const SEAL_VERSION: u8 = 1;
/// So that no other use of the same setting leads to the same key.
const KEY_DERIVATION_LABEL: &[u8] = b"vintem webhook secrets 1";

/// By which a receiver knows that a request comes from us.
pub struct WebhookSecret([u8; SECRET_BYTES]);

impl Debug for WebhookSecret {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("WebhookSecret")
    }
}

impl WebhookSecret {
    pub fn random() -> Self {
        Self(rand::rng().random())
    }

    /// As its owner is shown it, once.
    pub fn reveal(&self) -> String {
        format!("{SECRET_PREFIX}{}", STANDARD.encode(self.0))
    }

    /// A signature by Standard Webhooks.
    pub fn sign(&self, id: &str, timestamp: i64, body: &str) -> String {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("any length is taken");
        mac.update(format!("{id}.{timestamp}.").as_bytes());
        mac.update(body.as_bytes());
        format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
    }
}

/// Seals secrets under a key that is not in the database.
#[derive(Clone)]
pub struct SecretBox(LessSafeKey);

impl Debug for SecretBox {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("SecretBox")
    }
}

impl SecretBox {
    pub const MIN_SETTING_LENGTH: usize = 32;

    /// From the operator's setting, which may be any text that is long enough.
    pub fn new(setting: &str) -> Option<Self> {
        if setting.chars().count() < Self::MIN_SETTING_LENGTH {
            return None;
        }
        let mut mac = Hmac::<Sha256>::new_from_slice(setting.as_bytes()).expect("any length is taken");
        mac.update(KEY_DERIVATION_LABEL);
        let key = UnboundKey::new(&AES_256_GCM, &mac.finalize().into_bytes()).ok()?;
        Some(Self(LessSafeKey::new(key)))
    }

    /// For this webhook alone: under the name of another it does not open.
    pub fn seal(&self, webhook: &str, secret: &WebhookSecret) -> Vec<u8> {
        let nonce: [u8; NONCE_BYTES] = rand::rng().random();
        let mut sealed = secret.0.to_vec();
        let of_webhook = Aad::from(webhook.as_bytes());
        self.0
            .seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), of_webhook, &mut sealed)
            .expect("a secret is short");
        [&[SEAL_VERSION], nonce.as_slice(), &sealed].concat()
    }

    /// Nothing where it was sealed under another key, for another webhook, or was changed.
    pub fn open(&self, webhook: &str, sealed: &[u8]) -> Option<WebhookSecret> {
        let (nonce, sealed) = sealed.strip_prefix(&[SEAL_VERSION])?.split_first_chunk::<NONCE_BYTES>()?;
        let mut opened = sealed.to_vec();
        let of_webhook = Aad::from(webhook.as_bytes());
        let secret = self.0.open_in_place(Nonce::assume_unique_for_key(*nonce), of_webhook, &mut opened).ok()?;
        Some(WebhookSecret((&*secret).try_into().ok()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEST_SETTING: &str = "a key for tests, long enough to be taken";

    #[test]
    fn a_sealed_secret_opens_only_for_its_webhook_and_key() {
        let (sealing, secret) = (SecretBox::new(TEST_SETTING).unwrap(), WebhookSecret::random());
        let sealed = sealing.seal("whk_1", &secret);
        assert_eq!(sealing.open("whk_1", &sealed).unwrap().0, secret.0);
        assert_ne!(sealing.seal("whk_1", &secret), sealed, "twice the same is not the same");
        assert!(!sealed.windows(8).any(|part| secret.0.windows(8).any(|clear| clear == part)));
        assert!(sealing.open("whk_2", &sealed).is_none());
        assert!(SecretBox::new(&TEST_SETTING.to_uppercase()).unwrap().open("whk_1", &sealed).is_none());
        for at in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[at] ^= 1;
            assert!(sealing.open("whk_1", &changed).is_none(), "byte {at}");
        }
        for length in 0..sealed.len() {
            assert!(sealing.open("whk_1", &sealed[..length]).is_none());
        }
        assert!(SecretBox::new("short").is_none());
    }

    #[test]
    fn signatures_verify_with_the_standard_webhooks_library() {
        let verifier = |secret: &WebhookSecret| standardwebhooks::Webhook::new(&secret.reveal()).unwrap();
        let (old, new, other) = (WebhookSecret::random(), WebhookSecret::random(), WebhookSecret::random());
        let now = chrono::Utc::now().timestamp();
        let body = r#"{"id":"evt_1","data":"ação"}"#;
        let mut headers = http::HeaderMap::new();
        headers.insert("webhook-id", "evt_1".parse().unwrap());
        headers.insert("webhook-timestamp", now.to_string().parse().unwrap());
        let both = format!("{} {}", new.sign("evt_1", now, body), old.sign("evt_1", now, body));
        headers.insert("webhook-signature", both.parse().unwrap());
        assert!(verifier(&old).verify(body.as_bytes(), &headers).is_ok());
        assert!(verifier(&new).verify(body.as_bytes(), &headers).is_ok());
        assert!(verifier(&other).verify(body.as_bytes(), &headers).is_err());
        assert!(verifier(&new).verify(b"another body", &headers).is_err());
    }
}
