//! Webhook secrets: how they sign messages, how they are shown once, and how they are encrypted for the database.

use std::fmt::{self, Debug, Formatter};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, Mac};
use rand::RngExt;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use sha2::Sha256;

/// The prefix of secrets in Standard Webhooks.
const SECRET_PREFIX: &str = "whsec_";
const SECRET_BYTES: usize = 32;
const NONCE_BYTES: usize = 12;
/// The first byte of a sealed secret: the version of its format.
const SEAL_VERSION: u8 = 1;
/// Keeps the derived key different from that of any other use of the same setting.
const KEY_DERIVATION_LABEL: &[u8] = b"vintem webhook secrets 1";

/// The secret by which a receiver verifies that a request comes from us.
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

    /// The text that its owner is shown once.
    pub fn reveal(&self) -> String {
        format!("{SECRET_PREFIX}{}", STANDARD.encode(self.0))
    }

    /// The signature defined by Standard Webhooks.
    pub fn sign(&self, id: &str, timestamp: i64, body: &str) -> String {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("any length is taken");
        mac.update(format!("{id}.{timestamp}.").as_bytes());
        mac.update(body.as_bytes());
        format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
    }
}

/// Encrypts secrets under a key that is not in the database.
#[derive(Clone)]
pub struct SecretBox(LessSafeKey);

impl Debug for SecretBox {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("SecretBox")
    }
}

impl SecretBox {
    pub const MIN_SETTING_LENGTH: usize = 32;

    /// Derives the key from the operator's setting, which may be any text that is long enough.
    pub fn new(setting: &str) -> Option<Self> {
        if setting.chars().count() < Self::MIN_SETTING_LENGTH {
            return None;
        }

        let mut mac = Hmac::<Sha256>::new_from_slice(setting.as_bytes()).expect("any length is taken");
        mac.update(KEY_DERIVATION_LABEL);
        let key = UnboundKey::new(&AES_256_GCM, &mac.finalize().into_bytes()).ok()?;
        Some(Self(LessSafeKey::new(key)))
    }

    /// Seals a secret for one webhook: it does not open under the ID of another.
    pub fn seal(&self, webhook: &str, secret: &WebhookSecret) -> Vec<u8> {
        let nonce: [u8; NONCE_BYTES] = rand::rng().random();
        let mut ciphertext = secret.0.to_vec();
        let aad = Aad::from(webhook.as_bytes());
        self.0
            .seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), aad, &mut ciphertext)
            .expect("a secret is short");

        [&[SEAL_VERSION], nonce.as_slice(), &ciphertext].concat()
    }

    /// `None` if the secret was sealed under another key or for another webhook, or was altered.
    pub fn open(&self, webhook: &str, sealed: &[u8]) -> Option<WebhookSecret> {
        let (nonce, ciphertext) = sealed.strip_prefix(&[SEAL_VERSION])?.split_first_chunk::<NONCE_BYTES>()?;
        let mut buffer = ciphertext.to_vec();
        let aad = Aad::from(webhook.as_bytes());
        let secret = self.0.open_in_place(Nonce::assume_unique_for_key(*nonce), aad, &mut buffer).ok()?;
        Some(WebhookSecret((&*secret).try_into().ok()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEST_SETTING: &str = "a key for tests, long enough to be taken";

    #[test]
    fn a_sealed_secret_opens_only_for_its_webhook_and_key() {
        let secret_box = SecretBox::new(TEST_SETTING).unwrap();
        let secret = WebhookSecret::random();
        let sealed = secret_box.seal("whk_1", &secret);
        assert_eq!(secret_box.open("whk_1", &sealed).unwrap().0, secret.0);
        assert_ne!(secret_box.seal("whk_1", &secret), sealed, "twice the same is not the same");
        assert!(!sealed.windows(8).any(|part| secret.0.windows(8).any(|clear| clear == part)));
        assert!(secret_box.open("whk_2", &sealed).is_none());
        assert!(SecretBox::new(&TEST_SETTING.to_uppercase()).unwrap().open("whk_1", &sealed).is_none());

        for index in 0..sealed.len() {
            let mut altered = sealed.clone();
            altered[index] ^= 1;
            assert!(secret_box.open("whk_1", &altered).is_none(), "byte {index}");
        }
        for length in 0..sealed.len() {
            assert!(secret_box.open("whk_1", &sealed[..length]).is_none());
        }
        assert!(SecretBox::new("short").is_none());
    }

    #[test]
    fn signatures_verify_with_the_standard_webhooks_library() {
        let verifier = |secret: &WebhookSecret| standardwebhooks::Webhook::new(&secret.reveal()).unwrap();
        let old = WebhookSecret::random();
        let new = WebhookSecret::random();
        let other = WebhookSecret::random();

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
