//! Notifications: that a dataset has a new generation, that a key changed, that events were published, or that there is something to
//! deliver.

use sqlx::postgres::PgListener;

use crate::{Result, Store};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreNotification {
    DatasetsChanged,
    KeysChanged,
    EventsPublished,
    DeliveriesQueued,
    /// The channel was cut and is open again: anything may have happened meanwhile.
    Reconnected,
}

#[derive(Debug)]
pub struct NotificationListener(PgListener);

impl Store {
    pub async fn listen(&self) -> Result<NotificationListener> {
        let mut listener = PgListener::connect_with(&self.pool).await?;
        listener.listen_all(["vintem_generation", "vintem_keys", "vintem_events", "vintem_deliveries"]).await?;
        Ok(NotificationListener(listener))
    }
}

impl NotificationListener {
    /// Waits for the next notice; an error means that Postgres is away and a new listener is needed.
    pub async fn next_notification(&mut self) -> Result<StoreNotification> {
        let Some(notification) = self.0.try_recv().await? else { return Ok(StoreNotification::Reconnected) };
        Ok(match notification.channel() {
            "vintem_keys" => StoreNotification::KeysChanged,
            "vintem_events" => StoreNotification::EventsPublished,
            "vintem_deliveries" => StoreNotification::DeliveriesQueued,
            _ => StoreNotification::DatasetsChanged,
        })
    }
}
