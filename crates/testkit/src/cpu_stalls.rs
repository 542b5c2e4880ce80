//! Detects when the machine itself stalled. Shared machines do, for hundreds of milliseconds, and latency measured then
//! is not the service's fault.
//!
//! On each core a thread wakes every millisecond; when it wakes late, that core was not available. Slowness of the
//! service while the cores are available is never mistaken for a stall.

use std::ops::Range;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};

const STALL_PROBE_SLEEP: Duration = Duration::from_millis(1);
/// A wake-up later than this counts as a stall of the core.
const STALL_THRESHOLD: Duration = Duration::from_millis(2);

#[derive(Debug)]
pub struct StallMonitor {
    should_stop: Arc<AtomicBool>,
    core_threads: Vec<JoinHandle<anyhow::Result<Vec<Range<Instant>>>>>,
}

/// The periods in which a core stalled. Each also covers as much time again after it, in which the backlog was worked
/// off.
#[derive(Debug)]
pub struct CpuStalls(Vec<Range<Instant>>);

impl StallMonitor {
    pub fn start() -> anyhow::Result<Self> {
        let should_stop = Arc::new(AtomicBool::new(false));
        let watch_core = |core: usize| {
            let should_stop = should_stop.clone();
            std::thread::spawn(move || record_core_stalls(core, &should_stop))
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
    /// Whether no stall overlaps this period.
    pub fn none_overlap(&self, from: Instant, to: Instant) -> bool {
        !self.0.iter().any(|stall| stall.start < to && from < stall.end)
    }
}

fn record_core_stalls(core: usize, should_stop: &AtomicBool) -> anyhow::Result<Vec<Range<Instant>>> {
    pin_to_core(core)?;

    let mut stalls = Vec::new();
    while !should_stop.load(Ordering::Relaxed) {
        let slept_at = Instant::now();
        std::thread::sleep(STALL_PROBE_SLEEP);
        let delay = slept_at.elapsed().saturating_sub(STALL_PROBE_SLEEP);
        if delay > STALL_THRESHOLD {
            stalls.push(slept_at..slept_at + STALL_PROBE_SLEEP + delay * 2);
        }
    }
    Ok(stalls)
}

fn pin_to_core(core: usize) -> anyhow::Result<()> {
    let thread_path = std::fs::read_link("/proc/thread-self")?;
    let thread_id = thread_path.file_name().context("no number of a thread")?;
    let output = Command::new("taskset").args(["--cpu-list", "--pid", &core.to_string()]).arg(thread_id).output()?;
    ensure!(output.status.success(), "taskset: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}
