//! Verifies API keys. The whole key table is in memory, at under 100 bytes per key, and follows the store by
//! notifications and polling.
//!
//! Verifying a key that was used before costs two hashes and two lookups in memory, under shared read locks.
//!
//! If the database was restored, replaced or failed over with a loss, what is in memory may be wrong in both directions.
//! The table then starts over empty: each key is looked up when it is used, until all of them have been read again.
//!
//! The table is also kept on disk (`key_file`), for a start while PostgreSQL is unavailable.

mod fingerprint_cache;
mod key_file;
mod key_table;
mod pepper;

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption};
use chrono::{DateTime, Utc};
use tokio::sync::{Mutex, Semaphore};
use tokio::time::Instant;
use vintem_domain::{ApiKey, Clock, KeyId, LastTime, Plan};
use vintem_store::keys::{KeyChanges, KeyHistoryPosition, KeySecretRow};
use vintem_store::{Store, StoreError};

use fingerprint_cache::FingerprintCache;
use key_file::KeyFile;
use key_table::{KeyEntry, KeyFingerprint, KeyTable};

pub use pepper::Pepper;

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
    was_known: bool,
}

impl UnknownKey {
    /// Whether it was in memory until the table started over. Then it is not a guess.
    pub fn was_known(&self) -> bool {
        self.was_known
    }

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
/// The pause after a failure to write the keys to disk, such as a full disk.
const KEY_FILE_RETRY_DELAY: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub struct Keyring {
    store: Store,
    pepper: Pepper,
    clock: Arc<dyn Clock>,
    table: ArcSwap<KeyTable>,
    /// The table from before it started over, while the keys are read again.
    lost_table: ArcSwapOption<KeyTable>,
    fingerprint_cache: FingerprintCache,
    absent_keys: moka::sync::Cache<KeyFingerprint, ()>,
    /// Locked during a refresh, so that there is one at a time.
    progress: Mutex<RefreshProgress>,
    lookup_permits: Semaphore,
    /// Whether a key was found by its HMAC, which shows that the pepper is the right one.
    has_recognized_key: AtomicBool,
    is_pepper_wrong: AtomicBool,
    /// When the table was last known to have all changes.
    current_at: LastTime,
}

#[derive(Debug, Default)]
struct RefreshProgress {
    /// All changes up to this position are in the table.
    position: KeyHistoryPosition,
    is_pepper_confirmed: bool,
    file: Option<KeyFile>,
    /// Set after a failure: the file lacks something, and is rewritten at this time.
    rewrite_file_at: Option<Instant>,
}

impl Keyring {
    pub fn new(store: Store, pepper: Pepper, clock: Arc<dyn Clock>) -> Self {
        let absent_keys =
            moka::sync::Cache::builder().max_capacity(MAX_ABSENT_KEYS).time_to_live(ABSENT_KEY_TTL).build();

        Self {
            store,
            pepper,
            clock,
            table: ArcSwap::default(),
            lost_table: ArcSwapOption::default(),
            fingerprint_cache: FingerprintCache::default(),
            absent_keys,
            progress: Mutex::default(),
            lookup_permits: Semaphore::new(MAX_CONCURRENT_LOOKUPS),
            has_recognized_key: AtomicBool::new(false),
            is_pepper_wrong: AtomicBool::new(false),
            current_at: LastTime::default(),
        }
    }

    /// Starts from the keys in this file, and keeps it up to date.
    pub async fn open_file(&self, path: &Path) -> io::Result<()> {
        let (path, pepper) = (path.to_owned(), self.pepper.clone());
        let (file, saved) = tokio::task::spawn_blocking(move || KeyFile::open(&path, &pepper)).await??;

        let now = self.clock.now().timestamp_millis();
        let table = self.table.load();
        for entry in &saved.entries {
            table.upsert(*entry, now);
        }
        let age = saved.checked_at.and_then(|at| (self.clock.now() - at).to_std().ok());
        if let Some(at) = age.and_then(|age| std::time::Instant::now().checked_sub(age)) {
            self.current_at.set(at);
        }

        let mut progress = self.progress.lock().await;
        progress.rewrite_file_at = file.is_mostly_outdated(table.len()).then(Instant::now);
        progress.position = saved.position;
        progress.file = Some(file);
        tracing::info!(keys = table.len(), "keys loaded from disk");
        Ok(())
    }

    /// When the keys in memory were last known to be all of them.
    pub fn current_at(&self) -> &LastTime {
        &self.current_at
    }

    pub fn pepper(&self) -> &Pepper {
        &self.pepper
    }

    /// Applies all changes that the store has made since the last call.
    pub async fn refresh(&self) -> Result<(), StoreError> {
        let mut progress = self.progress.lock().await;
        let (started, started_at) = (Instant::now(), self.clock.now());
        loop {
            if !progress.is_pepper_confirmed {
                progress.is_pepper_confirmed = self.check_pepper().await?;
            }
            let (rows, position) = match self.store.key_changes(&progress.position, REFRESH_PAGE_SIZE).await? {
                KeyChanges::Next { rows, position } => (rows, position),
                KeyChanges::OtherHistory => {
                    self.start_over();
                    progress.position = KeyHistoryPosition::default();
                    progress.is_pepper_confirmed = false;
                    self.update_file(&mut progress, FileUpdate::Clear).await;
                    continue;
                }
            };

            for chunk in rows.chunks(REFRESH_CHUNK_SIZE) {
                self.apply_rows(chunk);
                tokio::task::yield_now().await;
            }

            progress.position = position;
            metrics::gauge!("vintem_keys_in_memory").set(self.table.load().len() as f64);
            if rows.is_empty() {
                self.lost_table.store(None);
                self.current_at.set(started.into_std());
                self.update_file(&mut progress, FileUpdate::Checked(started_at)).await;
                return Ok(());
            }
            self.update_file(&mut progress, FileUpdate::Append(rows.iter().map(entry_from_row).collect())).await;
        }
    }

    /// Brings the file on disk to the state of the table.
    async fn update_file(&self, progress: &mut RefreshProgress, update: FileUpdate) {
        let Some(mut file) = progress.file.take() else { return };
        let update = match progress.rewrite_file_at {
            Some(at) if Instant::now() >= at => FileUpdate::Rewrite(self.table.load_full()),
            Some(_) => {
                progress.file = Some(file);
                return;
            }
            None => update,
        };

        let position = progress.position.clone();
        let write = move || {
            let result = match update {
                FileUpdate::Append(entries) => file.append(&entries, &position),
                FileUpdate::Checked(at) => file.set_checked_at(at),
                FileUpdate::Clear => file.clear(),
                FileUpdate::Rewrite(table) => file.rewrite(&table.entries(), &position),
            };
            (file, result)
        };
        // A panic there would lose the file, and the keys stay in memory only.
        let Ok((file, result)) = tokio::task::spawn_blocking(write).await else { return };

        progress.file = Some(file);
        progress.rewrite_file_at = None;
        if let Err(error) = result {
            tracing::warn!(%error, "cannot write the keys to disk; retrying later");
            progress.rewrite_file_at = Some(Instant::now() + KEY_FILE_RETRY_DELAY);
        }
    }

    /// False as long as no key has shown which pepper the database needs.
    async fn check_pepper(&self) -> Result<bool, StoreError> {
        let mut result = self.store.check_pepper(self.pepper.mark()).await;
        if matches!(result, Ok(false)) && self.has_recognized_key.load(Ordering::Relaxed) {
            result = match self.store.confirm_pepper(self.pepper.mark()).await {
                Ok(()) => Ok(true),
                Err(StoreError::WrongPepper) => Err(StoreError::WrongPepper),
                // Nothing can be stored at the moment; keys can be read all the same.
                Err(_) => Ok(false),
            };
        }
        self.is_pepper_wrong.store(matches!(result, Err(StoreError::WrongPepper)), Ordering::Relaxed);
        result
    }

    /// Whether the keys in the database were hashed with another pepper, so that none can be recognized.
    pub fn is_pepper_wrong(&self) -> bool {
        self.is_pepper_wrong.load(Ordering::Relaxed)
    }

    /// Forgets all keys, because the database may have other ones.
    fn start_over(&self) {
        tracing::warn!(
            "the database no longer has the keys that were read from it: it was restored or replaced; reading them again"
        );
        metrics::counter!("vintem_database_replaced_total", "what" => "keys").increment(1);
        let lost = self.table.swap(Arc::default());
        // Kept from the first time, if it happens again meanwhile: that table was complete.
        if self.lost_table.load().is_none() {
            self.lost_table.store(Some(lost));
        }
        self.absent_keys.invalidate_all();
    }

    /// Whether keys are being read again, because the database was restored or replaced.
    pub fn is_starting_over(&self) -> bool {
        self.lost_table.load().is_some()
    }

    /// Applies rows of the store in any order: the newer revision of a key wins.
    pub fn apply_rows(&self, rows: &[KeySecretRow]) {
        let now = self.clock.now().timestamp_millis();
        let table = self.table.load();
        for row in rows {
            table.upsert(entry_from_row(row), now);
        }
    }

    /// Verifies a key from memory. `Err` if only a lookup can tell, because another process may just have created the
    /// key.
    pub fn verify(&self, key: &ApiKey) -> Result<KeyVerdict, UnknownKey> {
        let hmac = match self.find_entry(key) {
            Ok(entry) => return Ok(self.check_expiry(&entry)),
            Err(hmac) => hmac,
        };

        let fingerprint = fingerprint_from_hmac(&hmac);
        if self.is_pepper_wrong() {
            return Ok(KeyVerdict::LookupFailed);
        }
        if self.absent_keys.contains_key(&fingerprint) {
            return Ok(KeyVerdict::Invalid);
        }
        let was_known = self.lost_table.load().as_ref().is_some_and(|lost| lost.find(&fingerprint).is_some());
        Err(UnknownKey { hmac, was_known })
    }

    /// Looks up a key that is not in memory.
    pub async fn look_up(&self, key: &UnknownKey) -> KeyVerdict {
        // If the table starts over meanwhile, the answer is from before and must not get into the new one.
        let table = self.table.load_full();
        // Permits keep unknown keys from using up the connection pool. The timeout includes the wait for a permit.
        let lookup = tokio::time::timeout(self.store.query_timeout(), async {
            let _permit = self.lookup_permits.acquire().await;
            self.store.find_key_by_hmac(&key.hmac).await
        });
        let Ok(result) = lookup.await else { return KeyVerdict::LookupFailed };
        match result {
            Ok(Some(row)) => {
                self.has_recognized_key.store(true, Ordering::Relaxed);
                table.upsert(entry_from_row(&row), self.clock.now().timestamp_millis());
                table.find(&key.fingerprint()).map_or(KeyVerdict::Invalid, |entry| self.check_expiry(&entry))
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
        let table = self.table.load();
        if let Some(entry) = cached_fingerprint.and_then(|fingerprint| table.find(&fingerprint)) {
            return Ok(entry);
        }

        let hmac = self.pepper.hmac(key.reveal());
        let fingerprint = fingerprint_from_hmac(&hmac);
        let entry = table.find(&fingerprint).ok_or(hmac)?;
        self.fingerprint_cache.insert(key_hash, fingerprint);
        self.has_recognized_key.store(true, Ordering::Relaxed);
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

/// What a refresh does to the file of keys.
enum FileUpdate {
    Append(Vec<KeyEntry>),
    /// There was nothing new at this time.
    Checked(DateTime<Utc>),
    Clear,
    Rewrite(Arc<KeyTable>),
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
