//! Stand-ins for the upstreams: one HTTP server on loopback that answers as `api.bcb.gov.br`, `olinda.bcb.gov.br` and
//! `dados.cvm.gov.br` do, under the paths that they have there, errors and oddities included.
//!
//! Where a directory of real files is given they are served as they are; whatever they lack is **synthetic**, made up
//! the same way on every machine. Upstream formats have no field to say so: exchange rates of currencies other than
//! the dollar, filings and tickers are always made up, rates and companies where no file has them. No natural person is
//! named in what is made up.
//!
//! A test holds its day, its faults and the changes to its truth, and reads which requests came. By hand it is the
//! program `upstreams` of this crate. It is never a product dependency, and shares no code with what reads upstreams:
//! a mistake must not stand on both sides.

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

/// How large the stand-in is, and when.
#[derive(Debug, Clone)]
pub struct FakeUpstreamOptions {
    /// Real files, in the directories `sgs`, `ptax` and `cvm`.
    pub data_dir: Option<PathBuf>,
    /// The day in Brasília, at its very end.
    pub today: NaiveDate,
    pub ipe_rows_per_year: usize,
    /// Of which years there are filings, as far as they have come.
    pub ipe_years: RangeInclusive<i32>,
    /// Companies of the registry, where it is made up.
    pub companies: usize,
    /// An address on loopback.
    pub listen: SocketAddr,
}

/// Small enough for a test: nothing is made before it is asked for.
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

/// The running stand-ins; they end when this is dropped.
#[derive(Debug)]
pub struct FakeUpstreams {
    backend: Arc<FakeBackend>,
    address: SocketAddr,
    /// Dropped to end the server.
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl FakeUpstreams {
    /// On a thread and a runtime of its own, so that it answers even while a test blocks.
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
        let served = backend.clone();
        let thread = std::thread::spawn(move || {
            runtime.block_on(server::serve_until_stopped(listener, served, stopped));
            // What is still being made for nobody need not be waited for.
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

    /// The end of this day: all that is published on it is there.
    pub fn set_today(&self, today: NaiveDate) {
        self.set_now(end_of_day(today));
    }

    /// A moment in Brasília: bulletins and rates of that day are there as far as they are published by then.
    pub fn set_now(&self, now: NaiveDateTime) {
        assert!(now.date() <= calendar::LAST_GENERATED_DAY, "what is made up ends on {}", calendar::LAST_GENERATED_DAY);
        self.backend.lock_controls().now = now;
    }

    /// What goes wrong from now on with requests whose path and query contain this text, as sent or decoded; `None`
    /// ends it. Of several texts that fit the longest counts. Requests to `localhost` meet none: redirects lead there.
    pub fn set_fault(&self, part_of_path: &str, fault: Option<Fault>) {
        let mut state = self.backend.lock_controls();
        match fault {
            Some(fault) => _ = state.faults.insert(part_of_path.to_owned(), fault),
            None => _ = state.faults.remove(part_of_path),
        }
    }

    pub fn clear_faults(&self) {
        self.backend.lock_controls().faults.clear();
    }

    /// All requests so far, in the order in which they came.
    pub fn requests(&self) -> Vec<RecordedRequest> {
        self.backend.request_log.requests()
    }

    pub fn requests_to(&self, upstream: UpstreamService) -> Vec<RecordedRequest> {
        self.requests().into_iter().filter(|seen| seen.upstream == Some(upstream)).collect()
    }

    pub fn clear_requests(&self) {
        self.backend.request_log.clear();
    }

    /// The largest number of requests that one upstream had at a time.
    pub fn max_in_flight(&self, upstream: UpstreamService) -> usize {
        self.requests_to(upstream).iter().map(|seen| seen.in_flight).max().unwrap_or(0)
    }

    /// This value on this day, in this series alone; any text, and also on days that have none.
    pub fn override_sgs_value(&self, code: u32, date: NaiveDate, value: &str) {
        self.backend.lock_controls().sgs_overrides.entry(code).or_default().insert(date, value.to_owned());
    }

    /// A further row at the end of the archive of the year in which it is delivered, at once.
    pub fn add_filing(&self, row: IpeRow) -> anyhow::Result<()> {
        let year: i32 = row.delivered_on.get(..4).unwrap_or_default().parse().context("the year of delivery")?;
        let mut state = self.backend.lock_controls();
        state.cvm_edits.added_filings.entry(year).or_default().push(row);
        *state.cvm_edits.change_counts.entry(format!("ipe_cia_aberta_{year}.zip")).or_default() += 1;
        Ok(())
    }

    /// What the registry's file says from now on, whatever the day. Filings stay those of the companies at the start.
    pub fn set_registry(&self, file: impl Into<Bytes>) {
        let mut state = self.backend.lock_controls();
        state.cvm_edits.registry_override = Some(file.into());
        *state.cvm_edits.change_counts.entry("cad_cia_aberta.csv".to_owned()).or_default() += 1;
    }

    /// The registry as it is served now.
    pub fn registry(&self) -> Bytes {
        let (now, edits) = {
            let state = self.backend.lock_controls();
            (state.now, state.cvm_edits.clone())
        };
        self.backend.cvm.registry_on(now.date(), &edits)
    }

    /// The companies that file, by rising code.
    pub fn companies(&self) -> &[RegistryCompany] {
        self.backend.cvm.companies()
    }

    /// Whether a file of the regulator, such as `ipe_cia_aberta_2026.zip`, is away: 404, and not in its directory.
    pub fn set_file_hidden(&self, file_name: &str, hidden: bool) {
        let files = &mut self.backend.lock_controls().cvm_edits.hidden_files;
        if hidden {
            files.insert(file_name.to_owned());
        } else {
            files.remove(file_name);
        }
    }
}

impl Drop for FakeUpstreams {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic there has failed its request already.
            let _ = thread.join();
        }
    }
}

/// The truth, what a test has changed of it, and what came.
#[derive(Debug)]
struct FakeBackend {
    address: SocketAddr,
    market: MarketData,
    ptax_samples: PtaxSamples,
    cvm: FakeCvm,
    controls: Mutex<TestControls>,
    request_log: RequestLog,
}

#[derive(Debug)]
struct TestControls {
    now: NaiveDateTime,
    faults: BTreeMap<String, Fault>,
    sgs_overrides: BTreeMap<u32, market_data::SeriesRows>,
    cvm_edits: CvmEdits,
}

impl FakeBackend {
    fn new(options: FakeUpstreamOptions, address: SocketAddr) -> anyhow::Result<Self> {
        let data = options.data_dir.as_deref();
        if let Some(directory) = data {
            anyhow::ensure!(directory.is_dir(), "{} is not a directory", directory.display());
        }
        let state = TestControls {
            now: end_of_day(options.today),
            faults: BTreeMap::new(),
            sgs_overrides: BTreeMap::new(),
            cvm_edits: CvmEdits::default(),
        };
        Ok(Self {
            address,
            market: MarketData::new(data)?,
            ptax_samples: PtaxSamples::load(data)?,
            cvm: FakeCvm::new(options.data_dir, options.companies, options.ipe_rows_per_year, options.ipe_years)?,
            controls: Mutex::new(state),
            request_log: RequestLog::default(),
        })
    }

    fn lock_controls(&self) -> MutexGuard<'_, TestControls> {
        self.controls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The fault that meets this request; one that was to meet only so many is over after the last of them.
    fn take_fault(&self, target: &str) -> Option<Fault> {
        let mut state = self.lock_controls();
        let readable = percent_decode(target);
        let fits = |part: &str| target.contains(part) || readable.contains(part);
        let is_over = |fault: &Fault| matches!(fault, Fault::ForNextRequests(0, _));
        let meets = state.faults.iter_mut().filter(|(part, fault)| fits(part) && !is_over(fault));
        let (_, fault) = meets.max_by_key(|(part, _)| part.len())?;
        if let Fault::ForNextRequests(left, fault) = fault {
            *left -= 1;
            return Some((**fault).clone());
        }
        Some(fault.clone())
    }

    /// What the upstream says if nothing goes wrong.
    fn normal_response(&self, path: &str, query: &str) -> anyhow::Result<FakeResponse> {
        let (now, edits) = {
            let state = self.lock_controls();
            (state.now, state.cvm_edits.clone())
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
        if let Some(changed) = self.lock_controls().sgs_overrides.get(&code) {
            rows.extend(changed.iter().map(|(date, value)| (*date, value.clone())));
        }
        Some(rows)
    }
}

/// By the path, which is decoded.
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
