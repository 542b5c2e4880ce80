//! `vintem doctor`: are the settings right, and does what they point to answer?

use std::time::Duration;

use anyhow::bail;
use clap::Args;
use vintem_domain::Dataset;
use vintem_meter::Meter;

use crate::replica::REDIS_PREFIX;
use crate::settings::ServeSettings;

#[derive(Debug, Args)]
pub struct DoctorCommand {
    #[command(flatten)]
    settings: ServeSettings,
}

impl DoctorCommand {
    pub async fn run(self) -> anyhow::Result<()> {
        let settings = &self.settings;
        let mut ailments = 0;
        let mut say = |what: &str, found: anyhow::Result<String>| match found {
            Ok(found) => println!("ok    {what}: {found}"),
            Err(error) => {
                ailments += 1;
                println!("FAIL  {what}: {error:#}");
            }
        };
        say("VINTEM_KEY_PEPPER", settings.pepper.pepper().map(|pepper| format!("id {}", pepper.id())));
        say("VINTEM_DATABASE_URL", self.look_at_postgres().await);
        say("VINTEM_REDIS_URL", self.look_at_redis().await);
        say(
            "VINTEM_PUBLIC_URL",
            match settings.public_url.as_str() {
                "" => Ok("not set: the listen address".to_owned()),
                url if url.starts_with("https://") || url.starts_with("http://") => Ok(url.to_owned()),
                url => Err(anyhow::anyhow!("{url} is no http or https address")),
            },
        );
        if ailments > 0 {
            bail!("{ailments} of the checks failed");
        }
        Ok(())
    }

    async fn look_at_postgres(&self) -> anyhow::Result<String> {
        let store = self.settings.database.open()?;
        store.ping().await?;
        let states = store
            .dataset_states()
            .await
            .map_err(|_| anyhow::anyhow!("answers, but lacks our tables: run `vintem migrate`"))?;
        Ok(format!("answers, {} of {} datasets loaded", states.len(), Dataset::all().count()))
    }

    async fn look_at_redis(&self) -> anyhow::Result<String> {
        let meter = Meter::open(self.settings.redis_url()?, REDIS_PREFIX, Duration::from_secs(60))?;
        meter.ping().await?;
        Ok("answers".to_owned())
    }
}
