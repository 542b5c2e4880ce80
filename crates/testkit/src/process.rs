//! The real binary as processes of its own.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use anyhow::Context;

use crate::quiet_clock::QuietClock;
use crate::replica::{TEST_BUDGET_MS, TEST_PEPPER, TEST_SECRET_KEY};
use crate::test_servers::send_signal;

/// Runs a command of `vintem` to its end and returns what it printed.
pub async fn run_vintem(
    binary: &Path,
    database_url: &str,
    arguments: &[&str],
) -> anyhow::Result<(ExitStatus, String, String)> {
    let mut command = Command::new(binary);
    command.args(arguments).env("VINTEM_DATABASE_URL", database_url).env("VINTEM_KEY_PEPPER", TEST_PEPPER);
    command.env("VINTEM_SECRET_KEY", TEST_SECRET_KEY);
    // Aside, so that what the test itself has under way goes on: the command may wait for it.
    let output = tokio::task::spawn_blocking(move || command.output()).await??;
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Ok((output.status, text(output.stdout), text(output.stderr)))
}

/// A key as the operator makes it, by the command line: its id and itself.
pub async fn create_key_by_cli(binary: &Path, database_url: &str, plan: &str) -> anyhow::Result<(i64, String)> {
    let create = ["keys", "create", "--plan", plan, "--name", "Teste", "--email", "teste@example.com", "--json"];
    let (status, printed, error) = run_vintem(binary, database_url, &create).await?;
    anyhow::ensure!(status.success(), "{error}");
    let made: serde_json::Value = serde_json::from_str(&printed)?;
    let (id, key) = (made["id"].as_i64(), made["api_key"].as_str());
    Ok((id.context("no id")?, key.context("no key")?.to_owned()))
}

/// A served process; killed with the test if it still runs.
#[derive(Debug)]
pub struct ServerProcess {
    child: Child,
    pub address: String,
    pub admin_address: String,
    log: Arc<Mutex<String>>,
}

impl ServerProcess {
    /// Starts `vintem serve` and waits until it is ready.
    pub fn start(binary: &Path, database_url: &str, redis_url: &str, flags: &[&str]) -> anyhow::Result<Self> {
        Self::start_with_env(binary, database_url, redis_url, flags, &[])
    }

    /// With further variables in its environment.
    pub fn start_with_env(
        binary: &Path,
        database_url: &str,
        redis_url: &str,
        flags: &[&str],
        environment: &[(&str, &str)],
    ) -> anyhow::Result<Self> {
        Self::spawn_until_ready(Command::new(binary), database_url, redis_url, flags, environment)
    }

    /// On these cores alone, as `taskset` names them.
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

    fn spawn_until_ready(
        mut command: Command,
        database_url: &str,
        redis_url: &str,
        flags: &[&str],
        environment: &[(&str, &str)],
    ) -> anyhow::Result<Self> {
        // Whoever starts one asks it something next.
        crate::install_crypto_provider();
        let mut child = command
            .arg("serve")
            .args(flags)
            // Settings by the environment, so that a test may say otherwise by a flag.
            .env("VINTEM_LISTEN", "127.0.0.1:0")
            .env("VINTEM_ADMIN_LISTEN", "127.0.0.1:0")
            .env("VINTEM_DATABASE_URL", database_url)
            .env("VINTEM_REDIS_URL", redis_url)
            .env("VINTEM_KEY_PEPPER", TEST_PEPPER)
            .env("VINTEM_SECRET_KEY", TEST_SECRET_KEY)
            // As for replicas within a test: a machine that stands still for a moment is no engine that is away.
            .env("VINTEM_REDIS_BUDGET_MS", TEST_BUDGET_MS)
            .env("VINTEM_POSTGRES_BUDGET_MS", TEST_BUDGET_MS)
            .env("VINTEM_LOG", "warn,vintem_server=info")
            .envs(environment.iter().copied())
            .stderr(Stdio::piped())
            .spawn()?;
        let log = child.stderr.take().context("the log is piped")?;
        let (send, lines) = mpsc::channel();
        let kept = Arc::new(Mutex::new(String::new()));
        let keep = kept.clone();
        // Read to the end, so that the process never waits for its log to be read.
        std::thread::spawn(move || {
            for line in BufReader::new(log).lines().map_while(Result::ok) {
                let mut kept = keep.lock().expect("never held across a panic");
                kept.push_str(&line);
                kept.push('\n');
                drop(kept);
                let _ = send.send(line);
            }
        });
        let mut process = Self { child, address: String::new(), admin_address: String::new(), log: kept };
        let (mut listening, mut ready) = (false, false);
        let began = Instant::now();
        while !(listening && ready) {
            let left = Duration::from_secs(60).saturating_sub(began.elapsed());
            let line = lines.recv_timeout(left).context("the process did not become ready")?;
            let entry: serde_json::Value = serde_json::from_str(&line).with_context(|| format!("not JSON: {line}"))?;
            match entry["message"].as_str() {
                Some("listening") => {
                    let text = |name: &str| entry[name].as_str().unwrap_or_default().to_owned();
                    (process.address, process.admin_address) = (text("address"), text("admin_address"));
                    listening = true;
                }
                Some("a new snapshot is served") => ready = true,
                _ => {}
            }
        }
        Ok(process)
    }

    /// Its number, for what asks the kernel about it.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Everything that it has logged so far.
    pub fn log(&self) -> String {
        self.log.lock().expect("never held across a panic").clone()
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// What it tells its operator under this name, labels included; none where it tells nothing of it.
    pub async fn fetch_metric(&self, http: &reqwest::Client, name: &str) -> anyhow::Result<Option<f64>> {
        let told = http.get(format!("http://{}/metrics", self.admin_address)).send().await?.text().await?;
        let value = told.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        Ok(value.map(str::parse).transpose()?)
    }

    pub fn terminate(&self) -> anyhow::Result<()> {
        send_signal(self.child.id(), "TERM").context("the process was gone")
    }

    /// Ends it without a word.
    pub fn kill(&mut self) -> anyhow::Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// How it ended, if it did within this time.
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

/// A `vintem work` of its own; killed with the test if it still runs.
#[derive(Debug)]
pub struct WorkerProcess(Child);

impl WorkerProcess {
    pub fn start(binary: &Path, database_url: &str, flags: &[&str]) -> anyhow::Result<Self> {
        let child = Command::new(binary)
            .arg("work")
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

    /// Ends it without a word.
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
