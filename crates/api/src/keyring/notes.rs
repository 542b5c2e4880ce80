//! Which fingerprint a key has, noted when it was first found by HMAC, so that the next request needs none.

use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, Hasher, RandomState};
use std::sync::RwLock;

use vintem_domain::ApiKey;

use super::table::Fingerprint;

/// Two halves of 64 bits, each a SipHash of the key under a seed that this process alone has: who does not know the seed
/// can neither find a second key with the same note nor learn anything from one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Note(u128);

const SHARDS: usize = 64;
/// Seven eighths of 4096, as many as a table of that size takes: some 230,000 notes in all, in under 9 MB. A part that
/// is full begins anew, and its keys are noted at their next use.
const MOST_IN_SHARD: usize = 3_584;

type Shard = HashMap<Note, Fingerprint, BuildHasherDefault<AsItIs>>;

#[derive(Debug)]
pub struct Notes {
    seed: RandomState,
    shards: Vec<RwLock<Shard>>,
}

impl Default for Notes {
    fn default() -> Self {
        Self { seed: RandomState::new(), shards: (0..SHARDS).map(|_| RwLock::default()).collect() }
    }
}

impl Notes {
    pub fn note(&self, key: &ApiKey) -> Note {
        let half = |which: u8| {
            let mut hasher = self.seed.build_hasher();
            hasher.write_u8(which);
            hasher.write(key.as_bytes());
            u128::from(hasher.finish())
        };
        Note(half(0) << 64 | half(1))
    }

    pub fn find(&self, note: Note) -> Option<Fingerprint> {
        self.shard(note).read().expect("never held across a panic").get(&note).copied()
    }

    pub fn add(&self, note: Note, fingerprint: Fingerprint) {
        let mut shard = self.shard(note).write().expect("never held across a panic");
        if shard.len() >= MOST_IN_SHARD {
            shard.clear();
        }
        shard.insert(note, fingerprint);
    }

    fn shard(&self, note: Note) -> &RwLock<Shard> {
        &self.shards[note.0 as usize % SHARDS]
    }
}

/// A note is a hash already.
#[derive(Debug, Default)]
struct AsItIs(u64);

impl Hasher for AsItIs {
    fn write_u128(&mut self, note: u128) {
        self.0 = (note >> 64) as u64;
    }

    fn write(&mut self, bytes: &[u8]) {
        // Notes are written whole, above; anything else would still be told apart, only more slowly.
        self.0 = bytes.iter().fold(self.0, |hash, byte| hash.rotate_left(8) ^ u64::from(*byte));
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> ApiKey {
        ApiKey::generate(rand::random::<u8>)
    }

    #[test]
    fn a_note_leads_to_its_own_fingerprint() {
        let notes = Notes::default();
        let keys: Vec<(ApiKey, Fingerprint)> = (0..10_000).map(|_| (key(), rand::random())).collect();
        for (key, fingerprint) in &keys {
            assert_eq!(notes.find(notes.note(key)), None);
            notes.add(notes.note(key), *fingerprint);
        }
        for (key, fingerprint) in &keys {
            assert_eq!(notes.find(notes.note(key)), Some(*fingerprint));
        }
    }

    #[test]
    fn another_process_has_other_notes() {
        let key = key();
        assert_ne!(Notes::default().note(&key), Notes::default().note(&key));
    }

    #[test]
    fn notes_are_bounded_however_many_keys_there_are() {
        let notes = Notes::default();
        for number in 0..2 * (SHARDS * MOST_IN_SHARD) as u128 {
            notes.add(Note(number.wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835)), [0; 16]);
        }
        for shard in &notes.shards {
            let shard = shard.read().unwrap();
            assert!((1..=MOST_IN_SHARD).contains(&shard.len()) && shard.capacity() <= MOST_IN_SHARD);
        }
    }
}
