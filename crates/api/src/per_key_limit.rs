//! A few at once for each key: of what takes long, so that one caller does not take the cores from all others.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, MutexGuard};

use vintem_domain::{KeyId, Problem};

/// Of tables that are longer than a page a key has so many at once.
const MAX_LONG_TABLES_PER_KEY: usize = 2;

/// Of calls that wait for something to happen a key has so many at once.
const MAX_LONG_POLLS_PER_KEY: usize = 8;

/// Of names that are looked up, which may take seconds, a key has so many at once.
const MAX_DNS_LOOKUPS_PER_KEY: usize = 4;

static LONG_TABLE_LIMIT: LazyLock<PerKeyLimit> = LazyLock::new(|| PerKeyLimit::new(MAX_LONG_TABLES_PER_KEY));

static LONG_POLL_LIMIT: LazyLock<PerKeyLimit> = LazyLock::new(|| PerKeyLimit::new(MAX_LONG_POLLS_PER_KEY));

static DNS_LOOKUP_LIMIT: LazyLock<PerKeyLimit> = LazyLock::new(|| PerKeyLimit::new(MAX_DNS_LOOKUPS_PER_KEY));

#[derive(Debug)]
struct PerKeyLimit {
    max_per_key: usize,
    in_use_by_key: Mutex<HashMap<KeyId, usize>>,
}

/// One of a key's few, until it is dropped.
#[derive(Debug)]
pub struct KeyPermit {
    limit: &'static PerKeyLimit,
    key: KeyId,
}

/// A place for a long table; who has no key has none.
pub fn acquire_long_table(key: Option<KeyId>) -> Result<KeyPermit, Problem> {
    key.and_then(|key| LONG_TABLE_LIMIT.try_acquire(key)).ok_or(Problem::Overloaded)
}

/// A place to wait in, if there is one.
pub fn try_acquire_long_poll(key: KeyId) -> Option<KeyPermit> {
    LONG_POLL_LIMIT.try_acquire(key)
}

/// A place for looking up where a name leads to.
pub fn acquire_dns_lookup(key: KeyId) -> Result<KeyPermit, Problem> {
    DNS_LOOKUP_LIMIT.try_acquire(key).ok_or(Problem::Overloaded)
}

impl PerKeyLimit {
    fn new(max_per_key: usize) -> Self {
        Self { max_per_key, in_use_by_key: Mutex::default() }
    }

    fn try_acquire(&'static self, key: KeyId) -> Option<KeyPermit> {
        let mut under_way = self.lock_in_use();
        let of_key = under_way.entry(key).or_default();
        if *of_key >= self.max_per_key {
            return None;
        }
        *of_key += 1;
        Some(KeyPermit { limit: self, key })
    }

    fn lock_in_use(&self) -> MutexGuard<'_, HashMap<KeyId, usize>> {
        self.in_use_by_key.lock().expect("never held across a panic")
    }
}

impl Drop for KeyPermit {
    fn drop(&mut self) {
        let mut under_way = self.limit.lock_in_use();
        if let Some(of_key) = under_way.get_mut(&self.key) {
            *of_key -= 1;
            if *of_key == 0 {
                under_way.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_has_its_own_limit() {
        let few: &'static PerKeyLimit = Box::leak(Box::new(PerKeyLimit::new(2)));
        let (first, second) = (few.try_acquire(1), few.try_acquire(1));
        assert!(first.is_some() && second.is_some() && few.try_acquire(1).is_none());
        assert!(few.try_acquire(2).is_some());
        drop(first);
        assert!(few.try_acquire(1).is_some());
        drop(second);
        assert!(few.lock_in_use().is_empty());
    }
}
