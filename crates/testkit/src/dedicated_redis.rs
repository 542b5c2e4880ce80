//! A Redis of a test's own: to be stopped, killed, and brought back with or without what it held.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::test_servers::{find_free_port, send_signal};

/// It ends with the test, and its files with it.
#[derive(Debug)]
pub struct DedicatedRedis {
    /// None while it is away.
    server: Mutex<Option<Child>>,
    data_dir: PathBuf,
    port: u16,
    is_persistent: bool,
}

impl DedicatedRedis {
    /// Holds everything in memory alone.
    pub fn start() -> anyhow::Result<Self> {
        Self::start_with_persistence(false)
    }

    /// Notes every write in a file, as an operator would have it who does not want to lose usage.
    pub fn start_persistent() -> anyhow::Result<Self> {
        Self::start_with_persistence(true)
    }

    fn start_with_persistence(is_kept: bool) -> anyhow::Result<Self> {
        let home = std::env::temp_dir().join(format!("vintem-redis-{:016x}", rand::random::<u64>()));
        std::fs::create_dir(&home)?;
        let redis = Self { server: Mutex::default(), data_dir: home, port: find_free_port()?, is_persistent: is_kept };
        redis.launch()?;
        Ok(redis)
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Where its files are.
    pub fn data_dir(&self) -> &Path {
        &self.data_dir
    }

    /// Ends it without a word; what it has handed to the operating system stays.
    pub fn kill(&self) -> anyhow::Result<()> {
        if let Some(mut server) = self.server.lock().expect("never held across a panic").take() {
            server.kill()?;
            server.wait()?;
        }
        Ok(())
    }

    /// It answers nobody, and closes no connection either.
    pub fn pause(&self) -> anyhow::Result<()> {
        self.send_signal("STOP")
    }

    pub fn resume(&self) -> anyhow::Result<()> {
        self.send_signal("CONT")
    }

    fn send_signal(&self, name: &str) -> anyhow::Result<()> {
        let server = self.server.lock().expect("never held across a panic");
        send_signal(server.as_ref().map(Child::id).ok_or_else(|| anyhow::anyhow!("Redis is away"))?, name)
    }

    /// Starts it with what its files hold, and waits until it answers.
    pub fn launch(&self) -> anyhow::Result<()> {
        let appends = if self.is_persistent { "yes" } else { "no" };
        // It hands what it did to the kernel before it answers, and waits for no disk: here processes die, never the machine.
        let server = Command::new("redis-server")
            .args(["--bind", "127.0.0.1", "--save", "", "--appendonly", appends, "--appendfsync", "no"])
            .args(["--port", &self.port.to_string(), "--dir"])
            .arg(&self.data_dir)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        *self.server.lock().expect("never held across a panic") = Some(server);
        let began = Instant::now();
        // A connection alone says little: it is taken while the files are still read.
        while self.run_command::<String>(&["PING"]).is_err() {
            anyhow::ensure!(began.elapsed() < Duration::from_secs(10), "redis-server did not start");
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// Starts it as if it had never held anything.
    pub fn launch_empty(&self) -> anyhow::Result<()> {
        for entry in std::fs::read_dir(&self.data_dir)? {
            let path = entry?.path();
            if path.is_dir() { std::fs::remove_dir_all(path)? } else { std::fs::remove_file(path)? }
        }
        self.launch()
    }

    /// What it answers to one command.
    pub fn run_command<T: redis::FromRedisValue>(&self, words: &[&str]) -> anyhow::Result<T> {
        let mut connection = redis::Client::open(self.url())?.get_connection_with_timeout(Duration::from_secs(1))?;
        let mut command = redis::cmd(words.first().copied().unwrap_or_default());
        command.arg(words.get(1..).unwrap_or_default());
        Ok(command.query(&mut connection)?)
    }
}

impl Drop for DedicatedRedis {
    fn drop(&mut self) {
        // It holds nothing that anybody misses.
        let _ = self.kill();
        if let Err(error) = std::fs::remove_dir_all(&self.data_dir) {
            eprintln!("{} was left behind: {error}", self.data_dir.display());
        }
    }
}
