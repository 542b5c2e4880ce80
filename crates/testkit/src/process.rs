//! The real binary as processes of its own.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use anyhow::Context;

use crate::replica::{PATIENT_BUDGET_MS, PEPPER};

/// Runs a command of `vintem` to its end and returns what it printed.
pub async fn run_vintem(
    binary: &Path,
    database_url: &str,
    arguments: &[&str],
) -> anyhow::Result<(ExitStatus, String, String)> {
    let mut command = Command::new(binary);
    command.args(arguments).env("VINTEM_DATABASE_URL", database_url).env("VINTEM_KEY_PEPPER", PEPPER);
    // Aside, so that what the test itself has under way goes on: the command may wait for it.
    let output = tokio::task::spawn_blocking(move || command.output()).await??;
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Ok((output.status, text(output.stdout), text(output.stderr)))
}

/// A served process; killed with the test if it still runs.
#[derive(Debug)]
pub struct ServedProcess {
    child: Child,
    pub address: String,
    pub admin_address: String,
    log: Arc<Mutex<String>>,
}

impl ServedProcess {
    /// Starts `vintem serve` and waits until it is ready.
    pub fn start(binary: &Path, database_url: &str, redis_url: &str, flags: &[&str]) -> anyhow::Result<Self> {
        // Whoever starts one asks it something next.
        crate::provide_cryptography();
        let mut child = Command::new(binary)
            .args(["serve", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"])
            .args(flags)
            .env("VINTEM_DATABASE_URL", database_url)
            .env("VINTEM_REDIS_URL", redis_url)
            .env("VINTEM_KEY_PEPPER", PEPPER)
            .env("VINTEM_REDIS_BUDGET_MS", PATIENT_BUDGET_MS)
            .env("VINTEM_LOG", "warn,vintem_server=info")
            .stderr(Stdio::piped())
            .spawn()?;
        let log = child.stderr.take().context("the log is piped")?;
        let (send, lines) = mpsc::channel();
        let kept = Arc::new(Mutex::new(String::new()));
        let keep = kept.clone();
        // Read to the end, so that the process never waits for its log to be read.
        std::thread::spawn(move || {
            for line in BufReader::new(log).lines().map_while(Result::ok) {
                keep.lock().expect("never held across a panic").push_str(&line);
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

    /// Everything that it has logged so far.
    pub fn log(&self) -> String {
        self.log.lock().expect("never held across a panic").clone()
    }

    pub fn terminate(&self) -> anyhow::Result<()> {
        let status = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status()?;
        anyhow::ensure!(status.success(), "the process was gone");
        Ok(())
    }

    /// How it ended, if it did within this time.
    pub fn wait(&mut self, at_most: Duration) -> anyhow::Result<Option<ExitStatus>> {
        let began = Instant::now();
        while began.elapsed() < at_most {
            if let Some(status) = self.child.try_wait()? {
                return Ok(Some(status));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(None)
    }
}

impl Drop for ServedProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
