//! A connection for what is not an admission: it must not stand in the way of one.

use std::sync::Mutex;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, RedisResult};
use tokio::time::timeout;

use crate::{MeterError, Result};

/// What a call may take, connecting included.
const CALL_TIMEOUT: Duration = Duration::from_millis(500);

/// Made at its first use, and anew after every failure: one that is silent is not told from one that is cut.
pub struct LazyConnection {
    client: Client,
    connection: Mutex<Option<MultiplexedConnection>>,
}

impl LazyConnection {
    pub fn new(client: Client) -> Self {
        Self { client, connection: Mutex::default() }
    }

    pub async fn run<T>(&self, ask: impl AsyncFnOnce(&mut MultiplexedConnection) -> RedisResult<T>) -> Result<T> {
        let asked = timeout(CALL_TIMEOUT, async {
            let kept = self.lock_connection().clone();
            let mut connection = match kept {
                Some(connection) => connection,
                None => connect_without_timeout(&self.client).await?,
            };
            let answer = ask(&mut connection).await?;
            *self.lock_connection() = Some(connection);
            Ok(answer)
        });
        let answer = asked.await.unwrap_or(Err(MeterError::Timeout(CALL_TIMEOUT)));
        if answer.is_err() {
            *self.lock_connection() = None;
        }
        answer
    }

    fn lock_connection(&self) -> std::sync::MutexGuard<'_, Option<MultiplexedConnection>> {
        self.connection.lock().expect("never held across a panic")
    }
}

/// Without a limit of time: that is kept by who asks.
pub async fn connect_without_timeout(client: &Client) -> RedisResult<MultiplexedConnection> {
    let config = AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
    client.get_multiplexed_async_connection_with_config(&config).await
}
