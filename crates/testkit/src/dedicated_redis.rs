//! A dedicated Redis for one test, which can pause it, kill it, and restart it with or without its data.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::quiet_clock::QuietClock;
use crate::test_servers::{find_free_port, send_signal};

/// After minutes of traffic, its files take seconds to load.
const MAX_START: Duration = Duration::from_secs(30);

/// Dropping this stops the server and deletes its files.
#[derive(Debug)]
pub struct DedicatedRedis {
    /// `None` while it is not running.
    server: Mutex<Option<Child>>,
    data_dir: PathBuf,
    port: u16,
    is_persistent: bool,
}

/// A call as Redis logs it.
#[derive(Debug)]
pub struct SlowRedisCall {
    /// To the second.
    pub ended_at: SystemTime,
    /// From its start to its end, also while the process had no core.
    pub duration: Duration,
    pub words: Vec<String>,
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

    /// Lets it run before all other processes (as root), so that the time of a call is its own. A nice value would not do:
    /// where the kernel groups processes by session, it counts only within the session.
    pub fn prioritize(&self) -> anyhow::Result<()> {
        let server = self.server.lock().expect("never held across a panic");
        let pid = server.as_ref().map(Child::id).ok_or_else(|| anyhow::anyhow!("Redis is away"))?;
        let status = Command::new("chrt").args(["--all-tasks", "--fifo", "--pid", "1", &pid.to_string()]).status()?;
        anyhow::ensure!(status.success(), "only root may raise a priority");
        Ok(())
    }

    /// The calls in its log of slow ones.
    pub fn slow_calls(&self) -> anyhow::Result<Vec<SlowRedisCall>> {
        type Entry = (u64, u64, u64, Vec<String>, String, String);
        let entries: Vec<Entry> = self.run_command(&["SLOWLOG", "GET", "-1"])?;
        let calls = entries.into_iter().map(|(_, ended_at, microseconds, words, _, _)| SlowRedisCall {
            ended_at: UNIX_EPOCH + Duration::from_secs(ended_at),
            duration: Duration::from_micros(microseconds),
            words,
        });
        Ok(calls.collect())
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

        let clock = QuietClock::start();
        // PING, because Redis already accepts connections while it is still loading its files.
        while self.run_command::<String>(&["PING"]).is_err() {
            if let Some(status) = self.exit_status()? {
                anyhow::bail!("redis-server did not start: {status}");
            }
            anyhow::ensure!(clock.elapsed() < MAX_START, "redis-server does not answer");
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// `None` while it runs.
    fn exit_status(&self) -> anyhow::Result<Option<ExitStatus>> {
        let mut server = self.server.lock().expect("never held across a panic");
        Ok(server.as_mut().map(Child::try_wait).transpose()?.flatten())
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
