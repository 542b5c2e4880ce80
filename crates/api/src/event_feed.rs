//! The event feed: keeps the newest events in memory and wakes the requests that wait for the next one.
//!
//! While Postgres is unavailable, callers that are up to date can keep reading; nothing new is published meanwhile.

use std::collections::VecDeque;
use std::sync::{Arc, RwLock};

use tokio::sync::watch;
use vintem_store::events::PublishedEvent;
use vintem_store::{Result, Store};

/// Events kept in memory. Callers that are further behind are answered from Postgres.
const MAX_BUFFERED_EVENTS: usize = 5_000;
/// Events read per query.
const READ_BATCH_SIZE: i64 = 1_000;

/// How much of the feed this process has read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FeedState {
    /// `None` until Postgres has been read for the first time.
    pub last_position: Option<i64>,
    /// All events up to and including this position have been deleted.
    pub deleted_through: i64,
    /// Whether the process is shutting down, so that requests stop waiting.
    pub is_shutting_down: bool,
}

#[derive(Debug, Default)]
pub struct EventFeed {
    state: watch::Sender<FeedState>,
    buffer: RwLock<EventBuffer>,
    /// Allows one refresh at a time, so that no event is buffered twice.
    refresh_lock: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct EventBuffer {
    events: VecDeque<Arc<PublishedEvent>>,
    /// The buffer has every event after this position, up to the last one read.
    starts_after: i64,
}

impl EventFeed {
    /// A receiver that changes when there are new events or the process shuts down.
    pub fn subscribe(&self) -> watch::Receiver<FeedState> {
        self.state.subscribe()
    }

    /// Makes waiting requests answer at once.
    pub fn shut_down(&self) {
        self.state.send_modify(|state| state.is_shutting_down = true);
    }

    /// Reads the events published since the last call.
    pub async fn refresh(&self, store: &Store) -> Result<()> {
        let _guard = self.refresh_lock.lock().await;
        let last_read = self.state.borrow().last_position;
        let bounds = store.feed_bounds(last_read).await?;
        if !bounds.is_continued {
            tracing::warn!("the database no longer has the events that were read from it: it was restored or replaced");
            metrics::counter!("vintem_database_replaced_total", "what" => "events").increment(1);
        }

        let mut after = match last_read.filter(|_| bounds.is_continued) {
            Some(last_read) => last_read,
            // At startup, or when the database was replaced, the newest events are enough.
            None => {
                let starts_after = store.start_of_newest_events(MAX_BUFFERED_EVENTS as i64).await?;
                *self.buffer.write().expect("never held across a panic") =
                    EventBuffer { events: VecDeque::new(), starts_after };
                starts_after
            }
        };

        while after < bounds.last_position {
            let events = store.published_events(after, None, READ_BATCH_SIZE).await?;
            // Events may have been deleted since we read the bounds.
            let Some(last) = events.last() else { break };
            after = last.position;
            self.push_events(events);
        }

        let last_position = Some(after.max(bounds.last_position));
        self.state.send_if_modified(|state| {
            let has_new_events = state.last_position != last_position;
            state.last_position = last_position;
            state.deleted_through = bounds.pruned_position;
            has_new_events
        });
        Ok(())
    }

    fn push_events(&self, events: Vec<PublishedEvent>) {
        let mut buffer = self.buffer.write().expect("never held across a panic");
        buffer.events.extend(events.into_iter().map(Arc::new));
        while buffer.events.len() > MAX_BUFFERED_EVENTS {
            if let Some(removed) = buffer.events.pop_front() {
                buffer.starts_after = removed.position;
            }
        }
    }

    /// The events after a position, of these kinds or of all kinds. `None` if some of them are no longer in memory.
    pub fn buffered_events(
        &self,
        after: i64,
        kinds: Option<&[&str]>,
        limit: usize,
    ) -> Option<Vec<Arc<PublishedEvent>>> {
        let buffer = self.buffer.read().expect("never held across a panic");
        if after < buffer.starts_after {
            return None;
        }

        let first = buffer.events.partition_point(|event| event.position <= after);
        let matches_kind =
            |event: &&Arc<PublishedEvent>| kinds.is_none_or(|kinds| kinds.contains(&event.kind.as_str()));
        Some(buffer.events.range(first..).filter(matches_kind).take(limit).cloned().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn make_events(positions: std::ops::RangeInclusive<i64>) -> Vec<PublishedEvent> {
        let kind = |position: i64| if position % 2 == 0 { "even" } else { "odd" };
        let event = |position| PublishedEvent { position, kind: kind(position).to_owned(), body: position.to_string() };
        positions.map(event).collect()
    }

    #[test]
    fn only_the_newest_events_are_buffered() {
        let feed = EventFeed::default();
        feed.push_events(make_events(1..=4));

        let bodies = |after, kinds: Option<&[&str]>, limit| {
            let events = feed.buffered_events(after, kinds, limit)?;
            Some(events.iter().map(|event| event.body.clone()).collect::<Vec<_>>().join(" "))
        };
        assert_eq!(bodies(0, None, 3).as_deref(), Some("1 2 3"));
        assert_eq!(bodies(1, Some(&["even"]), 9).as_deref(), Some("2 4"));
        assert_eq!(bodies(4, None, 9).as_deref(), Some(""));

        feed.push_events(make_events(5..=MAX_BUFFERED_EVENTS as i64 + 2));
        assert_eq!(bodies(1, None, 9), None, "the second is not in memory any more");
        assert_eq!(bodies(2, None, 2).as_deref(), Some("3 4"));
    }
}
