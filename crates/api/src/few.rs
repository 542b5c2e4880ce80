//! A few at once for each key: of what takes long, so that one caller does not take the cores from all others.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, MutexGuard};

use vintem_domain::{KeyId, Problem};

/// Of tables that are longer than a page a key has so many at once.
const MOST_LONG_TABLES: usize = 2;

/// Of calls that wait for something to happen a key has so many at once.
const MOST_WAITING_CALLS: usize = 8;

/// Of names that are looked up, which may take seconds, a key has so many at once.
const MOST_LOOKED_UP: usize = 4;

static LONG_TABLES: LazyLock<Few> = LazyLock::new(|| Few::new(MOST_LONG_TABLES));

static WAITING_CALLS: LazyLock<Few> = LazyLock::new(|| Few::new(MOST_WAITING_CALLS));

static LOOKED_UP: LazyLock<Few> = LazyLock::new(|| Few::new(MOST_LOOKED_UP));

#[derive(Debug)]
struct Few {
    most: usize,
    under_way: Mutex<HashMap<KeyId, usize>>,
}

/// One of a key's few, until it is dropped.
#[derive(Debug)]
pub struct OneOfFew {
    few: &'static Few,
    key: KeyId,
}

/// A place for a long table; who has no key has none.
pub fn long_table(key: Option<KeyId>) -> Result<OneOfFew, Problem> {
    key.and_then(|key| LONG_TABLES.enter(key)).ok_or(Problem::Overloaded)
}

/// A place to wait in, if there is one.
pub fn waiting_call(key: KeyId) -> Option<OneOfFew> {
    WAITING_CALLS.enter(key)
}

/// A place for looking up where a name leads to.
pub fn name_lookup(key: KeyId) -> Result<OneOfFew, Problem> {
    LOOKED_UP.enter(key).ok_or(Problem::Overloaded)
}

impl Few {
    fn new(most: usize) -> Self {
        Self { most, under_way: Mutex::default() }
    }

    fn enter(&'static self, key: KeyId) -> Option<OneOfFew> {
        let mut under_way = self.under_way();
        let of_key = under_way.entry(key).or_default();
        if *of_key >= self.most {
            return None;
        }
        *of_key += 1;
        Some(OneOfFew { few: self, key })
    }

    fn under_way(&self) -> MutexGuard<'_, HashMap<KeyId, usize>> {
        self.under_way.lock().expect("never held across a panic")
    }
}

impl Drop for OneOfFew {
    fn drop(&mut self) {
        let mut under_way = self.few.under_way();
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
    fn a_key_has_its_few_and_leaves_the_others_theirs() {
        let few: &'static Few = Box::leak(Box::new(Few::new(2)));
        let (first, second) = (few.enter(1), few.enter(1));
        assert!(first.is_some() && second.is_some() && few.enter(1).is_none());
        assert!(few.enter(2).is_some());
        drop(first);
        assert!(few.enter(1).is_some());
        drop(second);
        assert!(few.under_way().is_empty());
    }
}
