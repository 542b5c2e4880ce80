//! Memory of processes, as counted by the kernel.

use anyhow::Context;

/// A line of `/proc/PID/status` in bytes: `VmRSS` is the current memory, `VmHWM` the peak.
pub fn read_proc_status_bytes(pid: u32, name: &str) -> anyhow::Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix(name)).context("no such line")?;
    let kibibytes: u64 = line.trim_start_matches(':').trim().trim_end_matches(" kB").parse()?;
    Ok(kibibytes << 10)
}
