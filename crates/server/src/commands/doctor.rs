//! `vintem doctor`: checks the settings, the services that they point to, and the freshness of the data.

use std::sync::Arc;

use anyhow::bail;
use chrono::{NaiveDate, Utc};
use clap::Args;
use vintem_domain::dates::sao_paulo_date;
use vintem_domain::{DataOrigin, Dataset, SystemClock};
use vintem_ingest::fetch::RetryPolicy;
use vintem_ingest::ingestor::Ingestor;
use vintem_ingest::source::{DataSource, Upstream};
use vintem_store::sources::SourceState;

use crate::commands::ingest;
use crate::settings::{ServeSettings, UpstreamSettings};

#[derive(Debug, Args)]
pub struct DoctorCommand {
    #[command(flatten)]
    settings: ServeSettings,

    #[command(flatten)]
    upstreams: UpstreamSettings,
}

impl DoctorCommand {
    pub async fn run(self) -> anyhow::Result<()> {
        let settings = &self.settings;
        let mut failures = 0;
        let mut report = |name: &str, result: anyhow::Result<String>| match result {
            Ok(details) => println!("ok    {name}: {details}"),
            Err(error) => {
                failures += 1;
                println!("FAIL  {name}: {error:#}");
            }
        };

        report("VINTEM_KEY_PEPPER", settings.pepper.parse_pepper().map(|pepper| format!("id {}", pepper.id())));
        report("VINTEM_SECRET_KEY", settings.webhooks.secret_box().map(|_| "long enough".to_owned()));
        report("VINTEM_DATABASE_URL", self.check_postgres().await);
        report("VINTEM_REDIS_URL", self.check_redis().await);
        report(
            "VINTEM_PUBLIC_URL",
            match settings.public_url.as_str() {
                "" => Ok("not set: the listen address".to_owned()),
                url if url.starts_with("https://") || url.starts_with("http://") => Ok(url.to_owned()),
                url => Err(anyhow::anyhow!("{url} is no http or https address")),
            },
        );
        for (upstream, setting) in
            [(Upstream::Sgs, "VINTEM_SGS_URL"), (Upstream::Ptax, "VINTEM_PTAX_URL"), (Upstream::Cvm, "VINTEM_CVM_URL")]
        {
            report(setting, self.check_upstream(upstream).await);
        }
        match self.check_data().await {
            Ok(results) => {
                for (name, result) in results {
                    report(&name, result);
                }
            }
            Err(error) => report("data", Err(error)),
        }

        if failures > 0 {
            bail!("{failures} of the checks failed");
        }
        Ok(())
    }

    async fn check_postgres(&self) -> anyhow::Result<String> {
        let store = self.settings.database.open_store()?;
        store.ping().await?;
        let states = store
            .dataset_states()
            .await
            .map_err(|_| anyhow::anyhow!("answers, but lacks our tables: run `vintem migrate`"))?;
        Ok(format!("answers, {} of {} datasets loaded", states.len(), Dataset::all().count()))
    }

    async fn has_demo_data(&self) -> anyhow::Result<bool> {
        let states = self.settings.database.open_store()?.dataset_states().await?;
        Ok(states.values().any(|state| state.origin == DataOrigin::Synthetic))
    }

    async fn check_upstream(&self, upstream: Upstream) -> anyhow::Result<String> {
        if self.has_demo_data().await.unwrap_or(false) {
            return Ok("not asked: the database holds synthetic data".to_owned());
        }

        let addresses = self.upstreams.upstream_addresses();
        let contact = &self.settings.contact.contact;
        let store = self.settings.database.open_store()?;
        let clock = Arc::new(SystemClock);
        let ingestor = Ingestor::with_retry_policies(
            store,
            clock,
            &addresses,
            contact,
            RetryPolicy::SINGLE_ATTEMPT,
            RetryPolicy::SINGLE_ATTEMPT,
        )?;
        ingestor.probe(upstream).await?;
        Ok(format!("{} answers", upstream.name()))
    }

    /// How fresh each dataset is, and what to do if it is stale.
    async fn check_data(&self) -> anyhow::Result<Vec<(String, anyhow::Result<String>)>> {
        if self.has_demo_data().await? {
            return Ok(vec![("data".to_owned(), Ok("synthetic: `vintem demo --remove` takes it away".to_owned()))]);
        }

        let store = self.settings.database.open_store()?;
        let today = sao_paulo_date(Utc::now());
        let newest_dates = store.newest_dates(today).await?;
        let source_states = store.source_states().await?;
        let cross_checks = store.cross_checks().await?;

        let mut results = Vec::new();
        for source in DataSource::all() {
            let state = source_states.iter().find(|state| state.source == source.id());
            let newest = newest_dates.get(&source.dataset()).copied();
            results.push((source.id().to_owned(), check_freshness(source, state, newest, today)));
        }
        for check in cross_checks {
            let name = format!("check {}", check.id);
            let text = ingest::format_cross_check(&check);
            results.push((name, if check.differing_values == 0 { Ok(text) } else { Err(anyhow::anyhow!("{text}")) }));
        }
        Ok(results)
    }

    async fn check_redis(&self) -> anyhow::Result<String> {
        let servers = self.settings.redis_urls();
        for server in &servers {
            vintem_meter::ping_redis(server).await?;
        }
        Ok(if servers.len() == 1 { "answers".to_owned() } else { format!("all {} servers answer", servers.len()) })
    }
}

fn check_freshness(
    source: DataSource,
    state: Option<&SourceState>,
    newest: Option<NaiveDate>,
    today: NaiveDate,
) -> anyhow::Result<String> {
    let id = source.id();
    let Some(state) = state else { bail!("never asked for: run `vintem ingest {id}`") };
    if let Some(failure) = &state.failure {
        bail!("the last request failed: {failure}. What is stored is served on; `vintem ingest {id}` asks again");
    }
    let Some(checked_at) = state.checked_at else { bail!("not filled to the end: run `vintem ingest {id}` again") };

    let checked_at = checked_at.format("%Y-%m-%d %H:%M UTC");
    match newest {
        Some(newest) if source.dataset().is_stale(newest, today) => {
            bail!("its newest day is {newest} although it was asked on {checked_at}: look at what the publisher has")
        }
        Some(newest) => Ok(format!("up to {newest}, asked on {checked_at}")),
        None => Ok(format!("asked on {checked_at}")),
    }
}
