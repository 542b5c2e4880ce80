//! Every key name in Redis, in one place.

use std::fmt::Write;

use vintem_domain::{AddressBucket, KeyId};

/// Identifies a log of admissions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AdmissionLogId {
    /// Requests admitted for a key.
    Key(KeyId),
    /// Requests admitted for an address.
    Address(AddressBucket),
    /// Page views of an address.
    Pages(AddressBucket),
    /// Searches that an address made on the pages.
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

    /// Writes the key of a log into `name`, replacing its content.
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

    /// Log of the API keys registered from an address or for an e-mail address.
    pub fn registration_log(&self, subject: &str) -> String {
        format!("{}registrations:{subject}", self.prefix)
    }

    /// Latest time that the limiter's clock has shown.
    pub fn latest_clock_time(&self) -> String {
        format!("{}latest", self.prefix)
    }

    /// Processes that count here, scored by the time of their last heartbeat.
    pub fn live_processes(&self) -> String {
        format!("{}processes", self.prefix)
    }

    /// Id of the batch that receives the live counts.
    pub fn open_batch(&self) -> String {
        format!("{}usage:open", self.prefix)
    }

    /// Ids of the batches that wait to be stored.
    pub fn closed_batches(&self) -> String {
        format!("{}usage:closed", self.prefix)
    }

    /// Prefix of a chunk's key, followed by its id. A chunk is a hash: `key:group:class:day` → count.
    pub fn chunk_prefix(&self) -> String {
        format!("{}usage:chunk:", self.prefix)
    }

    pub fn chunk(&self, id: &str) -> String {
        format!("{}{id}", self.chunk_prefix())
    }

    /// The process that stores the counts of this server.
    pub fn storing_process(&self) -> String {
        format!("{}usage:storing", self.prefix)
    }

    /// Names of versions up to 0.3, whose replicas may run at the same time.
    pub fn former_open_batch(&self) -> String {
        format!("{}usage:current", self.prefix)
    }

    pub fn former_closed_batches(&self) -> String {
        format!("{}usage:pending", self.prefix)
    }

    pub fn former_batch_prefix(&self) -> String {
        format!("{}usage:batch:", self.prefix)
    }

    /// Number of the last call of each process, so that no call counts twice.
    pub fn last_call_numbers(&self) -> String {
        format!("{}usage:calls", self.prefix)
    }
}
