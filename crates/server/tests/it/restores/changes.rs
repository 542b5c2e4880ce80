//! Random changes to a database: loads, keys, events and deliveries.

use std::ops::Range;

use anyhow::Context;
use chrono::{TimeDelta, Utc};
use sha2::{Digest, Sha256};
use vintem_api::generate_key;
use vintem_domain::series::find_series;
use vintem_domain::webhook::EventAttributes;
use vintem_domain::{CompanyId, CvmDataset, DataOrigin, Dataset, KeyId, Plan, StatementSet};
use vintem_store::events::EventPublication;
use vintem_store::keys::OwnerChangeResult;
use vintem_store::load::{Filing, NewFetch, Observation, RawBody, StatementDocument};
use vintem_testkit::create_key;

use super::{IssuedKey, RestoreTrials};
use crate::TestResult;

/// Keys that are tried on every replica after each trial.
const MAX_KEYS: usize = 30;
/// The one with a statement.
pub const STATEMENT_COMPANY: CompanyId = 1;

impl RestoreTrials {
    pub async fn change_often(&mut self, times: Range<u32>) -> TestResult {
        for _ in 0..rand::random_range(times) {
            match rand::random_range(0..8) {
                0 | 1 => self.load_filings().await?,
                2 => self.load_observation().await?,
                3 => self.create_key().await?,
                4 => self.revoke_key().await?,
                5 => self.rotate_key().await?,
                6 => self.load_statement().await?,
                _ => self.publish_event().await?,
            }
        }
        Ok(())
    }

    async fn load_filings(&mut self) -> TestResult {
        self.next_filing += 1;
        let filing = |id: String| Filing {
            id,
            cvm_dataset: CvmDataset::Ipe,
            company_id: 1,
            company_name: "CERÂMICA SERRA S.A.".to_owned(),
            category: "Fato Relevante".to_owned(),
            subject: format!("Comunicado {}", self.next_filing),
            delivered_on: "2026-11-12".parse().expect("a day"),
            version: 1,
            ..Filing::default()
        };
        // One that is new, and one that most loads change.
        let rows = [filing(format!("trial-{}", self.next_filing)), filing("trial".to_owned())];
        let mut load = self.store.begin_load(Dataset::Filings, DataOrigin::Synthetic, &self.fetch()).await?;
        load.append_filings(&rows).await?;
        load.commit().await?;
        Ok(())
    }

    async fn load_observation(&mut self) -> TestResult {
        self.next_filing += 1;
        let series = find_series("selic").context("a series of ours")?;
        let row = Observation::new("2026-01-05".parse()?, self.next_filing.into());
        let mut load = self.store.begin_load(Dataset::Series(series), DataOrigin::Synthetic, &self.fetch()).await?;
        load.append_observations(series, &[row]).await?;
        load.commit().await?;
        Ok(())
    }

    /// A further form of a document.
    async fn load_statement(&mut self) -> TestResult {
        self.next_filing += 1;
        let body = format!("form {}", self.next_filing);
        let document = StatementDocument {
            set: StatementSet::Dfp,
            company_id: STATEMENT_COMPANY,
            reference_date: "2025-12-31".parse()?,
            version: 1,
            tables: vec!["DRE_con".to_owned()],
            row_count: 1,
            body: RawBody {
                sha256: Sha256::digest(&body).into(),
                size: body.len(),
                compressed: zstd::bulk::compress(body.as_bytes(), 3)?,
            },
        };
        let mut load = self.store.begin_load(Dataset::Statements, DataOrigin::Synthetic, &self.fetch()).await?;
        load.append_statements(&[document]).await?;
        load.commit().await?;
        Ok(())
    }

    fn fetch(&self) -> NewFetch {
        let mut sha256 = [0; 32];
        sha256[..4].copy_from_slice(&self.next_filing.to_le_bytes());
        NewFetch::without_response(format!("test:{}", self.next_filing), Utc::now(), sha256)
    }

    pub async fn create_key(&mut self) -> TestResult {
        let (id, text) = create_key(&self.store, Plan::Gold).await?;
        self.note_id("key", id);
        self.remember_key(IssuedKey { hmac: self.pepper.hmac(&text), text });
        Ok(())
    }

    /// Forgets one at random if there are many, so that it does not take long to try all.
    fn remember_key(&mut self, key: IssuedKey) {
        if self.keys.len() == MAX_KEYS {
            self.keys.swap_remove(rand::random_range(0..MAX_KEYS));
        }
        self.keys.push(key);
    }

    async fn revoke_key(&mut self) -> TestResult {
        if let Some(id) = self.pick_key().await? {
            self.store.revoke_key(id).await?;
        }
        Ok(())
    }

    async fn rotate_key(&mut self) -> TestResult {
        let Some(id) = self.pick_key().await? else { return Ok(()) };
        let key = generate_key();
        let secret = self.pepper.new_secret(&key);
        let hmac = secret.hmac;
        let now = Utc::now();
        let rotated = self.store.rotate_key(id, &secret, now, now + TimeDelta::days(1)).await?;
        if matches!(rotated, OwnerChangeResult::Done(_)) {
            self.remember_key(IssuedKey { hmac, text: key.reveal().to_owned() });
        }
        Ok(())
    }

    /// Publishes an event and queues a delivery.
    async fn publish_event(&mut self) -> TestResult {
        let mut connection = self.connect().await?;
        let sequence: i64 = sqlx::query_scalar(
            "insert into event (type, occurred_at, subject) values ('rate.published', now(), '{}') returning sequence",
        )
        .fetch_one(&mut connection)
        .await?;
        let publication = EventPublication { sequence, body: "{}".to_owned(), attributes: EventAttributes::default() };
        self.store.publish_events(&[publication], Utc::now()).await?;
        let position: i64 = sqlx::query_scalar("select position from event where sequence = $1")
            .bind(sequence)
            .fetch_one(&mut connection)
            .await?;
        self.note_id("event", position);

        let delivery: Option<i64> = sqlx::query_scalar(
            "with hook as (
                 insert into webhook (id, key_id, url, types, companies, categories, folded_categories, series, pairs,
                                      created_at, secret)
                 select gen_random_uuid()::text, min(id), '', '{}', '{}', '{}', '{}', '{}', '{}', now(), ''
                 from api_key
                 returning number
             )
             insert into delivery (webhook, event_id, type, body, next_attempt_at, created_at)
             select number, '', '', '', now(), now() from hook
             returning id",
        )
        .fetch_optional(&mut connection)
        .await?;
        self.note_id("delivery", delivery.context("there is a key")?);
        Ok(())
    }

    fn note_id(&mut self, kind: &'static str, id: i64) {
        assert!(self.issued_ids.insert((kind, id)), "the {kind} {id} was issued twice");
    }

    async fn pick_key(&self) -> anyhow::Result<Option<KeyId>> {
        let mut connection = self.connect().await?;
        Ok(sqlx::query_scalar("select id from api_key where revoked_at is null order by random() limit 1")
            .fetch_optional(&mut connection)
            .await?)
    }
}
