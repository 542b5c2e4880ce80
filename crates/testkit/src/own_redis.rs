//! A Redis of a test's own: to be stopped, killed, and brought back with or without what it held.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::engines::{free_port, signal};

/// It ends with the test, and its files with it.
#[derive(Debug)]
pub struct OwnRedis {
    /// None while it is away.
    server: Mutex<Option<Child>>,
    home: PathBuf,
    port: u16,
    is_kept: bool,
}

impl OwnRedis {
    /// Holds everything in memory alone.
    pub fn start() -> anyhow::Result<Self> {
        Self::start_kept_or_not(false)
    }

    /// Notes every write in a file, as an operator would have it who does not want to lose usage.
    pub fn start_kept() -> anyhow::Result<Self> {
        Self::start_kept_or_not(true)
    }

    fn start_kept_or_not(is_kept: bool) -> anyhow::Result<Self> {
        let home = std::env::temp_dir().join(format!("vintem-redis-{:016x}", rand::random::<u64>()));
        std::fs::create_dir(&home)?;
        let redis = Self { server: Mutex::default(), home, port: free_port()?, is_kept };
        redis.bring_back()?;
        Ok(redis)
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Where its files are.
    pub fn home(&self) -> &Path {
        &self.home
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
        self.signal("STOP")
    }

    pub fn resume(&self) -> anyhow::Result<()> {
        self.signal("CONT")
    }

    fn signal(&self, name: &str) -> anyhow::Result<()> {
        let server = self.server.lock().expect("never held across a panic");
        signal(server.as_ref().map(Child::id).ok_or_else(|| anyhow::anyhow!("Redis is away"))?, name)
    }

    /// Starts it with what its files hold, and waits until it answers.
    pub fn bring_back(&self) -> anyhow::Result<()> {
        let appends = if self.is_kept { "yes" } else { "no" };
        // It hands what it did to the kernel before it answers, and waits for no disk: here processes die, never the machine.
        let server = Command::new("redis-server")
            .args(["--bind", "127.0.0.1", "--save", "", "--appendonly", appends, "--appendfsync", "no"])
            .args(["--port", &self.port.to_string(), "--dir"])
            .arg(&self.home)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        *self.server.lock().expect("never held across a panic") = Some(server);
        let began = Instant::now();
        // A connection alone says little: it is taken while the files are still read.
        while self.ask::<String>(&["PING"]).is_err() {
            anyhow::ensure!(began.elapsed() < Duration::from_secs(10), "redis-server did not start");
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// Starts it as if it had never held anything.
    pub fn bring_back_empty(&self) -> anyhow::Result<()> {
        for entry in std::fs::read_dir(&self.home)? {
            let path = entry?.path();
            if path.is_dir() { std::fs::remove_dir_all(path)? } else { std::fs::remove_file(path)? }
        }
        self.bring_back()
    }

    /// What it answers to one command.
    pub fn ask<T: redis::FromRedisValue>(&self, words: &[&str]) -> anyhow::Result<T> {
        let mut connection = redis::Client::open(self.url())?.get_connection_with_timeout(Duration::from_secs(1))?;
        let mut command = redis::cmd(words.first().copied().unwrap_or_default());
        command.arg(words.get(1..).unwrap_or_default());
        Ok(command.query(&mut connection)?)
    }
}

impl Drop for OwnRedis {
    fn drop(&mut self) {
        // It holds nothing that anybody misses.
        let _ = self.kill();
        if let Err(error) = std::fs::remove_dir_all(&self.home) {
            eprintln!("{} was left behind: {error}", self.home.display());
        }
    }
}
