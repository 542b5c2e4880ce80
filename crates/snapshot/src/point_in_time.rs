//! What could be known on a day, read from the store version by version.

use std::collections::HashSet;
use std::sync::Arc;

use chrono::{NaiveDate, NaiveDateTime};
use vintem_domain::dates::sao_paulo_day_end;
use vintem_domain::point_in_time::{Certainty, version_known_on};
use vintem_domain::series::{self, Frequency};
use vintem_domain::{Company, CurrencyPair, Decimal, Quote, Series};
use vintem_store::Store;
use vintem_store::history::{ValueVersion, VersionHistory};
use vintem_store::load::Observation;
use vintem_store::reader::{FilingRow, RowProvenance};

use crate::Result;
use crate::companies::Companies;
use crate::filings::{FilingLayerBuilder, Filings};
use crate::live_snapshot::{annualize_missing_days, apply_formula, unregistered_issuers};
use crate::market::{ClosingRate, FxRates, SeriesValues};

/// A series as it could be known on a day.
pub async fn series_as_of(store: &Store, series: &'static Series, day: NaiveDate) -> Result<SeriesValues> {
    let Some(formula) = &series.formula else {
        let (rows, mut estimated) = observations_as_of(store, series, day).await?;
        let mut further = Vec::new();
        if let Some(base) = series.gap_fill_series.and_then(series::find_series) {
            let (daily, estimated_daily) = observations_as_of(store, base, day).await?;
            further = annualize_missing_days(&rows, &daily);
            // Of both only the days that are served.
            estimated.extend(estimated_daily.into_iter().filter(|day| further.iter().any(|(row, _)| row.date == *day)));
        }
        return Ok(SeriesValues::new(rows, further).with_estimated_days(estimated));
    };
    let mut inputs: Vec<Vec<(Observation, RowProvenance)>> = Vec::new();
    let mut any_estimated = false;
    for input in series.source_series() {
        let (rows, estimated) = observations_as_of(store, input, day).await?;
        any_estimated |= !estimated.is_empty();
        inputs.push(rows);
    }
    let rows = apply_formula(formula, &inputs);
    // One that follows from an estimate is one.
    let estimated = if any_estimated { rows.iter().map(|(row, _)| row.date).collect() } else { Vec::new() };
    Ok(SeriesValues::new(rows, Vec::new()).with_estimated_days(estimated))
}

type ClosingRateVersion = ValueVersion<(NaiveDateTime, Quote)>;

/// The closing rates that a pair is made of, as they could be known on a day.
pub async fn fx_as_of(store: &Store, pair: CurrencyPair, day: NaiveDate) -> Result<FxRates> {
    let (first, second) = pair.legs();
    let mut closes = Vec::new();
    for currency in std::iter::once(first).chain(second) {
        let versions = store.closing_rate_versions(currency).await?;
        let same_bulletin = |one: &ClosingRateVersion, other: &ClosingRateVersion| {
            (one.date, one.value.0) == (other.date, other.value.0)
        };
        let mut known: Vec<(ClosingRate, Certainty)> = Vec::new();
        // A bulletin is published on its own day.
        for (row, certainty) in versions_known_on(&versions, same_bulletin, |date| date, day) {
            // Of several closes of a day the last one rules.
            known.pop_if(|((date, ..), _)| *date == row.date);
            known.push(((row.date, row.value.1, row.provenance), certainty));
        }
        closes.push((currency, known));
    }
    Ok(FxRates::from_closing_rates(closes))
}

/// The companies as they could be known on a day: as the registry was then, or where we know it only from later, those
/// that were registered by then, as its dates say.
pub async fn companies_as_of(store: &Store, filings: Option<Arc<Filings>>, day: NaiveDate) -> Result<Companies> {
    let versions = store.companies_known_before(sao_paulo_day_end(day)).await?;
    let filings = match filings {
        Some(filings) => Some(filings_as_of(store, filings, day).await?),
        None => None,
    };
    let build = move || {
        let mut estimated = HashSet::new();
        let mut registered = Vec::new();
        for (company, known, is_known_later) in versions {
            let company = if is_known_later { company_as_of(company, day) } else { Some(company) };
            let Some(company) = company else { continue };
            if is_known_later {
                estimated.insert(company.id);
            }
            registered.push((company, known));
        }
        let issuers = unregistered_issuers(&registered, filings.as_ref(), day);
        estimated.extend(issuers.iter().map(|(company, _)| company.id));
        Ok(Companies::build(registered, issuers)?.with_estimated_ids(estimated))
    };
    tokio::task::spawn_blocking(build).await?
}

/// What the dates of a later registry say of an earlier day; nothing of a company that was not registered yet.
fn company_as_of(mut company: Company, day: NaiveDate) -> Option<Company> {
    company.registered_on.filter(|registered_on| *registered_on <= day)?;
    let is_later = |date: Option<NaiveDate>| date.is_some_and(|date| date > day);
    if is_later(company.cancelled_on) || is_later(company.status_since) {
        // What it was before is not told; most were active, and none was cancelled yet.
        company.status = ACTIVE_STATUS.to_owned();
        company.cancelled_on = company.cancelled_on.filter(|date| *date <= day);
        company.status_since = None;
    }
    Some(company)
}

/// The status of a registration in force, as the regulator writes it.
const ACTIVE_STATUS: &str = "ATIVO";

/// The filings as they could be known on a day: those delivered by then, of which those that were replaced later are as
/// they were. What was delivered later is among them still.
pub async fn filings_as_of(store: &Store, served: Arc<Filings>, day: NaiveDate) -> Result<Filings> {
    let (mut before, mut removed_ids) = (FilingLayerBuilder::default(), Vec::new());
    let visit = |filing: FilingRow<'_>, is_absent: bool| {
        if is_absent {
            removed_ids.push(filing.id.to_owned());
        } else {
            before.push(&filing, false);
        }
    };
    store.for_each_filing_replaced_since(sao_paulo_day_end(day), visit).await?;
    tokio::task::spawn_blocking(move || served.with_changes(before, &removed_ids, usize::MAX)).await?
}

type KnownObservations = (Vec<(Observation, RowProvenance)>, Vec<NaiveDate>);

/// With the days of which it is only estimated that they could be known.
async fn observations_as_of(store: &Store, series: &Series, day: NaiveDate) -> Result<KnownObservations> {
    let versions: VersionHistory<Decimal> = store.observation_versions(series).await?;
    let frequency: Frequency = series.frequency;
    let known = versions_known_on(&versions, is_same_date, |date| frequency.assumed_publication_date(date), day);
    let estimated = known.iter().filter(|(_, certainty)| *certainty == Certainty::Estimated);
    let estimated = estimated.map(|(row, _)| row.date).collect();
    let row = |(row, _): (&ValueVersion<Decimal>, Certainty)| {
        (Observation { date: row.date, value: row.value }, row.provenance)
    };
    Ok((known.into_iter().map(row).collect(), estimated))
}

fn is_same_date<V>(one: &ValueVersion<V>, other: &ValueVersion<V>) -> bool {
    one.date == other.date
}

/// Of everything the version that could be known, if any could; `is_same` tells versions of one thing.
fn versions_known_on<V>(
    versions: &VersionHistory<V>,
    is_same: impl Fn(&ValueVersion<V>, &ValueVersion<V>) -> bool,
    published_on: impl Fn(NaiveDate) -> NaiveDate,
    day: NaiveDate,
) -> Vec<(&ValueVersion<V>, Certainty)> {
    versions
        .rows
        .chunk_by(is_same)
        .filter_map(|of_one| {
            let published_on = published_on(of_one[0].date);
            version_known_on(of_one, |version| version.known_at, published_on, versions.backfilled_at, day)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use chrono::{DateTime, Days, Utc};
    use proptest::prelude::*;

    use super::*;

    fn start_time() -> DateTime<Utc> {
        "2026-01-01T12:00:00Z".parse().unwrap()
    }

    proptest! {
        #[test]
        fn no_version_is_known_before_it_was_published_or_seen(
            learned in proptest::collection::vec((0u64..30, 0u64..90), 1..40),
            filled in proptest::option::of(0u64..60),
            asked in 0u64..100,
        ) {
            let mut rows: Vec<ValueVersion<u64>> = learned
                .iter()
                .map(|(date, known)| ValueVersion {
                    date: start_time().date_naive() + Days::new(*date),
                    value: *known,
                    known_at: start_time() + Days::new(date + known),
                    provenance: RowProvenance::default(),
                })
                .collect();
            rows.sort_by_key(|row| (row.date, row.known_at));
            let backfilled_at = filled.map(|days| start_time() + Days::new(days));
            let versions = VersionHistory { rows, backfilled_at };
            let day = start_time().date_naive() + Days::new(asked);
            let published_on = |date: NaiveDate| Frequency::BusinessDaily.assumed_publication_date(date);
            for (row, certainty) in versions_known_on(&versions, is_same_date, published_on, day) {
                let seen_on = row.known_at.date_naive();
                match certainty {
                    Certainty::Observed => prop_assert!(seen_on <= day),
                    Certainty::Estimated => {
                        prop_assert!(published_on(row.date) <= day);
                        prop_assert!(backfilled_at.is_none_or(|backfilled_at| row.known_at <= backfilled_at));
                    }
                }
                // Nothing later could be known of the same day.
                let later = versions.rows.iter().filter(|other| other.date == row.date && other.known_at > row.known_at);
                prop_assert!(later.into_iter().all(|other| other.known_at.date_naive() > day));
            }
        }
    }
}
