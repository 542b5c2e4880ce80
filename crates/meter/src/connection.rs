//! A connection for everything other than admissions, so that it never delays one.

use std::sync::Mutex;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, RedisResult, TlsCertificates};
use tokio::time::timeout;

use crate::error::{MeterError, Result};

/// Time limit for one call, including connecting.
const CALL_TIMEOUT: Duration = Duration::from_millis(500);

/// Enough of a run's id to tell it from all others.
const MAX_RUN_ID_LENGTH: usize = 16;

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

/// The id of a server's run: a new one after every restart, and another one on every other server. A server that does not
/// tell is taken for one that never restarts.
pub async fn fetch_run_id(connection: &mut MultiplexedConnection) -> RedisResult<String> {
    let info: String = redis::cmd("INFO").arg("server").query_async(connection).await?;
    let run_id = info.lines().find_map(|line| line.strip_prefix("run_id:")).unwrap_or("unknown");
    Ok(run_id.chars().filter(char::is_ascii_alphanumeric).take(MAX_RUN_ID_LENGTH).collect())
}

/// `certificates` (PEM) are the only ones that a `rediss://` server is trusted by; without them, the system's are.
pub fn open_client(url: &str, certificates: Option<&[u8]>) -> Result<Client> {
    match certificates {
        Some(certificates) if url.starts_with("rediss://") => {
            let certificates = TlsCertificates { client_tls: None, root_cert: Some(certificates.to_vec()) };
            Ok(Client::build_with_tls(url, certificates)?)
        }
        _ => Ok(Client::open(url)?),
    }
}

/// Checks that a server answers.
pub async fn ping_redis(url: &str, certificates: Option<&[u8]>) -> Result<()> {
    let connection = LazyConnection::new(open_client(url, certificates)?);
    connection.run(async |redis| redis::cmd("PING").exec_async(redis).await).await
}
