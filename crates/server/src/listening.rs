//! Opening ports.

use std::net::SocketAddr;

use anyhow::Context;
use tokio::net::{TcpListener, TcpSocket};

/// Connections that wait to be accepted, if the system allows as many. Beyond that, clients try again after a second.
const CONNECTION_BACKLOG: u32 = 4096;

/// Takes the port. Connections are refused until the socket listens.
pub fn bind(address: SocketAddr) -> anyhow::Result<TcpSocket> {
    let take_port = || {
        let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
        // A port that was in use a moment ago can be used again at once.
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        Ok::<_, std::io::Error>(socket)
    };
    take_port().with_context(|| format!("cannot listen on {address}"))
}

/// Two processes can bind the same port, but only one can listen.
pub fn listen(socket: TcpSocket) -> anyhow::Result<TcpListener> {
    let address = socket.local_addr()?;
    socket.listen(CONNECTION_BACKLOG).with_context(|| format!("cannot listen on {address}"))
}
