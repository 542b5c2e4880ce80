//! A stream that ends when the other side reads too slowly.
//!
//! A client that does not read keeps a response in our memory. It has a few seconds of patience to use up while a write
//! waits for it, and earns more with every byte that it takes. Time in which there is nothing to write costs nothing.

use std::io::{Error, ErrorKind, IoSlice, Result};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

/// How slowly the other side may read.
#[derive(Debug, Clone, Copy)]
pub struct ReadingPace {
    /// How long the first write may wait.
    pub initial_patience: Duration,
    /// No more than this is earned.
    pub max_patience: Duration,
    /// Every byte earns its share of a second.
    pub min_bytes_per_second: u32,
}

pub struct SlowReaderGuard<S> {
    stream: S,
    pace: ReadingPace,
    /// Called when patience has run out, so that closing the stream also discards what the system has not sent yet.
    discard_unsent: fn(&S),
    patience: Duration,
    /// Set while a write is pending.
    pending: Option<PendingWrite>,
}

struct PendingWrite {
    since: Instant,
    deadline: Pin<Box<Sleep>>,
}

impl<S> SlowReaderGuard<S> {
    pub fn new(stream: S, pace: ReadingPace, discard_unsent: fn(&S)) -> Self {
        Self { stream, pace, discard_unsent, patience: pace.initial_patience, pending: None }
    }

    /// Passes on the result of a write, or an error if the other side has used up our patience. `bytes` are those that it
    /// took.
    fn judge<T>(
        &mut self,
        context: &mut Context<'_>,
        result: Poll<Result<T>>,
        bytes: impl FnOnce(&T) -> usize,
    ) -> Poll<Result<T>> {
        let Poll::Ready(result) = result else { return self.wait(context) };

        if let Some(pending) = self.pending.take() {
            self.patience = self.patience.saturating_sub(pending.since.elapsed());
        }
        if self.patience < self.pace.max_patience
            && let Ok(written) = &result
        {
            let earned = Duration::from_secs_f64(bytes(written) as f64 / f64::from(self.pace.min_bytes_per_second));
            self.patience = (self.patience + earned).min(self.pace.max_patience);
        }
        Poll::Ready(result)
    }

    fn wait<T>(&mut self, context: &mut Context<'_>) -> Poll<Result<T>> {
        let patience = self.patience;
        let pending = self.pending.get_or_insert_with(|| {
            let since = Instant::now();
            PendingWrite { since, deadline: Box::pin(sleep_until(since + patience)) }
        });
        match pending.deadline.as_mut().poll(context) {
            Poll::Ready(()) => {
                (self.discard_unsent)(&self.stream);
                Poll::Ready(Err(Error::new(ErrorKind::TimedOut, "the client reads too slowly")))
            }
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for SlowReaderGuard<S> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for SlowReaderGuard<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.judge(context, written, |count| *count)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.judge(context, written, |count| *count)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.judge(context, flushed, |()| 0)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        let shut = Pin::new(&mut self.stream).poll_shutdown(context);
        self.judge(context, shut, |()| 0)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::time::sleep;

    use super::*;

    const PACE: ReadingPace = ReadingPace {
        initial_patience: Duration::from_secs(5),
        max_patience: Duration::from_secs(10),
        min_bytes_per_second: 100,
    };

    /// Sends 10,000 bytes to a reader that takes `bytes_per_second`. Returns how it ended, and after how many seconds.
    async fn send_to_reader(bytes_per_second: usize) -> (Result<()>, u64) {
        let (ours, mut theirs) = tokio::io::duplex(100);
        let reader = tokio::spawn(async move {
            let mut buffer = vec![0; bytes_per_second];
            while theirs.read_exact(&mut buffer).await.is_ok() {
                sleep(Duration::from_secs(1)).await;
            }
        });

        let mut stream = SlowReaderGuard::new(ours, PACE, |_| ());
        let started = Instant::now();
        let sent = stream.write_all(&[0; 10_000]).await;
        reader.abort();
        (sent, started.elapsed().as_secs())
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_reads_nothing_is_cut_off() {
        let (ours, _theirs) = tokio::io::duplex(10);
        let mut stream = SlowReaderGuard::new(ours, PACE, |_| ());
        let started = Instant::now();
        let error = stream.write_all(&[0; 100]).await.expect_err("nobody reads");
        // Five seconds, and what the first ten bytes earned.
        assert_eq!((error.kind(), started.elapsed().as_millis()), (ErrorKind::TimedOut, 5_100));
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_reads_at_the_pace_gets_everything_and_whoever_reads_slower_is_cut_off() {
        let (sent, seconds) = send_to_reader(100).await;
        assert!(sent.is_ok() && (90..=100).contains(&seconds), "{sent:?} after {seconds}");

        let (sent, seconds) = send_to_reader(50).await;
        assert!(sent.is_err() && (10..=15).contains(&seconds), "{sent:?} after {seconds}");
    }

    #[tokio::test(start_paused = true)]
    async fn time_without_anything_to_write_costs_no_patience() {
        let (ours, mut theirs) = tokio::io::duplex(100);
        let mut stream = SlowReaderGuard::new(ours, PACE, |_| ());
        for _ in 0..5 {
            stream.write_all(&[0; 100]).await.unwrap();
            sleep(Duration::from_secs(60)).await;
            theirs.read_exact(&mut [0; 100]).await.unwrap();
        }
    }
}
