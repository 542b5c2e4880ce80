//! `vintem doctor --live`: asks the publishers' hosts for something of everything that is ever fetched.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use chrono::Utc;
use clap::Args;
use vintem_ingest::fetch::UpstreamAddresses;
use vintem_ingest::recording::Recorder;
use vintem_ingest::survey::{HostSurvey, SurveyFinding, SurveyOptions, survey};

/// Between two requests to a host, so that nobody minds.
const PAUSE: Duration = Duration::from_secs(1);

#[derive(Debug, Args)]
pub struct LiveSurveyArguments {
    /// Ask the publishers for something of everything that is ever fetched, and store nothing. Takes some minutes
    #[arg(long)]
    pub live: bool,

    /// Keep all responses in this new directory, to replay them later
    #[arg(long, value_name = "DIR", requires = "live")]
    record: Option<PathBuf>,

    /// What each host must send at most, in MB
    #[arg(long, value_name = "MB", default_value_t = 200, requires = "live")]
    max_mb: u64,
}

impl LiveSurveyArguments {
    pub async fn run(&self, addresses: &UpstreamAddresses, contact: &str) -> anyhow::Result<()> {
        let recorder = match &self.record {
            Some(directory) => {
                let recorder = Recorder::create(directory);
                Some(Arc::new(recorder.with_context(|| format!("cannot record in {}", directory.display()))?))
            }
            None => None,
        };
        let is_on_this_machine = [&addresses.sgs, &addresses.ptax, &addresses.cvm].iter().all(|url| is_loopback(url));
        let options = SurveyOptions {
            contact: contact.to_owned(),
            pause: if is_on_this_machine { Duration::ZERO } else { PAUSE },
            max_bytes_per_host: self.max_mb.saturating_mul(1_000_000),
            recorder,
        };
        if contact.is_empty() {
            println!("note  VINTEM_CONTACT is not set: the publishers cannot see who asks");
        }

        let surveys = survey(addresses, &options, Utc::now()).await?;
        for host in &surveys {
            print_host(host);
        }
        let failed: usize = surveys.iter().map(count_failures).sum();
        let unusual =
            surveys.iter().flat_map(|host| &host.findings).filter(|finding| !finding.problems.is_empty()).count();
        match (failed, unusual) {
            (0, 0) => println!("Everything is as expected."),
            (0, unusual) => println!("{unusual} answers are unusual. A fill would load them."),
            (failed, _) => bail!("{failed} checks failed"),
        }
        Ok(())
    }
}

/// The stand-ins need no rest.
fn is_loopback(url: &str) -> bool {
    url.starts_with("http://127.0.0.1:") || url.starts_with("http://[::1]:")
}

/// What a fill would not load, and hosts that were not asked for everything.
fn count_failures(host: &HostSurvey) -> usize {
    host.findings.iter().filter(|finding| finding.has_failed()).count() + usize::from(host.skipped > 0)
}

fn print_host(host: &HostSurvey) {
    let encryption = if host.is_encrypted { "TLS" } else { "not encrypted" };
    println!(
        "host  {}: {} answers, {encryption}, {:.1} MB, the slowest in {:.1} s",
        host.upstream.name(),
        host.findings.len(),
        host.bytes() as f64 / 1e6,
        host.slowest().as_secs_f64()
    );

    let mut by_source: BTreeMap<&str, Vec<&SurveyFinding>> = BTreeMap::new();
    for finding in &host.findings {
        by_source.entry(finding.target.source().id()).or_default().push(finding);
    }
    for (source, findings) in by_source {
        print_source(source, &findings);
    }
    if host.skipped > 0 {
        println!("FAIL  {}: {} requests were not sent", host.upstream.name(), host.skipped);
        println!("      The host does not answer, or has sent as much as --max-mb allows.");
    }
}

fn print_source(source: &str, findings: &[&SurveyFinding]) {
    let rows: u64 = findings.iter().map(|finding| finding.rows).sum();
    let bytes: u64 = findings.iter().map(|finding| finding.bytes).sum();
    let seconds = findings.iter().map(|finding| finding.duration).max().unwrap_or_default().as_secs_f64();
    let mut bad_rows = BTreeMap::new();
    for (kind, count) in findings.iter().flat_map(|finding| &finding.bad_rows) {
        *bad_rows.entry(kind.id()).or_insert(0) += count;
    }
    let bad_rows: String = bad_rows.iter().map(|(kind, count)| format!(", {count} bad ({kind})")).collect();
    let usable = findings.iter().filter(|finding| !finding.has_failed()).count();
    let verdict = match findings {
        _ if usable < findings.len() => "FAIL",
        _ if findings.iter().any(|finding| !finding.problems.is_empty()) => "note",
        _ => "ok",
    };
    println!(
        "{verdict:<4}  {source}: {usable} of {} answers can be used, {rows} rows{bad_rows}, {:.2} MB, the slowest in {seconds:.1} s",
        findings.len(),
        bytes as f64 / 1e6
    );

    for finding in findings {
        for problem in &finding.problems {
            println!("      {}: {}: {problem}", finding.target.name(), problem.id());
            println!("      {}", problem.advice());
        }
    }
}
