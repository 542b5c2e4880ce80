//! Notifications from Postgres (`LISTEN`): new dataset generations, changed keys, published events, queued deliveries.

use sqlx::postgres::PgListener;

use crate::{Result, Store};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreNotification {
    DatasetsChanged,
    KeysChanged,
    EventsPublished,
    DeliveriesQueued,
    /// The connection was lost and is open again. Notifications may have been missed in between.
    Reconnected,
}

#[derive(Debug)]
pub struct NotificationListener(PgListener);

impl Store {
    pub async fn listen(&self) -> Result<NotificationListener> {
        let mut listener = PgListener::connect_with(&self.sessions).await?;
        listener.listen_all(["vintem_generation", "vintem_keys", "vintem_events", "vintem_deliveries"]).await?;
        Ok(NotificationListener(listener))
    }
}

impl NotificationListener {
    /// Waits for the next notification. On an error Postgres is unavailable, and the caller needs a new listener.
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
