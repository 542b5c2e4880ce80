//! Ingestion that is killed, again and again, leaves what an undisturbed one leaves.

use std::process::{Command, Stdio};
use std::time::Instant;

use vintem_testkit::TestDatabase;
use vintem_testkit::upstreams::{UpstreamOptions, Upstreams};

use crate::{Outcome, binary};

/// Fillings, and how often each is killed before it is let finish.
const FILLINGS: u32 = 5;
const KILLS: u32 = 10;
/// Series, companies and filings, so that a kill meets each kind of load.
const SOURCES: [&str; 6] = ["selic", "cdi", "ipca", "companies", "ipe", "fca"];

fn ingest(upstreams: &Upstreams, database: &TestDatabase) -> Command {
    let mut command = Command::new(binary());
    command
        .arg("ingest")
        .args(SOURCES)
        .env("VINTEM_DATABASE_URL", database.url())
        .env("VINTEM_SGS_URL", upstreams.sgs_url())
        .env("VINTEM_PTAX_URL", upstreams.ptax_url())
        .env("VINTEM_CVM_URL", upstreams.cvm_url())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command
}

#[tokio::test(flavor = "multi_thread")]
async fn fifty_kills_during_a_filling_change_nothing_in_the_end() -> Outcome {
    // The real clock rules here: the day is today's, for all of them.
    let today = vintem_domain::dates::sao_paulo_day(chrono::Utc::now());
    let options = UpstreamOptions { today, ipe_rows_per_year: 60, ..UpstreamOptions::default() };
    let upstreams = Upstreams::start(options)?;
    let undisturbed = TestDatabase::empty().await?;
    let began = Instant::now();
    anyhow::ensure!(ingest(&upstreams, &undisturbed).status()?.success(), "the undisturbed filling failed");
    let (whole, expected) = (began.elapsed(), undisturbed.checksum().await?);

    let mut kills = 0;
    for _ in 0..FILLINGS {
        let killed = TestDatabase::empty().await?;
        for _ in 0..KILLS {
            let mut child = ingest(&upstreams, &killed).spawn()?;
            // On average a twelfth of a filling, so that ten of them do not finish it.
            tokio::time::sleep(whole.mul_f64(rand::random_range(0.01..0.16))).await;
            kills += u32::from(child.try_wait()?.is_none());
            child.kill()?;
            child.wait()?;
        }
        anyhow::ensure!(ingest(&upstreams, &killed).status()?.success(), "the filling could not be finished");
        assert_eq!(killed.checksum().await?, expected);
    }
    println!("filling_seconds: {:.1}", whole.as_secs_f64());
    println!("kills: {kills}");
    println!("checksum: {expected}");
    assert!(kills > FILLINGS * KILLS * 4 / 5, "only {kills} met a filling under way");
    Ok(())
}
