//! The open connections of a port: how many there may be, in all and for each peer, and which one is closed to make room.
//!
//! A peer has a cap, so that nobody can use up the connections alone. If many peers use them up together, a new connection
//! takes the place of one that waits for a request, of a peer that has many.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use ipnet::IpNet;
use tokio::task::AbortHandle;
use vintem_domain::AddressBucket;

/// A connection takes some 17 kB once it has sent something, and less than 1 kB before.
const MAX_CONNECTIONS: u64 = 4096;
/// A browser has six, a client library a few dozen.
const MIN_CONNECTIONS_PER_PEER: usize = 32;
/// File descriptors for the operator's port, PostgreSQL, Redis and files.
const MIN_RESERVED_DESCRIPTORS: u64 = 128;
/// In place of a position.
const REMOVED: usize = usize::MAX;
/// To find a connection to close, this many are looked at.
const EVICTION_CANDIDATES: usize = 16;

/// How many connections a port may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionLimits {
    pub max_open: usize,
    pub max_per_peer: usize,
}

impl ConnectionLimits {
    /// The operator's own port: a few probes and scrapers.
    pub const OPERATOR: Self = Self { max_open: 64, max_per_peer: 64 };

    /// What a process with this many file descriptors can serve.
    pub fn from_descriptors(descriptors: u64) -> Self {
        let reserved = MIN_RESERVED_DESCRIPTORS.max(descriptors / 8);
        let max_open = descriptors.saturating_sub(reserved).clamp(MIN_CONNECTIONS_PER_PEER as u64, MAX_CONNECTIONS);
        let max_open = usize::try_from(max_open).unwrap_or(MIN_CONNECTIONS_PER_PEER);
        Self { max_open, max_per_peer: (max_open / 8).max(MIN_CONNECTIONS_PER_PEER) }
    }
}

/// Raises the limit of open files as far as the system allows, and returns it.
pub fn raise_descriptor_limit() -> std::io::Result<u64> {
    rlimit::increase_nofile_limit(u64::MAX)
}

#[derive(Debug)]
pub struct Connections {
    /// Its name in metrics.
    port: &'static str,
    limits: ConnectionLimits,
    /// Peers without a cap.
    trusted: Vec<IpNet>,
    table: Mutex<ConnectionTable>,
}

#[derive(Debug, Default)]
struct ConnectionTable {
    open: Vec<Arc<OpenConnection>>,
    count_by_peer: HashMap<AddressBucket, usize>,
}

/// One open connection.
#[derive(Debug)]
pub struct OpenConnection {
    peer: AddressBucket,
    pub is_trusted: bool,
    /// Its place in the table, or [`REMOVED`].
    position: AtomicUsize,
    has_request: AtomicBool,
    task: OnceLock<AbortHandle>,
}

impl OpenConnection {
    /// Whether a request is being answered.
    pub fn set_has_request(&self, has_request: bool) {
        self.has_request.store(has_request, Ordering::Relaxed);
    }

    /// The task to end if the connection has to make room.
    pub fn set_task(&self, task: AbortHandle) {
        // Set once, when the connection is opened.
        let _ = self.task.set(task);
    }
}

/// Counts as open until dropped.
#[derive(Debug)]
pub struct ConnectionGuard {
    connections: Arc<Connections>,
    pub connection: Arc<OpenConnection>,
    /// Whether another one was closed for it.
    pub has_replaced: bool,
}

impl Connections {
    pub fn new(port: &'static str, limits: ConnectionLimits, trusted: Vec<IpNet>) -> Arc<Self> {
        Arc::new(Self { port, limits, trusted, table: Mutex::default() })
    }

    /// Sets the gauges that describe this moment.
    pub fn record_gauges(&self) {
        metrics::gauge!("vintem_connections", "port" => self.port).set(self.lock_table().open.len() as f64);
    }

    fn count_refusal(&self, reason: &'static str) {
        metrics::counter!("vintem_connections_refused_total", "port" => self.port, "reason" => reason).increment(1);
    }

    /// `None` if the peer has too many, or no connection can be closed for it.
    pub fn open(self: &Arc<Self>, peer: IpAddr) -> Option<ConnectionGuard> {
        let is_trusted = self.trusted.iter().any(|network| network.contains(&peer.to_canonical()));
        let peer = AddressBucket::from_ip(peer);

        let mut table = self.lock_table();
        let count = table.count_by_peer.get(&peer).copied().unwrap_or(0);
        if !is_trusted && count >= self.limits.max_per_peer {
            self.count_refusal("peer");
            return None;
        }
        let is_full = table.open.len() >= self.limits.max_open;
        if is_full {
            let idle = table.pick_idle().and_then(|idle| Some((idle.task.get()?.clone(), idle)));
            let Some((task, replaced)) = idle else {
                self.count_refusal("full");
                return None;
            };
            task.abort();
            table.remove(&replaced);
        }

        let connection = Arc::new(OpenConnection {
            peer,
            is_trusted,
            position: AtomicUsize::new(table.open.len()),
            has_request: AtomicBool::new(false),
            task: OnceLock::new(),
        });
        table.open.push(connection.clone());
        // Counted now and not before: the one that made room may be of the same peer.
        *table.count_by_peer.entry(peer).or_default() += 1;
        Some(ConnectionGuard { connections: self.clone(), connection, has_replaced: is_full })
    }

    fn lock_table(&self) -> MutexGuard<'_, ConnectionTable> {
        self.table.lock().expect("never held across a panic")
    }
}

impl ConnectionTable {
    /// Of some connections that wait for a request, the one whose peer has the most.
    fn pick_idle(&self) -> Option<Arc<OpenConnection>> {
        let candidates = (0..EVICTION_CANDIDATES).map(|_| &self.open[rand::random_range(0..self.open.len())]);
        candidates
            .filter(|connection| !connection.has_request.load(Ordering::Relaxed))
            .max_by_key(|connection| self.count_by_peer.get(&connection.peer))
            .cloned()
    }

    /// Does nothing if the connection was removed before.
    fn remove(&mut self, connection: &OpenConnection) {
        let position = connection.position.swap(REMOVED, Ordering::Relaxed);
        if position == REMOVED {
            return;
        }
        self.open.swap_remove(position);
        if let Some(moved) = self.open.get(position) {
            moved.position.store(position, Ordering::Relaxed);
        }
        if let Some(count) = self.count_by_peer.get_mut(&connection.peer) {
            *count -= 1;
            if *count == 0 {
                self.count_by_peer.remove(&connection.peer);
            }
        }
    }
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        self.connections.lock_table().remove(&self.connection);
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn peer(last: u8) -> IpAddr {
        Ipv4Addr::new(203, 0, 113, last).into()
    }

    #[test]
    fn descriptors_limit_connections_and_some_stay_reserved() {
        let limits = |descriptors| {
            let limits = ConnectionLimits::from_descriptors(descriptors);
            (limits.max_open, limits.max_per_peer)
        };
        assert_eq!(limits(64), (32, 32));
        assert_eq!(limits(256), (128, 32));
        assert_eq!(limits(1024), (896, 112));
        assert_eq!(limits(1_048_576), (4096, 512));
    }

    #[test]
    fn a_peer_has_a_cap_unless_it_is_trusted() {
        let trusted = vec!["203.0.113.9/32".parse().unwrap()];
        let connections = Connections::new("public", ConnectionLimits { max_open: 10, max_per_peer: 2 }, trusted);
        let open: Vec<_> = (0..2).map(|_| connections.open(peer(1)).unwrap()).collect();
        assert!(connections.open(peer(1)).is_none());
        let others: Vec<_> = [2, 9, 9, 9].map(|last| connections.open(peer(last)).unwrap()).into();

        drop(open);
        assert!(connections.open(peer(1)).is_some());
        drop(others);
        let table = connections.lock_table();
        assert!(table.open.is_empty() && table.count_by_peer.is_empty());
    }

    #[tokio::test]
    async fn a_new_connection_takes_the_place_of_an_idle_one_of_the_largest_peer() {
        let connections = Connections::new("public", ConnectionLimits { max_open: 20, max_per_peer: 18 }, Vec::new());
        let open = |last| {
            let guard = connections.open(peer(last))?;
            let connection = guard.connection.clone();
            let task = tokio::spawn(async move {
                let _guard = guard;
                std::future::pending::<()>().await;
            });
            connection.set_task(task.abort_handle());
            Some((connection, task))
        };
        let greedy: Vec<_> = (0..18).map(|_| open(1).unwrap()).collect();
        let modest: Vec<_> = (0..2).map(|_| open(2).unwrap()).collect();
        let newcomer = open(3).expect("room is made");
        assert_eq!(modest.iter().chain([&newcomer]).filter(|(_, task)| task.is_finished()).count(), 0);

        let is_closed = async |(_, task): (_, tokio::task::JoinHandle<()>)| {
            tokio::time::timeout(std::time::Duration::from_millis(50), task).await.is_ok()
        };
        let mut closed = 0;
        for connection in greedy {
            closed += usize::from(is_closed(connection).await);
        }
        assert_eq!(closed, 1);
    }

    #[tokio::test]
    async fn a_peer_that_replaces_its_own_connections_is_counted_right() {
        let connections = Connections::new("public", ConnectionLimits { max_open: 2, max_per_peer: 5 }, Vec::new());
        let mut guards = Vec::new();
        for _ in 0..20 {
            let guard = connections.open(peer(1)).expect("room is made");
            guard.connection.set_task(tokio::spawn(async {}).abort_handle());
            guards.push(guard);
        }
        assert_eq!(connections.lock_table().count_by_peer.values().sum::<usize>(), 2);
        drop(guards);
        assert!(connections.lock_table().count_by_peer.is_empty());
    }

    #[tokio::test]
    async fn connections_with_a_request_are_not_closed() {
        let connections = Connections::new("public", ConnectionLimits { max_open: 1, max_per_peer: 1 }, Vec::new());
        let busy = connections.open(peer(1)).unwrap();
        busy.connection.set_has_request(true);
        assert!(connections.open(peer(2)).is_none());
    }
}
