//! What the interface left open and how it was settled: one test for each decision, named by what it guarantees.
//!
//! Some are shown where their subject is: exact limits in `exactness`, the gate in `gate`, keys on several replicas and
//! in a database that hangs in `keys`, headers on every answer in `headers`, counts while they are drained in `usage`,
//! sources never loaded and synthetic data in `data`, versions of values in `store`.

mod data;
mod http_semantics;
mod keys;
mod limits;
mod parameters;
mod plans;
mod usage;

use serde_json::Value;
use vintem_domain::Plan;
use vintem_testkit::{TestDatabase, TestReplica, TestReplicaOptions};

use crate::friday;

/// A served demo and a key of the highest plan.
struct DemoService {
    replica: TestReplica,
    platinum_key: String,
    // Dropped last: a database goes when nobody is connected any more.
    _database: TestDatabase,
}

async fn start_demo() -> anyhow::Result<DemoService> {
    start_demo_with(&[]).await
}

async fn start_demo_with(flags: &[&str]) -> anyhow::Result<DemoService> {
    let database = TestDatabase::create_demo(friday()).await?;
    let options = TestReplicaOptions { flags, redis_prefix: None };
    let replica = TestReplica::start_with_options(&database, friday(), options).await?;
    let (_, platinum) = replica.create_key(Plan::Platinum).await?;
    Ok(DemoService { replica, platinum_key: platinum, _database: database })
}

impl DemoService {
    /// The status and the body of an answer to the highest plan.
    async fn get_status_and_body(&self, path: &str) -> anyhow::Result<(u16, Value)> {
        let answer = self.replica.get_with_key(path, &self.platinum_key).await?;
        Ok((answer.status().as_u16(), answer.json().await?))
    }

    /// The body of an answer that must be a good one.
    async fn get_ok(&self, path: &str) -> anyhow::Result<Value> {
        let (status, body) = self.get_status_and_body(path).await?;
        anyhow::ensure!(status == 200, "{path}: {status} {body}");
        Ok(body)
    }
}

/// The values of one field of a list's rows.
fn field_values(list: &Value, name: &str) -> Vec<String> {
    let rows = list["data"].as_array().map(Vec::as_slice).unwrap_or_default();
    rows.iter().map(|row| row[name].as_str().map_or_else(|| row[name].to_string(), str::to_owned)).collect()
}
