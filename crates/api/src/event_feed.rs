//! The feed of events: the newest of them in memory, where those who wait for the next one are told of it.
//!
//! With Postgres away whoever is up to date reads on; nothing new is published meanwhile.

use std::collections::VecDeque;
use std::sync::{Arc, RwLock};

use tokio::sync::watch;
use vintem_store::events::PublishedEvent;
use vintem_store::{Result, Store};

/// So many are held in memory; who is further behind is answered from Postgres.
const MAX_BUFFERED_EVENTS: usize = 5_000;
/// So many are read at once.
const READ_BATCH_SIZE: i64 = 1_000;

/// How far the feed is known here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FeedState {
    /// None before Postgres has told for the first time.
    pub last_position: Option<i64>,
    /// All up to this position are gone.
    pub deleted_through: i64,
    /// Whether the process is ending: nobody is to wait any longer.
    pub is_shutting_down: bool,
}

#[derive(Debug, Default)]
pub struct EventFeed {
    state: watch::Sender<FeedState>,
    buffer: RwLock<EventBuffer>,
    /// One at a time reads on, so that nothing is held twice.
    refresh_lock: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct EventBuffer {
    events: VecDeque<Arc<PublishedEvent>>,
    /// All that were published after this position, up to the last one known, are held.
    starts_after: i64,
}

impl EventFeed {
    /// To wait on: it changes when there are further events, or when the process ends.
    pub fn subscribe(&self) -> watch::Receiver<FeedState> {
        self.state.subscribe()
    }

    /// Whoever waits answers at once.
    pub fn shut_down(&self) {
        self.state.send_modify(|reach| reach.is_shutting_down = true);
    }

    /// Reads what was published since it was last called.
    pub async fn refresh(&self, store: &Store) -> Result<()> {
        let _reading = self.refresh_lock.lock().await;
        let ends = store.feed_bounds().await?;
        let known = self.state.borrow().last_position.filter(|known| *known <= ends.last_position);
        // At the start, or where the database is another one, the newest are enough.
        let mut after =
            known.unwrap_or_else(|| ends.pruned_position.max(ends.last_position - MAX_BUFFERED_EVENTS as i64));
        if known.is_none() {
            *self.buffer.write().expect("never held across a panic") =
                EventBuffer { events: VecDeque::new(), starts_after: after };
        }
        while after < ends.last_position {
            let events = store.published_events(after, None, READ_BATCH_SIZE).await?;
            // Some may have been forgotten since.
            let Some(last) = events.last() else { break };
            after = last.position;
            self.push_events(events);
        }
        let (last, forgotten) = (Some(after.max(ends.last_position)), ends.pruned_position);
        self.state.send_if_modified(|reach| {
            let is_further = reach.last_position != last;
            (reach.last_position, reach.deleted_through) = (last, forgotten);
            is_further
        });
        Ok(())
    }

    fn push_events(&self, events: Vec<PublishedEvent>) {
        let mut held = self.buffer.write().expect("never held across a panic");
        held.events.extend(events.into_iter().map(Arc::new));
        while held.events.len() > MAX_BUFFERED_EVENTS {
            if let Some(gone) = held.events.pop_front() {
                held.starts_after = gone.position;
            }
        }
    }

    /// Those after a position, of these kinds or of all; none where they are not all in memory.
    pub fn buffered_events(
        &self,
        after: i64,
        kinds: Option<&[&str]>,
        limit: usize,
    ) -> Option<Vec<Arc<PublishedEvent>>> {
        let held = self.buffer.read().expect("never held across a panic");
        if after < held.starts_after {
            return None;
        }
        let first = held.events.partition_point(|event| event.position <= after);
        let is_wanted = |event: &&Arc<PublishedEvent>| kinds.is_none_or(|kinds| kinds.contains(&event.kind.as_str()));
        Some(held.events.range(first..).filter(is_wanted).take(limit).cloned().collect())
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
            let held = feed.buffered_events(after, kinds, limit)?;
            Some(held.iter().map(|event| event.body.clone()).collect::<Vec<_>>().join(" "))
        };
        assert_eq!(bodies(0, None, 3).as_deref(), Some("1 2 3"));
        assert_eq!(bodies(1, Some(&["even"]), 9).as_deref(), Some("2 4"));
        assert_eq!(bodies(4, None, 9).as_deref(), Some(""));
        feed.push_events(make_events(5..=MAX_BUFFERED_EVENTS as i64 + 2));
        assert_eq!(bodies(1, None, 9), None, "the second is not in memory any more");
        assert_eq!(bodies(2, None, 2).as_deref(), Some("3 4"));
    }
}
