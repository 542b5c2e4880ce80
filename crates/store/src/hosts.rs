//! Several hosts in one database URL (`postgres://user@first:5432,second:5432/vintem`): the one that accepts writes is
//! used. After a failover the pool moves to the new primary by itself.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use sqlx::ConnectOptions;
use sqlx::postgres::{PgConnectOptions, PgConnection, PgPool, PgPoolOptions};
use tokio::task::JoinHandle;

/// How often the current host is asked whether it still accepts writes.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);
/// A host that does not answer for this long is passed over.
const HOST_TIMEOUT: Duration = Duration::from_secs(1);

/// One URL for each host of `url`, without parameters that only concern their choice.
pub fn split_hosts(url: &str) -> Result<Vec<String>, &'static str> {
    let (scheme, rest) = url.split_once("://").ok_or("it has no scheme")?;
    let authority_length = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, path_and_query) = rest.split_at(authority_length);
    let (user, hosts) = match authority.rsplit_once('@') {
        Some((user, hosts)) => (format!("{user}@"), hosts),
        None => (String::new(), authority),
    };

    let (path, query) = path_and_query.split_once('?').unwrap_or((path_and_query, ""));
    let mut parameters = Vec::new();
    for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
        match parameter.strip_prefix("target_session_attrs=") {
            Some("read-write" | "primary") => {}
            Some(_) => return Err("target_session_attrs must be read-write: Vintém writes"),
            None => parameters.push(parameter),
        }
    }
    let query = if parameters.is_empty() { String::new() } else { format!("?{}", parameters.join("&")) };
    Ok(hosts.split(',').map(|host| format!("{scheme}://{user}{host}{path}{query}")).collect())
}

/// Moves a pool to whichever host accepts writes. Stops when dropped.
#[derive(Debug)]
pub struct PrimaryFollower {
    hosts: Arc<[PgConnectOptions]>,
    pool: PgPool,
    moved_at: MoveTime,
    task: JoinHandle<()>,
}

/// When the pool last moved to another host. Connections from before are closed instead of used.
#[derive(Debug, Clone, Default)]
pub struct MoveTime(Arc<Mutex<Option<Instant>>>);

impl MoveTime {
    /// Makes the pool pass over connections to former hosts.
    pub fn guard_pool(&self, options: PgPoolOptions) -> PgPoolOptions {
        let moved_at = self.clone();
        options.before_acquire(move |_, connection| {
            let is_current = moved_at.get().is_none_or(|moved_at| connection.age < moved_at.elapsed());
            Box::pin(async move { Ok(is_current) })
        })
    }

    fn get(&self) -> Option<Instant> {
        *self.0.lock().expect("never held across a panic")
    }

    fn set_now(&self) {
        *self.0.lock().expect("never held across a panic") = Some(Instant::now());
    }
}

impl PrimaryFollower {
    pub fn start(pool: PgPool, hosts: Vec<PgConnectOptions>, moved_at: MoveTime) -> Self {
        let hosts: Arc<[PgConnectOptions]> = hosts.into();
        let task = tokio::spawn(follow_primary(pool.clone(), hosts.clone(), moved_at.clone()));
        Self { hosts, pool, moved_at, task }
    }

    /// Looks for the primary now.
    pub async fn find_primary(&self) {
        move_to_primary(&self.pool, &self.hosts, &self.moved_at).await;
    }
}

impl Drop for PrimaryFollower {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn follow_primary(pool: PgPool, hosts: Arc<[PgConnectOptions]>, moved_at: MoveTime) {
    loop {
        if let Some(mut connection) = move_to_primary(&pool, &hosts, &moved_at).await {
            while is_writable(&mut connection).await {
                tokio::time::sleep(CHECK_INTERVAL).await;
            }
            tracing::warn!(
                host = address_of(&pool.connect_options()),
                "postgres no longer accepts writes on this host"
            );
        }
        tokio::time::sleep(CHECK_INTERVAL).await;
    }
}

/// Moves the pool to the first host that accepts writes. Returns a connection to it.
async fn move_to_primary(pool: &PgPool, hosts: &[PgConnectOptions], moved_at: &MoveTime) -> Option<PgConnection> {
    let candidates = join_all(hosts.iter().map(connect_if_writable)).await;
    let (connection, host) = candidates.into_iter().zip(hosts).find_map(|(found, host)| Some((found?, host)))?;
    if address_of(host) != address_of(&pool.connect_options()) {
        tracing::info!(host = address_of(host), "using the postgres host that accepts writes");
        pool.set_connect_options(host.clone());
        moved_at.set_now();
    }
    Some(connection)
}

async fn connect_if_writable(options: &PgConnectOptions) -> Option<PgConnection> {
    let mut connection = tokio::time::timeout(HOST_TIMEOUT, options.connect()).await.ok()?.ok()?;
    is_writable(&mut connection).await.then_some(connection)
}

async fn is_writable(connection: &mut PgConnection) -> bool {
    let check = sqlx::query_scalar::<_, bool>("select current_setting('transaction_read_only') = 'off'");
    matches!(tokio::time::timeout(HOST_TIMEOUT, check.fetch_one(connection)).await, Ok(Ok(true)))
}

pub fn address_of(options: &PgConnectOptions) -> String {
    match options.get_socket() {
        Some(socket) => socket.display().to_string(),
        None => format!("{}:{}", options.get_host(), options.get_port()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_host_gets_a_url_of_its_own() {
        let url = "postgres://user:p%40ss@first,second:5433,[::1]:5434/vintem?sslmode=verify-full&target_session_attrs=read-write";
        assert_eq!(
            split_hosts(url).unwrap(),
            [
                "postgres://user:p%40ss@first/vintem?sslmode=verify-full",
                "postgres://user:p%40ss@second:5433/vintem?sslmode=verify-full",
                "postgres://user:p%40ss@[::1]:5434/vintem?sslmode=verify-full",
            ]
        );
        assert_eq!(split_hosts("postgres:///vintem?host=/run/pg").unwrap(), ["postgres:///vintem?host=/run/pg"]);
        assert!(split_hosts("postgres://a,b/c?target_session_attrs=standby").is_err());
        assert!(split_hosts("vintem").is_err());
    }
}
