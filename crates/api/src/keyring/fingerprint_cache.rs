//! Caches the fingerprint of each key after its first HMAC, so that later requests need no HMAC.

use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, Hasher, RandomState};
use std::sync::RwLock;

use vintem_domain::ApiKey;

use super::key_table::KeyFingerprint;

/// Two halves of 64 bits, each a SipHash of the key with a seed that only this process has. Without the seed, nobody
/// can find a second key with the same hash or learn anything from a hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SeededKeyHash(u128);

const SHARD_COUNT: usize = 64;
/// Seven eighths of 4096, the most that a hash table of that size holds: some 230,000 entries in all, in under 9 MB. A
/// full shard is cleared, and its keys are cached again at their next use.
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

    pub fn get(&self, key_hash: SeededKeyHash) -> Option<KeyFingerprint> {
        self.shard_for(key_hash).read().expect("never held across a panic").get(&key_hash).copied()
    }

    pub fn insert(&self, key_hash: SeededKeyHash, fingerprint: KeyFingerprint) {
        let mut shard = self.shard_for(key_hash).write().expect("never held across a panic");
        if shard.len() >= MAX_SHARD_ENTRIES {
            shard.clear();
        }
        shard.insert(key_hash, fingerprint);
    }

    fn shard_for(&self, key_hash: SeededKeyHash) -> &RwLock<FingerprintShard> {
        &self.shards[key_hash.0 as usize % SHARD_COUNT]
    }
}

/// The map's keys are hashes already, so it need not hash them again.
#[derive(Debug, Default)]
struct IdentityHasher(u64);

impl Hasher for IdentityHasher {
    fn write_u128(&mut self, key_hash: u128) {
        self.0 = (key_hash >> 64) as u64;
    }

    fn write(&mut self, bytes: &[u8]) {
        // Never called for `SeededKeyHash`, which is one u128. Any other input still works, only more slowly.
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
        let cache = FingerprintCache::default();
        let keys: Vec<(ApiKey, KeyFingerprint)> = (0..10_000).map(|_| (random_key(), rand::random())).collect();
        for (key, fingerprint) in &keys {
            assert_eq!(cache.get(cache.hash_key(key)), None);
            cache.insert(cache.hash_key(key), *fingerprint);
        }
        for (key, fingerprint) in &keys {
            assert_eq!(cache.get(cache.hash_key(key)), Some(*fingerprint));
        }
    }

    #[test]
    fn each_cache_hashes_with_its_own_seed() {
        let key = random_key();
        assert_ne!(FingerprintCache::default().hash_key(&key), FingerprintCache::default().hash_key(&key));
    }

    #[test]
    fn cache_size_is_bounded() {
        let cache = FingerprintCache::default();
        for number in 0..2 * (SHARD_COUNT * MAX_SHARD_ENTRIES) as u128 {
            cache.insert(SeededKeyHash(number.wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835)), [0; 16]);
        }
        for shard in &cache.shards {
            let shard = shard.read().unwrap();
            assert!((1..=MAX_SHARD_ENTRIES).contains(&shard.len()) && shard.capacity() <= MAX_SHARD_ENTRIES);
        }
    }
}
