//! What can go wrong when talking to Redis.

use std::time::Duration;

#[derive(Debug, thiserror::Error)]
pub enum MeterError {
    #[error("Redis: {0}")]
    Redis(#[from] redis::RedisError),
    #[error("Redis did not answer within {0:?}")]
    Timeout(Duration),
    #[error("unexpected reply from Redis: {0}")]
    UnexpectedReply(String),
}

pub type Result<T> = std::result::Result<T, MeterError>;
