//! Market data keeps every character of its decimals.

use rust_decimal::Decimal;
use vintem_domain::{Dataset, Origin, series};
use vintem_store::load::{Fetch, Observation};
use vintem_testkit::{TestDatabase, TestReplica};

use crate::{Outcome, friday};

#[tokio::test]
async fn every_value_keeps_its_characters_from_load_to_answer() -> Outcome {
    let database = TestDatabase::empty().await?;
    let texts = [
        "15.00",
        "0.053400",
        "-0.23",
        "438898.12",
        "0.000000000001",
        "1234567890123456789012345678",
        "82.39",
        "0",
        "0.00",
        "0.10",
        "9999999999999999.999999999999",
    ];
    let cdi = series::by_id("cdi").expect("in the table");
    let first: chrono::NaiveDate = "2026-10-01".parse()?;
    let rows = texts.iter().enumerate().map(|(at, text)| -> anyhow::Result<Observation> {
        Ok(Observation { date: first + chrono::Days::new(at as u64), value: text.parse::<Decimal>()? })
    });
    let rows = rows.collect::<Result<Vec<_>, _>>()?;
    let fetch = Fetch::made_here("test:cdi".into(), friday(), [1; 32]);
    let mut load = database.store()?.begin_load(Dataset::Series(cdi), Origin::Real, &fetch).await?;
    load.append_observations(cdi, &rows).await?;
    load.commit().await?;
    let replica = TestReplica::start(&database, friday()).await?;
    let numbers = replica.get("/api/v1/market/cdi?order=asc").await?.text().await?;
    let strings = replica.get("/api/v1/market/cdi?order=asc&numbers=string").await?.text().await?;
    for (row, text) in rows.iter().zip(texts) {
        let date = row.date;
        assert!(numbers.contains(&format!("{{\"date\":\"{date}\",\"value\":{text}}}")), "{text} in {numbers}");
        assert!(strings.contains(&format!("{{\"date\":\"{date}\",\"value\":\"{text}\"}}")), "{text} in {strings}");
    }
    Ok(())
}
