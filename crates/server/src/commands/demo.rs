//! `vintem demo`: loads synthetic data, or removes it.

use std::sync::Mutex;
use std::time::Instant;

use chrono::{NaiveDate, Utc};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use vintem_domain::dates::sao_paulo_date;
use vintem_ingest::demo::{self, DemoSize};
use vintem_store::Store;

use crate::settings::DatabaseSettings;

/// About as many companies as CVM has registered, and about as many filings as they deliver in a year.
const DEFAULT_COMPANIES: usize = 2_600;
const DEFAULT_FILINGS: usize = 50_000;

#[derive(Debug, Args)]
pub struct DemoCommand {
    #[command(flatten)]
    database: DatabaseSettings,

    /// Number of filings
    #[arg(long, default_value_t = DEFAULT_FILINGS)]
    filings: usize,

    /// Number of companies
    #[arg(long, default_value_t = DEFAULT_COMPANIES)]
    companies: usize,

    /// Last day with data [default: today in São Paulo]
    #[arg(long)]
    until: Option<NaiveDate>,

    /// Remove the demo data instead
    #[arg(long, conflicts_with_all = ["filings", "companies", "until"])]
    remove: bool,
}

impl DemoCommand {
    pub async fn run(self) -> anyhow::Result<()> {
        let store = self.database.open_migrated_store().await?;
        if self.remove {
            store.remove_synthetic_data().await?;
            println!("Removed the demo data.");
            return Ok(());
        }

        let until = self.until.unwrap_or_else(|| sao_paulo_date(Utc::now()));
        load_demo_data(&store, &DemoSize { filings: self.filings, companies: self.companies, until }).await
    }
}

/// The default size of a demo, with data up to today in São Paulo.
pub fn default_size() -> DemoSize {
    DemoSize { filings: DEFAULT_FILINGS, companies: DEFAULT_COMPANIES, until: sao_paulo_date(Utc::now()) }
}

/// Loads demo data and says what it contains.
pub async fn load_demo_data(store: &Store, size: &DemoSize) -> anyhow::Result<()> {
    let started = Instant::now();
    let progress = DemoProgressBar::default();
    let report_progress = |name: &str, done: u64, total: u64| progress.update(name, done, total);
    let result = demo::load_demo_data(store, size, Utc::now(), &report_progress).await;
    progress.finish();
    let loaded = result?;

    println!(
        "Loaded demo data up to {}: {} observations, {} exchange rates, {} companies and {} filings in {:.1} s.",
        size.until,
        loaded.observations,
        loaded.quotes,
        loaded.companies,
        loaded.filings,
        started.elapsed().as_secs_f64()
    );
    Ok(())
}

/// Shows one bar at a time on a terminal, and nothing elsewhere.
#[derive(Default)]
struct DemoProgressBar(Mutex<Option<(String, ProgressBar)>>);

impl DemoProgressBar {
    fn update(&self, name: &str, done: u64, total: u64) {
        let mut current = self.0.lock().expect("never held across a panic");
        if current.as_ref().is_none_or(|(current_name, _)| current_name != name) {
            if let Some((_, bar)) = current.take() {
                bar.finish();
            }
            let bar = ProgressBar::new(total);
            if let Ok(style) = ProgressStyle::with_template("{prefix:12} {bar:40} {pos}/{len}") {
                bar.set_style(style);
            }
            bar.set_prefix(name.to_owned());
            *current = Some((name.to_owned(), bar));
        }

        if let Some((_, bar)) = current.as_ref() {
            bar.set_position(done);
        }
    }

    fn finish(&self) {
        if let Some((_, bar)) = self.0.lock().expect("never held across a panic").take() {
            bar.finish();
        }
    }
}
