//! Every key name in Redis, in one place.

use vintem_domain::{AddressBucket, KeyId};

#[derive(Debug, Clone)]
pub struct KeyNames {
    prefix: String,
}

impl KeyNames {
    pub fn new(prefix: &str) -> Self {
        Self { prefix: prefix.to_owned() }
    }

    /// The log of what a key was admitted for.
    pub fn key_log(&self, id: KeyId) -> String {
        format!("{}log:key:{id}", self.prefix)
    }

    /// The log of what an address was admitted for.
    pub fn address_log(&self, address: AddressBucket) -> String {
        format!("{}log:address:{address}", self.prefix)
    }

    /// The log of the pages that an address read.
    pub fn page_log(&self, address: AddressBucket) -> String {
        format!("{}log:pages:{address}", self.prefix)
    }

    /// The log of the keys that were registered from or for something.
    pub fn registration_log(&self, what: &str) -> String {
        format!("{}log:registrations:{what}", self.prefix)
    }

    /// The id of the batch that live counts go into.
    pub fn current_batch(&self) -> String {
        format!("{}usage:current", self.prefix)
    }

    /// The ids of the batches that wait to be drained.
    pub fn pending_batches(&self) -> String {
        format!("{}usage:pending", self.prefix)
    }

    /// What a batch's id is appended to. A batch is a hash: `key:day:class` → count.
    pub fn batch_prefix(&self) -> String {
        format!("{}usage:batch:", self.prefix)
    }

    /// The number of the last group of outcomes that was counted for a process, so that sending it again does nothing.
    pub fn sent_outcomes(&self, process: &str) -> String {
        format!("{}usage:sent:{process}", self.prefix)
    }
}
