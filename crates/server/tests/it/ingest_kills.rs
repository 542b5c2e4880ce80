//! Ingestion that is killed, again and again, leaves what an undisturbed one leaves.

use std::process::{Command, Stdio};
use std::time::Instant;

use vintem_testkit::TestDatabase;
use vintem_testkit::upstreams::{FakeUpstreamOptions, FakeUpstreams};

use crate::{TestResult, vintem_binary};

/// How often a filling is killed before it is let finish.
const KILLS_PER_DATABASE: u32 = 10;
/// What is filled, and how often: much of some sources, and of all some, so that a kill meets each kind of load.
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
    // The real clock rules here: the day is today's, for all of them.
    let today = vintem_domain::dates::sao_paulo_date(chrono::Utc::now());
    let options = FakeUpstreamOptions { today, ipe_rows_per_year: 60, ..FakeUpstreamOptions::default() };
    let upstreams = FakeUpstreams::start(options)?;
    let mut kills = 0;
    for (arguments, times) in INGEST_RUNS {
        let undisturbed = TestDatabase::create_empty().await?;
        let began = Instant::now();
        let status = ingest_command(arguments, &upstreams, &undisturbed).status()?;
        anyhow::ensure!(status.success(), "the undisturbed filling failed");
        let (whole, expected) = (began.elapsed(), undisturbed.checksum().await?);
        for _ in 0..times {
            let killed = TestDatabase::create_empty().await?;
            for _ in 0..KILLS_PER_DATABASE {
                let mut child = ingest_command(arguments, &upstreams, &killed).spawn()?;
                // On average a twelfth of a filling, so that ten of them do not finish it.
                tokio::time::sleep(whole.mul_f64(rand::random_range(0.01..0.16))).await;
                kills += u32::from(child.try_wait()?.is_none());
                child.kill()?;
                child.wait()?;
            }
            let status = ingest_command(arguments, &upstreams, &killed).status()?;
            anyhow::ensure!(status.success(), "the filling could not be finished");
            assert_eq!(killed.checksum().await?, expected);
        }
        println!("filling_seconds: {:.1}", whole.as_secs_f64());
        println!("checksum: {expected}");
    }
    println!("kills: {kills}");
    assert!(kills > 40, "only {kills} met a filling under way");
    Ok(())
}
