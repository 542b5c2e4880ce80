//! The whole key table in memory: under 100 bytes a key, following the store by notification and by poll.
//!
//! A key that was used before costs two hashes and two look-ups in memory, under locks that readers share.

mod notes;
mod table;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use hmac::{Hmac, Mac};
use sha2::{Digest, Sha256};
use tokio::sync::Semaphore;
use vintem_domain::text::hex;
use vintem_domain::{ApiKey, Clock, KeyId, Plan};
use vintem_store::keys::KeyRow;
use vintem_store::{Store, StoreError};

use notes::Notes;
use table::{Entry, Fingerprint, Table};

/// What turns keys into what is stored of them. It is in the environment and nowhere else.
#[derive(Clone)]
pub struct Pepper {
    id: String,
    /// Has taken the secret in already, which is half of the work.
    keyed: Hmac<Sha256>,
}

impl Pepper {
    /// Shorter ones could be guessed.
    pub const SHORTEST: usize = 32;

    /// `None` for one that is too short.
    pub fn new(secret: &str) -> Option<Self> {
        if secret.len() < Self::SHORTEST {
            return None;
        }
        let digest = Sha256::digest([b"vintem pepper ".as_slice(), secret.as_bytes()].concat());
        let id = hex(&digest[..4]);
        let keyed = Hmac::new_from_slice(secret.as_bytes()).expect("HMAC takes a key of any length");
        Some(Self { id, keyed })
    }

    pub fn hmac(&self, text: &str) -> [u8; 32] {
        let mut hmac = self.keyed.clone();
        hmac.update(text.as_bytes());
        hmac.finalize().into_bytes().into()
    }

    /// Tells peppers apart without telling them.
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
pub fn new_key() -> ApiKey {
    ApiKey::generate(rand::random::<u8>)
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
/// Look-ups of keys that are not in memory, at once; and how long one may take, the wait for its turn included.
const MOST_LOOKUPS: usize = 4;
const LOOKUP_BUDGET: Duration = Duration::from_millis(500);
/// Keys that are read in one go.
const PAGE: i64 = 10_000;
/// Keys that are taken in before other tasks have their turn.
const PORTION: usize = 500;

#[derive(Debug)]
pub struct Keyring {
    store: Store,
    pepper: Pepper,
    clock: Arc<dyn Clock>,
    table: Table,
    notes: Notes,
    absent: moka::sync::Cache<Fingerprint, ()>,
    /// Up to which all changes are in the table.
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
            table: Table::default(),
            notes: Notes::default(),
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
            let Some(last) = changed.iter().map(|row| row.revision).max() else { return Ok(()) };
            for portion in changed.chunks(PORTION) {
                self.take_in(portion);
                tokio::task::yield_now().await;
            }
            self.revision.fetch_max(last, Ordering::AcqRel);
            metrics::gauge!("vintem_keys_in_memory").set(self.table.len() as f64);
        }
    }

    /// Rows of the store, in whatever order they were read: what is newer stays.
    pub fn take_in(&self, rows: &[KeyRow]) {
        let now = self.clock.now().timestamp_millis();
        for row in rows {
            self.table.put(entry(row), now);
        }
    }

    /// From memory; a key that is not there costs one look-up, as it may have been made elsewhere a moment ago.
    pub async fn verdict(&self, key: &ApiKey) -> KeyVerdict {
        let hmac = match self.find(key) {
            Ok(entry) => return self.judge(&entry),
            Err(hmac) => hmac,
        };
        let fingerprint = fingerprint(&hmac);
        if self.absent.contains_key(&fingerprint) {
            return KeyVerdict::Invalid;
        }
        // A bounded number at once: keys that are guessed must not take the connections from all else.
        let looked_up = tokio::time::timeout(LOOKUP_BUDGET, async {
            let _place = self.lookups.acquire().await;
            self.store.find_key(&hmac).await
        });
        let Ok(found) = looked_up.await else { return KeyVerdict::Unknown };
        match found {
            Ok(Some(row)) => {
                self.take_in(&[row]);
                self.table.find(&fingerprint).map_or(KeyVerdict::Invalid, |entry| self.judge(&entry))
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

    /// A key that memory knows to be good; the store is not asked.
    pub fn known(&self, key: &ApiKey) -> Option<(KeyId, Plan)> {
        match self.judge(&self.find(key).ok()?) {
            KeyVerdict::Valid { id, plan } => Some((id, plan)),
            _ => None,
        }
    }

    /// What memory holds of a key, or else what the store would find it by.
    fn find(&self, key: &ApiKey) -> Result<Entry, [u8; 32]> {
        // A note leads to the entry and is no copy of it: what befalls the key is in force at once.
        let note = self.notes.note(key);
        if let Some(entry) = self.notes.find(note).and_then(|fingerprint| self.table.find(&fingerprint)) {
            return Ok(entry);
        }
        let hmac = self.pepper.hmac(key.reveal());
        let fingerprint = fingerprint(&hmac);
        let entry = self.table.find(&fingerprint).ok_or(hmac)?;
        self.notes.add(note, fingerprint);
        Ok(entry)
    }

    /// By the clock of this moment: a grace and an expiry end without anybody's doing.
    fn judge(&self, entry: &Entry) -> KeyVerdict {
        if entry.valid_until != FOR_EVER && entry.valid_until <= self.clock.now().timestamp_millis() {
            return KeyVerdict::Invalid;
        }
        KeyVerdict::Valid { id: entry.id, plan: entry.plan }
    }
}

const FOR_EVER: i64 = i64::MAX;
const NEVER: i64 = i64::MIN;

fn entry(row: &KeyRow) -> Entry {
    let valid_until = match row.valid_until {
        _ if row.revoked => NEVER,
        Some(at) => at.timestamp_millis(),
        None => FOR_EVER,
    };
    Entry {
        fingerprint: fingerprint(&row.hmac),
        id: row.id,
        revision: row.revision,
        valid_until,
        plan: row.plan,
        is_former: row.is_former,
    }
}

fn fingerprint(hmac: &[u8; 32]) -> Fingerprint {
    let mut half = [0; 16];
    half.copy_from_slice(&hmac[..16]);
    half
}
