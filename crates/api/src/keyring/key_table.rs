//! Every secret of every key by its fingerprint, in a table that is small, and that is written a secret at a time, so
//! that nobody who reads it waits for more than that.

use std::sync::RwLock;

use vintem_domain::{KeyId, Plan};

/// Half of the HMAC: 128 bits tell all keys apart and halve the memory. Nobody who does not hold the pepper can choose
/// one, so it needs no further hashing.
pub type KeyFingerprint = [u8; 16];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyEntry {
    pub fingerprint: KeyFingerprint,
    pub id: KeyId,
    /// Of the key when this was read: what was read later replaces what was read before, in whatever order it comes.
    pub revision: i64,
    /// Milliseconds since 1970; `i64::MAX` for ever. A revoked key ended at the beginning of time.
    pub valid_until: i64,
    pub plan: Plan,
    /// Replaced by a rotation.
    pub is_former: bool,
}

/// Each is locked by itself, and grows by itself: the largest piece of work that a reader can wait for is to move the
/// two-hundred-and-fifty-sixth part of all secrets.
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

    /// Takes an entry in, unless what is there is newer. `now` in milliseconds since 1970: former secrets that have ended
    /// make room for others.
    pub fn upsert(&self, entry: KeyEntry, now: i64) {
        self.shard_for(&entry.fingerprint).write().expect("never held across a panic").upsert(entry, now);
    }

    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.read().expect("never held across a panic").entries.len()).sum()
    }

    fn shard_for(&self, fingerprint: &KeyFingerprint) -> &RwLock<KeyTableShard> {
        &self.shards[usize::from(fingerprint[0]) % SHARD_COUNT]
    }
}

/// Entries in pieces of one size. A list that grows as a whole leaves a gap of another size behind each time, and the
/// allocator keeps those (`just million-keys` shows what a key takes).
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
                let mut piece = Vec::with_capacity(CHUNK_SIZE);
                piece.push(entry);
                self.chunks.push(piece);
            }
        }
    }

    fn retain(&mut self, keep: impl Fn(&KeyEntry) -> bool) {
        for entry in std::mem::take(&mut self.chunks).into_iter().flatten().filter(keep) {
            self.push(entry);
        }
    }
}

/// Entries in the order in which they came, and where to find them: an open table of their numbers, probed in a line.
/// Beside each entry that costs five to eleven bytes, a third of what a map of whole entries leaves empty.
#[derive(Debug)]
struct KeyTableShard {
    entries: ChunkedEntries,
    /// The number of an entry, from 1 on; 0 where there is none. As many as a power of two, at most three quarters of
    /// them taken.
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
        let place = self.find_slot(&entry.fingerprint);
        if self.slots[place] != EMPTY_SLOT {
            let known = self.entries.get_mut(self.slots[place] as usize - 1);
            if let Some(known) = known.filter(|known| entry.revision > known.revision) {
                *known = entry;
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
        // Nobody asks for these for long, and whoever does costs a look-up: all others stay, so that a revoked or
        // expired key is known as such even while Postgres is away.
        self.entries.retain(|entry| !entry.is_former || entry.valid_until > now);
        let is_half_full = 2 * self.entries.len() >= self.slots.len();
        let places = if is_half_full { 2 * self.slots.len() } else { self.slots.len() };
        self.slots.clear();
        self.slots.resize(places, EMPTY_SLOT);
        for number in 1..=self.entries.len() {
            if let Some(fingerprint) = self.entries.get(number - 1).map(|entry| entry.fingerprint) {
                self.set_slot(number, &fingerprint);
            }
        }
    }

    fn set_slot(&mut self, number: usize, fingerprint: &KeyFingerprint) {
        let place = self.find_slot(fingerprint);
        self.slots[place] = u32::try_from(number).expect("a part of all keys is fewer than four thousand million");
    }

    /// Where the entry of this fingerprint is, or the free place where it would be.
    fn find_slot(&self, fingerprint: &KeyFingerprint) -> usize {
        let [_, first, second, third, fourth, ..] = *fingerprint;
        let last = self.slots.len() - 1;
        let mut place = u32::from_le_bytes([first, second, third, fourth]) as usize & last;
        while self.entry_in_slot(place).is_some_and(|entry| entry.fingerprint != *fingerprint) {
            place = (place + 1) & last;
        }
        place
    }

    fn entry_in_slot(&self, place: usize) -> Option<&KeyEntry> {
        match self.slots[place] {
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
        let (table, mut map) = (KeyTable::default(), HashMap::new());
        for revision in 0..200_000 {
            // Few of many, so that most are met several times.
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
        let (mut ended, mut kept) = (0, Vec::new());
        for number in 0..100_000i64 {
            let fingerprint: KeyFingerprint = rand::random();
            let is_former = number % 10 != 0;
            let valid_until = if number % 20 == 0 { i64::MIN } else { number };
            if is_former {
                ended += 1;
            } else {
                kept.push(fingerprint);
            }
            table.upsert(KeyEntry { valid_until, is_former, ..make_entry(fingerprint, number) }, i64::MAX);
        }
        assert!(table.len() < kept.len() * 3, "{} entries for {} keys and {ended} ended", table.len(), kept.len());
        assert!(kept.iter().all(|fingerprint| table.find(fingerprint).is_some()));
    }
}
