//! Where the engines are, and engines of a test's own.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The PostgreSQL that tests share, without a database's name.
pub fn postgres_url() -> String {
    std::env::var("VINTEM_TEST_POSTGRES").unwrap_or_else(|_| "postgres://postgres@127.0.0.1:5432".into())
}

/// The Redis that tests share; each has a prefix of its own there.
pub fn redis_url() -> String {
    std::env::var("VINTEM_TEST_REDIS").unwrap_or_else(|_| "redis://127.0.0.1:6379".into())
}

/// A Redis of the test's own, on a free port; it ends with the test.
#[derive(Debug)]
pub struct OwnRedis {
    server: Child,
    port: u16,
}

impl OwnRedis {
    pub fn start() -> anyhow::Result<Self> {
        let port = free_port()?;
        let server = Command::new("redis-server")
            .args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--port", &port.to_string()])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let redis = Self { server, port };
        let began = Instant::now();
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            anyhow::ensure!(began.elapsed() < Duration::from_secs(10), "redis-server did not start");
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(redis)
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }
}

impl Drop for OwnRedis {
    fn drop(&mut self) {
        // It holds nothing that anybody misses.
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

fn free_port() -> std::io::Result<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}
