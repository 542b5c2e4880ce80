//! The feed of events: the newest of them in memory, where those who wait for the next one are told of it.
//!
//! With Postgres away whoever is up to date reads on; nothing new is published meanwhile.

use std::collections::VecDeque;
use std::sync::{Arc, RwLock};

use tokio::sync::watch;
use vintem_store::events::PublishedEvent;
use vintem_store::{Result, Store};

/// So many are held in memory; who is further behind is answered from Postgres.
const MOST_HELD: usize = 5_000;
/// So many are read at once.
const AT_ONCE: i64 = 1_000;

/// How far the feed is known here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Reach {
    /// None before Postgres has told for the first time.
    pub last: Option<i64>,
    /// All up to this position are gone.
    pub forgotten: i64,
    /// Whether the process is ending: nobody is to wait any longer.
    pub is_ending: bool,
}

#[derive(Debug, Default)]
pub struct Feed {
    reach: watch::Sender<Reach>,
    held: RwLock<Held>,
    /// One at a time reads on, so that nothing is held twice.
    reading: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct Held {
    events: VecDeque<Arc<PublishedEvent>>,
    /// All that were published after this position, up to the last one known, are held.
    after: i64,
}

impl Feed {
    /// To wait on: it changes when there are further events, or when the process ends.
    pub fn watch(&self) -> watch::Receiver<Reach> {
        self.reach.subscribe()
    }

    /// Whoever waits answers at once.
    pub fn end(&self) {
        self.reach.send_modify(|reach| reach.is_ending = true);
    }

    /// Reads what was published since it was last called.
    pub async fn refresh(&self, store: &Store) -> Result<()> {
        let _reading = self.reading.lock().await;
        let ends = store.feed_ends().await?;
        let known = self.reach.borrow().last.filter(|known| *known <= ends.last);
        // At the start, or where the database is another one, the newest are enough.
        let mut after = known.unwrap_or_else(|| ends.forgotten.max(ends.last - MOST_HELD as i64));
        if known.is_none() {
            *self.held.write().expect("never held across a panic") = Held { events: VecDeque::new(), after };
        }
        while after < ends.last {
            let events = store.published_events(after, None, AT_ONCE).await?;
            // Some may have been forgotten since.
            let Some(last) = events.last() else { break };
            after = last.position;
            self.hold(events);
        }
        let (last, forgotten) = (Some(after.max(ends.last)), ends.forgotten);
        self.reach.send_if_modified(|reach| {
            let is_further = reach.last != last;
            (reach.last, reach.forgotten) = (last, forgotten);
            is_further
        });
        Ok(())
    }

    fn hold(&self, events: Vec<PublishedEvent>) {
        let mut held = self.held.write().expect("never held across a panic");
        held.events.extend(events.into_iter().map(Arc::new));
        while held.events.len() > MOST_HELD {
            if let Some(gone) = held.events.pop_front() {
                held.after = gone.position;
            }
        }
    }

    /// Those after a position, of these kinds or of all; none where they are not all in memory.
    pub fn held(&self, after: i64, kinds: Option<&[&str]>, limit: usize) -> Option<Vec<Arc<PublishedEvent>>> {
        let held = self.held.read().expect("never held across a panic");
        if after < held.after {
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

    fn events(positions: std::ops::RangeInclusive<i64>) -> Vec<PublishedEvent> {
        let kind = |position: i64| if position % 2 == 0 { "even" } else { "odd" };
        let event = |position| PublishedEvent { position, kind: kind(position).to_owned(), body: position.to_string() };
        positions.map(event).collect()
    }

    #[test]
    fn the_newest_are_held_and_who_is_further_behind_is_told_so() {
        let feed = Feed::default();
        feed.hold(events(1..=4));
        let bodies = |after, kinds: Option<&[&str]>, limit| {
            let held = feed.held(after, kinds, limit)?;
            Some(held.iter().map(|event| event.body.clone()).collect::<Vec<_>>().join(" "))
        };
        assert_eq!(bodies(0, None, 3).as_deref(), Some("1 2 3"));
        assert_eq!(bodies(1, Some(&["even"]), 9).as_deref(), Some("2 4"));
        assert_eq!(bodies(4, None, 9).as_deref(), Some(""));
        feed.hold(events(5..=MOST_HELD as i64 + 2));
        assert_eq!(bodies(1, None, 9), None, "the second is not in memory any more");
        assert_eq!(bodies(2, None, 2).as_deref(), Some("3 4"));
    }
}
