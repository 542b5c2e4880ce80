//! Fake upstreams: one HTTP server on loopback that behaves like `api.bcb.gov.br`, `olinda.bcb.gov.br` and
//! `dados.cvm.gov.br`, on the same paths, including their errors and oddities.
//!
//! Real files from a directory are served unchanged. All other data is **synthetic**, generated identically on every
//! machine. Upstream formats have no field to mark it as such: exchange rates of currencies other than the dollar,
//! filings and tickers are always synthetic; rates and companies are where no file has them. Synthetic data names no
//! natural person.
//!
//! A test sets the day, the faults and changes to the data, and reads the recorded requests. The program `upstreams` of
//! this crate runs the same server by hand. It is never a product dependency and shares no code with the product's
//! upstream clients, so that the same mistake can't be on both sides.

mod calendar;
mod company_registry;
mod cvm;
mod fake_response;
mod faults;
mod ipe;
mod market_data;
mod ptax;
mod seeded_random;
mod server;
mod sgs;
mod structured_filings;
mod vocabulary;
mod zip_archive;

pub use company_registry::RegistryCompany;
pub use faults::{BodyTransform, Fault, StallAt};
pub use ipe::IpeRow;
pub use server::RecordedRequest;

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use anyhow::Context;
use bytes::Bytes;
use chrono::{NaiveDate, NaiveDateTime, NaiveTime};
use http::StatusCode;
use tokio::sync::oneshot;

use cvm::{CvmEdits, FakeCvm};
use fake_response::{FakeResponse, percent_decode};
use market_data::MarketData;
use ptax::PtaxSamples;
use server::RequestLog;

/// Size of the synthetic data, and the day on which the fakes start.
#[derive(Debug, Clone)]
pub struct FakeUpstreamOptions {
    /// A directory of real files, with the subdirectories `sgs`, `ptax` and `cvm`.
    pub data_dir: Option<PathBuf>,
    /// The day in Brasília; the fakes start at its end.
    pub today: NaiveDate,
    pub ipe_rows_per_year: usize,
    /// Years that have filings; future years have none yet.
    pub ipe_years: RangeInclusive<i32>,
    /// Companies in the registry, if it is synthetic.
    pub companies: usize,
    /// An address on loopback.
    pub listen: SocketAddr,
}

/// Small enough for a test; archives are generated on first request.
impl Default for FakeUpstreamOptions {
    fn default() -> Self {
        Self {
            data_dir: None,
            today: calendar::ymd(2026, 11, 13),
            ipe_rows_per_year: 200,
            ipe_years: ipe::FIRST_YEAR..=i32::MAX,
            companies: 120,
            listen: (Ipv4Addr::LOCALHOST, 0).into(),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum UpstreamService {
    Sgs,
    Ptax,
    Cvm,
}

/// The running fakes; dropping this stops them.
#[derive(Debug)]
pub struct FakeUpstreams {
    backend: Arc<FakeBackend>,
    address: SocketAddr,
    /// Dropped to stop the server.
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl FakeUpstreams {
    /// Starts the server on its own thread and runtime, so that it responds even while a test blocks.
    pub fn start(options: FakeUpstreamOptions) -> anyhow::Result<Self> {
        anyhow::ensure!(options.listen.ip().is_loopback(), "{} is not on loopback", options.listen);
        anyhow::ensure!(
            options.today <= calendar::LAST_GENERATED_DAY,
            "what is made up ends on {}",
            calendar::LAST_GENERATED_DAY
        );

        let listener = TcpListener::bind(options.listen).with_context(|| format!("listening on {}", options.listen))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let backend = Arc::new(FakeBackend::new(options, address)?);

        let (stop, stopped) = oneshot::channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let server_backend = backend.clone();
        let thread = std::thread::spawn(move || {
            runtime.block_on(server::serve_until_stopped(listener, server_backend, stopped));
            // Don't wait for responses that are still being generated: nobody reads them.
            runtime.shutdown_background();
        });
        Ok(Self { backend, address, stop: Some(stop), thread: Some(thread) })
    }

    /// In place of `https://api.bcb.gov.br`.
    pub fn sgs_url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// In place of `https://olinda.bcb.gov.br`.
    pub fn ptax_url(&self) -> String {
        self.sgs_url()
    }

    /// In place of `https://dados.cvm.gov.br`.
    pub fn cvm_url(&self) -> String {
        self.sgs_url()
    }

    /// Moves to the end of this day, when everything of that day is published.
    pub fn set_today(&self, today: NaiveDate) {
        self.set_now(end_of_day(today));
    }

    /// Moves to a time in Brasília: of that day, only bulletins and rates published by then exist.
    pub fn set_now(&self, now: NaiveDateTime) {
        assert!(now.date() <= calendar::LAST_GENERATED_DAY, "what is made up ends on {}", calendar::LAST_GENERATED_DAY);
        self.backend.lock_controls().now = now;
    }

    /// Applies a fault to requests whose path and query contain this text, as sent or decoded; `None` removes it. If
    /// several texts match, the longest wins. Requests to `localhost` never get a fault, because redirects point there.
    pub fn set_fault(&self, part_of_path: &str, fault: Option<Fault>) {
        let mut controls = self.backend.lock_controls();
        match fault {
            Some(fault) => _ = controls.faults.insert(part_of_path.to_owned(), fault),
            None => _ = controls.faults.remove(part_of_path),
        }
    }

    pub fn clear_faults(&self) {
        self.backend.lock_controls().faults.clear();
    }

    /// All requests so far, in order of arrival.
    pub fn requests(&self) -> Vec<RecordedRequest> {
        self.backend.request_log.requests()
    }

    pub fn requests_to(&self, upstream: UpstreamService) -> Vec<RecordedRequest> {
        self.requests().into_iter().filter(|request| request.upstream == Some(upstream)).collect()
    }

    pub fn clear_requests(&self) {
        self.backend.request_log.clear();
    }

    /// The maximum number of concurrent requests to one upstream.
    pub fn max_in_flight(&self, upstream: UpstreamService) -> usize {
        self.requests_to(upstream).iter().map(|request| request.in_flight).max().unwrap_or(0)
    }

    /// Overrides or adds one value of one series, as any text; derived series don't change.
    pub fn override_sgs_value(&self, code: u32, date: NaiveDate, value: &str) {
        self.backend.lock_controls().sgs_overrides.entry(code).or_default().insert(date, value.to_owned());
    }

    /// Appends a row to the archive of its delivery year, effective immediately.
    pub fn add_filing(&self, row: IpeRow) -> anyhow::Result<()> {
        let year: i32 = row.delivered_on.get(..4).unwrap_or_default().parse().context("the year of delivery")?;
        let mut controls = self.backend.lock_controls();
        controls.cvm_edits.added_filings.entry(year).or_default().push(row);
        *controls.cvm_edits.change_counts.entry(format!("ipe_cia_aberta_{year}.zip")).or_default() += 1;
        Ok(())
    }

    /// Replaces the registry file from now on, whatever the day. Filings stay those of the original companies.
    pub fn set_registry(&self, file: impl Into<Bytes>) {
        let mut controls = self.backend.lock_controls();
        controls.cvm_edits.registry_override = Some(file.into());
        *controls.cvm_edits.change_counts.entry("cad_cia_aberta.csv".to_owned()).or_default() += 1;
    }

    /// The registry file as currently served.
    pub fn registry(&self) -> Bytes {
        let (now, edits) = {
            let controls = self.backend.lock_controls();
            (controls.now, controls.cvm_edits.clone())
        };
        self.backend.cvm.registry_on(now.date(), &edits)
    }

    /// The companies that file, by ascending code.
    pub fn companies(&self) -> &[RegistryCompany] {
        self.backend.cvm.companies()
    }

    /// Hides a CVM file such as `ipe_cia_aberta_2026.zip`: it responds 404 and is not listed in its directory.
    pub fn set_file_hidden(&self, file_name: &str, hidden: bool) {
        let hidden_files = &mut self.backend.lock_controls().cvm_edits.hidden_files;
        if hidden {
            hidden_files.insert(file_name.to_owned());
        } else {
            hidden_files.remove(file_name);
        }
    }
}

impl Drop for FakeUpstreams {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic on that thread has already failed its request.
            let _ = thread.join();
        }
    }
}

/// The served data, the changes made by the test, and the recorded requests.
#[derive(Debug)]
struct FakeBackend {
    address: SocketAddr,
    market: MarketData,
    ptax_samples: PtaxSamples,
    cvm: FakeCvm,
    controls: Mutex<FakeUpstreamState>,
    request_log: RequestLog,
}

#[derive(Debug)]
struct FakeUpstreamState {
    now: NaiveDateTime,
    faults: BTreeMap<String, Fault>,
    sgs_overrides: BTreeMap<u32, market_data::SeriesRows>,
    cvm_edits: CvmEdits,
}

impl FakeBackend {
    fn new(options: FakeUpstreamOptions, address: SocketAddr) -> anyhow::Result<Self> {
        let data_dir = options.data_dir.as_deref();
        if let Some(directory) = data_dir {
            anyhow::ensure!(directory.is_dir(), "{} is not a directory", directory.display());
        }

        let controls = FakeUpstreamState {
            now: end_of_day(options.today),
            faults: BTreeMap::new(),
            sgs_overrides: BTreeMap::new(),
            cvm_edits: CvmEdits::default(),
        };
        Ok(Self {
            address,
            market: MarketData::new(data_dir)?,
            ptax_samples: PtaxSamples::load(data_dir)?,
            cvm: FakeCvm::new(options.data_dir, options.companies, options.ipe_rows_per_year, options.ipe_years)?,
            controls: Mutex::new(controls),
            request_log: RequestLog::default(),
        })
    }

    fn lock_controls(&self) -> MutexGuard<'_, FakeUpstreamState> {
        self.controls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The fault for this request. A fault limited to N requests is counted down here.
    fn take_fault(&self, target: &str) -> Option<Fault> {
        let mut controls = self.lock_controls();
        let decoded = percent_decode(target);
        let matches_request = |part: &str| target.contains(part) || decoded.contains(part);
        let is_used_up = |fault: &Fault| matches!(fault, Fault::ForNextRequests(0, _));
        let matching = controls.faults.iter_mut().filter(|(part, fault)| matches_request(part) && !is_used_up(fault));
        let (_, fault) = matching.max_by_key(|(part, _)| part.len())?;

        if let Fault::ForNextRequests(remaining, fault) = fault {
            *remaining -= 1;
            return Some((**fault).clone());
        }
        Some(fault.clone())
    }

    /// The upstream's response without a fault.
    fn normal_response(&self, path: &str, query: &str) -> anyhow::Result<FakeResponse> {
        let (now, edits) = {
            let controls = self.lock_controls();
            (controls.now, controls.cvm_edits.clone())
        };
        match upstream_for_path(path) {
            Some(UpstreamService::Sgs) => Ok(sgs::respond(path, query, now, |code| self.published_series(code, now))),
            Some(UpstreamService::Ptax) => Ok(ptax::respond(path, query, now, &self.market, &self.ptax_samples)),
            Some(UpstreamService::Cvm) => self.cvm.respond(path, now, &edits),
            None => {
                Ok(FakeResponse::new(StatusCode::NOT_FOUND, fake_response::HTML_CONTENT_TYPE, "<h1>Not Found</h1>"))
            }
        }
    }

    fn published_series(&self, code: u32, now: NaiveDateTime) -> Option<market_data::SeriesRows> {
        let mut rows = sgs::published_rows(&self.market, code, now)?;
        if let Some(overrides) = self.lock_controls().sgs_overrides.get(&code) {
            rows.extend(overrides.iter().map(|(date, value)| (*date, value.clone())));
        }
        Some(rows)
    }
}

/// Expects a decoded path.
fn upstream_for_path(path: &str) -> Option<UpstreamService> {
    let prefixes = [
        (sgs::PATH_PREFIX, UpstreamService::Sgs),
        (ptax::PATH_PREFIX, UpstreamService::Ptax),
        (cvm::PATH_PREFIX, UpstreamService::Cvm),
    ];
    prefixes.iter().find(|(prefix, _)| path.starts_with(prefix)).map(|(_, upstream)| *upstream)
}

fn end_of_day(day: NaiveDate) -> NaiveDateTime {
    day.and_time(NaiveTime::from_hms_opt(23, 59, 59).expect("a time of the day"))
}
