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

mod answer;
mod archive;
mod calendar;
mod cvm;
mod dice;
mod faults;
mod ipe;
mod market;
mod ptax;
mod registry;
mod serve;
mod sgs;
mod structured;
mod words;

pub use faults::{Change, Fault, StallAt};
pub use ipe::IpeRow;
pub use registry::Company;
pub use serve::Seen;

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

use answer::{Answer, decoded};
use cvm::{Cvm, Edits};
use market::Market;
use ptax::Samples;
use serve::Log;

/// How large the stand-in is, and when.
#[derive(Debug, Clone)]
pub struct UpstreamOptions {
    /// Real files, in the directories `sgs`, `ptax` and `cvm`.
    pub data: Option<PathBuf>,
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
impl Default for UpstreamOptions {
    fn default() -> Self {
        Self {
            data: None,
            today: calendar::day(2026, 11, 13),
            ipe_rows_per_year: 200,
            ipe_years: ipe::FIRST_YEAR..=i32::MAX,
            companies: 120,
            listen: (Ipv4Addr::LOCALHOST, 0).into(),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Upstream {
    Sgs,
    Ptax,
    Cvm,
}

/// The running stand-ins; they end when this is dropped.
#[derive(Debug)]
pub struct Upstreams {
    world: Arc<World>,
    address: SocketAddr,
    /// Dropped to end the server.
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Upstreams {
    /// On a thread and a runtime of its own, so that it answers even while a test blocks.
    pub fn start(options: UpstreamOptions) -> anyhow::Result<Self> {
        anyhow::ensure!(options.listen.ip().is_loopback(), "{} is not on loopback", options.listen);
        anyhow::ensure!(options.today <= calendar::HORIZON, "what is made up ends on {}", calendar::HORIZON);
        let listener = TcpListener::bind(options.listen).with_context(|| format!("listening on {}", options.listen))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let world = Arc::new(World::new(options, address)?);
        let (stop, stopped) = oneshot::channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let served = world.clone();
        let thread = std::thread::spawn(move || {
            runtime.block_on(serve::serve(listener, served, stopped));
            // What is still being made for nobody need not be waited for.
            runtime.shutdown_background();
        });
        Ok(Self { world, address, stop: Some(stop), thread: Some(thread) })
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
        self.set_now(end_of(today));
    }

    /// A moment in Brasília: bulletins and rates of that day are there as far as they are published by then.
    pub fn set_now(&self, now: NaiveDateTime) {
        assert!(now.date() <= calendar::HORIZON, "what is made up ends on {}", calendar::HORIZON);
        self.world.state().now = now;
    }

    /// What goes wrong from now on with requests whose path and query contain this text, as sent or decoded; `None`
    /// ends it. Of several texts that fit the longest counts. Requests to `localhost` meet none: redirects lead there.
    pub fn set_fault(&self, part_of_path: &str, fault: Option<Fault>) {
        let mut state = self.world.state();
        match fault {
            Some(fault) => _ = state.faults.insert(part_of_path.to_owned(), fault),
            None => _ = state.faults.remove(part_of_path),
        }
    }

    pub fn clear_faults(&self) {
        self.world.state().faults.clear();
    }

    /// All requests so far, in the order in which they came.
    pub fn requests(&self) -> Vec<Seen> {
        self.world.log.requests()
    }

    pub fn requests_to(&self, upstream: Upstream) -> Vec<Seen> {
        self.requests().into_iter().filter(|seen| seen.upstream == Some(upstream)).collect()
    }

    pub fn forget_requests(&self) {
        self.world.log.forget();
    }

    /// The largest number of requests that one upstream had at a time.
    pub fn most_in_flight(&self, upstream: Upstream) -> usize {
        self.requests_to(upstream).iter().map(|seen| seen.in_flight).max().unwrap_or(0)
    }

    /// This value on this day, in this series alone; any text, and also on days that have none.
    pub fn override_sgs(&self, code: u32, date: NaiveDate, value: &str) {
        self.world.state().overrides.entry(code).or_default().insert(date, value.to_owned());
    }

    /// A further row at the end of the archive of the year in which it is delivered, at once.
    pub fn add_filing(&self, row: IpeRow) -> anyhow::Result<()> {
        let year: i32 = row.delivered_on.get(..4).unwrap_or_default().parse().context("the year of delivery")?;
        let mut state = self.world.state();
        state.edits.filings.entry(year).or_default().push(row);
        *state.edits.changes.entry(format!("ipe_cia_aberta_{year}.zip")).or_default() += 1;
        Ok(())
    }

    /// What the registry's file says from now on, whatever the day. Filings stay those of the companies at the start.
    pub fn set_registry(&self, file: impl Into<Bytes>) {
        let mut state = self.world.state();
        state.edits.registry = Some(file.into());
        *state.edits.changes.entry("cad_cia_aberta.csv".to_owned()).or_default() += 1;
    }

    /// The registry as it is served now.
    pub fn registry(&self) -> Bytes {
        let (now, edits) = {
            let state = self.world.state();
            (state.now, state.edits.clone())
        };
        self.world.cvm.registry(now.date(), &edits)
    }

    /// The companies that file, by rising code.
    pub fn companies(&self) -> &[Company] {
        self.world.cvm.companies()
    }

    /// Whether a file of the regulator, such as `ipe_cia_aberta_2026.zip`, is away: 404, and not in its directory.
    pub fn set_hidden(&self, file_name: &str, hidden: bool) {
        let files = &mut self.world.state().edits.hidden;
        if hidden {
            files.insert(file_name.to_owned());
        } else {
            files.remove(file_name);
        }
    }
}

impl Drop for Upstreams {
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
struct World {
    address: SocketAddr,
    market: Market,
    samples: Samples,
    cvm: Cvm,
    state: Mutex<State>,
    log: Log,
}

#[derive(Debug)]
struct State {
    now: NaiveDateTime,
    faults: BTreeMap<String, Fault>,
    overrides: BTreeMap<u32, market::Rows>,
    edits: Edits,
}

impl World {
    fn new(options: UpstreamOptions, address: SocketAddr) -> anyhow::Result<Self> {
        let data = options.data.as_deref();
        if let Some(directory) = data {
            anyhow::ensure!(directory.is_dir(), "{} is not a directory", directory.display());
        }
        let state = State {
            now: end_of(options.today),
            faults: BTreeMap::new(),
            overrides: BTreeMap::new(),
            edits: Edits::default(),
        };
        Ok(Self {
            address,
            market: Market::new(data)?,
            samples: Samples::new(data)?,
            cvm: Cvm::new(options.data, options.companies, options.ipe_rows_per_year, options.ipe_years)?,
            state: Mutex::new(state),
            log: Log::default(),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The fault that meets this request; one that was to meet only so many is over after the last of them.
    fn take_fault(&self, target: &str) -> Option<Fault> {
        let mut state = self.state();
        let readable = decoded(target);
        let fits = |part: &str| target.contains(part) || readable.contains(part);
        let is_over = |fault: &Fault| matches!(fault, Fault::Times(0, _));
        let meets = state.faults.iter_mut().filter(|(part, fault)| fits(part) && !is_over(fault));
        let (_, fault) = meets.max_by_key(|(part, _)| part.len())?;
        if let Fault::Times(left, fault) = fault {
            *left -= 1;
            return Some((**fault).clone());
        }
        Some(fault.clone())
    }

    /// What the upstream says if nothing goes wrong.
    fn truth(&self, path: &str, query: &str) -> anyhow::Result<Answer> {
        let (now, edits) = {
            let state = self.state();
            (state.now, state.edits.clone())
        };
        match upstream_of(path) {
            Some(Upstream::Sgs) => Ok(sgs::answer(path, query, now, |code| self.series(code, now))),
            Some(Upstream::Ptax) => Ok(ptax::answer(path, query, now, &self.market, &self.samples)),
            Some(Upstream::Cvm) => self.cvm.answer(path, now, &edits),
            None => Ok(Answer::new(StatusCode::NOT_FOUND, answer::HTML, "<h1>Not Found</h1>")),
        }
    }

    fn series(&self, code: u32, now: NaiveDateTime) -> Option<market::Rows> {
        let mut rows = sgs::published(&self.market, code, now)?;
        if let Some(changed) = self.state().overrides.get(&code) {
            rows.extend(changed.iter().map(|(date, value)| (*date, value.clone())));
        }
        Some(rows)
    }
}

/// By the path, which is decoded.
fn upstream_of(path: &str) -> Option<Upstream> {
    let prefixes = [(sgs::PREFIX, Upstream::Sgs), (ptax::PREFIX, Upstream::Ptax), (cvm::PREFIX, Upstream::Cvm)];
    prefixes.iter().find(|(prefix, _)| path.starts_with(prefix)).map(|(_, upstream)| *upstream)
}

fn end_of(day: NaiveDate) -> NaiveDateTime {
    day.and_time(NaiveTime::from_hms_opt(23, 59, 59).expect("a time of the day"))
}
