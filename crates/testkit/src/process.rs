//! Runs the real `vintem` binary as child processes.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use anyhow::Context;

use crate::quiet_clock::QuietClock;
use crate::replica::{TEST_BUDGET_MS, TEST_PEPPER, TEST_SECRET_KEY};
use crate::test_servers::send_signal;

/// Runs a `vintem` command to completion and returns its status, standard output and standard error.
pub async fn run_vintem(
    binary: &Path,
    database_url: &str,
    arguments: &[&str],
) -> anyhow::Result<(ExitStatus, String, String)> {
    let mut command = Command::new(binary);
    command.args(arguments).env("VINTEM_DATABASE_URL", database_url).env("VINTEM_KEY_PEPPER", TEST_PEPPER);
    command.env("VINTEM_SECRET_KEY", TEST_SECRET_KEY);
    // On a blocking thread, so that the test's own tasks keep running: the command may wait for them.
    let output = tokio::task::spawn_blocking(move || command.output()).await??;
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Ok((output.status, text(output.stdout), text(output.stderr)))
}

/// Creates a key on the command line, as an operator does; returns its id and the key.
pub async fn create_key_by_cli(binary: &Path, database_url: &str, plan: &str) -> anyhow::Result<(i64, String)> {
    let arguments = ["keys", "create", "--plan", plan, "--name", "Teste", "--email", "teste@example.com", "--json"];
    let (status, stdout, stderr) = run_vintem(binary, database_url, &arguments).await?;
    anyhow::ensure!(status.success(), "{stderr}");

    let created: serde_json::Value = serde_json::from_str(&stdout)?;
    let id = created["id"].as_i64().context("no id")?;
    let key = created["api_key"].as_str().context("no key")?;
    Ok((id, key.to_owned()))
}

/// A running `vintem serve`; dropping this kills it.
#[derive(Debug)]
pub struct ServerProcess {
    child: Child,
    pub address: String,
    pub admin_address: String,
    log: Arc<Mutex<String>>,
}

impl ServerProcess {
    /// Starts `vintem serve` and waits until it is ready. Its Redis must be a [`crate::DedicatedRedis`]: all processes use
    /// the same keys there, so that tests on a shared one would use up each other's limits.
    pub fn start(binary: &Path, database_url: &str, redis_url: &str, flags: &[&str]) -> anyhow::Result<Self> {
        Self::start_with_env(binary, database_url, redis_url, flags, &[])
    }

    /// Sets further environment variables.
    pub fn start_with_env(
        binary: &Path,
        database_url: &str,
        redis_url: &str,
        flags: &[&str],
        environment: &[(&str, &str)],
    ) -> anyhow::Result<Self> {
        Self::spawn_until_ready(Command::new(binary), database_url, redis_url, flags, environment)
    }

    /// Pins the process to these cores, in the syntax of `taskset --cpu-list`.
    pub fn start_on_cores(
        cores: &str,
        binary: &Path,
        database_url: &str,
        redis_url: &str,
        flags: &[&str],
    ) -> anyhow::Result<Self> {
        let mut command = Command::new("taskset");
        command.args(["--cpu-list", cores]).arg(binary);
        Self::spawn_until_ready(command, database_url, redis_url, flags, &[])
    }

    /// Allows the process this many open files.
    pub fn start_with_open_files(
        limit: u32,
        binary: &Path,
        database_url: &str,
        redis_url: &str,
    ) -> anyhow::Result<Self> {
        let mut command = Command::new("prlimit");
        command.arg(format!("--nofile={limit}:{limit}")).arg(binary);
        Self::spawn_until_ready(command, database_url, redis_url, &[], &[])
    }

    fn spawn_until_ready(
        mut command: Command,
        database_url: &str,
        redis_url: &str,
        flags: &[&str],
        environment: &[(&str, &str)],
    ) -> anyhow::Result<Self> {
        // The caller is about to send requests, and building a client needs the provider.
        crate::install_crypto_provider();

        let mut child = command
            .arg("serve")
            .args(flags)
            // Settings go in the environment, so that a test can override them with flags.
            .env("VINTEM_LISTEN", "127.0.0.1:0")
            .env("VINTEM_ADMIN_LISTEN", "127.0.0.1:0")
            .env("VINTEM_DATABASE_URL", database_url)
            .env("VINTEM_REDIS_URL", redis_url)
            .env("VINTEM_KEY_PEPPER", TEST_PEPPER)
            .env("VINTEM_SECRET_KEY", TEST_SECRET_KEY)
            // As for replicas inside a test process: a stalled machine must not look like an unavailable backend.
            .env("VINTEM_REDIS_BUDGET_MS", TEST_BUDGET_MS)
            .env("VINTEM_POSTGRES_BUDGET_MS", TEST_BUDGET_MS)
            // No load balancer has to notice.
            .env("VINTEM_DRAIN_SECONDS", "0")
            .env("VINTEM_LOG", "warn,vintem_server=info")
            .envs(environment.iter().copied())
            .stderr(Stdio::piped())
            .spawn()?;

        let stderr = child.stderr.take().context("the log is piped")?;
        let (line_sender, lines) = mpsc::channel();
        let log = Arc::new(Mutex::new(String::new()));
        let thread_log = log.clone();
        // The thread reads to the end, so that the process never blocks on a full pipe.
        std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                let mut log = thread_log.lock().expect("never held across a panic");
                log.push_str(&line);
                log.push('\n');
                drop(log);
                let _ = line_sender.send(line);
            }
        });

        let mut process = Self { child, address: String::new(), admin_address: String::new(), log };
        let mut is_listening = false;
        let mut is_ready = false;
        let started = Instant::now();
        while !(is_listening && is_ready) {
            let remaining = Duration::from_secs(60).saturating_sub(started.elapsed());
            let line = lines.recv_timeout(remaining).context("the process did not become ready")?;
            let entry: serde_json::Value = serde_json::from_str(&line).with_context(|| format!("not JSON: {line}"))?;
            match entry["message"].as_str() {
                Some("listening") => {
                    let text = |name: &str| entry[name].as_str().unwrap_or_default().to_owned();
                    process.address = text("address");
                    process.admin_address = text("admin_address");
                    is_listening = true;
                }
                Some("serving new snapshot" | "postgres is unavailable; serving the snapshot copy") => is_ready = true,
                _ => {}
            }
        }
        Ok(process)
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Everything the process has logged so far.
    pub fn log(&self) -> String {
        self.log.lock().expect("never held across a panic").clone()
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Reads one metric by its name including labels; `None` if it is not exported.
    pub async fn fetch_metric(&self, http: &reqwest::Client, name: &str) -> anyhow::Result<Option<f64>> {
        let metrics = http.get(format!("http://{}/metrics", self.admin_address)).send().await?.text().await?;
        let value = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        Ok(value.map(str::parse).transpose()?)
    }

    pub fn terminate(&self) -> anyhow::Result<()> {
        send_signal(self.child.id(), "TERM").context("the process was gone")
    }

    /// Kills it without a shutdown.
    pub fn kill(&mut self) -> anyhow::Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Waits for the process to exit; `None` if it is still running after the timeout.
    pub fn wait_timeout(&mut self, timeout: Duration) -> anyhow::Result<Option<ExitStatus>> {
        let clock = QuietClock::start();
        while clock.elapsed() < timeout {
            if let Some(status) = self.child.try_wait()? {
                return Ok(Some(status));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(None)
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A running `vintem work` or `vintem ingest --watch`; dropping this kills it.
#[derive(Debug)]
pub struct WorkerProcess(Child);

impl WorkerProcess {
    pub fn start(binary: &Path, database_url: &str, flags: &[&str]) -> anyhow::Result<Self> {
        Self::spawn(binary, database_url, &["work"], flags)
    }

    /// The flags must name the addresses of the publishers.
    pub fn start_ingest(binary: &Path, database_url: &str, flags: &[&str]) -> anyhow::Result<Self> {
        Self::spawn(binary, database_url, &["ingest", "--watch"], flags)
    }

    fn spawn(binary: &Path, database_url: &str, command: &[&str], flags: &[&str]) -> anyhow::Result<Self> {
        let child = Command::new(binary)
            .args(command)
            .args(flags)
            .env("VINTEM_DATABASE_URL", database_url)
            .env("VINTEM_SECRET_KEY", TEST_SECRET_KEY)
            .env("VINTEM_LOG", "error")
            .spawn()?;
        Ok(Self(child))
    }

    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Kills it without a shutdown.
    pub fn kill(&mut self) -> anyhow::Result<()> {
        self.0.kill()?;
        self.0.wait()?;
        Ok(())
    }
}

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}
