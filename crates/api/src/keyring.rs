//! Verifies API keys. The whole key table is in memory, at under 100 bytes per key, and follows the store by
//! notifications and polling.
//!
//! Verifying a key that was used before costs two hashes and two lookups in memory, under shared read locks.

mod fingerprint_cache;
mod key_table;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use hmac::{Hmac, Mac};
use sha2::{Digest, Sha256};
use tokio::sync::Semaphore;
use vintem_domain::text::hex_encode;
use vintem_domain::{ApiKey, Clock, KeyId, Plan};
use vintem_store::keys::KeySecretRow;
use vintem_store::{Store, StoreError};

use fingerprint_cache::FingerprintCache;
use key_table::{KeyEntry, KeyFingerprint, KeyTable};

/// The secret with which keys are hashed before they are stored. It exists only in the environment.
#[derive(Clone)]
pub struct Pepper {
    id: String,
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
        Some(Self { id, keyed_hmac })
    }

    pub fn hmac(&self, text: &str) -> [u8; 32] {
        let mut hmac = self.keyed_hmac.clone();
        hmac.update(text.as_bytes());
        hmac.finalize().into_bytes().into()
    }

    /// Identifies the pepper without revealing it.
    pub fn id(&self) -> String {
        self.id.clone()
    }
}

impl std::fmt::Debug for Pepper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pepper({})", self.id())
    }
}

/// A new key from the operating system's randomness.
pub fn generate_key() -> ApiKey {
    ApiKey::generate(rand::random::<u8>)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyVerdict {
    Valid {
        id: KeyId,
        plan: Plan,
    },
    Invalid,
    /// Not in memory, and Postgres did not answer or was not asked.
    LookupFailed,
}

/// A well-formed key that is not in memory.
#[derive(Debug)]
pub struct UnknownKey {
    hmac: [u8; 32],
}

impl UnknownKey {
    fn fingerprint(&self) -> KeyFingerprint {
        fingerprint_from_hmac(&self.hmac)
    }
}

/// A key that Postgres does not have is not looked up again for this long.
const ABSENT_KEY_TTL: Duration = Duration::from_secs(10);
const MAX_ABSENT_KEYS: u64 = 100_000;
/// Concurrent Postgres lookups of keys that are not in memory.
const MAX_CONCURRENT_LOOKUPS: usize = 4;
/// Keys read per query.
const REFRESH_PAGE_SIZE: i64 = 10_000;
/// Keys applied before yielding to other tasks.
const REFRESH_CHUNK_SIZE: usize = 500;

#[derive(Debug)]
pub struct Keyring {
    store: Store,
    pepper: Pepper,
    clock: Arc<dyn Clock>,
    table: KeyTable,
    fingerprint_cache: FingerprintCache,
    absent_keys: moka::sync::Cache<KeyFingerprint, ()>,
    /// All changes up to this revision are in the table.
    revision: AtomicI64,
    lookup_permits: Semaphore,
}

impl Keyring {
    pub fn new(store: Store, pepper: Pepper, clock: Arc<dyn Clock>) -> Self {
        let absent_keys =
            moka::sync::Cache::builder().max_capacity(MAX_ABSENT_KEYS).time_to_live(ABSENT_KEY_TTL).build();

        Self {
            store,
            pepper,
            clock,
            table: KeyTable::default(),
            fingerprint_cache: FingerprintCache::default(),
            absent_keys,
            revision: AtomicI64::new(0),
            lookup_permits: Semaphore::new(MAX_CONCURRENT_LOOKUPS),
        }
    }

    pub fn pepper(&self) -> &Pepper {
        &self.pepper
    }

    /// Applies all changes that the store has made since the last call.
    pub async fn refresh(&self) -> Result<(), StoreError> {
        loop {
            let changed =
                self.store.keys_changed_after(self.revision.load(Ordering::Acquire), REFRESH_PAGE_SIZE).await?;
            let Some(last) = changed.iter().map(|row| row.revision).max() else { return Ok(()) };

            for chunk in changed.chunks(REFRESH_CHUNK_SIZE) {
                self.apply_rows(chunk);
                tokio::task::yield_now().await;
            }

            self.revision.fetch_max(last, Ordering::AcqRel);
            metrics::gauge!("vintem_keys_in_memory").set(self.table.len() as f64);
        }
    }

    /// Applies rows of the store in any order: the newer revision of a key wins.
    pub fn apply_rows(&self, rows: &[KeySecretRow]) {
        let now = self.clock.now().timestamp_millis();
        for row in rows {
            self.table.upsert(entry_from_row(row), now);
        }
    }

    /// Verifies a key from memory. `Err` if only a lookup can tell, because another process may just have created the
    /// key.
    pub fn verify(&self, key: &ApiKey) -> Result<KeyVerdict, UnknownKey> {
        let unknown = match self.find_entry(key) {
            Ok(entry) => return Ok(self.check_expiry(&entry)),
            Err(hmac) => UnknownKey { hmac },
        };
        if self.absent_keys.contains_key(&unknown.fingerprint()) { Ok(KeyVerdict::Invalid) } else { Err(unknown) }
    }

    /// Looks up a key that is not in memory.
    pub async fn look_up(&self, key: &UnknownKey) -> KeyVerdict {
        // Permits keep unknown keys from using up the connection pool. The timeout includes the wait for a permit.
        let lookup = tokio::time::timeout(self.store.query_timeout(), async {
            let _permit = self.lookup_permits.acquire().await;
            self.store.find_key_by_hmac(&key.hmac).await
        });
        let Ok(result) = lookup.await else { return KeyVerdict::LookupFailed };
        match result {
            Ok(Some(row)) => {
                self.apply_rows(&[row]);
                self.table.find(&key.fingerprint()).map_or(KeyVerdict::Invalid, |entry| self.check_expiry(&entry))
            }
            Ok(None) => {
                self.absent_keys.insert(key.fingerprint(), ());
                KeyVerdict::Invalid
            }
            Err(error) => {
                tracing::warn!(%error, "cannot look up a key in postgres");
                KeyVerdict::LookupFailed
            }
        }
    }

    /// The key's entry in memory, or else the HMAC with which to look it up in the store.
    fn find_entry(&self, key: &ApiKey) -> Result<KeyEntry, [u8; 32]> {
        // The cache holds the fingerprint and not the entry, so changes to a key take effect at once.
        let key_hash = self.fingerprint_cache.hash_key(key);
        let cached_fingerprint = self.fingerprint_cache.get(key_hash);
        if let Some(entry) = cached_fingerprint.and_then(|fingerprint| self.table.find(&fingerprint)) {
            return Ok(entry);
        }

        let hmac = self.pepper.hmac(key.reveal());
        let fingerprint = fingerprint_from_hmac(&hmac);
        let entry = self.table.find(&fingerprint).ok_or(hmac)?;
        self.fingerprint_cache.insert(key_hash, fingerprint);
        Ok(entry)
    }

    /// Checked on every request: grace periods and expiry dates end without a change in the store.
    fn check_expiry(&self, entry: &KeyEntry) -> KeyVerdict {
        if entry.valid_until != NEVER_EXPIRES && entry.valid_until <= self.clock.now().timestamp_millis() {
            return KeyVerdict::Invalid;
        }
        KeyVerdict::Valid { id: entry.id, plan: entry.plan }
    }
}

const NEVER_EXPIRES: i64 = i64::MAX;
const ALREADY_EXPIRED: i64 = i64::MIN;

fn entry_from_row(row: &KeySecretRow) -> KeyEntry {
    let valid_until = match row.valid_until {
        _ if row.is_revoked => ALREADY_EXPIRED,
        Some(at) => at.timestamp_millis(),
        None => NEVER_EXPIRES,
    };

    KeyEntry {
        fingerprint: fingerprint_from_hmac(&row.hmac),
        id: row.id,
        revision: row.revision,
        valid_until,
        plan: row.plan,
        is_former: row.is_former,
    }
}

fn fingerprint_from_hmac(hmac: &[u8; 32]) -> KeyFingerprint {
    let mut half = [0; 16];
    half.copy_from_slice(&hmac[..16]);
    half
}
