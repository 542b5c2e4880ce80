//! Notifications: that a dataset has a new generation, that a key changed, that events were published, or that there is something to
//! deliver.

use sqlx::postgres::PgListener;

use crate::{Result, Store};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notice {
    Generation,
    Keys,
    Events,
    Deliveries,
    /// The channel was cut and is open again: anything may have happened meanwhile.
    Reconnected,
}

#[derive(Debug)]
pub struct Listener(PgListener);

impl Store {
    pub async fn listen(&self) -> Result<Listener> {
        let mut listener = PgListener::connect_with(&self.pool).await?;
        listener.listen_all(["vintem_generation", "vintem_keys", "vintem_events", "vintem_deliveries"]).await?;
        Ok(Listener(listener))
    }
}

impl Listener {
    /// Waits for the next notice; an error means that Postgres is away and a new listener is needed.
    pub async fn next(&mut self) -> Result<Notice> {
        let Some(notification) = self.0.try_recv().await? else { return Ok(Notice::Reconnected) };
        Ok(match notification.channel() {
            "vintem_keys" => Notice::Keys,
            "vintem_events" => Notice::Events,
            "vintem_deliveries" => Notice::Deliveries,
            _ => Notice::Generation,
        })
    }
}
