//! Fetches what is needed of an archive: its directory and single members. A server that does not send parts of files
//! sends the whole archive instead.

use vintem_store::sources::FileValidators;

use super::LoadContext;
use crate::fetch::{FetchError, FetchRequest, ResponseVerdict, UpstreamResponse};
use crate::parsers::zip::MAX_ARCHIVE_BYTES;
use crate::parsers::zip_directory::{DirectoryError, ZipDirectory};

/// Holds the directory of 150 members; the largest archive has 36. A small archive is fetched by this alone.
const TAIL_BYTES: u64 = 16 << 10;

/// The archive to fetch.
pub struct ArchiveRequest<'a> {
    pub path: &'a str,
    /// Of the version that we have.
    pub known: &'a FileValidators,
    /// Of its members.
    pub known_fingerprint: Option<&'a str>,
    pub members: &'a [String],
}

pub enum ArchiveFetch {
    /// The server has the version that we have.
    NotModified,
    /// The archive changed, but not the members.
    SameMembers {
        validators: FileValidators,
    },
    /// With zeros in place of what was not fetched.
    Pieces {
        response: UpstreamResponse,
        fingerprint: String,
    },
    Whole(UpstreamResponse),
}

/// `judge_response` is for the whole archive.
pub async fn fetch_archive(
    context: &LoadContext<'_>,
    request: &ArchiveRequest<'_>,
    judge_response: impl Fn(&UpstreamResponse) -> ResponseVerdict,
) -> Result<ArchiveFetch, FetchError> {
    let judge_part = |response: &UpstreamResponse| match response.status {
        206 | 416 => ResponseVerdict::Accept,
        _ => judge_response(response),
    };
    let tail_request = FetchRequest {
        path: request.path,
        known: request.known.clone(),
        range: Some(format!("bytes=-{TAIL_BYTES}")),
        ..FetchRequest::default()
    };
    let tail = context.get(tail_request, judge_part).await?;
    match tail.status {
        304 => return Ok(ArchiveFetch::NotModified),
        206 | 416 => {}
        _ => return Ok(ArchiveFetch::Whole(tail)),
    }

    match fetch_pieces(context, request, tail, judge_part).await? {
        Some(fetched) => Ok(fetched),
        // What is wrong with it can be told from the whole archive alone.
        None => {
            let whole = FetchRequest { path: request.path, known: request.known.clone(), ..FetchRequest::default() };
            let response = context.get(whole, judge_response).await?;
            let is_not_modified = response.status == 304;
            Ok(if is_not_modified { ArchiveFetch::NotModified } else { ArchiveFetch::Whole(response) })
        }
    }
}

/// `None` if the members cannot be found from the end of the archive.
async fn fetch_pieces(
    context: &LoadContext<'_>,
    request: &ArchiveRequest<'_>,
    tail: UpstreamResponse,
    judge_part: impl Fn(&UpstreamResponse) -> ResponseVerdict + Copy,
) -> Result<Option<ArchiveFetch>, FetchError> {
    let Some((tail_offset, length)) = tail
        .content_range
        .filter(|(first, length)| first + tail.body.len() as u64 == *length && *length <= MAX_ARCHIVE_BYTES as u64)
    else {
        return Ok(None);
    };
    if tail_offset == 0 {
        return Ok(Some(ArchiveFetch::Whole(UpstreamResponse { status: 200, content_range: None, ..tail })));
    }

    let to_index = |offset: u64| usize::try_from(offset).unwrap_or(usize::MAX);
    let mut pieces = vec![0; to_index(length)];
    pieces[to_index(tail_offset)..].copy_from_slice(&tail.body);
    let mut fetched_from = tail_offset;
    let directory = match ZipDirectory::parse(&tail.body, length) {
        Err(DirectoryError::BeginsEarlier(offset)) => {
            let Some(part) = fetch_part(context, request, &tail, (offset, tail_offset), judge_part).await? else {
                return Ok(None);
            };
            pieces[to_index(offset)..to_index(tail_offset)].copy_from_slice(&part);
            fetched_from = offset;
            ZipDirectory::parse(&pieces[to_index(offset)..], length)
        }
        directory => directory,
    };
    let Ok(directory) = directory else { return Ok(None) };
    let Some(fingerprint) = directory.fingerprint(request.members) else { return Ok(None) };
    if request.known_fingerprint == Some(&*fingerprint) {
        return Ok(Some(ArchiveFetch::SameMembers { validators: tail.validators }));
    }

    let Some(ranges) = directory.member_ranges(request.members) else { return Ok(None) };
    for (start, end) in ranges {
        // The end of it may be there already.
        let range = (start, end.min(fetched_from));
        if range.0 >= range.1 {
            continue;
        }
        let Some(part) = fetch_part(context, request, &tail, range, judge_part).await? else { return Ok(None) };
        pieces[to_index(range.0)..to_index(range.1)].copy_from_slice(&part);
    }
    let response = UpstreamResponse { status: 200, content_range: None, body: pieces, ..tail };
    Ok(Some(ArchiveFetch::Pieces { response, fingerprint }))
}

/// Bytes of the archive whose end is `tail`: the first, and the one after the last. `None` if the archive has changed.
async fn fetch_part(
    context: &LoadContext<'_>,
    request: &ArchiveRequest<'_>,
    tail: &UpstreamResponse,
    (start, end): (u64, u64),
    judge_part: impl Fn(&UpstreamResponse) -> ResponseVerdict,
) -> Result<Option<Vec<u8>>, FetchError> {
    let part_request = FetchRequest {
        path: request.path,
        range: Some(format!("bytes={start}-{}", end - 1)),
        range_of: tail.validators.clone(),
        ..FetchRequest::default()
    };
    let part = context.get(part_request, judge_part).await?;
    let is_requested_part = part.status == 206
        && part.content_range == tail.content_range.map(|(_, length)| (start, length))
        && part.body.len() as u64 == end - start
        && part.validators == tail.validators;
    Ok(is_requested_part.then_some(part.body))
}
