//! Responses with many rows in JSON.

use axum::response::Response;
use serde::Serialize;

use crate::api_error::ApiError;
use crate::json_list::json_list_chunks;
use crate::load::OwnerPermit;
use crate::responses::EtagResponder;
use crate::snapshot_request::SnapshotRequest;

/// Longer responses are sent part by part: this many cells have some 400 KB.
pub const MAX_WHOLE_CELLS: usize = 20_000;
/// Takes less than a millisecond.
const CELLS_PER_PART: usize = 4_000;

/// Rows with this many cells each.
pub struct CellRows<Row> {
    pub rows: Vec<Row>,
    pub width: usize,
    /// Held until everything is sent.
    pub permit: Option<OwnerPermit>,
}

/// Responds with JSON that ends with the rows, after `head`. Long responses are written part by part while they are sent.
pub async fn respond_json_rows<Head: Serialize + 'static, Row: Serialize + Send + 'static>(
    request: &SnapshotRequest,
    responder: EtagResponder<'_>,
    head: Head,
    cell_rows: CellRows<Row>,
) -> Result<Response, ApiError> {
    let CellRows { rows, width, permit } = cell_rows;
    let is_long = rows.len() * width > MAX_WHOLE_CELLS && !responder.is_not_modified();
    let stream = if is_long { Some(request.acquire_stream().await?) } else { None };
    let rows_per_part = (CELLS_PER_PART / width.max(1)).max(1);
    let mut rows = rows.into_iter();
    let parts = std::iter::from_fn(move || {
        let _held_until_sent = &permit;
        let part: Vec<Row> = rows.by_ref().take(rows_per_part).collect();
        Some(part).filter(|part| !part.is_empty())
    });
    Ok(responder.respond_json_chunks(stream, || json_list_chunks(&head, parts)))
}
