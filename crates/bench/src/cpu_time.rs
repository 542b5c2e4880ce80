//! What processes take of the processor, by the kernel's own count.

use std::time::Duration;

use anyhow::Context;

/// The kernel's ticks a second in `/proc`: the same on every Linux that we know.
const TICKS_PER_SECOND: u64 = 100;

/// User and system time of a process with all its threads, since it began.
pub fn process_cpu_time(process: u32) -> anyhow::Result<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat"))?;
    // The name in brackets may hold anything, so fields are counted after it; the first is the third of the file.
    let (_, fields) = stat.rsplit_once(')').context("no name in stat")?;
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let ticks = |place: usize| -> anyhow::Result<u64> { Ok(fields.get(place - 3).context("a short stat")?.parse()?) };
    let (user, system) = (ticks(14)?, ticks(15)?);
    Ok(Duration::from_millis((user + system) * 1000 / TICKS_PER_SECOND))
}
