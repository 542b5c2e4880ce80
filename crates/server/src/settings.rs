//! Settings from the environment or the command line. `vintem <command> --help` is their reference.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use ipnet::IpNet;
use tracing_subscriber::EnvFilter;
use vintem_api::{ApiSettings, Pepper};
use vintem_deliver::webhook::{AddressGuard, SecretBox};
use vintem_domain::Plan;
use vintem_domain::plan::{PlanConfig, PlanLimits};
use vintem_ingest::fetch::UpstreamAddresses;
use vintem_meter::{Meter, MeterSettings};
use vintem_store::{Store, Timeouts};

/// A value that no log or error message may contain.
#[derive(Clone)]
pub struct Secret(String);

impl Secret {
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl FromStr for Secret {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// Comma-separated networks. An empty setting means none.
#[derive(Debug, Clone, Default)]
pub struct NetworkList(pub Vec<IpNet>);

impl FromStr for NetworkList {
    type Err = ipnet::AddrParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let networks = text.split(',').map(str::trim).filter(|network| !network.is_empty());
        Ok(Self(networks.map(str::parse).collect::<Result<_, _>>()?))
    }
}

#[derive(Debug, Clone, Args)]
pub struct DatabaseSettings {
    /// PostgreSQL, e.g. postgres://vintem:secret@127.0.0.1:5432/vintem
    #[arg(long, env = "VINTEM_DATABASE_URL", hide_env_values = true)]
    pub database_url: Secret,
}

#[derive(Debug, Clone, Args)]
pub struct PepperSettings {
    /// The secret under which keys are stored, at least 32 characters. A lost pepper makes every key invalid.
    #[arg(long, env = "VINTEM_KEY_PEPPER", hide_env_values = true)]
    pub key_pepper: Secret,
}

#[derive(Debug, Clone, Args)]
pub struct WebhookSettings {
    /// The secret under which the secrets of webhooks are sealed, at least 32 characters. A lost one makes every webhook
    /// fail until its secret is rotated
    #[arg(long, env = "VINTEM_SECRET_KEY", hide_env_values = true)]
    pub secret_key: Secret,

    /// Networks that webhooks may lead to although they are not public, also without encryption, comma-separated
    #[arg(long, env = "VINTEM_WEBHOOK_ALLOW", default_value = "", hide_default_value = true)]
    pub webhook_allow: NetworkList,
}

impl WebhookSettings {
    pub fn secret_box(&self) -> anyhow::Result<SecretBox> {
        SecretBox::new(self.secret_key.reveal()).with_context(|| {
            format!("VINTEM_SECRET_KEY must have at least {} characters", SecretBox::MIN_SETTING_LENGTH)
        })
    }

    pub fn address_guard(&self) -> AddressGuard {
        AddressGuard::new(self.webhook_allow.0.clone())
    }
}

#[derive(Debug, Clone, Args)]
pub struct LogSettings {
    /// What is logged, e.g. `info` or `warn,vintem_api=debug`
    #[arg(long, env = "VINTEM_LOG", default_value = "info,sqlx=warn")]
    log: String,
}

impl LogSettings {
    /// Logs JSON lines to standard error.
    pub fn init_logging(&self) -> anyhow::Result<()> {
        let filter = EnvFilter::try_new(&self.log).context("VINTEM_LOG cannot be read")?;
        tracing_subscriber::fmt()
            .json()
            .flatten_event(true)
            .with_writer(std::io::stderr)
            .with_env_filter(filter)
            .init();
        Ok(())
    }
}

/// Where data comes from. The defaults are the publishers' own addresses.
#[derive(Debug, Clone, Args)]
pub struct UpstreamSettings {
    /// The central bank's time series
    #[arg(long, env = "VINTEM_SGS_URL", default_value = "https://api.bcb.gov.br")]
    pub sgs_url: String,

    /// The central bank's exchange rates
    #[arg(long, env = "VINTEM_PTAX_URL", default_value = "https://olinda.bcb.gov.br")]
    pub ptax_url: String,

    /// The regulator's files
    #[arg(long, env = "VINTEM_CVM_URL", default_value = "https://dados.cvm.gov.br")]
    pub cvm_url: String,
}

#[derive(Debug, Clone, Args)]
pub struct ContactSettings {
    /// Where you are reached: an e-mail or the address of a page. Sent to the publishers as part of the User-Agent; on
    /// the pages who asks for a plan, for help or for erasure is led there
    #[arg(long, env = "VINTEM_CONTACT", default_value = "", hide_default_value = true)]
    pub contact: String,
}

impl ContactSettings {
    pub fn non_empty_contact(&self) -> Option<String> {
        Some(self.contact.trim().to_owned()).filter(|contact| !contact.is_empty())
    }
}

impl UpstreamSettings {
    pub fn upstream_addresses(&self) -> UpstreamAddresses {
        UpstreamAddresses { sgs: self.sgs_url.clone(), ptax: self.ptax_url.clone(), cvm: self.cvm_url.clone() }
    }
}

#[derive(Debug, Clone, Args)]
pub struct DirectorySettings {
    /// A directory of this process alone: a replica keeps a copy of the filings there to start from; default: none is
    /// kept
    #[arg(long, env = "VINTEM_DATA_DIR")]
    pub data_dir: Option<PathBuf>,

    /// Where the files of the bulk export are, the same for all processes; default: `export` in VINTEM_DATA_DIR. Without
    /// either there is no bulk export
    #[arg(long, env = "VINTEM_EXPORT_DIR")]
    pub export_dir: Option<PathBuf>,
}

impl DirectorySettings {
    pub fn export_directory(&self) -> Option<PathBuf> {
        let default = || self.data_dir.as_ref().map(|directory| directory.join("export"));
        self.export_dir.clone().or_else(default)
    }
}

#[derive(Debug, Clone, Args)]
pub struct ServeSettings {
    #[command(flatten)]
    pub database: DatabaseSettings,

    #[command(flatten)]
    pub pepper: PepperSettings,

    /// What a request may wait for a row of PostgreSQL, in milliseconds; for many rows it is twice that
    #[arg(long, env = "VINTEM_POSTGRES_BUDGET_MS", default_value_t = 500, value_parser = clap::value_parser!(u32).range(10..=10_000))]
    pub postgres_budget_ms: u32,

    /// Redis or Valkey, e.g. redis://127.0.0.1:6379; several, comma-separated, share the callers: the same ones in the
    /// same order for every replica
    #[arg(long, env = "VINTEM_REDIS_URL", hide_env_values = true, default_value = "redis://127.0.0.1:6379")]
    pub redis_url: Secret,

    /// What a request may wait for Redis, in milliseconds, before this replica decides by itself
    #[arg(long, env = "VINTEM_REDIS_BUDGET_MS", default_value_t = 25, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub redis_budget_ms: u32,

    /// How many replicas there are: their parts of a limit if Redis is away before it could tell
    #[arg(long, env = "VINTEM_REPLICAS", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub replicas: u32,

    /// Where the API and the pages are served
    #[arg(long, env = "VINTEM_LISTEN", default_value = "127.0.0.1:8080")]
    pub listen: SocketAddr,

    /// Where /livez, /readyz and /metrics are served, for the operator alone
    #[arg(long, env = "VINTEM_ADMIN_LISTEN", default_value = "127.0.0.1:9080")]
    pub admin_listen: SocketAddr,

    /// Where the service is reached from outside, e.g. https://api.example.com; default: the listen address
    #[arg(long, env = "VINTEM_PUBLIC_URL", default_value = "", hide_default_value = true)]
    pub public_url: String,

    /// Networks of proxies whose X-Forwarded-For or Forwarded is believed, comma-separated
    #[arg(long, env = "VINTEM_TRUSTED_PROXIES", default_value = "", hide_default_value = true)]
    pub trusted_proxies: NetworkList,

    #[command(flatten)]
    pub directories: DirectorySettings,

    #[command(flatten)]
    pub webhooks: WebhookSettings,

    #[command(flatten)]
    pub contact: ContactSettings,

    /// How keys of the Platinum plan reach your support: an e-mail, an address, a telephone number. Without it priority
    /// support is not offered
    #[arg(long, env = "VINTEM_SUPPORT", default_value = "", hide_default_value = true)]
    pub support: String,

    /// The window of the rate limit in seconds; anything but 60 is for tests
    #[arg(long, env = "VINTEM_LIMIT_WINDOW_SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub limit_window_seconds: u32,

    /// Requests in a window on the Free plan
    #[arg(long, env = "VINTEM_LIMIT_FREE", default_value_t = Plan::Free.default_requests_per_minute(), value_parser = clap::value_parser!(u32).range(1..))]
    pub limit_free: u32,

    /// Requests in a window on the Bronze plan
    #[arg(long, env = "VINTEM_LIMIT_BRONZE", default_value_t = Plan::Bronze.default_requests_per_minute(), value_parser = clap::value_parser!(u32).range(1..))]
    pub limit_bronze: u32,

    /// Requests in a window on the Gold plan
    #[arg(long, env = "VINTEM_LIMIT_GOLD", default_value_t = Plan::Gold.default_requests_per_minute(), value_parser = clap::value_parser!(u32).range(1..))]
    pub limit_gold: u32,

    /// Requests in a window on the Platinum plan
    #[arg(long, env = "VINTEM_LIMIT_PLATINUM", default_value_t = Plan::Platinum.default_requests_per_minute(), value_parser = clap::value_parser!(u32).range(1..))]
    pub limit_platinum: u32,

    /// New keys a day for one address, and for one e-mail
    #[arg(long, env = "VINTEM_REGISTER_PER_DAY", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    pub register_per_day: u32,

    /// Requests under way at once; what is beyond is told to come again. Large requests are held to fewer
    #[arg(long, env = "VINTEM_MAX_IN_FLIGHT", default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..))]
    pub max_in_flight: u32,
}

/// Requests need Postgres for keys and usage only, so a few connections serve thousands of callers.
const MAX_DATABASE_CONNECTIONS: u32 = 10;

impl DatabaseSettings {
    /// Opens the store with the timeouts of background work, where no client is waiting.
    pub fn open_store(&self) -> anyhow::Result<Store> {
        self.open_store_with(Timeouts::for_workers())
    }

    fn open_store_with(&self, timeouts: Timeouts) -> anyhow::Result<Store> {
        // The original error would contain the URL, password included.
        Store::open(self.database_url.reveal(), MAX_DATABASE_CONNECTIONS, timeouts).map_err(|_| {
            anyhow::anyhow!(
                "VINTEM_DATABASE_URL cannot be read: it must look like postgres://user:password@host:5432/database"
            )
        })
    }
}

impl PepperSettings {
    pub fn parse_pepper(&self) -> anyhow::Result<Pepper> {
        Pepper::new(self.key_pepper.reveal())
            .with_context(|| format!("VINTEM_KEY_PEPPER must have at least {} characters", Pepper::MIN_LENGTH))
    }
}

impl ServeSettings {
    pub fn open_store(&self) -> anyhow::Result<Store> {
        let budget = Duration::from_millis(u64::from(self.postgres_budget_ms));
        self.database.open_store_with(Timeouts::for_requests(budget))
    }

    /// The plans as configured for this installation.
    pub fn offer(&self) -> PlanConfig {
        let limits = PlanLimits {
            window_seconds: self.limit_window_seconds,
            requests_by_plan: [self.limit_free, self.limit_bronze, self.limit_gold, self.limit_platinum],
        };
        PlanConfig { limits, priority_support: self.support_contact().is_some() }
    }

    fn support_contact(&self) -> Option<String> {
        Some(self.support.trim().to_owned()).filter(|support| !support.is_empty())
    }

    pub fn redis_urls(&self) -> Vec<&str> {
        self.redis_url.reveal().split(',').map(str::trim).collect()
    }

    pub fn open_meter(&self, prefix: &str) -> anyhow::Result<Meter> {
        let settings = MeterSettings {
            redis_urls: self.redis_urls(),
            prefix,
            window: Duration::from_secs(u64::from(self.limit_window_seconds)),
            redis_timeout: Duration::from_millis(u64::from(self.redis_budget_ms)),
            assumed_replicas: self.replicas,
        };

        // The original error would contain the URL, password included.
        Meter::open(&settings).map_err(|_| {
            anyhow::anyhow!("VINTEM_REDIS_URL cannot be read: it must look like redis://:password@host:6379, or several of them with commas")
        })
    }

    /// `bound_address` is the real listen address, which the setting leaves open if its port is 0.
    pub fn api_settings(&self, bound_address: SocketAddr) -> anyhow::Result<ApiSettings> {
        let public_url =
            if self.public_url.is_empty() { format!("http://{bound_address}") } else { self.public_url.clone() };
        Ok(ApiSettings {
            offer: self.offer(),
            public_url: public_url.trim_end_matches('/').to_owned(),
            trusted_proxies: self.trusted_proxies.0.clone(),
            registrations_per_day: self.register_per_day,
            max_in_flight: self.max_in_flight as usize,
            export_directory: self.directories.export_directory(),
            support_contact: self.support_contact(),
            webhook_guard: self.webhooks.address_guard(),
            webhook_secrets: self.webhooks.secret_box()?,
        })
    }
}
