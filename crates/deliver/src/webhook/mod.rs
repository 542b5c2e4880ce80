//! Webhooks: which URLs are allowed, and how deliveries are signed, sent and retried.

mod address_guard;
mod dispatch;
mod secret;
mod send;

pub use address_guard::{AddressError, AddressGuard, MAX_URL_LENGTH};
pub use dispatch::WebhookDispatcher;
pub use secret::{SecretBox, WebhookSecret};
pub use send::{AttemptTrace, AttemptTracer, REQUEST_TIMEOUT, WebhookSender};
