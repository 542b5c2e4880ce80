//! Which background tasks of this process are well.

use std::collections::BTreeSet;
use std::sync::Mutex;

/// The background tasks of a process that failed and have not recovered yet.
#[derive(Debug, Default)]
pub struct TaskHealth {
    failed: Mutex<BTreeSet<&'static str>>,
}

impl TaskHealth {
    pub fn set_failed(&self, task: &'static str, has_failed: bool) {
        let mut failed = self.failed.lock().expect("never held across a panic");
        if has_failed {
            failed.insert(task);
        } else {
            failed.remove(task);
        }
    }

    pub fn has_failed_task(&self) -> bool {
        !self.failed.lock().expect("never held across a panic").is_empty()
    }
}
