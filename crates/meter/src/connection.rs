//! A connection for everything other than admissions, so that it never delays one.

use std::sync::Mutex;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, RedisResult};
use tokio::time::timeout;

use crate::error::{MeterError, Result};

/// Time limit for one call, including connecting.
const CALL_TIMEOUT: Duration = Duration::from_millis(500);

/// Connects on first use, and again after every failure: a silent connection cannot be told from a broken one.
pub struct LazyConnection {
    client: Client,
    connection: Mutex<Option<MultiplexedConnection>>,
}

impl LazyConnection {
    pub fn new(client: Client) -> Self {
        Self { client, connection: Mutex::default() }
    }

    pub async fn run<T>(&self, call: impl AsyncFnOnce(&mut MultiplexedConnection) -> RedisResult<T>) -> Result<T> {
        let attempt = timeout(CALL_TIMEOUT, async {
            let open_connection = self.lock_connection().clone();
            let mut connection = match open_connection {
                Some(connection) => connection,
                None => connect_without_timeout(&self.client).await?,
            };
            let reply = call(&mut connection).await?;
            *self.lock_connection() = Some(connection);
            Ok(reply)
        });

        let result = attempt.await.unwrap_or(Err(MeterError::Timeout(CALL_TIMEOUT)));
        if result.is_err() {
            *self.lock_connection() = None;
        }
        result
    }

    fn lock_connection(&self) -> std::sync::MutexGuard<'_, Option<MultiplexedConnection>> {
        self.connection.lock().expect("never held across a panic")
    }
}

/// Connects without timeouts: the callers apply their own.
pub async fn connect_without_timeout(client: &Client) -> RedisResult<MultiplexedConnection> {
    let config = AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
    client.get_multiplexed_async_connection_with_config(&config).await
}

/// Checks that a server answers.
pub async fn ping_redis(url: &str) -> Result<()> {
    let connection = LazyConnection::new(Client::open(url)?);
    connection.run(async |redis| redis::cmd("PING").exec_async(redis).await).await
}
