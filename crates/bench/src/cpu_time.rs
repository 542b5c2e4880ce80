//! CPU time of processes, as counted by the kernel.

use std::time::Duration;

use anyhow::Context;

/// The kernel's ticks per second in `/proc`, the same on every Linux we know of.
const TICKS_PER_SECOND: u64 = 100;

/// User and system time of a process and all its threads, since it started.
pub fn process_cpu_time(pid: u32) -> anyhow::Result<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The name in parentheses may contain anything, so fields are counted after it: the first of them is field 3.
    let (_, fields) = stat.rsplit_once(')').context("no name in stat")?;
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let ticks = |field: usize| -> anyhow::Result<u64> { Ok(fields.get(field - 3).context("a short stat")?.parse()?) };

    let user = ticks(14)?;
    let system = ticks(15)?;
    Ok(Duration::from_millis((user + system) * 1000 / TICKS_PER_SECOND))
}
