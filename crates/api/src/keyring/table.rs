//! Every secret of every key by its fingerprint, in a table that is small, and that is written a secret at a time, so
//! that nobody who reads it waits for more than that.

use std::sync::RwLock;

use vintem_domain::{KeyId, Plan};

/// Half of the HMAC: 128 bits tell all keys apart and halve the memory. Nobody who does not hold the pepper can choose
/// one, so it needs no further hashing.
pub type Fingerprint = [u8; 16];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    pub fingerprint: Fingerprint,
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
const SHARDS: usize = 256;

#[derive(Debug)]
pub struct Table {
    shards: Vec<RwLock<Shard>>,
}

impl Default for Table {
    fn default() -> Self {
        Self { shards: (0..SHARDS).map(|_| RwLock::default()).collect() }
    }
}

impl Table {
    pub fn find(&self, fingerprint: &Fingerprint) -> Option<Entry> {
        self.shard(fingerprint).read().expect("never held across a panic").find(fingerprint).copied()
    }

    /// Takes an entry in, unless what is there is newer. `now` in milliseconds since 1970: former secrets that have ended
    /// make room for others.
    pub fn put(&self, entry: Entry, now: i64) {
        self.shard(&entry.fingerprint).write().expect("never held across a panic").put(entry, now);
    }

    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.read().expect("never held across a panic").entries.len()).sum()
    }

    fn shard(&self, fingerprint: &Fingerprint) -> &RwLock<Shard> {
        &self.shards[usize::from(fingerprint[0]) % SHARDS]
    }
}

/// Entries in pieces of one size. A list that grows as a whole leaves a gap of another size behind each time, and the
/// allocator keeps those (`just million-keys` shows what a key takes).
#[derive(Debug, Default)]
struct Entries {
    pieces: Vec<Vec<Entry>>,
}

const PIECE: usize = 64;

impl Entries {
    fn len(&self) -> usize {
        self.pieces.last().map_or(0, |last| (self.pieces.len() - 1) * PIECE + last.len())
    }

    fn get(&self, at: usize) -> Option<&Entry> {
        self.pieces.get(at / PIECE)?.get(at % PIECE)
    }

    fn get_mut(&mut self, at: usize) -> Option<&mut Entry> {
        self.pieces.get_mut(at / PIECE)?.get_mut(at % PIECE)
    }

    fn push(&mut self, entry: Entry) {
        match self.pieces.last_mut().filter(|last| last.len() < PIECE) {
            Some(last) => last.push(entry),
            None => {
                let mut piece = Vec::with_capacity(PIECE);
                piece.push(entry);
                self.pieces.push(piece);
            }
        }
    }

    fn retain(&mut self, keep: impl Fn(&Entry) -> bool) {
        for entry in std::mem::take(&mut self.pieces).into_iter().flatten().filter(keep) {
            self.push(entry);
        }
    }
}

/// Entries in the order in which they came, and where to find them: an open table of their numbers, probed in a line.
/// Beside each entry that costs five to eleven bytes, a third of what a map of whole entries leaves empty.
#[derive(Debug)]
struct Shard {
    entries: Entries,
    /// The number of an entry, from 1 on; 0 where there is none. As many as a power of two, at most three quarters of
    /// them taken.
    places: Vec<u32>,
}

const FREE: u32 = 0;
const FEWEST_PLACES: usize = 8;

impl Default for Shard {
    fn default() -> Self {
        Self { entries: Entries::default(), places: vec![FREE; FEWEST_PLACES] }
    }
}

impl Shard {
    fn find(&self, fingerprint: &Fingerprint) -> Option<&Entry> {
        self.entry_at(self.place_of(fingerprint))
    }

    fn put(&mut self, entry: Entry, now: i64) {
        let place = self.place_of(&entry.fingerprint);
        if self.places[place] != FREE {
            let known = self.entries.get_mut(self.places[place] as usize - 1);
            if let Some(known) = known.filter(|known| entry.revision > known.revision) {
                *known = entry;
            }
            return;
        }
        if 4 * (self.entries.len() + 1) > 3 * self.places.len() {
            self.make_room(now);
        }
        self.entries.push(entry);
        self.note_place(self.entries.len(), &entry.fingerprint);
    }

    fn make_room(&mut self, now: i64) {
        // Nobody asks for these for long, and whoever does costs a look-up: all others stay, so that a revoked or
        // expired key is known as such even while Postgres is away.
        self.entries.retain(|entry| !entry.is_former || entry.valid_until > now);
        let is_half_full = 2 * self.entries.len() >= self.places.len();
        let places = if is_half_full { 2 * self.places.len() } else { self.places.len() };
        self.places.clear();
        self.places.resize(places, FREE);
        for number in 1..=self.entries.len() {
            if let Some(fingerprint) = self.entries.get(number - 1).map(|entry| entry.fingerprint) {
                self.note_place(number, &fingerprint);
            }
        }
    }

    fn note_place(&mut self, number: usize, fingerprint: &Fingerprint) {
        let place = self.place_of(fingerprint);
        self.places[place] = u32::try_from(number).expect("a part of all keys is fewer than four thousand million");
    }

    /// Where the entry of this fingerprint is, or the free place where it would be.
    fn place_of(&self, fingerprint: &Fingerprint) -> usize {
        let [_, first, second, third, fourth, ..] = *fingerprint;
        let last = self.places.len() - 1;
        let mut place = u32::from_le_bytes([first, second, third, fourth]) as usize & last;
        while self.entry_at(place).is_some_and(|entry| entry.fingerprint != *fingerprint) {
            place = (place + 1) & last;
        }
        place
    }

    fn entry_at(&self, place: usize) -> Option<&Entry> {
        match self.places[place] {
            FREE => None,
            number => self.entries.get(number as usize - 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn entry(fingerprint: Fingerprint, revision: i64) -> Entry {
        Entry { fingerprint, id: revision, revision, valid_until: i64::MAX, plan: Plan::Free, is_former: false }
    }

    #[test]
    fn it_agrees_with_a_map_over_many_changes() {
        let (table, mut map) = (Table::default(), HashMap::new());
        for revision in 0..200_000 {
            // Few of many, so that most are met several times.
            let mut fingerprint = [0; 16];
            fingerprint[..4].copy_from_slice(&(rand::random::<u32>() % 60_000).to_le_bytes());
            table.put(entry(fingerprint, revision), 0);
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
    fn what_is_older_replaces_nothing() {
        let table = Table::default();
        for revision in [3, 5, 4] {
            table.put(entry([7; 16], revision), 0);
        }
        assert_eq!(table.find(&[7; 16]).map(|entry| entry.revision), Some(5));
        assert_eq!(table.len(), 1);
    }

    #[test]
    fn former_secrets_that_ended_make_room_and_nothing_else_does() {
        let table = Table::default();
        let (mut ended, mut kept) = (0, Vec::new());
        for number in 0..100_000i64 {
            let fingerprint: Fingerprint = rand::random();
            let is_former = number % 10 != 0;
            let valid_until = if number % 20 == 0 { i64::MIN } else { number };
            if is_former {
                ended += 1;
            } else {
                kept.push(fingerprint);
            }
            table.put(Entry { valid_until, is_former, ..entry(fingerprint, number) }, i64::MAX);
        }
        assert!(table.len() < kept.len() * 3, "{} entries for {} keys and {ended} ended", table.len(), kept.len());
        assert!(kept.iter().all(|fingerprint| table.find(fingerprint).is_some()));
    }
}
