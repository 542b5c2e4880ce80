//! The whole key table in memory: under 100 bytes a key, following the store by notification and by poll.

use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, RwLock};
use std::time::Duration;

use hmac::{Hmac, Mac};
use sha2::{Digest, Sha256};
use tokio::sync::Semaphore;
use vintem_domain::{ApiKey, Clock, KeyId, Plan};
use vintem_store::keys::KeyRow;
use vintem_store::{Store, StoreError};

/// What turns keys into what is stored of them. It is in the environment and nowhere else.
#[derive(Clone)]
pub struct Pepper(Vec<u8>);

impl Pepper {
    /// Shorter ones could be guessed.
    pub const SHORTEST: usize = 32;

    /// `None` for one that is too short.
    pub fn new(secret: &str) -> Option<Self> {
        (secret.len() >= Self::SHORTEST).then(|| Self(secret.as_bytes().to_vec()))
    }

    pub fn hmac(&self, text: &str) -> [u8; 32] {
        let mut hmac = Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC takes a key of any length");
        hmac.update(text.as_bytes());
        hmac.finalize().into_bytes().into()
    }

    /// Tells peppers apart without telling them.
    pub fn id(&self) -> String {
        let digest = Sha256::digest([b"vintem pepper ".as_slice(), &self.0].concat());
        digest[..4].iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

impl std::fmt::Debug for Pepper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pepper({})", self.id())
    }
}

/// A new key from the operating system's randomness.
pub fn new_key() -> ApiKey {
    ApiKey::generate(rand::random::<u8>)
}

/// Half of the HMAC: 128 bits tell a million keys apart and halve the memory.
type Fingerprint = [u8; 16];

#[derive(Debug, Clone, Copy)]
struct Entry {
    id: KeyId,
    /// Seconds since 1970; `i64::MAX` for never. A revoked key expired at the beginning of time.
    expires_at: i64,
    plan: Plan,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyVerdict {
    Valid {
        id: KeyId,
        plan: Plan,
    },
    Invalid,
    /// Not in memory, and Postgres cannot be asked.
    Unknown,
}

/// An absent key is not asked for again for so long.
const ABSENCE_REMEMBERED: Duration = Duration::from_secs(10);
const MOST_ABSENCES: u64 = 100_000;
/// Look-ups of keys that are not in memory, at once; and how long one waits for its turn.
const MOST_LOOKUPS: usize = 4;
const LOOKUP_WAIT: Duration = Duration::from_millis(500);
/// Keys that are followed in one go.
const PAGE: i64 = 10_000;

#[derive(Debug)]
pub struct Keyring {
    store: Store,
    pepper: Pepper,
    clock: Arc<dyn Clock>,
    entries: RwLock<HashMap<Fingerprint, Entry>>,
    absent: moka::sync::Cache<Fingerprint, ()>,
    revision: AtomicI64,
    lookups: Semaphore,
}

impl Keyring {
    pub fn new(store: Store, pepper: Pepper, clock: Arc<dyn Clock>) -> Self {
        let absent = moka::sync::Cache::builder().max_capacity(MOST_ABSENCES).time_to_live(ABSENCE_REMEMBERED).build();
        Self {
            store,
            pepper,
            clock,
            entries: RwLock::default(),
            absent,
            revision: AtomicI64::new(0),
            lookups: Semaphore::new(MOST_LOOKUPS),
        }
    }

    pub fn pepper(&self) -> &Pepper {
        &self.pepper
    }

    /// Brings the memory up to what the store holds now.
    pub async fn refresh(&self) -> Result<(), StoreError> {
        loop {
            let changed = self.store.keys_changed_after(self.revision.load(Ordering::Acquire), PAGE).await?;
            for key in &changed {
                self.entries.write().expect("never held across a panic").insert(fingerprint(&key.hmac), entry(key));
                self.revision.fetch_max(key.revision, Ordering::AcqRel);
            }
            if changed.len() < PAGE as usize {
                return Ok(());
            }
        }
    }

    /// From memory; a key that is not there costs one look-up, as it may have been made elsewhere a moment ago.
    pub async fn verdict(&self, key: &ApiKey) -> KeyVerdict {
        let hmac = self.pepper.hmac(key.reveal());
        let fingerprint = fingerprint(&hmac);
        if let Some(entry) = self.entry(&fingerprint) {
            return self.judge(entry);
        }
        if self.absent.contains_key(&fingerprint) {
            return KeyVerdict::Invalid;
        }
        // A bounded number at once: keys that are guessed must not take the connections from all else.
        let found = match tokio::time::timeout(LOOKUP_WAIT, self.lookups.acquire()).await {
            Ok(Ok(_place)) => self.store.find_key(&hmac).await,
            _ => return KeyVerdict::Unknown,
        };
        match found {
            Ok(Some(row)) => {
                self.insert(&row);
                self.entry(&fingerprint).map_or(KeyVerdict::Invalid, |entry| self.judge(entry))
            }
            Ok(None) => {
                self.absent.insert(fingerprint, ());
                KeyVerdict::Invalid
            }
            Err(error) => {
                tracing::warn!(%error, "a key that is not in memory could not be looked up");
                KeyVerdict::Unknown
            }
        }
    }

    /// Adds a key that is not there yet. What is there came by following and is newer than any row read aside.
    pub fn insert(&self, row: &KeyRow) {
        let mut entries = self.entries.write().expect("never held across a panic");
        entries.entry(fingerprint(&row.hmac)).or_insert_with(|| entry(row));
    }

    fn entry(&self, fingerprint: &Fingerprint) -> Option<Entry> {
        self.entries.read().expect("never held across a panic").get(fingerprint).copied()
    }

    fn judge(&self, entry: Entry) -> KeyVerdict {
        if entry.expires_at != i64::MAX && entry.expires_at <= self.clock.now().timestamp() {
            return KeyVerdict::Invalid;
        }
        KeyVerdict::Valid { id: entry.id, plan: entry.plan }
    }
}

fn entry(row: &KeyRow) -> Entry {
    let expires_at = match row.expires_at {
        _ if row.revoked => i64::MIN,
        Some(at) => at.timestamp(),
        None => i64::MAX,
    };
    Entry { id: row.id, expires_at, plan: row.plan }
}

fn fingerprint(hmac: &[u8; 32]) -> Fingerprint {
    let mut half = [0; 16];
    half.copy_from_slice(&hmac[..16]);
    half
}
