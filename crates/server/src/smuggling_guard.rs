//! Protection against request smuggling: rejects request heads that a proxy and hyper could read differently.
//!
//! hyper accepts lines that end in a bare LF, a repeated `Content-Length`, and `Content-Length` next to chunks. A proxy in
//! front of us may read the same bytes differently: one side sees a body where the other side sees a second request.
//! So this guard replaces the line feed at which such a head is detected with NUL, which no head may contain: the parser
//! responds with 400 and closes the connection.

use std::io::{IoSlice, Result};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

pub struct SmugglingGuard<S> {
    stream: S,
    max_head_bytes: usize,
    state: HeadParserState,
    /// The head received so far. Reused between requests, so that it is allocated once.
    head: Vec<u8>,
}

/// The part of the stream that the next byte belongs to.
#[derive(Debug, PartialEq)]
enum HeadParserState {
    InHead,
    InBody {
        remaining: u64,
    },
    /// The last request of this connection: the remaining bytes are its body, or are never parsed.
    Passthrough,
}

impl<S> SmugglingGuard<S> {
    pub fn new(stream: S, max_head_bytes: usize) -> Self {
        Self { stream, max_head_bytes, state: HeadParserState::InHead, head: Vec::new() }
    }

    fn inspect_bytes(&mut self, bytes: &mut [u8]) {
        let mut position = 0;
        while position < bytes.len() {
            position = match &mut self.state {
                HeadParserState::Passthrough => return,
                HeadParserState::InBody { remaining } => {
                    let available = usize::try_from(*remaining).unwrap_or(usize::MAX).min(bytes.len() - position);
                    *remaining -= available as u64;
                    if *remaining == 0 {
                        self.state = HeadParserState::InHead;
                    }
                    position + available
                }
                HeadParserState::InHead => {
                    let line_end =
                        bytes[position..].iter().position(|byte| *byte == b'\n').map(|offset| position + offset);
                    let next = line_end.map_or(bytes.len(), |end| end + 1);
                    self.head.extend_from_slice(&bytes[position..next]);
                    if self.head.len() > self.max_head_bytes {
                        // hyper responds to that with 431.
                        self.state = HeadParserState::Passthrough;
                        return;
                    }

                    let Some(line_end) = line_end else { return };
                    match check_head_line(&self.head) {
                        Some(Some(state)) => {
                            self.head.clear();
                            self.state = state;
                        }
                        Some(None) => {}
                        None => {
                            bytes[line_end] = 0;
                            self.state = HeadParserState::Passthrough;
                        }
                    }
                    next
                }
            };
        }
    }
}

/// The state after a complete line of a head: `Some(None)` if the head continues, `None` if it must be rejected.
fn check_head_line(head: &[u8]) -> Option<Option<HeadParserState>> {
    if !head.ends_with(b"\r\n") {
        return None;
    }
    match head.strip_suffix(b"\r\n\r\n") {
        Some(lines) => state_after_head(lines).map(Some),
        // hyper accepts empty lines before a request, and so do we.
        None if head == b"\r\n" => Some(Some(HeadParserState::InHead)),
        None => Some(None),
    }
}

fn state_after_head(lines: &[u8]) -> Option<HeadParserState> {
    let mut lines = lines.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    let request_line = lines.next().unwrap_or_default();

    let mut hosts = 0;
    let mut lengths = Vec::new();
    let mut is_chunked = false;
    for line in lines {
        let colon = line.iter().position(|byte| *byte == b':').unwrap_or(line.len());
        let name = line[..colon].trim_ascii();
        let value = line.get(colon + 1..).unwrap_or_default();
        if name.eq_ignore_ascii_case(b"host") {
            hosts += 1;
        } else if name.eq_ignore_ascii_case(b"content-length") {
            lengths.push(std::str::from_utf8(value.trim_ascii()).ok()?.parse().ok()?);
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            is_chunked = true;
        }
    }

    let is_host_valid = hosts == 1 || (hosts == 0 && !request_line.ends_with(b"HTTP/1.1"));
    match lengths.as_slice() {
        _ if !is_host_valid => None,
        [] if is_chunked => Some(HeadParserState::Passthrough),
        [] | [0] if !is_chunked => Some(HeadParserState::InHead),
        [length] if !is_chunked => Some(HeadParserState::InBody { remaining: *length }),
        _ => None,
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for SmugglingGuard<S> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        self.inspect_bytes(&mut buffer.filled_mut()[before..]);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for SmugglingGuard<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes that the parser sees when the input arrives in chunks of this size.
    fn pass_in_chunks(bytes: &[u8], chunk_size: usize) -> Vec<u8> {
        let mut stream = SmugglingGuard::new((), 1024);
        let mut output = bytes.to_vec();
        output.chunks_mut(chunk_size).for_each(|chunk| stream.inspect_bytes(chunk));
        output
    }

    #[test]
    fn valid_requests_pass_unchanged_in_any_chunking() {
        let requests = b"\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n\
            POST /a HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\n\r\n\n\nb\nc\
            GET / HTTP/1.0\r\n\r\n\
            POST /b HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n\n\r\n0\r\n\r\n";
        for chunk_size in 1..requests.len() {
            assert_eq!(pass_in_chunks(requests, chunk_size), requests, "{chunk_size}");
        }
    }

    #[test]
    fn ambiguous_requests_get_a_nul_byte_in_any_chunking() {
        for request in [
            "GET / HTTP/1.1\nHost: a\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\n\n",
            "\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\nHost: a\r\n\r\n",
            "GET / HTTP/1.1\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\ncontent-length: 5\r\n\r\nabcde",
            "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 5, 5\r\n\r\nabcde",
            "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: -5\r\n\r\nabcde",
            "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTRANSFER-ENCODING: chunked\r\n\r\n0\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding : chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
        ] {
            for chunk_size in 1..request.len() {
                assert_eq!(
                    pass_in_chunks(request.as_bytes(), chunk_size).iter().filter(|byte| **byte == 0).count(),
                    1,
                    "{request:?}"
                );
            }
        }
    }
}
