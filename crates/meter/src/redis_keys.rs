//! Every key name in Redis, in one place.

use std::fmt::Write;

use vintem_domain::{AddressBucket, KeyId};

/// Whose admissions a log holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AdmissionLogId {
    /// What a key was admitted for.
    Key(KeyId),
    /// What an address was admitted for.
    Address(AddressBucket),
    /// The pages that an address read.
    Pages(AddressBucket),
    /// The searches that an address made on the pages.
    Searches(AddressBucket),
}

#[derive(Debug, Clone)]
pub struct RedisKeys {
    prefix: String,
}

impl RedisKeys {
    pub fn new(prefix: &str) -> Self {
        Self { prefix: prefix.to_owned() }
    }

    /// Writes the name of a log in place of what is there.
    pub fn write_log_key(&self, log_id: AdmissionLogId, name: &mut String) {
        name.clear();
        name.push_str(&self.prefix);
        let written = match log_id {
            AdmissionLogId::Key(id) => write!(name, "k:{id}"),
            AdmissionLogId::Address(address) => write!(name, "a:{address}"),
            AdmissionLogId::Pages(address) => write!(name, "p:{address}"),
            AdmissionLogId::Searches(address) => write!(name, "s:{address}"),
        };
        written.expect("a String takes everything");
    }

    /// The log of the keys that were registered from or for something.
    pub fn registration_log(&self, subject: &str) -> String {
        format!("{}registrations:{subject}", self.prefix)
    }

    /// The latest instant that the limiter's clock has shown.
    pub fn latest_clock_time(&self) -> String {
        format!("{}latest", self.prefix)
    }

    /// The processes that count here, by when they last gave a sign of life.
    pub fn live_processes(&self) -> String {
        format!("{}processes", self.prefix)
    }

    /// The id of the batch that live counts go into.
    pub fn current_batch(&self) -> String {
        format!("{}usage:current", self.prefix)
    }

    /// The ids of the batches that wait to be drained.
    pub fn pending_batches(&self) -> String {
        format!("{}usage:pending", self.prefix)
    }

    /// What a batch's id is appended to. A batch is a hash: `key:group:class:day` → count.
    pub fn batch_prefix(&self) -> String {
        format!("{}usage:batch:", self.prefix)
    }

    /// A batch.
    pub fn batch(&self, id: &str) -> String {
        format!("{}{id}", self.batch_prefix())
    }

    /// The number of the last call of each process, so that none counts twice.
    pub fn last_call_numbers(&self) -> String {
        format!("{}usage:calls", self.prefix)
    }
}
