//! Keeps the responses of a survey in a directory, as a kit that stand-ins can replay. Columns about persons are blank.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use crate::fetch::UpstreamResponse;
use crate::parsers::company_registry;

/// One line of JSON for each response.
pub const INDEX_FILE: &str = "responses.jsonl";

/// A response of the kit. Its body is a file beside the index.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RecordedResponse {
    /// Path and query.
    pub target: String,
    pub status: u16,
    pub content_type: String,
    pub etag: Option<String>,
    pub last_modified: Option<String>,
    pub body_file: String,
}

#[derive(Debug)]
pub struct Recorder {
    directory: PathBuf,
    index: Mutex<RecordingIndex>,
}

#[derive(Debug)]
struct RecordingIndex {
    file: File,
    responses: u32,
}

impl Recorder {
    /// The directory must be empty or missing, so that two kits never mix.
    pub fn create(directory: &Path) -> io::Result<Self> {
        fs::create_dir_all(directory)?;
        if fs::read_dir(directory)?.next().is_some() {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, format!("{} is not empty", directory.display())));
        }
        let file = File::create(directory.join(INDEX_FILE))?;
        Ok(Self { directory: directory.to_owned(), index: Mutex::new(RecordingIndex { file, responses: 0 }) })
    }

    /// `target` is the path with its query.
    pub fn record(&self, target: &str, response: &UpstreamResponse) -> io::Result<()> {
        let mut index = self.index.lock().unwrap_or_else(PoisonError::into_inner);
        index.responses += 1;
        let body_file = format!("{:05}.body", index.responses);
        fs::write(self.directory.join(&body_file), body_without_persons(target, &response.body))?;
        let recorded = RecordedResponse {
            target: target.to_owned(),
            status: response.status,
            content_type: response.content_type.clone(),
            etag: response.validators.etag.clone(),
            last_modified: response.validators.last_modified.clone(),
            body_file,
        };
        writeln!(index.file, "{}", serde_json::to_string(&recorded)?)
    }
}

/// Only the registry has columns about persons; the file of filings names companies alone.
fn body_without_persons(target: &str, body: &[u8]) -> Vec<u8> {
    if target.contains("/CAD/") { company_registry::redact_personal_data(body) } else { body.to_vec() }
}
