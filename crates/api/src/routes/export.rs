//! Bulk export: the list of files, and the files themselves with range requests.

use std::fs::File;
use std::io::SeekFrom;

use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::response::Response;
use axum::routing::get;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use serde::Serialize;
use tokio::io::{AsyncReadExt, AsyncSeekExt};
use tokio_util::io::ReaderStream;
use vintem_deliver::export::{ExportDirectory, ExportError, Manifest, ManifestEntry, ManifestFile};
use vintem_domain::{Dataset, Problem};

use crate::api_error::ApiError;
use crate::app::{App, AppState, Handlers};
use crate::bodies::format_instant;
use crate::caller::Caller;
use crate::responses::{EtagResponder, SkipCompression, WholeList, cache_control, matches_if_none_match};
use crate::snapshot_request::SnapshotRequest;

#[derive(Serialize)]
struct ExportsBody<'m> {
    data: Vec<ExportBody<'m>>,
    #[serde(flatten)]
    position: WholeList,
}

#[derive(Serialize)]
struct ExportBody<'m> {
    name: &'m str,
    dataset: &'m str,
    source: &'static str,
    licence: &'static str,
    rows: u64,
    generation: i64,
    generated_at: String,
    /// When the exported data was loaded.
    as_of: String,
    files: Vec<ExportFileBody<'m>>,
    /// Columns, provenance and license, as JSON.
    sidecar: ExportFileBody<'m>,
}

#[derive(Serialize)]
struct ExportFileBody<'m> {
    name: &'m str,
    format: &'static str,
    media_type: &'static str,
    bytes: u64,
    sha256: &'m str,
    url: String,
}

pub fn handlers() -> Handlers {
    vec![("list_exports", get(list_exports)), ("get_export", get(get_export))]
}

async fn list_exports(request: SnapshotRequest) -> Result<Response, ApiError> {
    let snapshot = request.snapshot()?;
    let app = request.app_without_caching();
    let manifest = read_export_directory(app, ExportDirectory::load_manifest).await?.unwrap_or_default();

    let datasets: Vec<Dataset> = Dataset::all().collect();
    let generated_at: Vec<_> = manifest.datasets.iter().map(|entry| (&entry.name, entry.generated_at)).collect();
    let responder = EtagResponder::new(&request, &snapshot, &datasets, generated_at);
    Ok(responder.respond_json(|| exports_body(&manifest, &app.settings.public_url)))
}

fn exports_body<'m>(manifest: &'m Manifest, public_url: &str) -> ExportsBody<'m> {
    let file_body = |file: &'m ManifestFile| ExportFileBody {
        name: &file.name,
        format: file.format.file_extension(),
        media_type: file.format.media_type(),
        bytes: file.bytes,
        sha256: &file.sha256,
        url: format!("{public_url}/api/v1/export/{}", file.name),
    };
    // Files of a series that was switched off may still be there.
    let export_body = |entry: &'m ManifestEntry| {
        let dataset = Dataset::from_id(&entry.dataset)?;
        Some(ExportBody {
            name: &entry.name,
            dataset: &entry.dataset,
            source: dataset.source_name(),
            licence: dataset.license().id(),
            rows: entry.rows,
            generation: entry.generation,
            generated_at: format_instant(entry.generated_at),
            as_of: format_instant(entry.as_of),
            files: entry.files.iter().map(file_body).collect(),
            sidecar: file_body(&entry.sidecar),
        })
    };

    let data: Vec<_> = manifest.datasets.iter().filter_map(export_body).collect();
    ExportsBody { position: WholeList::of(data.len()), data }
}

/// Reads from disk on a blocking thread. `None` if no export directory is configured.
async fn read_export_directory<T: Send + 'static>(
    app: &App,
    read: impl FnOnce(&ExportDirectory) -> Result<Option<T>, ExportError> + Send + 'static,
) -> Result<Option<T>, ApiError> {
    let Some(exports) = app.exports.clone() else { return Ok(None) };
    let result = tokio::task::spawn_blocking(move || read(&exports)).await;
    let error = match result {
        Ok(Ok(value)) => return Ok(value),
        Ok(Err(error)) => error.to_string(),
        Err(error) => error.to_string(),
    };
    tracing::error!(error, "cannot read export directory");
    Err(ApiError(Problem::Internal))
}

async fn get_export(
    caller: Caller,
    State(app): AppState,
    headers: HeaderMap,
    name: Result<Path<String>, PathRejection>,
) -> Result<Response, ApiError> {
    let Path(name) = name.map_err(|_| Problem::NoSuchExport)?;
    let opened = read_export_directory(&app, move |exports| exports.open_file(&name)).await?;
    let (entry, file, opened) = opened.ok_or(Problem::NoSuchExport)?;
    file_response(&caller, &headers, &entry, &file, opened).await
}

/// Bytes read from disk at a time.
const READ_CHUNK_BYTES: usize = 64 * 1024;

async fn file_response(
    caller: &Caller,
    request_headers: &HeaderMap,
    entry: &ManifestEntry,
    file: &ManifestFile,
    opened: File,
) -> Result<Response, ApiError> {
    let etag = header_value(&format!("\"{}\"", file.sha256));
    let is_unchanged = matches_if_none_match(caller.if_none_match.as_ref(), &etag);

    let mut response = Response::new(Body::empty());
    if is_unchanged {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
    } else {
        let range = match parse_range_header(request_headers, &etag) {
            Some(range) => Some(
                range.offset_and_length(file.bytes).ok_or(Problem::RangeNotSatisfiable { file_size: file.bytes })?,
            ),
            None => None,
        };
        let (first, length) = range.unwrap_or((0, file.bytes));

        let mut opened = tokio::fs::File::from_std(opened);
        if let Err(error) = opened.seek(SeekFrom::Start(first)).await {
            tracing::error!(%error, "cannot read export file");
            return Err(ApiError(Problem::Internal));
        }
        *response.body_mut() = Body::from_stream(ReaderStream::with_capacity(opened.take(length), READ_CHUNK_BYTES));

        let headers = response.headers_mut();
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(file.format.media_type()));
        if range.is_some() {
            let range = format!("bytes {first}-{}/{}", first + length - 1, file.bytes);
            headers.insert(header::CONTENT_RANGE, header_value(&range));
            *response.status_mut() = StatusCode::PARTIAL_CONTENT;
        }
    }

    let headers = response.headers_mut();
    headers.insert(header::ETAG, etag);
    headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    headers.insert(header::CACHE_CONTROL, cache_control(caller.key.is_some()));
    headers
        .insert(header::CONTENT_DISPOSITION, header_value(&format!("attachment; filename=\"vintem-{}\"", file.name)));
    headers.insert(HeaderName::from_static("x-data-as-of"), header_value(&format_instant(entry.as_of)));
    // The ETag and the length are those of the uncompressed bytes.
    response.extensions_mut().insert(SkipCompression);
    Ok(response)
}

fn header_value(value: &str) -> HeaderValue {
    HeaderValue::from_str(value).expect("names, hashes and numbers")
}

/// The part of a file that a `Range` header requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ByteRange {
    From(u64),
    /// Both ends included.
    Between(u64, u64),
    Last(u64),
}

impl ByteRange {
    /// The offset and length of the range; `None` if it contains no byte of the file.
    fn offset_and_length(self, file_size: u64) -> Option<(u64, u64)> {
        let (first, last) = match self {
            Self::From(first) => (first, file_size.checked_sub(1)?),
            Self::Between(first, last) => (first, last.min(file_size.checked_sub(1)?)),
            Self::Last(0) => return None,
            Self::Last(count) => (file_size.saturating_sub(count), file_size.checked_sub(1)?),
        };
        (first <= last && first < file_size).then(|| (first, last - first + 1))
    }
}

/// The requested range. `None`, which sends the whole file, if there is no valid range, several ranges, or an
/// `If-Range` of another version.
fn parse_range_header(headers: &HeaderMap, etag: &HeaderValue) -> Option<ByteRange> {
    let is_same_version = headers.get(header::IF_RANGE).is_none_or(|tag| tag == etag);
    if !is_same_version {
        return None;
    }

    let (unit, range) = headers.get(header::RANGE)?.to_str().ok()?.split_once('=')?;
    if !unit.trim().eq_ignore_ascii_case("bytes") {
        return None;
    }

    let (first, last) = range.trim().split_once('-')?;
    let number = |text: &str| {
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| text.parse::<u64>().unwrap_or(u64::MAX))
    };
    match (first.trim(), last.trim()) {
        ("", last) => Some(ByteRange::Last(number(last)?)),
        (first, "") => Some(ByteRange::From(number(first)?)),
        (first, last) => {
            let first = number(first)?;
            let last = number(last)?;
            (first <= last).then_some(ByteRange::Between(first, last))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_range(range: &str, if_range: Option<&str>) -> Option<ByteRange> {
        let mut headers = HeaderMap::new();
        headers.insert(header::RANGE, header_value(range));
        if let Some(tag) = if_range {
            headers.insert(header::IF_RANGE, header_value(tag));
        }
        parse_range_header(&headers, &header_value("\"abc\""))
    }

    #[test]
    fn only_one_valid_byte_range_is_honored() {
        assert_eq!(parse_range("bytes=0-", None), Some(ByteRange::From(0)));
        assert_eq!(parse_range("Bytes = 5-7", None), Some(ByteRange::Between(5, 7)));
        assert_eq!(parse_range("bytes=-3", None), Some(ByteRange::Last(3)));
        assert_eq!(parse_range("bytes=99999999999999999999999-", None), Some(ByteRange::From(u64::MAX)));
        assert_eq!(parse_range("bytes=5-", Some("\"abc\"")), Some(ByteRange::From(5)));
        for ignored in ["bytes=7-5", "bytes=0-1,3-4", "lines=1-2", "bytes=a-b", "bytes=-", "bytes", "bytes=+1-2"] {
            assert_eq!(parse_range(ignored, None), None, "{ignored}");
        }
        for other_version in ["\"other\"", "W/\"abc\"", "Mon, 16 Nov 2026 00:00:00 GMT"] {
            assert_eq!(parse_range("bytes=5-", Some(other_version)), None, "{other_version}");
        }
    }

    #[test]
    fn byte_range_is_clamped_to_the_file_or_unsatisfiable() {
        assert_eq!(ByteRange::From(0).offset_and_length(10), Some((0, 10)));
        assert_eq!(ByteRange::From(9).offset_and_length(10), Some((9, 1)));
        assert_eq!(ByteRange::From(10).offset_and_length(10), None);
        assert_eq!(ByteRange::Between(3, 100).offset_and_length(10), Some((3, 7)));
        assert_eq!(ByteRange::Between(10, 100).offset_and_length(10), None);
        assert_eq!(ByteRange::Last(4).offset_and_length(10), Some((6, 4)));
        assert_eq!(ByteRange::Last(40).offset_and_length(10), Some((0, 10)));
        assert_eq!(ByteRange::Last(0).offset_and_length(10), None);
        assert_eq!(ByteRange::From(0).offset_and_length(0), None);
    }
}
