//! Which fingerprint a key has, noted when it was first found by HMAC, so that the next request needs none.

use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, Hasher, RandomState};
use std::sync::RwLock;

use vintem_domain::ApiKey;

use super::key_table::KeyFingerprint;

/// Two halves of 64 bits, each a SipHash of the key under a seed that this process alone has: who does not know the seed
/// can neither find a second key with the same note nor learn anything from one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SeededKeyHash(u128);

const SHARD_COUNT: usize = 64;
/// Seven eighths of 4096, as many as a table of that size takes: some 230,000 notes in all, in under 9 MB. A part that
/// is full begins anew, and its keys are noted at their next use.
const MAX_SHARD_ENTRIES: usize = 3_584;

type FingerprintShard = HashMap<SeededKeyHash, KeyFingerprint, BuildHasherDefault<IdentityHasher>>;

#[derive(Debug)]
pub struct FingerprintCache {
    seed: RandomState,
    shards: Vec<RwLock<FingerprintShard>>,
}

impl Default for FingerprintCache {
    fn default() -> Self {
        Self { seed: RandomState::new(), shards: (0..SHARD_COUNT).map(|_| RwLock::default()).collect() }
    }
}

impl FingerprintCache {
    pub fn hash_key(&self, key: &ApiKey) -> SeededKeyHash {
        let half = |which: u8| {
            let mut hasher = self.seed.build_hasher();
            hasher.write_u8(which);
            hasher.write(key.as_bytes());
            u128::from(hasher.finish())
        };
        SeededKeyHash(half(0) << 64 | half(1))
    }

    pub fn get(&self, note: SeededKeyHash) -> Option<KeyFingerprint> {
        self.shard_for(note).read().expect("never held across a panic").get(&note).copied()
    }

    pub fn insert(&self, note: SeededKeyHash, fingerprint: KeyFingerprint) {
        let mut shard = self.shard_for(note).write().expect("never held across a panic");
        if shard.len() >= MAX_SHARD_ENTRIES {
            shard.clear();
        }
        shard.insert(note, fingerprint);
    }

    fn shard_for(&self, note: SeededKeyHash) -> &RwLock<FingerprintShard> {
        &self.shards[note.0 as usize % SHARD_COUNT]
    }
}

/// A note is a hash already.
#[derive(Debug, Default)]
struct IdentityHasher(u64);

impl Hasher for IdentityHasher {
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

    fn random_key() -> ApiKey {
        ApiKey::generate(rand::random::<u8>)
    }

    #[test]
    fn cached_keys_resolve_to_their_own_fingerprint() {
        let notes = FingerprintCache::default();
        let keys: Vec<(ApiKey, KeyFingerprint)> = (0..10_000).map(|_| (random_key(), rand::random())).collect();
        for (key, fingerprint) in &keys {
            assert_eq!(notes.get(notes.hash_key(key)), None);
            notes.insert(notes.hash_key(key), *fingerprint);
        }
        for (key, fingerprint) in &keys {
            assert_eq!(notes.get(notes.hash_key(key)), Some(*fingerprint));
        }
    }

    #[test]
    fn each_cache_hashes_with_its_own_seed() {
        let key = random_key();
        assert_ne!(FingerprintCache::default().hash_key(&key), FingerprintCache::default().hash_key(&key));
    }

    #[test]
    fn cache_size_is_bounded() {
        let notes = FingerprintCache::default();
        for number in 0..2 * (SHARD_COUNT * MAX_SHARD_ENTRIES) as u128 {
            notes.insert(SeededKeyHash(number.wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835)), [0; 16]);
        }
        for shard in &notes.shards {
            let shard = shard.read().unwrap();
            assert!((1..=MAX_SHARD_ENTRIES).contains(&shard.len()) && shard.capacity() <= MAX_SHARD_ENTRIES);
        }
    }
}
