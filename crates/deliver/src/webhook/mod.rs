//! Webhooks: where they may lead, how they are signed, sent and tried again.

mod address;
mod dispatch;
mod secret;
mod send;

pub use address::{AddressGuard, AddressRefused};
pub use dispatch::Dispatcher;
pub use secret::{SecretBox, WebhookSecret};
pub use send::Sender;
