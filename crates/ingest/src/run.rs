//! Running: every source by its upstream, one part after the other, each remembered as it ends.

use std::sync::Arc;

use chrono::{DateTime, NaiveDate, Utc};
use futures_util::future::join_all;
use vintem_domain::dates::sao_paulo_day;
use vintem_domain::{Clock, FilingSet, Origin};
use vintem_store::Store;
use vintem_store::load::Fetch;
use vintem_store::sources::CrossCheck;

use crate::IngestError;
use crate::checks::cross_check;
use crate::fetch::{Answer, FetchError, Host, Patience, UpstreamAddresses, Validators, Worth, archived, client};
use crate::gate::{few_bad_rows, misfits};
use crate::read::sgs::{Sgs, judge};
use crate::source::{Part, Source, Upstream};
use crate::upstreams::{Asked, PartError, PartReport, cvm, ptax, sgs};

/// Beside the parts of a source stands the source itself: when all of it was first there.
const WHOLE: &str = "*";

/// Told what happens, as it happens.
pub trait Reporter: Send + Sync {
    fn source_began(&self, source: Source, parts: usize);
    fn part_ended(&self, source: Source, part: &str, outcome: &PartOutcome);
    fn source_ended(&self, source: Source);
}

/// A reporter that says nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

impl Reporter for Silent {
    fn source_began(&self, _: Source, _: usize) {}
    fn part_ended(&self, _: Source, _: &str, _: &PartOutcome) {}
    fn source_ended(&self, _: Source) {}
}

#[derive(Debug)]
pub enum PartOutcome {
    Good(PartReport),
    NotThereYet,
    Failed(PartError),
}

/// What a run came to.
#[derive(Debug, Default)]
pub struct RunReport {
    pub parts: u64,
    pub bytes: u64,
    pub rows: u64,
    pub appended: u64,
    pub set_aside: u64,
    pub alerts: Vec<String>,
    /// Source, part, and what went wrong.
    pub failures: Vec<(Source, String, String)>,
    /// How series agree with others that say the same; only after something was appended.
    pub checks: Vec<CrossCheck>,
}

pub struct Ingestor {
    store: Store,
    clock: Arc<dyn Clock>,
    sgs: Host,
    ptax: Host,
    cvm: Host,
}

impl Ingestor {
    pub fn new(
        store: Store,
        clock: Arc<dyn Clock>,
        addresses: &UpstreamAddresses,
        contact: &str,
    ) -> Result<Self, IngestError> {
        Self::with_patience(store, clock, addresses, contact, Patience::SHORT, Patience::LONG)
    }

    /// With other patience with the central bank and the regulator than usual.
    pub fn with_patience(
        store: Store,
        clock: Arc<dyn Clock>,
        addresses: &UpstreamAddresses,
        contact: &str,
        central_bank: Patience,
        regulator: Patience,
    ) -> Result<Self, IngestError> {
        let client = client(contact).map_err(|error| IngestError::Client(error.to_string()))?;
        Ok(Self {
            store,
            clock,
            sgs: Host::new(client.clone(), &addresses.sgs, central_bank),
            ptax: Host::new(client.clone(), &addresses.ptax, central_bank),
            cvm: Host::new(client, &addresses.cvm, regulator),
        })
    }

    /// Asks for all that is new of these sources, the upstreams side by side. What fails is reported and tried anew by
    /// the next run; only a database that is away ends it.
    pub async fn run(
        &self,
        sources: &[Source],
        since: Option<NaiveDate>,
        reporter: &dyn Reporter,
    ) -> Result<RunReport, IngestError> {
        let of_upstream = |upstream| -> Vec<Source> {
            sources.iter().copied().filter(|source| source.upstream() == upstream).collect()
        };
        let runs = Upstream::ALL.map(|upstream| self.run_in_turn(of_upstream(upstream), since, reporter));
        let mut report = RunReport::default();
        for part in join_all(runs).await {
            report.add(part?);
        }
        if report.appended > 0 {
            report.checks = cross_check(&self.store, self.clock.now()).await?;
        }
        Ok(report)
    }

    async fn run_in_turn(
        &self,
        sources: Vec<Source>,
        since: Option<NaiveDate>,
        reporter: &dyn Reporter,
    ) -> Result<RunReport, IngestError> {
        let mut report = RunReport::default();
        for source in sources {
            report.add(self.run_source(source, since, reporter).await?);
        }
        Ok(report)
    }

    async fn run_source(
        &self,
        source: Source,
        since: Option<NaiveDate>,
        reporter: &dyn Reporter,
    ) -> Result<RunReport, IngestError> {
        // Another worker may be at it: what it leaves to do is found out by asking.
        let _lock = self.store.lock_source(source.id(), true).await?;
        let today = sao_paulo_day(self.clock.now());
        let parts = source.parts(today, since);
        reporter.source_began(source, parts.len());
        let mut whole = self.store.part_state(source.id(), WHOLE).await?;
        let mut report = RunReport::default();
        for part in parts {
            let (outcome, id) =
                (self.run_part(source, part, since, whole.filled_at.is_some() && since.is_none()).await?, part.id());
            reporter.part_ended(source, &id, &outcome);
            report.note(source, &id, outcome);
        }
        if since.is_none() && report.failures.is_empty() && whole.filled_at.is_none() {
            let now = self.clock.now();
            (whole.filled_at, whole.checked_at) = (Some(now), Some(now));
            self.store.save_part(&whole).await?;
        }
        reporter.source_ended(source);
        Ok(report)
    }

    async fn run_part(
        &self,
        source: Source,
        part: Part,
        since: Option<NaiveDate>,
        announce: bool,
    ) -> Result<PartOutcome, IngestError> {
        let mut state = self.store.part_state(source.id(), &part.id()).await?;
        let now = self.clock.now();
        let host = match source.upstream() {
            Upstream::Sgs => &self.sgs,
            Upstream::Ptax => &self.ptax,
            Upstream::Cvm => &self.cvm,
        };
        let today = sao_paulo_day(now);
        let asked = Asked { store: &self.store, host, source: source.id(), now, today, since, announce };
        let result = match part {
            Part::Series(series) => sgs::load(&asked, series, &mut state).await,
            Part::Currency(currency) => ptax::load(&asked, currency, &mut state).await,
            Part::Registry => cvm::load_registry(&asked, &mut state).await,
            Part::Year(set, year) => cvm::load_year(&asked, set, year, &mut state).await,
        };
        let outcome = match result {
            Ok(report) => PartOutcome::Good(report),
            Err(PartError::NotThereYet) => return Ok(PartOutcome::NotThereYet),
            Err(PartError::Store(error)) => return Err(error.into()),
            Err(error) => {
                (state.failed_at, state.failure) = (Some(now), Some(error.to_string()));
                PartOutcome::Failed(error)
            }
        };
        self.store.save_part(&state).await?;
        Ok(outcome)
    }

    /// One cheap request: does an upstream answer?
    pub async fn probe(&self, upstream: Upstream) -> Result<(), FetchError> {
        let (host, path) = match upstream {
            Upstream::Sgs => (&self.sgs, "/dados/serie/bcdata.sgs.432/dados/ultimos/1?formato=json"),
            Upstream::Ptax => (&self.ptax, "/olinda/servico/PTAX/versao/v1/odata/Moedas?$top=1&$format=json"),
            Upstream::Cvm => (&self.cvm, "/dados/CIA_ABERTA/DOC/IPE/DADOS/"),
        };
        let worth = |answer: &Answer| match answer.status {
            200 => Worth::Taken,
            status => Worth::GiveUp(format!("answers with status {status}")),
        };
        host.get(path, &Validators::default(), worth).await.map(|_| ())
    }

    /// Loads a file that somebody kept, as what we would have known then. It is no news, and nothing is missing from it.
    pub async fn load_file(
        &self,
        source: Source,
        name: &str,
        bytes: &[u8],
        known_at: DateTime<Utc>,
    ) -> Result<PartReport, IngestError> {
        let _lock = self.store.lock_source(source.id(), true).await?;
        let today = sao_paulo_day(self.clock.now());
        let refused = |reason: String| IngestError::File { name: name.to_owned(), reason };
        let fetch = |sha256, kept| {
            let received = vintem_store::load::Received { status: 0, content_type: String::new(), body: kept };
            Fetch { address: format!("file:{name}"), fetched_at: known_at, sha256, received: Some(received) }
        };
        let mut report = PartReport { bytes: bytes.len() as u64, ..PartReport::default() };
        let bad = match source {
            Source::Series(series) => {
                let Ok(Sgs::Rows(read)) = judge(200, bytes) else {
                    return Err(refused("it is no JSON array of observations".to_owned()));
                };
                few_bad_rows(&read).map_err(|error| refused(error.to_string()))?;
                let kept = archived(bytes);
                let mut load = self.store.begin_load(source.dataset(), Origin::Real, &fetch(kept.sha256, kept)).await?;
                load.append_observations(series, &read.rows).await?;
                load.set_aside(source.id(), series.id, &misfits(&read.bad)).await?;
                (report.rows, report.appended) = (read.rows.len() as u64, load.commit().await?);
                read.bad
            }
            Source::Companies => {
                let member = cvm::read_registry(bytes).map_err(|error| refused(error.to_string()))?;
                let mut load =
                    self.store.begin_load(source.dataset(), Origin::Real, &fetch(member.sha256, member.kept)).await?;
                load.append_companies(&member.read.rows).await?;
                load.set_aside(source.id(), "registry", &misfits(&member.read.bad)).await?;
                (report.rows, report.appended) = (member.read.rows.len() as u64, load.commit().await?);
                member.read.bad
            }
            Source::Filings(set) => {
                let member = if bytes.starts_with(b"PK") {
                    let year = year_in(name).ok_or_else(|| refused("its name holds no year".to_owned()))?;
                    cvm::read_year(bytes, set, year, today).map(|year| year.filings)
                } else {
                    cvm::read_filings(bytes, None, set, today)
                };
                let member = member.map_err(|error| refused(error.to_string()))?;
                let mut load =
                    self.store.begin_load(source.dataset(), Origin::Real, &fetch(member.sha256, member.kept)).await?;
                load.append_filings(&member.read.rows).await?;
                load.set_aside(source.id(), name, &misfits(&member.read.bad)).await?;
                (report.rows, report.appended) = (member.read.rows.len() as u64, load.commit().await?);
                member.read.bad
            }
            Source::Fx => return Err(refused("bulletins are not loaded from files".to_owned())),
        };
        report.set_aside = bad.len() as u64;
        report.unchanged = report.appended == 0;
        Ok(report)
    }
}

impl RunReport {
    fn add(&mut self, other: Self) {
        self.parts += other.parts;
        self.bytes += other.bytes;
        self.rows += other.rows;
        self.appended += other.appended;
        self.set_aside += other.set_aside;
        self.alerts.extend(other.alerts);
        self.failures.extend(other.failures);
    }

    fn note(&mut self, source: Source, part: &str, outcome: PartOutcome) {
        self.parts += 1;
        match outcome {
            PartOutcome::Good(report) => {
                self.bytes += report.bytes;
                self.rows += report.rows;
                self.appended += report.appended;
                self.set_aside += report.set_aside;
                self.alerts.extend(report.alerts.iter().map(|alert| format!("{} {part}: {alert}", source.id())));
            }
            PartOutcome::NotThereYet => {}
            PartOutcome::Failed(error) => self.failures.push((source, part.to_owned(), error.to_string())),
        }
    }
}

/// `ipe_cia_aberta_2015.zip` → 2015.
fn year_in(name: &str) -> Option<i32> {
    name.split(|character: char| !character.is_ascii_digit()).find(|digits| digits.len() == 4)?.parse().ok()
}

/// The sources whose names these are; all where none is named.
pub fn named(names: &[String]) -> Result<Vec<Source>, IngestError> {
    if names.is_empty() {
        return Ok(Source::all().collect());
    }
    names
        .iter()
        .flat_map(|name| match name.as_str() {
            // Groups, so that nobody has to list a dozen names.
            "sgs" => Source::all().filter(|source| source.upstream() == Upstream::Sgs).map(Ok).collect(),
            "ptax" => vec![Ok(Source::Fx)],
            "cvm" => Source::all().filter(|source| source.upstream() == Upstream::Cvm).map(Ok).collect(),
            "filings" => FilingSet::ALL.map(|set| Ok(Source::Filings(set))).into(),
            other => vec![Source::from_id(other).ok_or_else(|| IngestError::NoSuchSource(other.to_owned()))],
        })
        .collect()
}
