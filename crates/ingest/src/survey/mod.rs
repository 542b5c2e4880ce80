//! Asks the real hosts for something of everything that is ever fetched, stores nothing, and says what is not as we expect
//! it. For the operator, on a connected machine, before the first fill.

mod problem;
mod targets;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::{Duration, Instant};

use chrono::{DateTime, NaiveDate, NaiveTime, Utc};
use futures_util::future::join_all;
use sha2::{Digest, Sha256};
use tokio::time::sleep;
use vintem_domain::dates::{DateRange, sao_paulo_date};
use vintem_domain::{Currency, CvmDataset, Series};
use vintem_store::load::{BulletinKind, NewBulletin};

pub use self::problem::SurveyProblem;
pub use self::targets::SurveyTarget;
use self::targets::survey_targets;
use crate::IngestError;
use crate::fetch::{
    FetchError, FetchRequest, ResponseVerdict, RetryPolicy, UpstreamAddresses, UpstreamClient, UpstreamResponse,
    build_http_client,
};
use crate::host_breaker::HostBreaker;
use crate::parsers::sgs::{SgsResponse, parse_response};
use crate::parsers::{BadRowKind, FormatError, ParsedRows, company_registry, ptax};
use crate::recording::Recorder;
use crate::source::Upstream;
use crate::upstreams::cvm::{self, REGISTRY_PATH};
use crate::upstreams::ptax::bulletin_path;
use crate::upstreams::sgs::{retain_valid_rows, window_path};
use crate::validation::{validate_bad_row_count, validate_bulletins, validate_observations};

/// Since this day, the closing bulletin is the mean of four surveys, the last at 13:00.
const FOUR_SURVEYS_SINCE: NaiveDate = NaiveDate::from_ymd_opt(2011, 7, 1).expect("a day of the calendar");
/// In Brasília.
const USUAL_CLOSING_TIMES: (NaiveTime, NaiveTime) = (
    NaiveTime::from_hms_opt(12, 45, 0).expect("a time of the day"),
    NaiveTime::from_hms_opt(13, 45, 0).expect("a time of the day"),
);

/// How to ask.
#[derive(Debug, Clone)]
pub struct SurveyOptions {
    pub contact: String,
    /// Between two requests to a host.
    pub pause: Duration,
    /// What each host must send at most.
    pub max_bytes_per_host: u64,
    pub recorder: Option<Arc<Recorder>>,
}

/// What came of one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SurveyFinding {
    pub target: SurveyTarget,
    pub rows: u64,
    pub bad_rows: BTreeMap<BadRowKind, u64>,
    pub bytes: u64,
    pub duration: Duration,
    pub problems: Vec<SurveyProblem>,
    /// Changes with any of the rows.
    pub rows_sha256: [u8; 32],
}

/// What came of the requests to a host.
#[derive(Debug)]
pub struct HostSurvey {
    pub upstream: Upstream,
    pub is_encrypted: bool,
    pub findings: Vec<SurveyFinding>,
    /// Targets that were left out, because the host does not answer or has sent as much as it may.
    pub skipped: usize,
}

/// Asks each host for one target after the other; the hosts in parallel.
pub async fn survey(
    addresses: &UpstreamAddresses,
    options: &SurveyOptions,
    now: DateTime<Utc>,
) -> Result<Vec<HostSurvey>, IngestError> {
    let client = build_http_client(&options.contact).map_err(|error| IngestError::HttpClient(error.to_string()))?;
    let hosts = [
        (Upstream::Sgs, &addresses.sgs, RetryPolicy::SHORT),
        (Upstream::Ptax, &addresses.ptax, RetryPolicy::SHORT),
        (Upstream::Cvm, &addresses.cvm, RetryPolicy::LONG),
    ];
    let surveys = hosts.map(|(upstream, address, retry_policy)| {
        let client = UpstreamClient::new(client.clone(), address, retry_policy);
        survey_host(upstream, address.starts_with("https://"), client, options, now)
    });
    Ok(join_all(surveys).await)
}

async fn survey_host(
    upstream: Upstream,
    is_encrypted: bool,
    client: UpstreamClient,
    options: &SurveyOptions,
    now: DateTime<Utc>,
) -> HostSurvey {
    let today = sao_paulo_date(now);
    let targets = survey_targets(upstream, today);
    let mut findings = Vec::new();
    let mut breaker = HostBreaker::default();
    for target in &targets {
        if breaker.is_down() || client.received_bytes() >= options.max_bytes_per_host {
            break;
        }
        if !findings.is_empty() {
            sleep(options.pause).await;
        }
        let (finding, is_outage) = ask(&client, *target, options.recorder.as_deref(), today).await;
        if is_outage {
            breaker.record_outage(now, None);
        } else {
            breaker.record_answer();
        }
        findings.push(finding);
    }
    let skipped = targets.len() - findings.len();
    HostSurvey { upstream, is_encrypted, findings, skipped }
}

/// Returns what came, and whether the host did not answer.
async fn ask(
    client: &UpstreamClient,
    target: SurveyTarget,
    recorder: Option<&Recorder>,
    today: NaiveDate,
) -> (SurveyFinding, bool) {
    let (started, received_before) = (Instant::now(), client.received_bytes());
    let path = target_path(target);
    let request = FetchRequest { path: &path, ..FetchRequest::default() };
    let fetched = client.get_with_retries(&request, |response| judge_response(target, response)).await;
    let mut finding = SurveyFinding {
        target,
        rows: 0,
        bad_rows: BTreeMap::new(),
        bytes: client.received_bytes() - received_before,
        duration: started.elapsed(),
        problems: Vec::new(),
        rows_sha256: [0; 32],
    };

    let is_outage = fetched.as_ref().is_err_and(FetchError::is_outage);
    let response = match fetched {
        Ok(response) => response,
        Err(error) => {
            finding.problems.push(SurveyProblem::of_fetch(&error));
            match error {
                FetchError::Failed { last_response: Some(response), .. } => *response,
                _ => return (finding, is_outage),
            }
        }
    };
    if let Some(recorder) = recorder
        && let Err(error) = recorder.record(&path, &response)
    {
        finding.problems.push(SurveyProblem::NotRecorded(error.to_string()));
    }
    if finding.problems.is_empty() {
        let read = tokio::task::spawn_blocking(move || {
            read_response(&mut finding, &response, today);
            finding
        });
        finding = read.await.expect("reading does not panic");
    }
    (finding, is_outage)
}

fn target_path(target: SurveyTarget) -> String {
    match target {
        SurveyTarget::SeriesWindow(series, window) => window_path(series, (window.from, window.to)),
        SurveyTarget::CurrencyYear(currency, year) => {
            let DateRange { from, to } = DateRange::for_year(year);
            bulletin_path(currency, (from, to))
        }
        SurveyTarget::Registry => REGISTRY_PATH.to_owned(),
        SurveyTarget::FilingYear(year) => cvm::archive_path(CvmDataset::Ipe, year),
    }
}

/// Repeats only what the host cannot answer now: a wrong answer is what a survey looks for.
fn judge_response(target: SurveyTarget, response: &UpstreamResponse) -> ResponseVerdict {
    match (target, response.status) {
        (_, 200) | (SurveyTarget::SeriesWindow(..), 404 | 406) => ResponseVerdict::Accept,
        (_, status @ (429 | 500..)) => ResponseVerdict::Retry(format!("answered with status {status}")),
        (_, status) => ResponseVerdict::GiveUp(format!("answered with status {status}")),
    }
}

fn read_response(finding: &mut SurveyFinding, response: &UpstreamResponse, today: NaiveDate) {
    let read = match finding.target {
        SurveyTarget::SeriesWindow(series, window) => read_series(finding, series, window, response, today),
        SurveyTarget::CurrencyYear(currency, _) => read_bulletins(finding, currency, response, today),
        SurveyTarget::Registry => company_registry::parse_companies(&response.body)
            .map(|parsed| finding.add_rows(&parsed))
            .map_err(Into::into),
        SurveyTarget::FilingYear(year) => cvm::parse_whole_archive(&response.body, CvmDataset::Ipe, year, today)
            .map(|year| finding.add_rows(&year.filings.parsed))
            .map_err(SurveyProblem::of_rejection),
    };
    if let Err(problem) = read {
        finding.problems.push(problem);
    }
}

fn read_series(
    finding: &mut SurveyFinding,
    series: &'static Series,
    window: DateRange,
    response: &UpstreamResponse,
    today: NaiveDate,
) -> Result<(), SurveyProblem> {
    let parsed = match parse_response(response.status, &response.body) {
        Ok(SgsResponse::Rows(parsed)) => retain_valid_rows(parsed, series, (window.from, window.to), today),
        Ok(SgsResponse::Empty) => return Err(SurveyProblem::EmptyWindow),
        Ok(SgsResponse::WindowTooWide) => {
            return Err(SurveyProblem::Unreadable("it says that the window is too wide".to_owned()));
        }
        Err(error) => return Err(SurveyProblem::Unreadable(error.to_string())),
    };
    if let Err(error) = validate_observations(series, &parsed.rows) {
        finding.problems.push(SurveyProblem::ImplausibleValue(error.to_string()));
    }
    finding.add_rows(&parsed);
    Ok(())
}

fn read_bulletins(
    finding: &mut SurveyFinding,
    currency: Currency,
    response: &UpstreamResponse,
    today: NaiveDate,
) -> Result<(), SurveyProblem> {
    let parsed = ptax::parse_bulletins(currency, &response.body, today)?;
    if let Err(error) = validate_bulletins(&parsed.rows) {
        finding.problems.push(SurveyProblem::ImplausibleValue(error.to_string()));
    }
    finding.problems.extend(find_shifted_hour(&parsed.rows));
    finding.add_rows(&parsed);
    Ok(())
}

/// On a few days the rates close earlier, so the median counts.
fn find_shifted_hour(bulletins: &[NewBulletin]) -> Option<SurveyProblem> {
    let closings = bulletins.iter().filter(|row| row.kind == BulletinKind::Closing && row.date >= FOUR_SURVEYS_SINCE);
    let mut times: Vec<NaiveTime> = closings.map(|row| row.published_at.time()).collect();
    times.sort_unstable();
    let usual = *times.get(times.len() / 2)?;
    let (earliest, latest) = USUAL_CLOSING_TIMES;
    (usual < earliest || usual > latest).then_some(SurveyProblem::ShiftedHour(usual))
}

impl SurveyFinding {
    fn add_rows<T: Debug>(&mut self, parsed: &ParsedRows<T>) {
        self.rows = parsed.rows.len() as u64;
        self.bad_rows = parsed.count_bad_rows();
        let mut hash = Sha256::new();
        for row in &parsed.rows {
            hash.update(format!("{row:?}\n"));
        }
        self.rows_sha256 = hash.finalize().into();

        if self.rows == 0 {
            self.problems.push(SurveyProblem::EmptyWindow);
        }
        if let Err(error) = validate_bad_row_count(parsed) {
            self.problems.push(SurveyProblem::TooManyBadRows(error.to_string()));
        }
        self.problems.extend(parsed.alerts.iter().map(SurveyProblem::of_alert));
    }

    pub fn has_failed(&self) -> bool {
        self.problems.iter().any(SurveyProblem::prevents_loading)
    }
}

impl HostSurvey {
    pub fn bytes(&self) -> u64 {
        self.findings.iter().map(|finding| finding.bytes).sum()
    }

    pub fn slowest(&self) -> Duration {
        self.findings.iter().map(|finding| finding.duration).max().unwrap_or_default()
    }
}

impl From<FormatError> for SurveyProblem {
    fn from(error: FormatError) -> Self {
        Self::of_format(&error)
    }
}
