//! Detects when the machine itself stalled. Shared machines do, for hundreds of milliseconds, and latency measured then
//! is not the service's fault.
//!
//! On each core a thread wakes every millisecond; when it wakes late, that core was not available. Slowness of the
//! service while the cores are available is never mistaken for a stall.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};

const STALL_PROBE_SLEEP: Duration = Duration::from_millis(1);
/// A wake-up later than this counts as a stall of the core.
const STALL_THRESHOLD: Duration = Duration::from_millis(2);
/// Above [`crate::DedicatedRedis::prioritize`].
const PROBE_PRIORITY: &str = "2";

#[derive(Debug)]
pub struct StallMonitor {
    should_stop: Arc<AtomicBool>,
    core_threads: Vec<JoinHandle<anyhow::Result<Vec<Stall>>>>,
}

/// The periods in which a core stalled.
#[derive(Debug)]
pub struct CpuStalls(Vec<Stall>);

#[derive(Debug)]
struct Stall {
    started_at: Instant,
    duration: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ProbePriority {
    Normal,
    AboveAll,
}

impl StallMonitor {
    /// A core that other processes keep busy counts as stalled too.
    pub fn start() -> anyhow::Result<Self> {
        Self::start_with(ProbePriority::Normal)
    }

    /// As root: only the machine itself can make these probes late, and no other process.
    pub fn start_above_all() -> anyhow::Result<Self> {
        Self::start_with(ProbePriority::AboveAll)
    }

    fn start_with(priority: ProbePriority) -> anyhow::Result<Self> {
        let should_stop = Arc::new(AtomicBool::new(false));
        let watch_core = |core: usize| {
            let should_stop = should_stop.clone();
            std::thread::spawn(move || record_core_stalls(core, priority, &should_stop))
        };
        let core_threads = (0..std::thread::available_parallelism()?.get()).map(watch_core).collect();
        Ok(Self { should_stop, core_threads })
    }

    pub fn stop(self) -> anyhow::Result<CpuStalls> {
        self.should_stop.store(true, Ordering::Relaxed);
        let mut stalls = Vec::new();
        for thread in self.core_threads {
            stalls.extend(thread.join().expect("the watch does not panic")?);
        }
        Ok(CpuStalls(stalls))
    }
}

impl CpuStalls {
    /// Whether no stall overlaps this period. Each stall also covers as much time again after it, in which the backlog was
    /// worked off.
    pub fn none_overlap(&self, from: Instant, to: Instant) -> bool {
        !self.0.iter().any(|stall| stall.started_at < to && from < stall.started_at + stall.duration * 2)
    }

    /// The longest stall that began in this period; zero if there was none.
    pub fn longest_between(&self, from: Instant, to: Instant) -> Duration {
        let within = self.0.iter().filter(|stall| from <= stall.started_at && stall.started_at < to);
        within.map(|stall| stall.duration).max().unwrap_or_default()
    }
}

fn record_core_stalls(core: usize, priority: ProbePriority, should_stop: &AtomicBool) -> anyhow::Result<Vec<Stall>> {
    let thread_path = std::fs::read_link("/proc/thread-self")?;
    let thread_id = thread_path.file_name().context("no number of a thread")?.to_string_lossy();
    run_command(&["taskset", "--cpu-list", "--pid", &core.to_string(), &thread_id])?;
    if priority == ProbePriority::AboveAll {
        run_command(&["chrt", "--fifo", "--pid", PROBE_PRIORITY, &thread_id])?;
    }

    let mut stalls = Vec::new();
    while !should_stop.load(Ordering::Relaxed) {
        let slept_at = Instant::now();
        std::thread::sleep(STALL_PROBE_SLEEP);
        let duration = slept_at.elapsed().saturating_sub(STALL_PROBE_SLEEP);
        if duration > STALL_THRESHOLD {
            stalls.push(Stall { started_at: slept_at + STALL_PROBE_SLEEP, duration });
        }
    }
    Ok(stalls)
}

fn run_command(words: &[&str]) -> anyhow::Result<()> {
    let output = Command::new(words[0]).args(&words[1..]).output()?;
    ensure!(output.status.success(), "{}: {}", words[0], String::from_utf8_lossy(&output.stderr));
    Ok(())
}
