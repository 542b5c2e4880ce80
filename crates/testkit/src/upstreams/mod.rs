//! Fake upstreams: one HTTP server on loopback that behaves like `api.bcb.gov.br`, `olinda.bcb.gov.br` and
//! `dados.cvm.gov.br`, on the same paths, including their errors and oddities.
//!
//! Real files from a directory are served unchanged. All other data is **synthetic**, generated identically on every
//! machine. Upstream formats have no field to mark it as such: exchange rates of currencies other than the dollar,
//! filings and tickers are always synthetic; rates and companies are where no file has them. Synthetic data names no
//! natural person.
//!
//! A test sets the day, the faults and changes to the data, and reads the recorded requests. The program `upstreams` of
//! this crate runs the same server by hand. Given a kit of responses that the product recorded, it serves those instead.
//! It is never a product dependency and shares no code with the product's upstream clients, apart from the kit's format,
//! so that the same mistake can't be on both sides.

mod backend;
mod calendar;
mod company_registry;
mod cvm;
mod fake_response;
mod faults;
mod ipe;
mod market_data;
mod options;
mod plain_series;
mod ptax;
mod replay;
mod request_log;
mod seeded_random;
mod series_rows;
mod server;
mod sgs;
mod statements;
mod structured_filings;
mod upstream_service;
mod vocabulary;
mod zip_archive;

pub use company_registry::RegistryCompany;
pub use faults::{BodyTransform, Fault, MemberTransform, StallAt};
pub use ipe::IpeRow;
pub use options::FakeUpstreamOptions;
pub use request_log::RecordedRequest;
pub use statements::StatementOptions;
pub use upstream_service::UpstreamService;
pub use zip_archive::{ZipMember, read_zip};

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;

use anyhow::Context;
use bytes::Bytes;
use chrono::{NaiveDate, NaiveDateTime};
use tokio::sync::oneshot;

use backend::FakeBackend;
use calendar::end_of_day;

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

    /// Whether parts of files are sent, as they are unless this says otherwise.
    pub fn set_sends_ranges(&self, sends_ranges: bool) {
        self.backend.lock_controls().sends_ranges = sends_ranges;
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

    /// Writes a CVM file again: its content is the same, but its modification time is a second later.
    pub fn rewrite_file(&self, file_name: &str) {
        *self.backend.lock_controls().cvm_edits.change_counts.entry(file_name.to_owned()).or_default() += 1;
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
