//! The bodies of responses that are the same for every caller: compressed part by part, each part in the caller's turn,
//! and charged to the caller until they are sent.

use std::io;
use std::sync::Arc;

use axum::body::{Body, BodyDataStream, Bytes};
use futures_util::{StreamExt, stream};
use tokio::sync::mpsc;
use vintem_domain::Problem;

use crate::content_encoding::{ContentEncoding, Encoder};
use crate::load::{CpuGate, LoadControls, OwnerBudget, OwnerPermit, Resource, WorkOwner};

/// Compressing a part takes about a millisecond.
const PART_BYTES: usize = 64 * 1024;

/// Shorter bodies are not charged: they fit into the buffers of a connection.
const MIN_CHARGED_BYTES: usize = 64 * 1024;

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
}

/// A part of a stream; `None` is its end. A channel that closes without it was left by a panic.
type StreamPart = Option<Result<Bytes, axum::Error>>;

/// Makes and compresses each part of a stream in the caller's turn, in a task of its own. The permit is held until the
/// stream is sent.
pub fn stream_in_turns(
    chunks: Body,
    encoding: ContentEncoding,
    gate: CpuGate,
    owner: WorkOwner,
    permit: Arc<OwnerPermit>,
) -> Body {
    let (sender, receiver) = mpsc::channel(1);
    let encoder = Encoder::for_stream(encoding);
    let streamed = StreamedBody { chunks: chunks.into_data_stream(), encoder, gate, owner };
    tokio::spawn(streamed.produce(sender));

    Body::from_stream(stream::unfold(Some((receiver, permit)), |state| async move {
        let (mut receiver, permit) = state?;
        match receiver.recv().await {
            Some(Some(part)) => Some((part, Some((receiver, permit)))),
            Some(None) => None,
            // Without an error, the client would take what it has for the whole response.
            None => Some((Err(axum::Error::new(io::Error::other("the response could not be finished"))), None)),
        }
    }))
}

impl StreamedBody {
    /// First waits until the client has taken the part before, and only then for a turn: a client that does not read must
    /// not hold a core.
    async fn produce(mut self, sender: mpsc::Sender<StreamPart>) {
        while let Ok(room) = sender.reserve().await {
            let part = self.next_part().await;
            let is_end = part.is_none();
            room.send(part);
            if is_end {
                return;
            }
        }
    }

    /// The next part that is not empty: an encoder may keep a chunk to itself.
    async fn next_part(&mut self) -> StreamPart {
        loop {
            let gate = self.gate.clone();
            let part = gate.run_part(self.owner, self.make_part()).await?;
            if !matches!(&part, Ok(part) if part.is_empty()) {
                return Some(part);
            }
        }
    }

    async fn make_part(&mut self) -> StreamPart {
        match (self.chunks.next().await, &mut self.encoder) {
            (Some(Ok(chunk)), Some(encoder)) => Some(Ok(encoder.write(&chunk).into())),
            (Some(chunk), _) => Some(chunk),
            (None, _) => self.encoder.take().map(|encoder| Ok(encoder.finish().into())),
        }
    }
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
