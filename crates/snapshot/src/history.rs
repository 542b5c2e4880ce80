//! What could be known on a day, read from the store version by version.

use std::collections::HashSet;
use std::sync::Arc;

use chrono::{NaiveDate, NaiveDateTime};
use vintem_domain::dates::sao_paulo_end;
use vintem_domain::point_in_time::{Certainty, known_on_day};
use vintem_domain::series::{self, Frequency};
use vintem_domain::{Company, Decimal, Pair, Quote, Series};
use vintem_store::Store;
use vintem_store::history::{Version, Versions};
use vintem_store::load::Observation;
use vintem_store::read::{FilingRow, Known};

use crate::Result;
use crate::companies::Companies;
use crate::filings::{Filings, LayerBuilder};
use crate::live::{computed, derived, unregistered_issuers};
use crate::market::{Close, FxRates, SeriesValues};

/// A series as it could be known on a day.
pub async fn series_as_of(store: &Store, series: &'static Series, day: NaiveDate) -> Result<SeriesValues> {
    let Some(formula) = &series.formula else {
        let (rows, mut estimated) = values_as_of(store, series, day).await?;
        let mut further = Vec::new();
        if let Some(base) = series.derived_from.and_then(series::by_id) {
            let (daily, estimated_daily) = values_as_of(store, base, day).await?;
            further = derived(&rows, &daily);
            // Of both only the days that are served.
            estimated.extend(estimated_daily.into_iter().filter(|day| further.iter().any(|(row, _)| row.date == *day)));
        }
        return Ok(SeriesValues::new(rows, further).with_estimated(estimated));
    };
    let mut inputs: Vec<Vec<(Observation, Known)>> = Vec::new();
    let mut any_estimated = false;
    for input in series.made_of() {
        let (rows, estimated) = values_as_of(store, input, day).await?;
        any_estimated |= !estimated.is_empty();
        inputs.push(rows);
    }
    let rows = computed(formula, &inputs);
    // One that follows from an estimate is one.
    let estimated = if any_estimated { rows.iter().map(|(row, _)| row.date).collect() } else { Vec::new() };
    Ok(SeriesValues::new(rows, Vec::new()).with_estimated(estimated))
}

type CloseVersion = Version<(NaiveDateTime, Quote)>;

/// The closing rates that a pair is made of, as they could be known on a day.
pub async fn fx_as_of(store: &Store, pair: Pair, day: NaiveDate) -> Result<FxRates> {
    let (first, second) = pair.legs();
    let mut closes = Vec::new();
    for currency in std::iter::once(first).chain(second) {
        let versions = store.closing_versions(currency).await?;
        let same_bulletin =
            |one: &CloseVersion, other: &CloseVersion| (one.date, one.value.0) == (other.date, other.value.0);
        let mut known: Vec<(Close, Certainty)> = Vec::new();
        // A bulletin is published on its own day.
        for (row, certainty) in known_versions(&versions, same_bulletin, |date| date, day) {
            // Of several closes of a day the last one rules.
            known.pop_if(|((date, ..), _)| *date == row.date);
            known.push(((row.date, row.value.1, row.known), certainty));
        }
        closes.push((currency, known));
    }
    Ok(FxRates::of_closes(closes))
}

/// The companies as they could be known on a day: as the registry was then, or where we know it only from later, those
/// that were registered by then, as its dates say.
pub async fn companies_as_of(store: &Store, filings: Option<Arc<Filings>>, day: NaiveDate) -> Result<Companies> {
    let versions = store.companies_before(sao_paulo_end(day)).await?;
    let filings = match filings {
        Some(filings) => Some(filings_as_of(store, filings, day).await?),
        None => None,
    };
    let build = move || {
        let mut estimated = HashSet::new();
        let mut registered = Vec::new();
        for (company, known, is_known_later) in versions {
            let company = if is_known_later { on_day(company, day) } else { Some(company) };
            let Some(company) = company else { continue };
            if is_known_later {
                estimated.insert(company.id);
            }
            registered.push((company, known));
        }
        let issuers = unregistered_issuers(&registered, filings.as_ref(), day);
        estimated.extend(issuers.iter().map(|(company, _)| company.id));
        Ok(Companies::build(registered, issuers)?.with_estimated(estimated))
    };
    tokio::task::spawn_blocking(build).await?
}

/// What the dates of a later registry say of an earlier day; nothing of a company that was not registered yet.
fn on_day(mut company: Company, day: NaiveDate) -> Option<Company> {
    company.registered_on.filter(|registered_on| *registered_on <= day)?;
    let is_later = |date: Option<NaiveDate>| date.is_some_and(|date| date > day);
    if is_later(company.cancelled_on) || is_later(company.status_since) {
        // What it was before is not told; most were active, and none was cancelled yet.
        company.status = ACTIVE.to_owned();
        company.cancelled_on = company.cancelled_on.filter(|date| *date <= day);
        company.status_since = None;
    }
    Some(company)
}

/// The status of a registration in force, as the regulator writes it.
const ACTIVE: &str = "ATIVO";

/// The filings as they could be known on a day: those delivered by then, of which those that were replaced later are as
/// they were. What was delivered later is among them still.
pub async fn filings_as_of(store: &Store, served: Arc<Filings>, day: NaiveDate) -> Result<Filings> {
    let (mut before, mut gone) = (LayerBuilder::default(), Vec::new());
    let visit = |filing: FilingRow<'_>, is_absent: bool| {
        if is_absent {
            gone.push(filing.id.to_owned());
        } else {
            before.push(&filing, false);
        }
    };
    store.for_each_filing_replaced_since(sao_paulo_end(day), visit).await?;
    tokio::task::spawn_blocking(move || served.next(before, &gone, usize::MAX)).await?
}

type Values = (Vec<(Observation, Known)>, Vec<NaiveDate>);

/// With the days of which it is only estimated that they could be known.
async fn values_as_of(store: &Store, series: &Series, day: NaiveDate) -> Result<Values> {
    let versions: Versions<Decimal> = store.observation_versions(series).await?;
    let frequency: Frequency = series.frequency;
    let known = known_versions(&versions, same_day, |date| frequency.published_on(date), day);
    let estimated = known.iter().filter(|(_, certainty)| *certainty == Certainty::Estimated);
    let estimated = estimated.map(|(row, _)| row.date).collect();
    let row = |(row, _): (&Version<Decimal>, Certainty)| (Observation { date: row.date, value: row.value }, row.known);
    Ok((known.into_iter().map(row).collect(), estimated))
}

fn same_day<V>(one: &Version<V>, other: &Version<V>) -> bool {
    one.date == other.date
}

/// Of everything the version that could be known, if any could; `is_same` tells versions of one thing.
fn known_versions<V>(
    versions: &Versions<V>,
    is_same: impl Fn(&Version<V>, &Version<V>) -> bool,
    published_on: impl Fn(NaiveDate) -> NaiveDate,
    day: NaiveDate,
) -> Vec<(&Version<V>, Certainty)> {
    versions
        .rows
        .chunk_by(is_same)
        .filter_map(|of_one| {
            let published_on = published_on(of_one[0].date);
            known_on_day(of_one, |version| version.known_at, published_on, versions.filled_at, day)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use chrono::{DateTime, Days, Utc};
    use proptest::prelude::*;

    use super::*;

    fn start() -> DateTime<Utc> {
        "2026-01-01T12:00:00Z".parse().unwrap()
    }

    proptest! {
        #[test]
        fn nothing_is_known_before_it_was_published_or_seen(
            learned in proptest::collection::vec((0u64..30, 0u64..90), 1..40),
            filled in proptest::option::of(0u64..60),
            asked in 0u64..100,
        ) {
            let mut rows: Vec<Version<u64>> = learned
                .iter()
                .map(|(date, known)| Version {
                    date: start().date_naive() + Days::new(*date),
                    value: *known,
                    known_at: start() + Days::new(date + known),
                    known: Known::default(),
                })
                .collect();
            rows.sort_by_key(|row| (row.date, row.known_at));
            let filled_at = filled.map(|days| start() + Days::new(days));
            let versions = Versions { rows, filled_at };
            let day = start().date_naive() + Days::new(asked);
            let published_on = |date: NaiveDate| Frequency::BusinessDaily.published_on(date);
            for (row, certainty) in known_versions(&versions, same_day, published_on, day) {
                let seen_on = row.known_at.date_naive();
                match certainty {
                    Certainty::Observed => prop_assert!(seen_on <= day),
                    Certainty::Estimated => {
                        prop_assert!(published_on(row.date) <= day);
                        prop_assert!(filled_at.is_none_or(|filled_at| row.known_at <= filled_at));
                    }
                }
                // Nothing later could be known of the same day.
                let later = versions.rows.iter().filter(|other| other.date == row.date && other.known_at > row.known_at);
                prop_assert!(later.into_iter().all(|other| other.known_at.date_naive() > day));
            }
        }
    }
}
