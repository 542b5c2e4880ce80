//! What the server responds from: the data of each upstream, and the changes and faults that a test sets.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use chrono::NaiveDateTime;
use http::StatusCode;

use super::calendar::end_of_day;
use super::cvm::{CvmEdits, FakeCvm};
use super::fake_response::{FakeResponse, HTML_CONTENT_TYPE, percent_decode};
use super::faults::Fault;
use super::market_data::MarketData;
use super::options::FakeUpstreamOptions;
use super::ptax::{self, PtaxSamples};
use super::replay::ReplayKit;
use super::request_log::RequestLog;
use super::series_rows::SeriesRows;
use super::sgs;
use super::upstream_service::{UpstreamService, upstream_for_path};

/// The served data, the changes made by the test, and the recorded requests.
#[derive(Debug)]
pub struct FakeBackend {
    pub address: SocketAddr,
    pub cvm: FakeCvm,
    pub request_log: RequestLog,
    market: MarketData,
    ptax_samples: PtaxSamples,
    kit: Option<ReplayKit>,
    controls: Mutex<FakeUpstreamState>,
}

/// What a test sets and changes.
#[derive(Debug)]
pub struct FakeUpstreamState {
    pub now: NaiveDateTime,
    /// By a part of the path.
    pub faults: BTreeMap<String, Fault>,
    pub sgs_overrides: BTreeMap<u32, SeriesRows>,
    pub cvm_edits: CvmEdits,
    /// Whether parts of files are sent. Apache does; whether CVM's servers do is unknown.
    pub sends_ranges: bool,
}

impl FakeBackend {
    pub fn new(options: FakeUpstreamOptions, address: SocketAddr) -> anyhow::Result<Self> {
        let data_dir = options.data_dir.as_deref();
        if let Some(directory) = data_dir {
            anyhow::ensure!(directory.is_dir(), "{} is not a directory", directory.display());
        }

        let controls = FakeUpstreamState {
            now: end_of_day(options.today),
            faults: BTreeMap::new(),
            sgs_overrides: BTreeMap::new(),
            cvm_edits: CvmEdits::default(),
            sends_ranges: true,
        };
        Ok(Self {
            address,
            market: MarketData::new(data_dir)?,
            ptax_samples: PtaxSamples::load(data_dir)?,
            kit: options.kit.as_deref().map(ReplayKit::open).transpose()?,
            cvm: FakeCvm::new(
                options.data_dir,
                options.companies,
                options.ipe_rows_per_year,
                options.ipe_years,
                options.statements,
            )?,
            controls: Mutex::new(controls),
            request_log: RequestLog::default(),
        })
    }

    pub fn lock_controls(&self) -> MutexGuard<'_, FakeUpstreamState> {
        self.controls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The fault for this request. A fault limited to N requests is counted down here.
    pub fn take_fault(&self, target: &str) -> Option<Fault> {
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
    pub fn normal_response(&self, path: &str, query: &str) -> anyhow::Result<FakeResponse> {
        let (now, edits) = {
            let controls = self.lock_controls();
            (controls.now, controls.cvm_edits.clone())
        };
        if let Some(kit) = &self.kit {
            return kit.respond(path, query);
        }
        match upstream_for_path(path) {
            Some(UpstreamService::Sgs) => Ok(sgs::respond(path, query, now, |code| self.published_series(code, now))),
            Some(UpstreamService::Ptax) => Ok(ptax::respond(path, query, now, &self.market, &self.ptax_samples)),
            Some(UpstreamService::Cvm) => self.cvm.respond(path, now, &edits),
            None => Ok(FakeResponse::new(StatusCode::NOT_FOUND, HTML_CONTENT_TYPE, "<h1>Not Found</h1>")),
        }
    }

    fn published_series(&self, code: u32, now: NaiveDateTime) -> Option<SeriesRows> {
        let euro = ptax::euro_closing_rates(&self.market, &self.ptax_samples, code, now);
        let mut rows = euro.or_else(|| self.market.published_rows(code, now))?;
        if let Some(overrides) = self.lock_controls().sgs_overrides.get(&code) {
            rows.extend(overrides.iter().map(|(date, value)| (*date, value.clone())));
        }
        Some(rows)
    }
}
