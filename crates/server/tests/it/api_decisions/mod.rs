//! Decisions that the API specification left open: one test for each, named after its guarantee.
//!
//! Some decisions are tested with their subject: exact limits in `limit_exactness`, plans in `plan_access`, keys on
//! several replicas and with a database that hangs in `keys`, headers on every response in `response_headers`, counts
//! while they are drained in `usage`, sources never loaded and synthetic data in `served_data`, versions of values in
//! `store`.

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

/// A replica with demo data, and a key of the highest plan.
pub(crate) struct DemoService {
    pub(crate) replica: TestReplica,
    platinum_key: String,
    // Dropped last, because a database can only be dropped when nobody is connected any more.
    _database: TestDatabase,
}

pub(crate) async fn start_demo() -> anyhow::Result<DemoService> {
    start_demo_with(&[]).await
}

async fn start_demo_with(flags: &[&str]) -> anyhow::Result<DemoService> {
    let database = TestDatabase::create_demo(friday()).await?;
    let options = TestReplicaOptions { flags, redis_prefix: None };
    let replica = TestReplica::start_with_options(&database, friday(), options).await?;
    let (_, platinum_key) = replica.create_key(Plan::Platinum).await?;
    Ok(DemoService { replica, platinum_key, _database: database })
}

impl DemoService {
    /// Status and body of a request with the Platinum key.
    pub(crate) async fn get_status_and_body(&self, path: &str) -> anyhow::Result<(u16, Value)> {
        let response = self.replica.get_with_key(path, &self.platinum_key).await?;
        Ok((response.status().as_u16(), response.json().await?))
    }

    /// A company that has a ticker and filings.
    pub(crate) async fn listed_company(&self) -> anyhow::Result<Value> {
        let companies = self.get_ok("/api/v1/companies?status=ativo&limit=100").await?;
        for company in companies["data"].as_array().into_iter().flatten() {
            let id = company["id"].as_str().unwrap_or_default();
            let has_ticker = company["tickers"][0].is_string();
            if has_ticker && self.get_ok(&format!("/api/v1/companies/{id}/filings?limit=1")).await?["total"] != 0 {
                return Ok(company.clone());
            }
        }
        anyhow::bail!("the demo data has no such company")
    }

    /// The body of a request that must succeed.
    pub(crate) async fn get_ok(&self, path: &str) -> anyhow::Result<Value> {
        let (status, body) = self.get_status_and_body(path).await?;
        anyhow::ensure!(status == 200, "{path}: {status} {body}");
        Ok(body)
    }
}

/// The values of one field, from all rows of a list.
pub(crate) fn field_values(list: &Value, name: &str) -> Vec<String> {
    let rows = list["data"].as_array().map(Vec::as_slice).unwrap_or_default();
    rows.iter().map(|row| row[name].as_str().map_or_else(|| row[name].to_string(), str::to_owned)).collect()
}
