//! `vintem health`: asks a replica on this machine whether it is ready, for container platforms without a shell or curl.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// A probe that takes longer says the same as one that fails.
const PROBE_TIMEOUT: Duration = Duration::from_secs(3);

#[derive(Debug, Args)]
pub struct HealthCommand {
    /// Address of /readyz
    #[arg(long, env = "VINTEM_ADMIN_LISTEN", default_value = "127.0.0.1:9080")]
    admin_listen: SocketAddr,
}

impl HealthCommand {
    pub async fn run(self) -> anyhow::Result<()> {
        let address = connectable(self.admin_listen);
        let response = tokio::time::timeout(PROBE_TIMEOUT, fetch_readiness(address))
            .await
            .with_context(|| format!("{address} did not answer within {} s", PROBE_TIMEOUT.as_secs()))?
            .with_context(|| format!("{address} cannot be reached"))?;

        let (head, body) = response.split_once("\r\n\r\n").unwrap_or((&response, ""));
        let status = head.split(' ').nth(1).unwrap_or_default();
        if status != "200" {
            bail!("not ready: {}", if body.is_empty() { head.lines().next().unwrap_or_default() } else { body.trim() });
        }
        print!("{body}");
        Ok(())
    }
}

async fn fetch_readiness(address: SocketAddr) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    stream
        .write_all(format!("GET /readyz HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").as_bytes())
        .await?;
    let mut response = String::new();
    stream.read_to_string(&mut response).await?;
    Ok(response)
}

/// A server that listens on all addresses is reached by loopback.
fn connectable(listen: SocketAddr) -> SocketAddr {
    let ip = match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, listen.port())
}
