//! Results of cross-checks, and the days of the values that they found to differ.

use chrono::{DateTime, NaiveDate, Utc};
use sqlx::{Postgres, Row, Transaction};
use vintem_domain::{Currency, Dataset, Decimal, Series};

use crate::pool::{query, query_scalar};
use crate::tables::stored_values::parse_stored_decimal;
use crate::{BACKGROUND_TIMEOUT, Result, Store, disable_timeouts_in_transaction, with_timeout};

/// The result of comparing values with others that should agree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CrossCheck {
    pub id: String,
    pub checked_at: DateTime<Utc>,
    pub compared_values: u64,
    pub differing_values: u64,
    pub largest_difference: Decimal,
    pub worst_date: Option<NaiveDate>,
}

/// The served values that a cross-check judges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckedValues {
    Series(&'static Series),
    /// The closing rates of a currency in reais.
    ClosingRates(Currency),
    /// Its rates against the dollar in the closing bulletins.
    Parities(Currency),
}

/// A check, and the days on which what it judges does not agree with other data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CrossCheckFinding {
    pub check: CrossCheck,
    pub judged: Vec<CheckedValues>,
    pub disputed_days: Vec<NaiveDate>,
}

impl CrossCheck {
    /// A check that has compared nothing yet.
    pub const fn new(id: String, checked_at: DateTime<Utc>) -> Self {
        Self {
            id,
            checked_at,
            compared_values: 0,
            differing_values: 0,
            largest_difference: Decimal::ZERO,
            worst_date: None,
        }
    }
}

impl CheckedValues {
    pub(crate) const fn dataset(self) -> Dataset {
        match self {
            Self::Series(series) => Dataset::Series(series),
            Self::ClosingRates(_) | Self::Parities(_) => Dataset::Fx,
        }
    }

    /// Which values of the dataset they are.
    pub(crate) fn part(self) -> String {
        match self {
            Self::Series(series) => series.id.to_owned(),
            Self::ClosingRates(currency) => currency.code().to_owned(),
            Self::Parities(currency) => format!("{} parity", currency.code()),
        }
    }
}

impl Store {
    /// Replaces the results of all checks, unless a later run has saved its own. If the days on which a dataset is
    /// disputed change, its generation rises, so that replicas read them.
    pub async fn save_cross_checks(&self, findings: &[CrossCheckFinding], checked_at: DateTime<Utc>) -> Result<()> {
        let mut transaction = self.pool.begin().await?;
        disable_timeouts_in_transaction(&mut transaction).await?;
        query("select pg_advisory_xact_lock(hashtext('vintem_cross_checks'))").execute(&mut *transaction).await?;
        let is_outdated: bool = query_scalar("select exists (select 1 from cross_check where checked_at > $1)")
            .bind(checked_at)
            .fetch_one(&mut *transaction)
            .await?;
        if is_outdated {
            return Ok(());
        }

        save_checks(&mut transaction, findings, checked_at).await?;
        for dataset in save_disputed_days(&mut transaction, findings).await? {
            raise_generation(&mut transaction, &dataset).await?;
        }
        let ids: Vec<&str> = findings.iter().map(|finding| &*finding.check.id).collect();
        query("delete from cross_check where id <> all($1)").bind(ids).execute(&mut *transaction).await?;
        transaction.commit().await?;
        Ok(())
    }

    pub async fn cross_checks(&self) -> Result<Vec<CrossCheck>> {
        with_timeout(BACKGROUND_TIMEOUT, async {
            let rows = query(
                "select id, checked_at, compared, differing, largest_difference::text as largest_difference, worst_date
                 from cross_check
                 order by id",
            )
            .fetch_all(&self.pool)
            .await?;
            rows.iter()
                .map(|row| {
                    Ok(CrossCheck {
                        id: row.try_get("id")?,
                        checked_at: row.try_get("checked_at")?,
                        compared_values: u64::try_from(row.try_get::<i64, _>("compared")?).unwrap_or(0),
                        differing_values: u64::try_from(row.try_get::<i64, _>("differing")?).unwrap_or(0),
                        largest_difference: parse_stored_decimal(row.try_get("largest_difference")?)?,
                        worst_date: row.try_get("worst_date")?,
                    })
                })
                .collect()
        })
        .await
    }
}

async fn save_checks(
    transaction: &mut Transaction<'static, Postgres>,
    findings: &[CrossCheckFinding],
    checked_at: DateTime<Utc>,
) -> Result<()> {
    let count = |value: fn(&CrossCheck) -> u64| -> Vec<i64> {
        findings.iter().map(|finding| i64::try_from(value(&finding.check)).unwrap_or(i64::MAX)).collect()
    };
    query(
        "insert into cross_check (id, checked_at, compared, differing, largest_difference, worst_date)
         select id, $1, compared, differing, largest_difference, worst_date
         from unnest($2::text[], $3::bigint[], $4::bigint[], $5::numeric[], $6::date[])
              as given (id, compared, differing, largest_difference, worst_date)
         on conflict (id) do update
         set (checked_at, compared, differing, largest_difference, worst_date)
             = (excluded.checked_at, excluded.compared, excluded.differing, excluded.largest_difference,
                excluded.worst_date)",
    )
    .bind(checked_at)
    .bind(findings.iter().map(|finding| &*finding.check.id).collect::<Vec<&str>>())
    .bind(count(|check| check.compared_values))
    .bind(count(|check| check.differing_values))
    .bind(findings.iter().map(|finding| finding.check.largest_difference).collect::<Vec<Decimal>>())
    .bind(findings.iter().map(|finding| finding.check.worst_date).collect::<Vec<Option<NaiveDate>>>())
    .execute(&mut **transaction)
    .await?;
    Ok(())
}

/// Returns the datasets that have other disputed days than before.
async fn save_disputed_days(
    transaction: &mut Transaction<'static, Postgres>,
    findings: &[CrossCheckFinding],
) -> Result<Vec<String>> {
    let mut check_ids: Vec<&str> = Vec::new();
    let mut datasets: Vec<&str> = Vec::new();
    let mut parts: Vec<String> = Vec::new();
    let mut days: Vec<NaiveDate> = Vec::new();
    for CrossCheckFinding { check, judged, disputed_days } in findings {
        for (values, day) in judged.iter().flat_map(|values| disputed_days.iter().map(move |day| (values, day))) {
            check_ids.push(&check.id);
            datasets.push(values.dataset().id());
            parts.push(values.part());
            days.push(*day);
        }
    }
    let changed_datasets = query_scalar(
        "with given as (
             select *
             from unnest($1::text[], $2::text[], $3::text[], $4::date[]) as given (check_id, dataset, part, ref_date)
         ), removed as (
             delete from disputed_day
             where (check_id, dataset, part, ref_date) not in (select check_id, dataset, part, ref_date from given)
             returning dataset
         ), added as (
             insert into disputed_day (check_id, dataset, part, ref_date)
             select check_id, dataset, part, ref_date
             from given
             on conflict do nothing
             returning dataset
         )
         select dataset from removed
         union
         select dataset from added
         order by dataset",
    );
    let changed_datasets = changed_datasets.bind(check_ids).bind(datasets).bind(parts).bind(days);
    Ok(changed_datasets.fetch_all(&mut **transaction).await?)
}

/// Waits for a load of the dataset to end: it knows in advance which generation it makes.
async fn raise_generation(transaction: &mut Transaction<'static, Postgres>, dataset: &str) -> Result<()> {
    query("select pg_advisory_xact_lock(hashtext('vintem_load'), hashtext($1))")
        .bind(dataset)
        .execute(&mut **transaction)
        .await?;
    query("update dataset set generation = generation + 1 where id = $1")
        .bind(dataset)
        .execute(&mut **transaction)
        .await?;
    query("select pg_notify('vintem_generation', $1)").bind(dataset).execute(&mut **transaction).await?;
    Ok(())
}
