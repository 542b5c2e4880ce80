//! An ingest that is killed again and again ends with the same data as an undisturbed one.

use std::process::{Command, Stdio};
use std::time::Instant;

use vintem_testkit::TestDatabase;
use vintem_testkit::upstreams::{FakeUpstreamOptions, FakeUpstreams};

use crate::{TestResult, vintem_binary};

/// Kills before an ingest may finish.
const KILLS_PER_DATABASE: u32 = 10;
/// Arguments and repetitions: all history of some sources and recent years of all, so that kills hit each kind of load.
const INGEST_RUNS: [(&[&str], u32); 2] =
    [(&["selic", "cdi", "ipca", "companies", "ipe", "fca"], 3), (&["--since", "2024-01-01"], 2)];

fn ingest_command(arguments: &[&str], upstreams: &FakeUpstreams, database: &TestDatabase) -> Command {
    let mut command = Command::new(vintem_binary());
    command
        .arg("ingest")
        .args(arguments)
        .env("VINTEM_DATABASE_URL", database.url())
        .env("VINTEM_SGS_URL", upstreams.sgs_url())
        .env("VINTEM_PTAX_URL", upstreams.ptax_url())
        .env("VINTEM_CVM_URL", upstreams.cvm_url())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command
}

#[tokio::test(flavor = "multi_thread")]
async fn fifty_kills_during_ingestion_do_not_change_the_final_data() -> TestResult {
    // The processes use the real clock, so the fake upstreams use today's date.
    let today = vintem_domain::dates::sao_paulo_date(chrono::Utc::now());
    let options = FakeUpstreamOptions { today, ipe_rows_per_year: 60, ..FakeUpstreamOptions::default() };
    let upstreams = FakeUpstreams::start(options)?;

    let mut kills = 0;
    for (arguments, repetitions) in INGEST_RUNS {
        let undisturbed = TestDatabase::create_empty().await?;
        let started = Instant::now();
        let status = ingest_command(arguments, &upstreams, &undisturbed).status()?;
        anyhow::ensure!(status.success(), "the undisturbed filling failed");

        let full_duration = started.elapsed();
        let expected = undisturbed.checksum().await?;

        for _ in 0..repetitions {
            let killed = TestDatabase::create_empty().await?;
            for _ in 0..KILLS_PER_DATABASE {
                let mut child = ingest_command(arguments, &upstreams, &killed).spawn()?;
                // A twelfth of an ingest on average, so that ten of them don't finish it.
                tokio::time::sleep(full_duration.mul_f64(rand::random_range(0.01..0.16))).await;
                kills += u32::from(child.try_wait()?.is_none());
                child.kill()?;
                child.wait()?;
            }

            let status = ingest_command(arguments, &upstreams, &killed).status()?;
            anyhow::ensure!(status.success(), "the filling could not be finished");
            assert_eq!(killed.checksum().await?, expected);
        }

        println!("filling_seconds: {:.1}", full_duration.as_secs_f64());
        println!("checksum: {expected}");
    }

    println!("kills: {kills}");
    assert!(kills > 40, "only {kills} met a filling in progress");

    Ok(())
}
