//! `vintem demo`: loads synthetic data, or removes it.

use std::sync::Mutex;
use std::time::Instant;

use anyhow::Context;
use chrono::{NaiveDate, Utc};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use vintem_domain::dates::sao_paulo_date;
use vintem_ingest::demo::{self, DemoSize};

use crate::settings::DatabaseSettings;

#[derive(Debug, Args)]
pub struct DemoCommand {
    #[command(flatten)]
    database: DatabaseSettings,

    /// How many filings
    #[arg(long, default_value_t = 50_000)]
    filings: usize,

    /// How many companies
    #[arg(long, default_value_t = 2_600)]
    companies: usize,

    /// The last day that has data; default: today in São Paulo
    #[arg(long)]
    until: Option<NaiveDate>,

    /// Take the synthetic data away instead
    #[arg(long, conflicts_with_all = ["filings", "companies", "until"])]
    remove: bool,
}

impl DemoCommand {
    pub async fn run(self) -> anyhow::Result<()> {
        let store = self.database.open_store()?;
        if self.remove {
            store.remove_synthetic_data().await?;
            println!("The synthetic data is gone.");
            return Ok(());
        }

        let now = Utc::now();
        let size = DemoSize {
            filings: self.filings,
            companies: self.companies,
            until: self.until.unwrap_or_else(|| sao_paulo_date(now)),
        };

        let started = Instant::now();
        let progress = DemoProgressBar::default();
        let result =
            demo::load_demo_data(&store, &size, now, &|name, done, total| progress.update(name, done, total)).await;
        progress.finish();
        let loaded = result.context("the demo data was not loaded")?;

        println!(
            "Synthetic data until {}: {} observations, {} exchange rates, {} companies, {} filings, in {:.1} s.",
            size.until,
            loaded.observations,
            loaded.quotes,
            loaded.companies,
            loaded.filings,
            started.elapsed().as_secs_f64()
        );
        Ok(())
    }
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
