//! What this process uses of the machine, as Linux tells it. What cannot be read is 0.

use std::fs;
use std::time::Duration;

/// The unit of times in `/proc`, for every architecture that Linux calls by this name.
const TICKS_PER_SECOND: u64 = 100;

#[derive(Debug, Default)]
pub struct ProcessUsage {
    pub cpu_time: Duration,
    pub memory_bytes: u64,
    pub open_files: u64,
    pub max_open_files: u64,
}

impl ProcessUsage {
    pub fn read() -> Self {
        Self {
            cpu_time: read_cpu_time().unwrap_or_default(),
            memory_bytes: read_memory_bytes().unwrap_or_default(),
            open_files: fs::read_dir("/proc/self/fd").map_or(0, |files| files.count() as u64),
            max_open_files: rlimit::Resource::NOFILE.get_soft().unwrap_or_default(),
        }
    }
}

fn read_cpu_time() -> Option<Duration> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // The name in parentheses may contain anything. Behind it, user and system time are the 12th and the 13th field.
    let (_, fields) = stat.rsplit_once(')')?;
    let ticks: u64 = fields.split_whitespace().skip(11).take(2).filter_map(|ticks| ticks.parse::<u64>().ok()).sum();
    Some(Duration::from_millis(ticks * (1000 / TICKS_PER_SECOND)))
}

fn read_memory_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_used_something_of_everything() {
        let started = std::time::Instant::now();
        while started.elapsed() < Duration::from_millis(50) {
            std::hint::black_box(started.elapsed());
        }
        let usage = ProcessUsage::read();
        assert!(usage.cpu_time > Duration::ZERO && usage.memory_bytes > 1 << 20, "{usage:?}");
        assert!((3..=usage.max_open_files).contains(&usage.open_files), "{usage:?}");
    }
}
