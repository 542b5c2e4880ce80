//! A Redis server is added while callers use their limits.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use vintem_domain::Plan;
use vintem_testkit::background_load::{BackgroundLoad, PlannedRequest};
use vintem_testkit::rate_limit_check::{ObservedDecision, check_rate_limit};
use vintem_testkit::{DedicatedRedis, ServerProcess, TestDatabase, create_key, http_client_builder};

use crate::{TestResult, friday, vintem_binary};

const WINDOW: Duration = Duration::from_secs(4);
const LIMIT: usize = 10;
const CALLERS: usize = 24;
/// Two and a half times the limit.
const REQUESTS_PER_SECOND: u32 = 150;
const PROCESSES: usize = 2;

#[tokio::test(flavor = "multi_thread")]
async fn callers_that_move_to_a_new_server_get_their_limit_once_more_and_then_never_again() -> TestResult {
    let redis = [DedicatedRedis::start()?, DedicatedRedis::start()?, DedicatedRedis::start()?];
    let database = TestDatabase::create_demo(friday()).await?;
    let store = database.open_store()?;
    let mut keys = Vec::new();
    for _ in 0..CALLERS {
        keys.push(create_key(&store, Plan::Gold).await?.1);
    }

    let start_processes = |servers: &[DedicatedRedis]| -> anyhow::Result<Vec<ServerProcess>> {
        let urls: Vec<String> = servers.iter().map(DedicatedRedis::url).collect();
        let limit = format!("--limit-gold={LIMIT}");
        let window = format!("--limit-window-seconds={}", WINDOW.as_secs());
        let start = |_| ServerProcess::start(vintem_binary(), &database.url(), &urls.join(","), &[&limit, &window]);
        (0..PROCESSES).map(start).collect()
    };
    let with_two = start_processes(&redis[..2])?;
    let with_three = start_processes(&redis)?;
    let addresses: Vec<String> = with_two.iter().chain(&with_three).map(|process| process.url("")).collect();

    // All requests go to the first processes, and from one moment on to the others.
    let first_process = Arc::new(AtomicUsize::new(0));
    let http = http_client_builder().build()?;
    let load = BackgroundLoad::start(REQUESTS_PER_SECOND, {
        let first_process = first_process.clone();
        move || {
            let caller = rand::random_range(0..CALLERS);
            let replica = first_process.load(Ordering::Acquire) + rand::random_range(0..PROCESSES);
            let url = format!("{}/api/v1/market/selic/current", addresses[replica]);
            Some(PlannedRequest { caller, replica, request: http.get(url).header("X-API-Key", &keys[caller]) })
        }
    });
    tokio::time::sleep(WINDOW * 2).await;
    first_process.store(PROCESSES, Ordering::Release);
    tokio::time::sleep(WINDOW * 4).await;
    let records = load.stop().await?;

    let mut decisions: Vec<Vec<(usize, ObservedDecision)>> = vec![Vec::new(); CALLERS];
    for record in &records {
        if let Some(decision) = record.decision() {
            decisions[record.caller].push((record.replica, decision));
        }
    }
    let last_before_move = decisions.iter().flatten().filter(|(replica, _)| *replica < PROCESSES);
    let moved_at_us = last_before_move.map(|(_, decision)| decision.decided_at_us).max().unwrap_or(0);

    let mut moved = 0;
    for decisions in decisions {
        let select = |is_selected: &dyn Fn(usize, u64) -> bool| -> Vec<ObservedDecision> {
            let selected = decisions.iter().filter(|(replica, decision)| is_selected(*replica, decision.decided_at_us));
            selected.map(|(_, decision)| *decision).collect()
        };
        let all = check_rate_limit(&select(&|_, _| true), LIMIT, WINDOW);
        let after_window_us = moved_at_us + WINDOW.as_micros() as u64;
        let afterwards = check_rate_limit(&select(&|_, at_us| at_us > after_window_us), LIMIT, WINDOW);
        assert!(all.max_in_window <= 2 * LIMIT, "{all:?}");
        assert!(afterwards.max_in_window <= LIMIT && afterwards.admitted > LIMIT, "{afterwards:?}");
        moved += u32::from(all.max_in_window > LIMIT);
    }
    println!("requests: {}", records.len());
    println!("callers: {CALLERS}, admitted more than the limit once: {moved}");
    assert!(moved > 0, "nobody moved");
    Ok(())
}
