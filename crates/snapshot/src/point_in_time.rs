//! Point-in-time views: data as it could be known on a day, computed from the versions in the store.

use std::collections::HashSet;
use std::sync::Arc;

use chrono::{NaiveDate, NaiveDateTime};
use vintem_domain::dates::sao_paulo_day_end;
use vintem_domain::point_in_time::{Certainty, version_known_on};
use vintem_domain::series;
use vintem_domain::{Company, CurrencyPair, PublishedRates, Series};
use vintem_store::Store;
use vintem_store::history::{ValueVersion, VersionHistory};
use vintem_store::load::Observation;
use vintem_store::reader::{FilingRow, RowProvenance};

use crate::companies::Companies;
use crate::datasets::companies::unregistered_issuers;
use crate::datasets::series::{annualize_missing_days, apply_formula};
use crate::error::Result;
use crate::filings::{FilingLayerBuilder, Filings};
use crate::fx_rates::{ClosingRate, FxRates};
use crate::parities::ParityTableBuilder;
use crate::series_values::SeriesValues;

/// A series as it could be known on a day.
pub async fn series_as_of(store: &Store, series: &'static Series, day: NaiveDate) -> Result<SeriesValues> {
    let Some(formula) = &series.formula else {
        let (rows, mut estimated) = observations_as_of(store, series, day).await?;
        let mut derived = Vec::new();
        if let Some(gap_fill) = series.gap_fill_series.and_then(series::find_series) {
            let (daily, estimated_daily) = observations_as_of(store, gap_fill, day).await?;
            derived = annualize_missing_days(&rows, &daily);
            // Of the estimated days, only those that fill a gap are served.
            estimated.extend(estimated_daily.into_iter().filter(|day| derived.iter().any(|(row, _)| row.date == *day)));
        }
        return Ok(SeriesValues::new(rows, derived).with_estimated_days(estimated));
    };

    let mut inputs: Vec<Vec<(Observation, RowProvenance)>> = Vec::new();
    let mut any_estimated = false;
    for input in series::source_series(series) {
        let (rows, estimated) = observations_as_of(store, input, day).await?;
        any_estimated |= !estimated.is_empty();
        inputs.push(rows);
    }

    let rows = apply_formula(formula, &inputs);
    // If any input is estimated, so are all results.
    let estimated = if any_estimated { rows.iter().map(|(row, _)| row.date).collect() } else { Vec::new() };
    Ok(SeriesValues::new(rows, Vec::new()).with_estimated_days(estimated))
}

type ClosingRateVersion = ValueVersion<(NaiveDateTime, PublishedRates)>;

/// The closing rates that a pair is computed from, as they could be known on a day.
pub async fn fx_as_of(store: &Store, pair: CurrencyPair, day: NaiveDate) -> Result<FxRates> {
    let (first, second) = pair.legs();
    let mut closing_rates = Vec::new();
    let mut parities = ParityTableBuilder::default();
    for currency in std::iter::once(first).chain(second) {
        let versions = store.closing_rate_versions(currency).await?;
        let same_bulletin = |one: &ClosingRateVersion, other: &ClosingRateVersion| {
            (one.date, one.value.0) == (other.date, other.value.0)
        };

        let mut known: Vec<(ClosingRate, Certainty)> = Vec::new();
        // A bulletin is published on its own day.
        for (row, certainty) in versions_known_on(&versions, same_bulletin, |date| date, day) {
            // A day may have several closing rates: the last one counts.
            known.pop_if(|(rate, _)| rate.date == row.date);

            let (_, published) = row.value;
            let rate = ClosingRate {
                date: row.date,
                quote: published.quote,
                parity: parities.insert(published.parity),
                provenance: row.provenance,
            };
            known.push((rate, certainty));
        }
        closing_rates.push((currency, known));
    }
    Ok(FxRates::from_closing_rates(closing_rates, parities.finish()))
}

/// The companies as they could be known on a day: as the registry was then. If we know a company only from a later
/// registry, its dates say whether it was registered by then.
pub async fn companies_as_of(store: &Store, filings: Option<Arc<Filings>>, day: NaiveDate) -> Result<Companies> {
    let versions = store.companies_known_before(sao_paulo_day_end(day)).await?;
    let filings = match filings {
        Some(filings) => Some(filings_as_of(store, filings, day).await?),
        None => None,
    };

    let build = move || {
        let mut estimated_ids = HashSet::new();
        let mut registered = Vec::new();
        for (company, provenance, is_known_later) in versions {
            let company = if is_known_later { company_as_of(company, day) } else { Some(company) };
            let Some(company) = company else { continue };
            if is_known_later {
                estimated_ids.insert(company.id);
            }
            registered.push((company, provenance));
        }

        let issuers = unregistered_issuers(&registered, filings.as_ref(), day);
        estimated_ids.extend(issuers.iter().map(|(company, _)| company.id));
        Ok(Companies::build(registered, issuers)?.with_estimated_ids(estimated_ids))
    };

    tokio::task::spawn_blocking(build).await?
}

/// Reconstructs a company on an earlier day from the dates of a later registry; `None` if it was not registered yet.
fn company_as_of(mut company: Company, day: NaiveDate) -> Option<Company> {
    company.registered_on.filter(|registered_on| *registered_on <= day)?;

    let is_later = |date: Option<NaiveDate>| date.is_some_and(|date| date > day);
    if is_later(company.cancelled_on) || is_later(company.status_since) {
        // The earlier status is unknown; most companies were active, and none was canceled yet.
        company.status = ACTIVE_STATUS.to_owned();
        company.cancelled_on = company.cancelled_on.filter(|date| *date <= day);
        company.status_since = None;
    }
    Some(company)
}

/// The status of a registration in force, as the regulator writes it.
const ACTIVE_STATUS: &str = "ATIVO";

/// The filings as they could be known on a day: filings replaced later are restored to their state of that day. Filings
/// delivered after the day are still included.
pub async fn filings_as_of(store: &Store, served: Arc<Filings>, day: NaiveDate) -> Result<Filings> {
    let mut restored = FilingLayerBuilder::default();
    let mut removed_ids = Vec::new();
    let collect_change = |filing: FilingRow<'_>, is_absent: bool| {
        if is_absent {
            removed_ids.push(filing.id.to_owned());
        } else {
            restored.push(&filing, false);
        }
    };
    store.for_each_filing_replaced_since(sao_paulo_day_end(day), collect_change).await?;

    tokio::task::spawn_blocking(move || served.with_changes(restored, &removed_ids, usize::MAX)).await?
}

type KnownObservations = (Vec<(Observation, RowProvenance)>, Vec<NaiveDate>);

/// The observations known on a day, and the days whose availability is only estimated.
async fn observations_as_of(store: &Store, series: &Series, day: NaiveDate) -> Result<KnownObservations> {
    let versions: VersionHistory<Observation> = store.observation_versions(series).await?;
    let schedule = series.schedule();
    let known = versions_known_on(&versions, is_same_date, |date| schedule.certainly_published_on(date), day);

    let estimated = known.iter().filter(|(_, certainty)| *certainty == Certainty::Estimated);
    let estimated_days = estimated.map(|(row, _)| row.date).collect();
    let rows = known.into_iter().map(|(version, _)| (version.value, version.provenance)).collect();
    Ok((rows, estimated_days))
}

fn is_same_date<V>(one: &ValueVersion<V>, other: &ValueVersion<V>) -> bool {
    one.date == other.date
}

/// For each item the version that was known on a day, if any; `is_same` tells whether two versions are of one item.
fn versions_known_on<V>(
    versions: &VersionHistory<V>,
    is_same: impl Fn(&ValueVersion<V>, &ValueVersion<V>) -> bool,
    published_on: impl Fn(NaiveDate) -> NaiveDate,
    day: NaiveDate,
) -> Vec<(&ValueVersion<V>, Certainty)> {
    versions
        .rows
        .chunk_by(is_same)
        .filter_map(|item_versions| {
            let published_on = published_on(item_versions[0].date);
            version_known_on(item_versions, |version| version.known_at, published_on, versions.backfilled_at, day)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use chrono::{DateTime, Days, Utc};
    use proptest::prelude::*;
    use vintem_domain::series::FX_SCHEDULE;

    use super::*;

    fn start_time() -> DateTime<Utc> {
        "2026-01-01T12:00:00Z".parse().unwrap()
    }

    proptest! {
        #[test]
        fn no_version_is_known_before_it_was_published_or_seen(
            version_days in proptest::collection::vec((0u64..30, 0u64..90), 1..40),
            backfill_day in proptest::option::of(0u64..60),
            as_of_day in 0u64..100,
        ) {
            let mut rows: Vec<ValueVersion<u64>> = version_days
                .iter()
                .map(|(date, delay)| ValueVersion {
                    date: start_time().date_naive() + Days::new(*date),
                    value: *delay,
                    known_at: start_time() + Days::new(date + delay),
                    provenance: RowProvenance::default(),
                })
                .collect();
            rows.sort_by_key(|row| (row.date, row.known_at));
            let backfilled_at = backfill_day.map(|days| start_time() + Days::new(days));
            let versions = VersionHistory { rows, backfilled_at };
            let day = start_time().date_naive() + Days::new(as_of_day);
            let published_on = |date: NaiveDate| FX_SCHEDULE.certainly_published_on(date);

            for (row, certainty) in versions_known_on(&versions, is_same_date, published_on, day) {
                let seen_on = row.known_at.date_naive();
                match certainty {
                    Certainty::Observed => prop_assert!(seen_on <= day),
                    Certainty::Estimated => {
                        prop_assert!(published_on(row.date) <= day);
                        prop_assert!(backfilled_at.is_none_or(|backfilled_at| row.known_at <= backfilled_at));
                    }
                }

                // No later version of the same date could be known.
                let later =
                    versions.rows.iter().filter(|other| other.date == row.date && other.known_at > row.known_at);
                prop_assert!(later.into_iter().all(|other| other.known_at.date_naive() > day));
            }
        }
    }
}
