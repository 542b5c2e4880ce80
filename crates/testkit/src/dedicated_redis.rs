//! A dedicated Redis for one test, which can pause it, kill it, and restart it with or without its data.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::test_servers::{find_free_port, send_signal};

/// Dropping this stops the server and deletes its files.
#[derive(Debug)]
pub struct DedicatedRedis {
    /// `None` while it is not running.
    server: Mutex<Option<Child>>,
    data_dir: PathBuf,
    port: u16,
    is_persistent: bool,
}

impl DedicatedRedis {
    /// Keeps its data in memory only.
    pub fn start() -> anyhow::Result<Self> {
        Self::start_with_persistence(false)
    }

    /// Writes an append-only file, as an operator configures it who must not lose usage counts.
    pub fn start_persistent() -> anyhow::Result<Self> {
        Self::start_with_persistence(true)
    }

    fn start_with_persistence(is_persistent: bool) -> anyhow::Result<Self> {
        let data_dir = std::env::temp_dir().join(format!("vintem-redis-{:016x}", rand::random::<u64>()));
        std::fs::create_dir(&data_dir)?;
        let redis = Self { server: Mutex::default(), data_dir, port: find_free_port()?, is_persistent };
        redis.launch()?;
        Ok(redis)
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// The directory of its data files.
    pub fn data_dir(&self) -> &Path {
        &self.data_dir
    }

    /// Kills it without a shutdown. Writes that the operating system already has survive.
    pub fn kill(&self) -> anyhow::Result<()> {
        if let Some(mut server) = self.server.lock().expect("never held across a panic").take() {
            server.kill()?;
            server.wait()?;
        }
        Ok(())
    }

    /// Freezes the process: it doesn't reply and doesn't close connections.
    pub fn pause(&self) -> anyhow::Result<()> {
        self.send_signal("STOP")
    }

    pub fn resume(&self) -> anyhow::Result<()> {
        self.send_signal("CONT")
    }

    /// Lets it run before all other processes (as root), so that the time of a call is its own.
    pub fn prioritize(&self) -> anyhow::Result<()> {
        let server = self.server.lock().expect("never held across a panic");
        let pid = server.as_ref().map(Child::id).ok_or_else(|| anyhow::anyhow!("Redis is away"))?;
        let status =
            Command::new("renice").args(["-n", "-10", "-p", &pid.to_string()]).stdout(Stdio::null()).status()?;
        anyhow::ensure!(status.success(), "only root may raise a priority");
        Ok(())
    }

    /// The calls in its log of slow ones, in words.
    pub fn describe_slow_calls(&self) -> anyhow::Result<String> {
        Ok(format!("{:?}", self.run_command::<redis::Value>(&["SLOWLOG", "GET", "128"])?))
    }

    fn send_signal(&self, name: &str) -> anyhow::Result<()> {
        let server = self.server.lock().expect("never held across a panic");
        send_signal(server.as_ref().map(Child::id).ok_or_else(|| anyhow::anyhow!("Redis is away"))?, name)
    }

    /// Starts it with the data in its files and waits until it answers.
    pub fn launch(&self) -> anyhow::Result<()> {
        let append_only = if self.is_persistent { "yes" } else { "no" };
        // No fsync: each write reaches the kernel before the reply, and in these tests processes die, never the machine.
        let server = Command::new("redis-server")
            .args(["--bind", "127.0.0.1", "--save", "", "--appendonly", append_only, "--appendfsync", "no"])
            .args(["--port", &self.port.to_string(), "--dir"])
            .arg(&self.data_dir)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        *self.server.lock().expect("never held across a panic") = Some(server);

        let started = Instant::now();
        // PING, because Redis already accepts connections while it is still loading its files.
        while self.run_command::<String>(&["PING"]).is_err() {
            anyhow::ensure!(started.elapsed() < Duration::from_secs(10), "redis-server did not start");
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// Deletes its files, then starts it empty.
    pub fn launch_empty(&self) -> anyhow::Result<()> {
        for entry in std::fs::read_dir(&self.data_dir)? {
            let path = entry?.path();
            if path.is_dir() { std::fs::remove_dir_all(path)? } else { std::fs::remove_file(path)? }
        }
        self.launch()
    }

    /// Runs one command and returns the reply.
    pub fn run_command<T: redis::FromRedisValue>(&self, words: &[&str]) -> anyhow::Result<T> {
        let mut connection = redis::Client::open(self.url())?.get_connection_with_timeout(Duration::from_secs(1))?;
        let mut command = redis::cmd(words.first().copied().unwrap_or_default());
        command.arg(words.get(1..).unwrap_or_default());
        Ok(command.query(&mut connection)?)
    }
}

impl Drop for DedicatedRedis {
    fn drop(&mut self) {
        // Its data is disposable, so a failed kill doesn't matter.
        let _ = self.kill();
        if let Err(error) = std::fs::remove_dir_all(&self.data_dir) {
            eprintln!("{} was left behind: {error}", self.data_dir.display());
        }
    }
}
