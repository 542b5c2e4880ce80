//! `vintem doctor`: checks the settings, the services that they point to, and the freshness of the data.

use anyhow::{Context, bail};
use chrono::{NaiveDate, Utc};
use clap::Args;
use vintem_domain::Dataset;
use vintem_domain::dates::sao_paulo_date;
use vintem_ingest::probe::probe;
use vintem_ingest::source::{DataSource, Upstream};
use vintem_store::Store;
use vintem_store::sources::SourceState;

use crate::commands::ingest;
use crate::commands::live_survey::LiveSurveyArguments;
use crate::connections::{ConnectionLimits, raise_descriptor_limit};
use crate::describe_error;
use crate::settings::{ServeSettings, UpstreamSettings};
use crate::usage_error::BadSetting;

#[derive(Debug, Args)]
pub struct DoctorCommand {
    #[command(flatten)]
    settings: ServeSettings,

    #[command(flatten)]
    upstreams: UpstreamSettings,

    #[command(flatten)]
    live_survey: LiveSurveyArguments,

    /// Settings that could not be parsed; the others have their values.
    #[arg(skip)]
    pub bad_settings: Vec<BadSetting>,
}

/// Prints a line for each check, and counts those that failed.
#[derive(Default)]
struct Report {
    failures: usize,
}

impl Report {
    fn add(&mut self, name: &str, result: anyhow::Result<String>) {
        match result {
            Ok(details) => println!("ok    {name}: {details}"),
            Err(error) => {
                self.failures += 1;
                println!("FAIL  {name}: {}", describe_error(&error));
            }
        }
    }
}

/// A database that answers; the checks of its data need it.
struct UsableDatabase {
    store: Store,
    is_demo: bool,
}

impl DoctorCommand {
    pub async fn run(self) -> anyhow::Result<()> {
        let settings = &self.settings;
        if self.live_survey.live {
            return self.live_survey.run(&self.upstreams.upstream_addresses(), &settings.contact.contact).await;
        }
        let mut report = Report::default();

        for setting in &self.bad_settings {
            report.add(&setting.variable, Err(anyhow::anyhow!("{}", setting.describe())));
        }
        let is_bad = |variable: &str| self.bad_settings.iter().any(|setting| setting.variable == variable);

        if !is_bad("VINTEM_KEY_PEPPER") {
            report.add(
                "VINTEM_KEY_PEPPER",
                settings.pepper.parse_pepper().map(|pepper| format!("id {}", pepper.mark().id)),
            );
        }
        if !is_bad("VINTEM_SECRET_KEY") {
            report.add("VINTEM_SECRET_KEY", settings.webhooks.secret_box().map(|_| "long enough".to_owned()));
        }
        report.add("VINTEM_PUBLIC_URL", self.check_public_url());
        report.add("open files", check_descriptors());
        report.add("VINTEM_REDIS_URL", self.check_redis().await);

        let mut database = None;
        if !is_bad("VINTEM_DATABASE_URL") {
            let result = self.check_postgres().await.map(|(usable, details)| {
                database = Some(usable);
                details
            });
            report.add("VINTEM_DATABASE_URL", result);
        }

        if let Some(database) = &database
            && !is_bad("VINTEM_KEY_PEPPER")
        {
            report.add("keys", self.check_keys(&database.store).await);
        }
        match &database {
            Some(database) if database.is_demo => {
                report.add("data", Ok("demo data; remove it with: vintem demo --remove".to_owned()));
            }
            Some(database) => {
                self.check_upstreams(&mut report).await;
                check_data(&database.store, &mut report).await;
            }
            None => self.check_upstreams(&mut report).await,
        }

        match report.failures {
            0 => Ok(()),
            1 => bail!("1 check failed"),
            failures => bail!("{failures} checks failed"),
        }
    }

    async fn check_postgres(&self) -> anyhow::Result<(UsableDatabase, String)> {
        let store = self.settings.database.open_migrated_store().await?;
        let states = store.dataset_states().await?;
        let is_demo = store.has_synthetic_data().await?;
        let loaded = Dataset::all().filter(|dataset| states.contains_key(dataset)).count();
        let details = format!("connected; {loaded} of {} datasets have data", Dataset::all().count());
        Ok((UsableDatabase { store, is_demo }, details))
    }

    async fn check_keys(&self, store: &Store) -> anyhow::Result<String> {
        let pepper = self.settings.pepper.parse_pepper()?;
        let has_keys = store.check_pepper(pepper.mark()).await?;
        Ok(if has_keys { "created with this pepper" } else { "no key has been used with this pepper yet" }.to_owned())
    }

    async fn check_redis(&self) -> anyhow::Result<String> {
        let servers = self.settings.redis_urls();
        let certificates = self.settings.redis_certificates()?;
        for server in &servers {
            vintem_meter::ping_redis(server, certificates.as_deref())
                .await
                .context("not connected; check the URL and that Redis is running")?;
        }
        Ok(if servers.len() == 1 { "connected".to_owned() } else { format!("connected to {} servers", servers.len()) })
    }

    fn check_public_url(&self) -> anyhow::Result<String> {
        match self.settings.public_url.as_str() {
            "" => Ok(format!("not set; using http://{}", self.settings.listen)),
            url if url.starts_with("https://") || url.starts_with("http://") => Ok(url.to_owned()),
            url => bail!("\"{url}\" is not valid. It must start with https:// or http://"),
        }
    }

    async fn check_upstreams(&self, report: &mut Report) {
        let addresses = self.upstreams.upstream_addresses();
        for (upstream, setting) in
            [(Upstream::Sgs, "VINTEM_SGS_URL"), (Upstream::Ptax, "VINTEM_PTAX_URL"), (Upstream::Cvm, "VINTEM_CVM_URL")]
        {
            let probed = probe(upstream, &addresses, &self.settings.contact.contact).await;
            report.add(setting, probed.map(|()| format!("{} is reachable", upstream.name())).map_err(Into::into));
        }
    }
}

/// How many connections `vintem serve` could have here.
fn check_descriptors() -> anyhow::Result<String> {
    let descriptors = raise_descriptor_limit().context("cannot read the limit of open files")?;
    let ConnectionLimits { max_open, max_per_peer } = ConnectionLimits::from_descriptors(descriptors);
    Ok(format!("limit {descriptors}; enough for {max_open} connections, {max_per_peer} per address"))
}

/// How fresh each dataset is, and what to do if it is stale.
async fn check_data(store: &Store, report: &mut Report) {
    let today = sao_paulo_date(Utc::now());
    let states = async {
        let newest_dates = store.newest_dates(today).await?;
        let source_states = store.source_states().await?;
        let cross_checks = store.cross_checks().await?;
        anyhow::Ok((newest_dates, source_states, cross_checks))
    };
    let (newest_dates, source_states, cross_checks) = match states.await {
        Ok(states) => states,
        Err(error) => return report.add("data", Err(error)),
    };

    for source in DataSource::all() {
        let state = source_states.iter().find(|state| state.source == source.id());
        let newest = newest_dates.get(&source.dataset()).copied();
        report.add(source.id(), check_freshness(source, state, newest, today));
    }
    for check in cross_checks {
        let text = ingest::format_cross_check(&check);
        let result = if check.differing_values == 0 { Ok(text) } else { Err(anyhow::anyhow!("{text}")) };
        report.add("cross-check", result);
    }
}

fn check_freshness(
    source: DataSource,
    state: Option<&SourceState>,
    newest: Option<NaiveDate>,
    today: NaiveDate,
) -> anyhow::Result<String> {
    let id = source.id();
    let Some(state) = state else { bail!("never fetched. Fetch it with: vintem ingest {id}") };
    if let [newest, others @ ..] = &state.failing_parts[..] {
        let (part, problem) = (&newest.part, &newest.failure.problem);
        let more = if others.is_empty() { String::new() } else { format!(" So do {} other parts.", others.len()) };
        bail!("{part} fails: {problem}.{more} The stored data is still served. Retry with: vintem ingest {id}");
    }
    let Some(checked_at) = state.checked_at else {
        bail!("the first fetch did not finish. Continue it with: vintem ingest {id}")
    };

    let checked_at = checked_at.format("%Y-%m-%d %H:%M UTC");
    match newest {
        Some(newest) if source.dataset().is_stale(newest, today) => {
            bail!(
                "stale: the newest data is from {newest}; last fetched on {checked_at}. Check if the publisher has newer data"
            )
        }
        Some(newest) => Ok(format!("data up to {newest}, fetched on {checked_at}")),
        None => Ok(format!("fetched on {checked_at}")),
    }
}
