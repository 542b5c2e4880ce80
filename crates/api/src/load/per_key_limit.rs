//! Limits how many long operations of one kind each key may have at once, so that no key takes all of the capacity.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use vintem_domain::{KeyId, Problem};

/// At most this many permits for each key.
#[derive(Debug)]
pub struct PerKeyLimit {
    max_per_key: usize,
    in_use_by_key: Mutex<HashMap<KeyId, usize>>,
}

/// Counts against the key's limit until dropped.
#[derive(Debug)]
pub struct KeyPermit {
    limit: Arc<PerKeyLimit>,
    key: KeyId,
}

impl PerKeyLimit {
    pub fn new(max_per_key: usize) -> Arc<Self> {
        Arc::new(Self { max_per_key, in_use_by_key: Mutex::default() })
    }

    /// Fails if the key has no permit left. Callers without a key never get one.
    pub fn acquire(self: &Arc<Self>, key: Option<KeyId>) -> Result<KeyPermit, Problem> {
        key.and_then(|key| self.try_acquire(key)).ok_or(Problem::Overloaded)
    }

    pub fn try_acquire(self: &Arc<Self>, key: KeyId) -> Option<KeyPermit> {
        let mut in_use = self.lock_in_use();
        let count = in_use.entry(key).or_default();
        if *count >= self.max_per_key {
            return None;
        }
        *count += 1;
        Some(KeyPermit { limit: self.clone(), key })
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
        let limit = PerKeyLimit::new(2);
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
