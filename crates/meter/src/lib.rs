//! Redis: every key name and script. The rate limit and the live usage, shared by all replicas.
//!
//! One call per request: the script admits by an exact sliding log and counts the usage in the same step, so no
//! answered request is ever missing from it. One clock rules: that of Redis. It never touches SQL; draining the
//! counts into Postgres is done by who holds both. When Redis is away every call fails within half a second with
//! [`MeterError`].

mod admission;
mod keys;
mod outcomes;
mod usage;

use std::sync::Arc;
use std::time::Duration;

use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use redis::{FromRedisValue, ScriptInvocation};

pub use admission::{Cap, Charge, Verdict, Visit, Visitor};
pub use usage::{Batch, LiveUsage};

#[derive(Debug, thiserror::Error)]
pub enum MeterError {
    #[error("asking Redis: {0}")]
    Redis(#[from] redis::RedisError),
    #[error("Redis did not answer within {CALL_BUDGET:?}")]
    Slow,
    #[error("Redis answered in a form that no script of ours has: {0}")]
    Foreign(String),
}

pub type Result<T> = std::result::Result<T, MeterError>;

/// What a call may take, connecting included: a caller that waits longer is better told to come again.
const CALL_BUDGET: Duration = Duration::from_millis(500);

/// The meter in one handle. Cheap to clone.
#[derive(Clone)]
pub struct Meter {
    redis: ConnectionManager,
    keys: keys::KeyNames,
    /// The window of the rate limit.
    window: Duration,
    outcomes: Arc<outcomes::Outcomes>,
}

impl std::fmt::Debug for Meter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Meter").field("window", &self.window).finish_non_exhaustive()
    }
}

impl Meter {
    /// Connects lazily: a replica may start while Redis is away. Must be called within a Tokio runtime.
    pub fn open(url: &str, prefix: &str, window: Duration) -> Result<Self> {
        let config = ConnectionManagerConfig::new()
            .set_connection_timeout(Some(Duration::from_secs(1)))
            .set_response_timeout(Some(Duration::from_secs(1)))
            // Reconnecting is tried by each call anew; in between it must be quick.
            .set_max_delay(Duration::from_millis(250));
        let redis = ConnectionManager::new_lazy_with_config(redis::Client::open(url)?, config)?;
        let meter = Self { redis, keys: keys::KeyNames::new(prefix), window, outcomes: Arc::default() };
        tokio::spawn(outcomes::send_as_they_come(meter.clone()));
        Ok(meter)
    }

    /// Whether Redis answers.
    pub async fn ping(&self) -> Result<()> {
        let mut redis = self.redis.clone();
        within_budget(redis::cmd("PING").exec_async(&mut redis)).await
    }

    async fn invoke<T: FromRedisValue>(&self, call: &ScriptInvocation<'_>) -> Result<T> {
        let mut redis = self.redis.clone();
        within_budget(call.invoke_async(&mut redis)).await
    }
}

async fn within_budget<T>(call: impl Future<Output = redis::RedisResult<T>>) -> Result<T> {
    match tokio::time::timeout(CALL_BUDGET, call).await {
        Ok(answer) => Ok(answer?),
        Err(_) => Err(MeterError::Slow),
    }
}
