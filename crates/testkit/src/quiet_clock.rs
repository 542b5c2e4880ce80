//! A clock for tests that judge how long something takes.
//!
//! CI shares its cores with other work, and a fixed bound would then judge the machine instead of the service. This clock
//! advances only as fast as the machine gives us its cores: with four runnable threads on two cores it runs at half
//! speed, and while the machine stands still it does not run at all. On a quiet machine it is the wall clock. Recipes,
//! which are meant for a quiet machine, set `VINTEM_WALL_CLOCK=1` and judge by the wall clock alone.

use std::sync::{LazyLock, Mutex};
use std::time::{Duration, Instant};

const SAMPLE_INTERVAL: Duration = Duration::from_millis(20);
/// The kernel counts stolen time in hundredths of a second; a shorter span would see none or all of it.
const STEAL_INTERVAL: Duration = Duration::from_millis(200);
/// However busy the machine is, the clock never runs slower than this, so that a bound always ends.
const MIN_SPEED: f64 = 0.05;

static SAMPLER: LazyLock<Mutex<QuietTime>> = LazyLock::new(|| {
    if std::env::var_os("VINTEM_WALL_CLOCK").is_none() {
        std::thread::spawn(sample_forever);
    }
    Mutex::new(QuietTime {
        total: Duration::ZERO,
        last_reading: Duration::ZERO,
        sampled_at: Instant::now(),
        speed: 1.0,
    })
});

/// A running measurement.
#[derive(Debug, Clone, Copy)]
pub struct QuietClock {
    started: Instant,
    total_at_start: Duration,
}

impl QuietClock {
    pub fn start() -> Self {
        Self { total_at_start: quiet_total(), started: Instant::now() }
    }

    /// How long this would have taken on a quiet machine.
    pub fn elapsed(&self) -> Duration {
        if std::env::var_os("VINTEM_WALL_CLOCK").is_some() {
            return self.started.elapsed();
        }

        quiet_total().saturating_sub(self.total_at_start)
    }
}

struct QuietTime {
    total: Duration,
    last_reading: Duration,
    sampled_at: Instant,
    /// Between 0 and 1: the share of the cores that a thread gets which wants to run.
    speed: f64,
}

fn quiet_total() -> Duration {
    let mut quiet_time = SAMPLER.lock().expect("the sampler does not panic");
    // If the sampler is overdue the machine stands still, and so does the clock.
    let since_sample = quiet_time.sampled_at.elapsed().min(SAMPLE_INTERVAL);
    let reading = quiet_time.total + since_sample.mul_f64(quiet_time.speed);

    // The next sample may find a slower machine than assumed here: the clock then waits, and never goes back.
    quiet_time.last_reading = quiet_time.last_reading.max(reading);
    quiet_time.last_reading
}

fn sample_forever() {
    let cores = std::thread::available_parallelism().map_or(1.0, |cores| cores.get() as f64);
    let mut steal_since = (Instant::now(), CpuTicks::read());
    let mut stolen_share = 0.0;
    loop {
        std::thread::sleep(SAMPLE_INTERVAL);

        if steal_since.0.elapsed() >= STEAL_INTERVAL {
            let ticks = CpuTicks::read();
            stolen_share = ticks.stolen_share_since(&steal_since.1);
            steal_since = (Instant::now(), ticks);
        }
        let available_cores = cores * (1.0 - stolen_share);
        let speed = (available_cores / runnable_threads().max(cores)).clamp(MIN_SPEED, 1.0);

        let mut quiet_time = SAMPLER.lock().expect("the clock does not panic");
        quiet_time.total += SAMPLE_INTERVAL.mul_f64(speed);
        quiet_time.sampled_at = Instant::now();
        quiet_time.speed = speed;
    }
}

/// Threads of the whole machine that run or wait for a core: the `4` of `0.32 0.51 0.20 4/813 20451`.
fn runnable_threads() -> f64 {
    let line = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let runnable = line.split_whitespace().nth(3).and_then(|field| field.split('/').next());
    // The sampler itself runs at this moment.
    runnable.and_then(|count| count.parse::<f64>().ok()).map_or(0.0, |count| count - 1.0)
}

struct CpuTicks {
    all: u64,
    stolen: u64,
}

impl CpuTicks {
    /// `cpu user nice system idle iowait irq softirq steal …`, in hundredths of a second since the start.
    fn read() -> Self {
        let text = std::fs::read_to_string("/proc/stat").unwrap_or_default();
        let line = text.lines().next().unwrap_or_default();
        let ticks: Vec<u64> = line.split_whitespace().skip(1).take(8).filter_map(|field| field.parse().ok()).collect();
        Self { all: ticks.iter().sum(), stolen: ticks.get(7).copied().unwrap_or(0) }
    }

    fn stolen_share_since(&self, earlier: &Self) -> f64 {
        let all = self.all.saturating_sub(earlier.all);
        let stolen = self.stolen.saturating_sub(earlier.stolen);
        if all == 0 { 0.0 } else { stolen as f64 / all as f64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_never_runs_faster_than_the_wall_clock() {
        let wall = Instant::now();
        let clock = QuietClock::start();
        std::thread::sleep(Duration::from_millis(300));
        let mut quiet = clock.elapsed();
        assert!(quiet > Duration::ZERO);
        for _ in 0..1000 {
            let later = clock.elapsed();
            assert!(later >= quiet, "the clock never goes back");
            quiet = later;
        }
        assert!(quiet <= wall.elapsed() + SAMPLE_INTERVAL);
    }

    #[test]
    fn the_clock_slows_down_while_other_threads_want_the_cores() {
        let cores = std::thread::available_parallelism().unwrap().get();
        let clock = QuietClock::start();
        let wall = Instant::now();
        let burners: Vec<_> = (0..cores * 4)
            .map(|_| std::thread::spawn(move || while wall.elapsed() < Duration::from_secs(1) {}))
            .collect();
        burners.into_iter().for_each(|burner| burner.join().unwrap());
        assert!(clock.elapsed() < Duration::from_millis(700), "{:?} of {:?}", clock.elapsed(), wall.elapsed());
    }
}
