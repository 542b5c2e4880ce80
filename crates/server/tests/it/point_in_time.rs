//! `as_of` responses compared with a naive model of everything that was ever loaded.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, Days, NaiveDate, Utc};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};
use vintem_domain::{Calendar, Company, CvmDataset, DataOrigin, Dataset, Plan, series};
use vintem_store::Store;
use vintem_store::load::{Filing, NewFetch, Observation};
use vintem_testkit::{TestDatabase, TestReplica};

use crate::TestResult;

/// Loads are three days apart; the first is on a Monday. All are in the afternoon in São Paulo.
const DATA_LOAD_COUNT: u64 = 8;

fn first_day() -> NaiveDate {
    NaiveDate::from_ymd_opt(2026, 1, 5).expect("a day of the calendar")
}

fn load_date(load: u64) -> NaiveDate {
    first_day() + Days::new(3 * load)
}

fn load_time(load: u64) -> DateTime<Utc> {
    load_date(load).and_hms_opt(18, 0, 0).expect("a time of day").and_utc()
}

/// The loads in which each key changed, and its value from then on.
type LoadedVersions<K, V> = BTreeMap<K, Vec<(u64, V)>>;

fn record_version<K: Ord, V: PartialEq>(versions: &mut LoadedVersions<K, V>, load: u64, key: K, value: V) {
    let versions = versions.entry(key).or_default();
    if versions.last().is_none_or(|(_, value_before)| *value_before != value) {
        versions.push((load, value));
    }
}

#[derive(Default)]
struct HistoryModel {
    rates: LoadedVersions<NaiveDate, String>,
    companies: LoadedVersions<u32, Company>,
    filings: LoadedVersions<String, Filing>,
}

/// The version loaded by that day.
fn version_as_of<V>(versions: &[(u64, V)], day: NaiveDate) -> Option<&V> {
    versions.iter().rev().find(|(load, _)| load_date(*load) <= day).map(|(_, value)| value)
}

impl HistoryModel {
    async fn load_random_data(&mut self, store: &Store, load: u64, random: &mut StdRng) -> TestResult {
        let fetch =
            |what: &str| NewFetch::without_response(format!("test:{what}:{load}"), load_time(load), [load as u8; 32]);

        let cdi = series::find_series("cdi-daily").expect("in the table of series");
        let mut rates = Vec::new();
        for days_back in 0..12u64 {
            let date = load_date(load) - Days::new(days_back);
            if Calendar::Settlement.is_business_day(date) && random.random_range(0..3) > 0 {
                let value = format!("0.05{}", random.random_range(0..3));
                rates.push(Observation::new(date, value.parse()?));
                record_version(&mut self.rates, load, date, value);
            }
        }

        let mut rates_load = store.begin_load(Dataset::Series(cdi), DataOrigin::Real, &fetch("rates")).await?;
        rates_load.append_observations(cdi, &rates).await?;
        rates_load.commit().await?;

        let mut companies = Vec::new();
        for id in 1..=8u32 {
            if random.random_range(0..3) == 0 {
                continue;
            }
            let is_cancelled = random.random_range(0..2) == 0;
            let status_since = first_day() - Days::new(20) + Days::new(random.random_range(0..20));
            let company = Company {
                id,
                name: format!("COMPANHIA {id} {}", random.random_range(0..2)),
                status: if is_cancelled { "CANCELADA".to_owned() } else { "ATIVO".to_owned() },
                registered_on: Some(first_day() - Days::new(u64::from(id) * 4)),
                cancelled_on: is_cancelled.then_some(status_since),
                status_since: Some(status_since),
                is_registered: true,
                ..Company::default()
            };
            record_version(&mut self.companies, load, id, company.clone());
            companies.push(company);
        }

        let mut companies_load = store.begin_load(Dataset::Companies, DataOrigin::Real, &fetch("companies")).await?;
        companies_load.append_companies(&companies).await?;
        companies_load.commit().await?;

        let mut filings = Vec::new();
        for number in 1..=12u64 {
            let delivered_on = first_day() - Days::new(10) + Days::new(2 * number);
            if delivered_on > load_date(load) || random.random_range(0..3) == 0 {
                continue;
            }
            let filing = Filing {
                id: number.to_string(),
                cvm_dataset: CvmDataset::Ipe,
                company_id: 99,
                company_name: "SEM REGISTRO".to_owned(),
                category: "Fato Relevante".to_owned(),
                subject: format!("Aviso {}", random.random_range(0..3)),
                delivered_on,
                version: 1,
                ..Filing::default()
            };
            record_version(&mut self.filings, load, filing.id.clone(), filing.clone());
            filings.push(filing);
        }

        let mut filings_load = store.begin_load(Dataset::Filings, DataOrigin::Real, &fetch("filings")).await?;
        filings_load.append_filings(&filings).await?;
        filings_load.commit().await?;

        Ok(())
    }

    /// Date, value and certainty, newest first.
    fn expected_rates(&self, day: NaiveDate) -> Vec<Value> {
        let first_load = self.rates.values().flatten().map(|(load, _)| *load).min();
        let row = |(date, versions): (&NaiveDate, &Vec<(u64, String)>)| {
            let published_on = Calendar::Settlement.add_business_days(*date, 1)?;
            let is_history = Some(versions[0].0) == first_load && published_on < load_date(versions[0].0);
            let (value, known) = match version_as_of(versions, day) {
                Some(value)
                    if is_history && *value == versions[0].1 && version_as_of(&versions[1..], day).is_none() =>
                {
                    (value, "estimated")
                }
                Some(value) => (value, "observed"),
                None if is_history && published_on <= day => (&versions[0].1, "estimated"),
                None => return None,
            };
            (*date <= day).then(|| json!([date, value, known]))
        };

        self.rates.iter().rev().filter_map(row).collect()
    }

    fn expected_companies(&self, day: NaiveDate) -> BTreeSet<String> {
        let first_load = self.companies.values().flatten().map(|(load, _)| *load).min();
        let mut expected = BTreeSet::new();

        for versions in self.companies.values() {
            let (company, certainty) = match version_as_of(versions, day) {
                Some(company) => (company.clone(), "observed"),
                None if Some(versions[0].0) == first_load && versions[0].1.registered_on <= Some(day) => {
                    let mut company = versions[0].1.clone();
                    if company.status_since > Some(day) {
                        company.status = "ATIVO".to_owned();
                        company.cancelled_on = None;
                        company.status_since = None;
                    }
                    (company, "estimated")
                }
                None => continue,
            };
            let Company { id, name, status, cancelled_on, .. } = company;
            expected.insert(json!([id.to_string(), name, status, cancelled_on, certainty]).to_string());
        }

        if self.filings.values().any(|versions| versions[0].1.delivered_on <= day) {
            expected.insert(json!(["99", "SEM REGISTRO", "", null, "estimated"]).to_string());
        }

        expected
    }

    /// Id and subject, newest first.
    fn expected_filings(&self, day: NaiveDate) -> Vec<Value> {
        let mut rows: Vec<&Filing> = self
            .filings
            .values()
            .map(|versions| version_as_of(versions, day).unwrap_or(&versions[0].1))
            .filter(|filing| filing.delivered_on <= day)
            .collect();

        rows.sort_by(|left, right| (right.delivered_on, &right.id).cmp(&(left.delivered_on, &left.id)));
        rows.iter().map(|filing| json!([filing.id, filing.subject])).collect()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn as_of_responses_never_contain_later_knowledge() -> TestResult {
    for seed in 0..5 {
        let mut random = StdRng::seed_from_u64(seed);
        let mut model = HistoryModel::default();
        let database = TestDatabase::create_empty().await?;
        let store = database.open_store()?;
        for load in 0..DATA_LOAD_COUNT {
            model.load_random_data(&store, load, &mut random).await?;
        }

        let replica = TestReplica::start_with_high_limits(&database, load_time(DATA_LOAD_COUNT)).await?;
        let (_, gold) = replica.create_key(Plan::Gold).await?;

        for days_back in 0..50 {
            let day = load_date(DATA_LOAD_COUNT) - Days::new(days_back);
            let fetch_rows = async |path: &str, fields: &[&str]| -> anyhow::Result<Vec<Value>> {
                let numbers = if path.starts_with("market/") { "&numbers=string" } else { "" };
                let path = format!("/api/v1/{path}?limit=100{numbers}&as_of={day}");
                let response: Value = replica.get_with_key(&path, &gold).await?.json().await?;
                let rows = response["data"].as_array().cloned().unwrap_or_default();
                assert_eq!(response["total"], rows.len(), "{path}");
                Ok(rows.iter().map(|row| fields.iter().map(|field| row[*field].clone()).collect()).collect())
            };

            let rates = fetch_rows("market/series/cdi-daily", &["date", "value", "known"]).await?;
            assert_eq!(rates, model.expected_rates(day), "seed {seed}, rates as of {day}");

            let companies = fetch_rows("companies", &["id", "name", "status", "cancelled_on", "known"]).await?;
            let companies: BTreeSet<String> = companies.iter().map(Value::to_string).collect();
            assert_eq!(companies, model.expected_companies(day), "seed {seed}, companies as of {day}");

            let filings = fetch_rows("filings", &["id", "description"]).await?;
            assert_eq!(filings, model.expected_filings(day), "seed {seed}, filings as of {day}");
        }
    }

    Ok(())
}
