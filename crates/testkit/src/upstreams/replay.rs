//! Serves the responses that a survey of the real hosts recorded.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use anyhow::Context;
use http::{StatusCode, header};
use vintem_ingest::recording::{INDEX_FILE, RecordedResponse};

use super::fake_response::{FakeResponse, HTML_CONTENT_TYPE, percent_decode};

#[derive(Debug)]
pub struct ReplayKit {
    directory: PathBuf,
    /// By the decoded target of the request.
    responses: HashMap<String, RecordedResponse>,
}

impl ReplayKit {
    pub fn open(directory: &Path) -> anyhow::Result<Self> {
        let index = std::fs::read_to_string(directory.join(INDEX_FILE))
            .with_context(|| format!("reading the kit in {}", directory.display()))?;
        let mut responses = HashMap::new();
        for line in index.lines() {
            let response: RecordedResponse = serde_json::from_str(line)?;
            responses.insert(percent_decode(&response.target), response);
        }
        Ok(Self { directory: directory.to_owned(), responses })
    }

    /// 404 without a body for what was not recorded.
    pub fn respond(&self, path: &str, query: &str) -> anyhow::Result<FakeResponse> {
        let target = if query.is_empty() { path.to_owned() } else { format!("{path}?{}", percent_decode(query)) };
        let Some(recorded) = self.responses.get(&target) else {
            return Ok(FakeResponse::new(StatusCode::NOT_FOUND, HTML_CONTENT_TYPE, ""));
        };
        let body = std::fs::read(self.directory.join(&recorded.body_file))?;
        let mut response = FakeResponse::new(StatusCode::from_u16(recorded.status)?, &recorded.content_type, body);
        for (name, value) in [(header::ETAG, &recorded.etag), (header::LAST_MODIFIED, &recorded.last_modified)] {
            if let Some(value) = value {
                response = response.with_header(name, value);
            }
        }
        Ok(response)
    }
}
