//! Webhooks: where they may lead, how they are signed, sent and tried again.

mod address_guard;
mod dispatch;
mod secret;
mod send;

pub use address_guard::{AddressError, AddressGuard};
pub use dispatch::WebhookDispatcher;
pub use secret::{SecretBox, WebhookSecret};
pub use send::WebhookSender;
