//! When the machine itself stood still. Shared ones do, for hundreds of milliseconds, and no service is the slower for it.
//!
//! On each core a thread wakes every millisecond; where it wakes late, that core was not to be had. What a service is slow
//! at while the cores are there is never taken for that.

use std::ops::Range;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};

const WAKE_INTERVAL: Duration = Duration::from_millis(1);
/// Later than this, and the core was away.
const STALL_THRESHOLD: Duration = Duration::from_millis(2);

#[derive(Debug)]
pub struct StallMonitor {
    should_stop: Arc<AtomicBool>,
    core_threads: Vec<JoinHandle<anyhow::Result<Vec<Range<Instant>>>>>,
}

/// The times at which a core stood still, and as long again after each, in which what had come meanwhile was done.
#[derive(Debug)]
pub struct CpuStalls(Vec<Range<Instant>>);

impl StallMonitor {
    pub fn start() -> anyhow::Result<Self> {
        let is_over = Arc::new(AtomicBool::new(false));
        let watch_core = |core: usize| {
            let is_over = is_over.clone();
            std::thread::spawn(move || record_core_stalls(core, &is_over))
        };
        Ok(Self {
            core_threads: (0..std::thread::available_parallelism()?.get()).map(watch_core).collect(),
            should_stop: is_over,
        })
    }

    pub fn stop(self) -> anyhow::Result<CpuStalls> {
        self.should_stop.store(true, Ordering::Relaxed);
        let mut all = Vec::new();
        for core in self.core_threads {
            all.extend(core.join().expect("the watch does not panic")?);
        }
        Ok(CpuStalls(all))
    }
}

impl CpuStalls {
    /// Whether nothing of this time was one of them.
    pub fn none_overlap(&self, from: Instant, to: Instant) -> bool {
        !self.0.iter().any(|still| still.start < to && from < still.end)
    }
}

fn record_core_stalls(core: usize, is_over: &AtomicBool) -> anyhow::Result<Vec<Range<Instant>>> {
    pin_to_core(core)?;
    let mut standstills = Vec::new();
    while !is_over.load(Ordering::Relaxed) {
        let began = Instant::now();
        std::thread::sleep(WAKE_INTERVAL);
        let late = began.elapsed().saturating_sub(WAKE_INTERVAL);
        if late > STALL_THRESHOLD {
            standstills.push(began..began + WAKE_INTERVAL + late * 2);
        }
    }
    Ok(standstills)
}

fn pin_to_core(core: usize) -> anyhow::Result<()> {
    let own = std::fs::read_link("/proc/thread-self")?;
    let own = own.file_name().context("no number of a thread")?;
    let set = Command::new("taskset").args(["--cpu-list", "--pid", &core.to_string()]).arg(own).output()?;
    ensure!(set.status.success(), "taskset: {}", String::from_utf8_lossy(&set.stderr));
    Ok(())
}
