//! A compact table of all key secrets by fingerprint. It is written one secret at a time, so that readers never wait
//! for more than one write.

use std::sync::RwLock;

use vintem_domain::{KeyId, Plan};

/// Half of the HMAC: 128 bits are enough to tell all keys apart and halve the memory. Nobody can choose a fingerprint
/// without the pepper, so it needs no further hashing.
pub type KeyFingerprint = [u8; 16];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyEntry {
    pub fingerprint: KeyFingerprint,
    pub id: KeyId,
    /// The key's revision when this was read. The higher revision wins, in whatever order entries arrive.
    pub revision: i64,
    /// Milliseconds since 1970. `i64::MAX` never expires; a revoked key has `i64::MIN`.
    pub valid_until: i64,
    pub plan: Plan,
    /// Whether a rotation has replaced this secret.
    pub is_former: bool,
}

/// Each shard has its own lock and grows on its own: at worst a reader waits while 1/256 of all secrets are moved.
const SHARD_COUNT: usize = 256;

#[derive(Debug)]
pub struct KeyTable {
    shards: Vec<RwLock<KeyTableShard>>,
}

impl Default for KeyTable {
    fn default() -> Self {
        Self { shards: (0..SHARD_COUNT).map(|_| RwLock::default()).collect() }
    }
}

impl KeyTable {
    pub fn find(&self, fingerprint: &KeyFingerprint) -> Option<KeyEntry> {
        self.shard_for(fingerprint).read().expect("never held across a panic").find(fingerprint).copied()
    }

    /// Inserts or replaces an entry, unless the table has a newer one. `now` is in milliseconds since 1970; former
    /// secrets that have expired by then make room for others.
    pub fn upsert(&self, entry: KeyEntry, now: i64) {
        self.shard_for(&entry.fingerprint).write().expect("never held across a panic").upsert(entry, now);
    }

    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.read().expect("never held across a panic").entries.len()).sum()
    }

    /// All entries, in no particular order.
    pub fn entries(&self) -> Vec<KeyEntry> {
        let mut entries = Vec::new();
        for shard in &self.shards {
            entries.extend(shard.read().expect("never held across a panic").entries.chunks.iter().flatten());
        }
        entries
    }

    fn shard_for(&self, fingerprint: &KeyFingerprint) -> &RwLock<KeyTableShard> {
        &self.shards[usize::from(fingerprint[0]) % SHARD_COUNT]
    }
}

/// Entries in chunks of one size. A single list would leave a gap of a different size behind each time it grows, and
/// the allocator keeps those gaps (`just million-keys` shows the memory per key).
#[derive(Debug, Default)]
struct ChunkedEntries {
    chunks: Vec<Vec<KeyEntry>>,
}

const CHUNK_SIZE: usize = 64;

impl ChunkedEntries {
    fn len(&self) -> usize {
        self.chunks.last().map_or(0, |last| (self.chunks.len() - 1) * CHUNK_SIZE + last.len())
    }

    fn get(&self, at: usize) -> Option<&KeyEntry> {
        self.chunks.get(at / CHUNK_SIZE)?.get(at % CHUNK_SIZE)
    }

    fn get_mut(&mut self, at: usize) -> Option<&mut KeyEntry> {
        self.chunks.get_mut(at / CHUNK_SIZE)?.get_mut(at % CHUNK_SIZE)
    }

    fn push(&mut self, entry: KeyEntry) {
        match self.chunks.last_mut().filter(|last| last.len() < CHUNK_SIZE) {
            Some(last) => last.push(entry),
            None => {
                let mut chunk = Vec::with_capacity(CHUNK_SIZE);
                chunk.push(entry);
                self.chunks.push(chunk);
            }
        }
    }

    fn retain(&mut self, keep: impl Fn(&KeyEntry) -> bool) {
        for entry in std::mem::take(&mut self.chunks).into_iter().flatten().filter(keep) {
            self.push(entry);
        }
    }
}

/// Entries in insertion order, and an open-addressing table of their numbers with linear probing. The table costs five
/// to eleven bytes per entry. A map of whole entries would waste three times as much on empty slots.
#[derive(Debug)]
struct KeyTableShard {
    entries: ChunkedEntries,
    /// The number of an entry, starting at 1; 0 for an empty slot. The length is a power of two, and at most three
    /// quarters of the slots are in use.
    slots: Vec<u32>,
}

const EMPTY_SLOT: u32 = 0;
const MIN_SLOTS: usize = 8;

impl Default for KeyTableShard {
    fn default() -> Self {
        Self { entries: ChunkedEntries::default(), slots: vec![EMPTY_SLOT; MIN_SLOTS] }
    }
}

impl KeyTableShard {
    fn find(&self, fingerprint: &KeyFingerprint) -> Option<&KeyEntry> {
        self.entry_in_slot(self.find_slot(fingerprint))
    }

    fn upsert(&mut self, entry: KeyEntry, now: i64) {
        let slot = self.find_slot(&entry.fingerprint);
        if self.slots[slot] != EMPTY_SLOT {
            let existing = self.entries.get_mut(self.slots[slot] as usize - 1);
            if let Some(existing) = existing.filter(|existing| entry.revision > existing.revision) {
                *existing = entry;
            }
            return;
        }

        if 4 * (self.entries.len() + 1) > 3 * self.slots.len() {
            self.evict_expired_and_grow(now);
        }
        self.entries.push(entry);
        self.set_slot(self.entries.len(), &entry.fingerprint);
    }

    fn evict_expired_and_grow(&mut self, now: i64) {
        // Expired former secrets are soon no longer used, and a late use costs only a lookup. All others stay, so that
        // a revoked or expired key is recognized even while Postgres is unavailable.
        self.entries.retain(|entry| !entry.is_former || entry.valid_until > now);

        let is_half_full = 2 * self.entries.len() >= self.slots.len();
        let slot_count = if is_half_full { 2 * self.slots.len() } else { self.slots.len() };
        self.slots.clear();
        self.slots.resize(slot_count, EMPTY_SLOT);
        for number in 1..=self.entries.len() {
            if let Some(fingerprint) = self.entries.get(number - 1).map(|entry| entry.fingerprint) {
                self.set_slot(number, &fingerprint);
            }
        }
    }

    fn set_slot(&mut self, number: usize, fingerprint: &KeyFingerprint) {
        let slot = self.find_slot(fingerprint);
        self.slots[slot] = u32::try_from(number).expect("a part of all keys is fewer than four thousand million");
    }

    /// The slot of this fingerprint's entry, or the empty slot where it belongs.
    fn find_slot(&self, fingerprint: &KeyFingerprint) -> usize {
        let [_, first, second, third, fourth, ..] = *fingerprint;
        let mask = self.slots.len() - 1;
        let mut slot = u32::from_le_bytes([first, second, third, fourth]) as usize & mask;
        while self.entry_in_slot(slot).is_some_and(|entry| entry.fingerprint != *fingerprint) {
            slot = (slot + 1) & mask;
        }
        slot
    }

    fn entry_in_slot(&self, slot: usize) -> Option<&KeyEntry> {
        match self.slots[slot] {
            EMPTY_SLOT => None,
            number => self.entries.get(number as usize - 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn make_entry(fingerprint: KeyFingerprint, revision: i64) -> KeyEntry {
        KeyEntry { fingerprint, id: revision, revision, valid_until: i64::MAX, plan: Plan::Free, is_former: false }
    }

    #[test]
    fn table_matches_a_hash_map_after_many_updates() {
        let table = KeyTable::default();
        let mut map = HashMap::new();
        for revision in 0..200_000 {
            // Only 60,000 distinct fingerprints, so that most are updated several times.
            let mut fingerprint = [0; 16];
            fingerprint[..4].copy_from_slice(&(rand::random::<u32>() % 60_000).to_le_bytes());
            table.upsert(make_entry(fingerprint, revision), 0);
            map.insert(fingerprint, revision);
        }

        assert_eq!(table.len(), map.len());
        for number in 0..60_000u32 {
            let mut fingerprint = [0; 16];
            fingerprint[..4].copy_from_slice(&number.to_le_bytes());
            assert_eq!(table.find(&fingerprint).map(|entry| entry.revision), map.get(&fingerprint).copied());
        }
    }

    #[test]
    fn older_revisions_do_not_replace_newer_ones() {
        let table = KeyTable::default();
        for revision in [3, 5, 4] {
            table.upsert(make_entry([7; 16], revision), 0);
        }
        assert_eq!(table.find(&[7; 16]).map(|entry| entry.revision), Some(5));
        assert_eq!(table.len(), 1);
    }

    #[test]
    fn only_expired_former_secrets_are_evicted() {
        let table = KeyTable::default();
        let mut ended = 0;
        let mut retained = Vec::new();
        for number in 0..100_000i64 {
            let fingerprint: KeyFingerprint = rand::random();
            let is_former = number % 10 != 0;
            let valid_until = if number % 20 == 0 { i64::MIN } else { number };
            if is_former {
                ended += 1;
            } else {
                retained.push(fingerprint);
            }
            table.upsert(KeyEntry { valid_until, is_former, ..make_entry(fingerprint, number) }, i64::MAX);
        }

        let current = retained.len();
        assert!(table.len() < current * 3, "{} entries for {current} keys and {ended} ended", table.len());
        assert!(retained.iter().all(|fingerprint| table.find(fingerprint).is_some()));
    }
}
