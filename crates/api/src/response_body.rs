//! The body of a response before the front layer compresses and caches it.

use std::convert::Infallible;

use axum::body::{Body, Bytes};
use futures_util::{StreamExt, stream};

pub enum ResponseBody {
    Whole(Bytes),
    /// Too long to be cached, or written while it is sent.
    Stream(Body),
}

impl ResponseBody {
    /// Whole if it takes at most `max_whole_bytes`, otherwise a stream.
    pub fn from_chunks(mut chunks: impl Iterator<Item = Bytes> + Send + 'static, max_whole_bytes: usize) -> Self {
        let mut written = Vec::new();
        let mut length = 0;
        while let Some(chunk) = chunks.next() {
            length += chunk.len();
            written.push(chunk);
            if length > max_whole_bytes {
                return Self::Stream(stream_chunks(written.into_iter().chain(chunks)));
            }
        }
        Self::Whole(written.concat().into())
    }
}

pub fn stream_chunks(chunks: impl Iterator<Item = Bytes> + Send + 'static) -> Body {
    // The compression layer polls once more after the end.
    Body::from_stream(stream::iter(chunks.map(Ok::<_, Infallible>)).fuse())
}
