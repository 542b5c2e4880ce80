//! How new each dataset is, and whether newer data is overdue.

use chrono::{DateTime, NaiveDate, TimeDelta, Utc};
use vintem_domain::dates::sao_paulo_day;
use vintem_domain::{Dataset, DateRange, FilingSet};
use vintem_store::sources::SourceState;

use crate::{Companies, FilingFilter, LiveSnapshot, Snapshot};

/// The registry is rewritten each day; a long weekend's silence is nothing.
const REGISTRY_DAYS: i64 = 4;

/// How a dataset stands at a moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Freshness {
    pub rows: usize,
    pub newest: Option<NaiveDate>,
    pub loaded_at: Option<DateTime<Utc>>,
    /// When its publisher last gave a good answer, whether or not it was news.
    pub last_success_at: Option<DateTime<Utc>>,
    pub next_expected_on: Option<NaiveDate>,
    pub quarantined: u64,
    /// What was never loaded is overdue too.
    pub stale: bool,
}

impl LiveSnapshot {
    pub fn freshness(&self, snapshot: &Snapshot, dataset: Dataset, now: DateTime<Utc>) -> Freshness {
        let (rows, newest) = snapshot.held(dataset, sao_paulo_day(now));
        let asked = self.sources_of(dataset);
        Freshness {
            rows,
            newest,
            loaded_at: snapshot.state(dataset).map(|state| state.loaded_at),
            last_success_at: last_success_at(&asked),
            next_expected_on: newest.map(|newest| dataset.next_expected_on(newest)),
            quarantined: asked.iter().map(|source| source.quarantined).sum(),
            stale: self.is_stale(snapshot, dataset, now),
        }
    }

    pub fn is_stale(&self, snapshot: &Snapshot, dataset: Dataset, now: DateTime<Utc>) -> bool {
        let today = sao_paulo_day(now);
        match snapshot.held(dataset, today) {
            (0, _) => true,
            (_, Some(newest)) => dataset.is_stale(newest, today),
            // The registry's rows carry no date that moves: that nobody could read it is what makes it old.
            (_, None) => last_success_at(&self.sources_of(dataset))
                .is_some_and(|asked| now - asked > TimeDelta::days(REGISTRY_DAYS)),
        }
    }

    /// Whether all that is to be served is there and nothing of it is overdue.
    pub fn is_whole(&self, snapshot: &Snapshot, now: DateTime<Utc>) -> bool {
        Dataset::all().all(|dataset| !self.is_stale(snapshot, dataset, now))
    }

    /// The sources that fill a dataset.
    fn sources_of(&self, dataset: Dataset) -> Vec<SourceState> {
        let fills = |source: &&SourceState| {
            source.source == dataset.id()
                || (dataset == Dataset::Filings && FilingSet::from_id(&source.source).is_some())
        };
        self.sources().iter().filter(fills).cloned().collect()
    }
}

impl Snapshot {
    /// The rows that are served, and the newest of their dates.
    fn held(&self, dataset: Dataset, today: NaiveDate) -> (usize, Option<NaiveDate>) {
        match dataset {
            Dataset::Series(series) => self.series(series).map_or((0, None), |values| {
                let served = values.range(DateRange::ALL.until(today));
                (served.len(), served.last().map(|at| values.get(at).0))
            }),
            Dataset::Fx => self.fx().map_or((0, None), |fx| (fx.len(), fx.newest().map(|day| day.min(today)))),
            Dataset::Companies => (self.companies().map_or(0, Companies::len), None),
            Dataset::Filings => self.filings().map_or((0, None), |filings| {
                let days = DateRange::ALL.until(today);
                let served = filings.list(&FilingFilter::of_days(days), 0, 1);
                (served.total, served.rows.first().map(|row| filings.get(*row).filing.delivered_on))
            }),
        }
    }
}

/// That of the source which was answered the longest ago; none while one never was.
fn last_success_at(sources: &[SourceState]) -> Option<DateTime<Utc>> {
    sources.iter().map(|source| source.checked_at).collect::<Option<Vec<_>>>()?.into_iter().min()
}
