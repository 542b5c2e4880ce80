//! Settings from the environment or the command line. `vintem <command> --help` is their reference.

use std::fmt;
use std::io::IsTerminal;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use ipnet::IpNet;
use tracing_subscriber::filter::{EnvFilter, FilterExt, filter_fn};
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use vintem_api::{ApiSettings, Pepper};
use vintem_deliver::webhook::{AddressGuard, SecretBox};
use vintem_domain::Plan;
use vintem_domain::plan::{PlanConfig, PlanLimits};
use vintem_domain::series::{Series, optional_series};
use vintem_domain::spans::SPAN_TARGET;
use vintem_ingest::fetch::UpstreamAddresses;
use vintem_meter::{Meter, MeterSettings};
use vintem_store::{Store, Timeouts};

use crate::traces::{request_tracer, start_export};

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
    /// PostgreSQL database, e.g. postgres://vintem:secret@127.0.0.1:5432/vintem
    #[arg(long, env = "VINTEM_DATABASE_URL", hide_env_values = true)]
    pub database_url: Secret,

    /// The same database without a pooler. Set this if VINTEM_DATABASE_URL leads to PgBouncer in transaction mode
    #[arg(long, env = "VINTEM_DATABASE_DIRECT_URL", hide_env_values = true)]
    pub database_direct_url: Option<Secret>,
}

#[derive(Debug, Clone, Args)]
pub struct PepperSettings {
    /// Secret for hashing API keys, at least 32 characters. If you lose or change it, every existing key becomes invalid
    #[arg(long, env = "VINTEM_KEY_PEPPER", hide_env_values = true)]
    pub key_pepper: Secret,
}

#[derive(Debug, Clone, Args)]
pub struct WebhookSettings {
    /// Secret for encrypting webhook signing secrets, at least 32 characters. If you lose or change it, each webhook fails
    /// until its owner rotates the signing secret
    #[arg(long, env = "VINTEM_SECRET_KEY", hide_env_values = true)]
    pub secret_key: Secret,

    /// Private networks that webhooks may be sent to, even over plain HTTP; comma-separated
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
pub struct AdminTokenSettings {
    /// Token that /metrics asks for, as `Authorization: Bearer`. Without it, everyone who reaches the admin port sees the
    /// metrics
    #[arg(long, env = "VINTEM_ADMIN_TOKEN", hide_env_values = true)]
    pub admin_token: Option<Secret>,
}

#[derive(Debug, Clone, Args)]
pub struct CatalogSettings {
    /// Series that are neither fetched nor served, by their ids, separated by commas
    #[arg(long, env = "VINTEM_DISABLED_SERIES", global = true, default_value = "", hide_default_value = true)]
    pub disabled_series: SeriesList,
}

/// Ids of series, separated by commas.
#[derive(Debug, Clone)]
pub struct SeriesList(pub Vec<&'static Series>);

impl FromStr for SeriesList {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let find = |id: &str| {
            optional_series(id)
                .ok_or_else(|| format!("`{id}` cannot be disabled, or is not in the catalog (`/api/v1/market/series`)"))
        };
        let ids = text.split(',').map(str::trim).filter(|id| !id.is_empty());
        Ok(Self(ids.map(find).collect::<Result<_, _>>()?))
    }
}

#[derive(Debug, Clone, Args)]
pub struct LogSettings {
    /// Log filter, e.g. `info` or `warn,vintem_api=debug`
    #[arg(long, env = "VINTEM_LOG", default_value = "info,sqlx=warn")]
    log: String,

    /// OpenTelemetry collector that gets traces over HTTP, e.g. http://127.0.0.1:4318 [default: none]
    #[arg(long, env = "VINTEM_OTLP_URL", value_name = "URL")]
    otlp_url: Option<String>,

    /// Share of the requests and webhook deliveries that are traced, from 0 to 1
    #[arg(long, env = "VINTEM_TRACE_RATIO", default_value_t = 0.01, value_parser = parse_ratio)]
    trace_ratio: f64,
}

fn parse_ratio(text: &str) -> Result<f64, String> {
    let ratio = text.parse().ok().filter(|ratio| (0.0..=1.0).contains(ratio));
    ratio.ok_or_else(|| "it must be a number from 0 to 1".to_owned())
}

impl LogSettings {
    /// Logs to standard error, readable lines on a terminal and JSON otherwise, and starts to export traces.
    pub fn init_logging(&self) -> anyhow::Result<()> {
        let filter = EnvFilter::try_new(&self.log).context("VINTEM_LOG is not a valid log filter")?;
        // Spans are for traces. Log lines look the same with and without them.
        let filter = filter.and(filter_fn(|metadata| metadata.target() != SPAN_TARGET));
        let logs = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
        let logs = if std::io::stderr().is_terminal() {
            logs.with_target(false).boxed()
        } else {
            logs.json().flatten_event(true).with_current_span(false).with_span_list(false).boxed()
        };
        let traces = match self.otlp_url.as_deref().filter(|url| !url.is_empty()) {
            Some(url) => Some(start_export(url, self.trace_ratio)?),
            None => None,
        };
        tracing_subscriber::registry().with(logs.with_filter(filter)).with(traces).init();
        Ok(())
    }
}

/// Addresses of the upstreams. The defaults are the publishers' own.
#[derive(Debug, Clone, Args)]
pub struct UpstreamSettings {
    /// Base URL of the central bank's time series (SGS)
    #[arg(long, env = "VINTEM_SGS_URL", default_value = "https://api.bcb.gov.br")]
    pub sgs_url: String,

    /// Base URL of the central bank's exchange rates (PTAX)
    #[arg(long, env = "VINTEM_PTAX_URL", default_value = "https://olinda.bcb.gov.br")]
    pub ptax_url: String,

    /// Base URL of the regulator's files (CVM)
    #[arg(long, env = "VINTEM_CVM_URL", default_value = "https://dados.cvm.gov.br")]
    pub cvm_url: String,
}

#[derive(Debug, Clone, Args)]
pub struct ContactSettings {
    /// Your contact, an email address or a URL. Shown as the contact for upgrades, support and data erasure, and sent to
    /// the publishers in the User-Agent
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
    /// Directory for a copy of the snapshot, which speeds up startup. Every replica needs its own directory. If unset, no
    /// copy is kept
    #[arg(long, env = "VINTEM_DATA_DIR")]
    pub data_dir: Option<PathBuf>,

    /// Directory for bulk export files, shared by all processes [default: `export` in VINTEM_DATA_DIR]. If
    /// neither is set, bulk export is off
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

    /// Timeout for a PostgreSQL query during a request, in milliseconds; doubled for queries that return many rows
    #[arg(long, env = "VINTEM_POSTGRES_BUDGET_MS", default_value_t = 500, value_parser = clap::value_parser!(u32).range(10..=10_000))]
    pub postgres_budget_ms: u32,

    /// Redis or Valkey, e.g. redis://127.0.0.1:6379, or with TLS rediss://user:password@host:6379. Separate several
    /// servers with commas; callers are divided among them. Every replica needs the same list in the same order
    #[arg(long, env = "VINTEM_REDIS_URL", hide_env_values = true, default_value = "redis://127.0.0.1:6379")]
    pub redis_url: Secret,

    /// PEM file with the certificates that sign those of `rediss://` servers [default: the system's]
    #[arg(long, env = "VINTEM_REDIS_CA")]
    pub redis_ca: Option<PathBuf>,

    /// Timeout for Redis during a request, in milliseconds; after that, the replica enforces the limit by itself
    #[arg(long, env = "VINTEM_REDIS_BUDGET_MS", default_value_t = 25, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub redis_budget_ms: u32,

    /// Number of replicas. While Redis is unreachable, each replica enforces its share of each limit
    #[arg(long, env = "VINTEM_REPLICAS", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub replicas: u32,

    /// Address of the API and the pages
    #[arg(long, env = "VINTEM_LISTEN", default_value = "127.0.0.1:8080")]
    pub listen: SocketAddr,

    /// Address of /livez, /readyz and /metrics. Keep it private
    #[arg(long, env = "VINTEM_ADMIN_LISTEN", default_value = "127.0.0.1:9080")]
    pub admin_listen: SocketAddr,

    #[command(flatten)]
    pub admin_token: AdminTokenSettings,

    /// Public URL of the service, e.g. https://api.example.com [default: the listen address]
    #[arg(long, env = "VINTEM_PUBLIC_URL", default_value = "", hide_default_value = true)]
    pub public_url: String,

    /// Networks of proxies whose X-Forwarded-For or Forwarded header is trusted; comma-separated
    #[arg(long, env = "VINTEM_TRUSTED_PROXIES", default_value = "", hide_default_value = true)]
    pub trusted_proxies: NetworkList,

    #[command(flatten)]
    pub directories: DirectorySettings,

    #[command(flatten)]
    pub webhooks: WebhookSettings,

    #[command(flatten)]
    pub contact: ContactSettings,

    /// Support contact for the Platinum plan: an email address, a URL or a telephone number. Without it, priority support
    /// is not offered
    #[arg(long, env = "VINTEM_SUPPORT", default_value = "", hide_default_value = true)]
    pub support: String,

    /// Window of the rate limits in seconds; values other than 60 are for tests
    #[arg(long, env = "VINTEM_LIMIT_WINDOW_SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub limit_window_seconds: u32,

    /// Rate limit of the Free plan, in requests per window
    #[arg(long, env = "VINTEM_LIMIT_FREE", default_value_t = Plan::Free.default_requests_per_minute(), value_parser = clap::value_parser!(u32).range(1..))]
    pub limit_free: u32,

    /// Rate limit of the Bronze plan, in requests per window
    #[arg(long, env = "VINTEM_LIMIT_BRONZE", default_value_t = Plan::Bronze.default_requests_per_minute(), value_parser = clap::value_parser!(u32).range(1..))]
    pub limit_bronze: u32,

    /// Rate limit of the Gold plan, in requests per window
    #[arg(long, env = "VINTEM_LIMIT_GOLD", default_value_t = Plan::Gold.default_requests_per_minute(), value_parser = clap::value_parser!(u32).range(1..))]
    pub limit_gold: u32,

    /// Rate limit of the Platinum plan, in requests per window
    #[arg(long, env = "VINTEM_LIMIT_PLATINUM", default_value_t = Plan::Platinum.default_requests_per_minute(), value_parser = clap::value_parser!(u32).range(1..))]
    pub limit_platinum: u32,

    /// Maximum number of new keys per day, for each client address and for each email address
    #[arg(long, env = "VINTEM_REGISTER_PER_DAY", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    pub register_per_day: u32,

    /// Maximum number of unknown keys that are looked up in PostgreSQL per minute, for each client address
    #[arg(long, env = "VINTEM_KEY_LOOKUPS_PER_MINUTE", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..))]
    pub key_lookups_per_minute: u32,

    /// Maximum number of concurrent requests; further requests get 503. The limit drops while requests are expensive
    #[arg(long, env = "VINTEM_MAX_IN_FLIGHT", default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..))]
    pub max_in_flight: u32,

    /// How long requests are still answered after SIGTERM, in seconds, while load balancers notice that the replica is no
    /// longer ready
    #[arg(long, env = "VINTEM_DRAIN_SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u32).range(0..=600))]
    pub drain_seconds: u32,

    /// Requests logged per second; at higher rates, only some are, and all that end with a server error
    #[arg(long, env = "VINTEM_LOG_REQUESTS_PER_SECOND", default_value_t = 100)]
    pub log_requests_per_second: u32,

    /// Memory for cached responses, in MiB; 0 disables the cache
    #[arg(long, env = "VINTEM_RESPONSE_CACHE_MIB", default_value_t = 64, value_parser = clap::value_parser!(u32).range(0..=65_536))]
    pub response_cache_mib: u32,
}

/// Requests need Postgres for keys and usage only, so a few connections serve thousands of callers.
const MAX_DATABASE_CONNECTIONS: u32 = 10;

impl DatabaseSettings {
    /// Opens the store with the timeouts of background work, where no client is waiting.
    pub fn open_store(&self) -> anyhow::Result<Store> {
        self.open_store_with(Timeouts::for_workers())
    }

    /// Like [`Self::open_store`], but fails at once if the database is unreachable or not migrated.
    pub async fn open_migrated_store(&self) -> anyhow::Result<Store> {
        let store = self.open_store()?;
        store.check_schema().await?;
        Ok(store)
    }

    fn open_store_with(&self, timeouts: Timeouts) -> anyhow::Result<Store> {
        let url = self.database_url.reveal();
        let (setting, store) = match &self.database_direct_url {
            Some(direct) => (
                "VINTEM_DATABASE_URL or VINTEM_DATABASE_DIRECT_URL",
                Store::open_behind_pooler(url, direct.reveal(), MAX_DATABASE_CONNECTIONS, timeouts),
            ),
            None => ("VINTEM_DATABASE_URL", Store::open(url, MAX_DATABASE_CONNECTIONS, timeouts)),
        };
        // The original error would contain the URL, password included.
        store.map_err(|_| {
            anyhow::anyhow!("{setting} is not valid. It must look like postgres://user:password@host:5432/database")
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

    pub fn redis_certificates(&self) -> anyhow::Result<Option<Vec<u8>>> {
        let read = |file: &PathBuf| {
            std::fs::read(file).with_context(|| format!("VINTEM_REDIS_CA: {} cannot be read", file.display()))
        };
        self.redis_ca.as_ref().map(read).transpose()
    }

    pub fn open_meter(&self, prefix: &str) -> anyhow::Result<Meter> {
        let certificates = self.redis_certificates()?;
        let settings = MeterSettings {
            redis_urls: self.redis_urls(),
            redis_certificates: certificates.as_deref(),
            prefix,
            window: Duration::from_secs(u64::from(self.limit_window_seconds)),
            redis_timeout: Duration::from_millis(u64::from(self.redis_budget_ms)),
            assumed_replicas: self.replicas,
        };

        // The original error would contain the URL, password included.
        Meter::open(&settings).map_err(|_| {
            anyhow::anyhow!(
                "VINTEM_REDIS_URL is not valid. It must look like redis://:password@host:6379; separate URLs with commas"
            )
        })
    }

    /// `bound_address` is the actual listen address. It differs from the setting if the configured port is 0.
    pub fn api_settings(&self, bound_address: SocketAddr) -> anyhow::Result<ApiSettings> {
        let public_url =
            if self.public_url.is_empty() { format!("http://{bound_address}") } else { self.public_url.clone() };
        Ok(ApiSettings {
            offer: self.offer(),
            public_url: public_url.trim_end_matches('/').to_owned(),
            trusted_proxies: self.trusted_proxies.0.clone(),
            registrations_per_day: self.register_per_day,
            key_lookups_per_minute: self.key_lookups_per_minute,
            max_in_flight: self.max_in_flight as usize,
            request_tracer: request_tracer(),
            logged_requests_per_second: self.log_requests_per_second,
            response_cache_bytes: u64::from(self.response_cache_mib) << 20,
            export_directory: self.directories.export_directory(),
            support_contact: self.support_contact(),
            webhook_guard: self.webhooks.address_guard(),
            webhook_secrets: self.webhooks.secret_box()?,
        })
    }
}
