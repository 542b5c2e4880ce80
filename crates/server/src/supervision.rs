//! Keeps background tasks running: one that panics is started again.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::{JoinError, JoinHandle, JoinSet};
use tokio::time::sleep;
use vintem_api::TaskHealth;

/// The pause before the first restart. It doubles with each further one.
const MIN_RESTART_DELAY: Duration = Duration::from_millis(100);
const MAX_RESTART_DELAY: Duration = Duration::from_secs(30);
/// A task that has run this long since its last panic has recovered.
const RECOVERY_TIME: Duration = Duration::from_secs(5);

/// Runs a task until it ends by itself. If it panics, it starts again after a pause, with the same context; the panic is
/// logged and counted, and shows in `health` until the task has recovered.
pub fn spawn_supervised<C, R>(
    task: &'static str,
    health: &Arc<TaskHealth>,
    context: C,
    run: impl Fn(C) -> R + Send + Sync + 'static,
) -> JoinHandle<()>
where
    C: Clone + Send + Sync + 'static,
    R: Future<Output = ()> + Send + 'static,
{
    let (health, run) = (health.clone(), Arc::new(run));
    let panics = metrics::counter!("vintem_task_panics_total", "task" => task);
    tokio::spawn(async move {
        let mut restart_delay = MIN_RESTART_DELAY;
        loop {
            // Dropping the set ends the task, so it ends with this one.
            let mut running = JoinSet::new();
            let (run, context) = (run.clone(), context.clone());
            running.spawn(async move { run(context).await });
            let result = tokio::select! {
                result = running.join_next() => result,
                () = sleep(RECOVERY_TIME) => {
                    health.set_failed(task, false);
                    restart_delay = MIN_RESTART_DELAY;
                    running.join_next().await
                }
            };
            let Some(Ok(panic)) = result.and_then(Result::err).map(JoinError::try_into_panic) else { return };

            health.set_failed(task, true);
            panics.increment(1);
            tracing::error!(task, panic = panic_message(&*panic), "background task failed; starting it again");
            sleep(restart_delay).await;
            restart_delay = MAX_RESTART_DELAY.min(2 * restart_delay);
        }
    })
}

fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("unknown")
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_task_that_panics_starts_again_and_recovers() {
        let health = Arc::new(TaskHealth::default());
        let starts = Arc::new(AtomicU32::new(0));
        let run = |starts: Arc<AtomicU32>| async move {
            let start = starts.fetch_add(1, Ordering::Relaxed);
            sleep(Duration::from_millis(10)).await;
            assert!(start >= 3, "the first three times it fails");
            std::future::pending::<()>().await;
        };
        let task = spawn_supervised("test", &health, starts.clone(), run);

        sleep(Duration::from_millis(50)).await;
        assert!(health.has_failed_task());
        assert_eq!(starts.load(Ordering::Relaxed), 1);
        // The pauses: 0.1, 0.2 and 0.4 seconds.
        sleep(Duration::from_millis(800)).await;
        assert_eq!(starts.load(Ordering::Relaxed), 4);
        assert!(health.has_failed_task());
        sleep(RECOVERY_TIME).await;
        assert!(!health.has_failed_task());
        assert_eq!(starts.load(Ordering::Relaxed), 4);
        task.abort();
    }

    #[tokio::test]
    async fn a_task_that_ends_is_not_started_again() {
        let health = Arc::new(TaskHealth::default());
        spawn_supervised("test", &health, (), std::future::ready).await.expect("it ends");
        assert!(!health.has_failed_task());
    }
}
