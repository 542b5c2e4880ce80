//! Limits concurrent long-running requests per key, so that one caller cannot take the cores from all others.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, MutexGuard};

use vintem_domain::{KeyId, Problem};

/// Concurrent tables that are longer than a page, per key.
const MAX_LONG_TABLES_PER_KEY: usize = 2;

/// Concurrent requests that wait for new events, per key.
pub const MAX_LONG_POLLS_PER_KEY: usize = 8;

/// Concurrent DNS lookups per key. One may take seconds.
const MAX_DNS_LOOKUPS_PER_KEY: usize = 4;

static LONG_TABLE_LIMIT: LazyLock<PerKeyLimit> = LazyLock::new(|| PerKeyLimit::new(MAX_LONG_TABLES_PER_KEY));

static LONG_POLL_LIMIT: LazyLock<PerKeyLimit> = LazyLock::new(|| PerKeyLimit::new(MAX_LONG_POLLS_PER_KEY));

static DNS_LOOKUP_LIMIT: LazyLock<PerKeyLimit> = LazyLock::new(|| PerKeyLimit::new(MAX_DNS_LOOKUPS_PER_KEY));

#[derive(Debug)]
struct PerKeyLimit {
    max_per_key: usize,
    in_use_by_key: Mutex<HashMap<KeyId, usize>>,
}

/// Counts against the key's limit until dropped.
#[derive(Debug)]
pub struct KeyPermit {
    limit: &'static PerKeyLimit,
    key: KeyId,
}

/// A permit for a long table. Callers without a key get none.
pub fn acquire_long_table(key: Option<KeyId>) -> Result<KeyPermit, Problem> {
    key.and_then(|key| LONG_TABLE_LIMIT.try_acquire(key)).ok_or(Problem::Overloaded)
}

/// A permit to wait for new events, if the key has one left.
pub fn try_acquire_long_poll(key: KeyId) -> Option<KeyPermit> {
    LONG_POLL_LIMIT.try_acquire(key)
}

/// A permit for a DNS lookup.
pub fn acquire_dns_lookup(key: KeyId) -> Result<KeyPermit, Problem> {
    DNS_LOOKUP_LIMIT.try_acquire(key).ok_or(Problem::Overloaded)
}

impl PerKeyLimit {
    fn new(max_per_key: usize) -> Self {
        Self { max_per_key, in_use_by_key: Mutex::default() }
    }

    fn try_acquire(&'static self, key: KeyId) -> Option<KeyPermit> {
        let mut in_use = self.lock_in_use();
        let count = in_use.entry(key).or_default();
        if *count >= self.max_per_key {
            return None;
        }
        *count += 1;
        Some(KeyPermit { limit: self, key })
    }

    fn lock_in_use(&self) -> MutexGuard<'_, HashMap<KeyId, usize>> {
        self.in_use_by_key.lock().expect("never held across a panic")
    }
}

impl Drop for KeyPermit {
    fn drop(&mut self) {
        let mut in_use = self.limit.lock_in_use();
        if let Some(count) = in_use.get_mut(&self.key) {
            *count -= 1;
            if *count == 0 {
                in_use.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_has_its_own_limit() {
        let limit: &'static PerKeyLimit = Box::leak(Box::new(PerKeyLimit::new(2)));
        let first = limit.try_acquire(1);
        let second = limit.try_acquire(1);
        assert!(first.is_some() && second.is_some() && limit.try_acquire(1).is_none());
        assert!(limit.try_acquire(2).is_some());

        drop(first);
        assert!(limit.try_acquire(1).is_some());
        drop(second);
        assert!(limit.lock_in_use().is_empty());
    }
}
