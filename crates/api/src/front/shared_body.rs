//! The bodies of responses that are the same for every caller: compressed part by part, each part in the caller's turn,
//! and charged to the caller until they are sent.

use std::sync::Arc;

use axum::body::{Body, BodyDataStream, Bytes};
use futures_util::{StreamExt, stream};
use vintem_domain::Problem;

use crate::content_encoding::{ContentEncoding, Encoder};
use crate::load::{CpuGate, LoadControls, OwnerBudget, OwnerPermit, Resource, WorkOwner};

/// Compressing a part takes about a millisecond.
const PART_BYTES: usize = 64 * 1024;

/// Shorter bodies are not charged: they fit into the buffers of a connection.
const MIN_CHARGED_BYTES: usize = 64 * 1024;

/// What a stream takes while it is sent: its encoder, and the part that waits.
const STREAM_KIB: u32 = 512;

/// Compresses a whole body.
pub async fn compress(gate: &CpuGate, owner: WorkOwner, encoding: ContentEncoding, body: Bytes) -> Bytes {
    let Some(mut encoder) = Encoder::new(encoding) else { return body };
    let mut compressed = Vec::with_capacity(body.len() / 4);
    for part in body.chunks(PART_BYTES) {
        compressed.extend(gate.run_part(owner, async { encoder.write(part) }).await);
    }
    compressed.extend(gate.run_part(owner, async { encoder.finish() }).await);
    compressed.into()
}

/// A stream whose parts are made while they are sent.
struct StreamedBody {
    chunks: BodyDataStream,
    /// `None` without compression, and after the end.
    encoder: Option<Encoder>,
    gate: CpuGate,
    owner: WorkOwner,
    _permit: OwnerPermit,
}

/// Makes and compresses each part of a stream in the caller's turn.
pub fn stream_in_turns(
    chunks: Body,
    encoding: ContentEncoding,
    gate: CpuGate,
    owner: WorkOwner,
    permit: OwnerPermit,
) -> Body {
    let encoder = Encoder::new(encoding);
    let streamed = StreamedBody { chunks: chunks.into_data_stream(), encoder, gate, owner, _permit: permit };
    Body::from_stream(stream::unfold(streamed, |mut streamed| async move {
        let gate = streamed.gate.clone();
        let part = gate.run_part(streamed.owner, streamed.next_part()).await?;
        Some((part, streamed))
    }))
}

impl StreamedBody {
    async fn next_part(&mut self) -> Option<Result<Bytes, axum::Error>> {
        while let Some(chunk) = self.chunks.next().await {
            let Some(encoder) = &mut self.encoder else { return Some(chunk) };
            let part = match chunk {
                Ok(chunk) => encoder.write(&chunk),
                Err(error) => return Some(Err(error)),
            };
            // An encoder may keep a chunk to itself.
            if !part.is_empty() {
                return Some(Ok(part.into()));
            }
        }
        self.encoder.take().map(|encoder| Ok(encoder.finish().into()))
    }
}

/// Charges a stream to the caller. Fails if the caller, or all together, have too much that is not sent yet.
pub async fn charge_stream(load: &LoadControls, budget: &Arc<OwnerBudget>) -> Result<OwnerPermit, Problem> {
    budget.acquire_shared(Resource::UnsentKib, STREAM_KIB, &load.unsent_kib).await
}

/// Charges a whole body to the caller, if it is long. The permit is for [`hold_until_sent`].
pub async fn charge_body(
    load: &LoadControls,
    budget: &Arc<OwnerBudget>,
    length: usize,
) -> Result<Option<OwnerPermit>, Problem> {
    if length < MIN_CHARGED_BYTES {
        return Ok(None);
    }
    let kib = u32::try_from(length / 1024).unwrap_or(u32::MAX);
    budget.acquire_shared(Resource::UnsentKib, kib, &load.unsent_kib).await.map(Some)
}

/// Keeps the permit until the last byte is sent, or the connection is closed.
pub fn hold_until_sent(body: Bytes, permit: Option<OwnerPermit>) -> Bytes {
    struct UnsentBody(Bytes, #[expect(dead_code, reason = "held until the body is dropped")] OwnerPermit);

    impl AsRef<[u8]> for UnsentBody {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }

    match permit {
        None => body,
        Some(permit) => Bytes::from_owner(UnsentBody(body, permit)),
    }
}
