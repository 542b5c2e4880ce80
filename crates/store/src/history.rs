//! What was known when: every version, for those who look back.

use chrono::{DateTime, NaiveDate, Utc};
use vintem_domain::{Currency, DateRange, Decimal, Quote, Series};

use crate::read::{Known, exact};
use crate::{REQUEST_BUDGET, Result, Store, within};

/// A row as it was learned at some time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version<V> {
    pub date: NaiveDate,
    pub value: V,
    pub known_at: DateTime<Utc>,
    pub known: Known,
}

/// Every version of every row, by day and then by when we learned of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Versions<V> {
    pub rows: Vec<Version<V>>,
    /// Since when all that had been published before was there; what came later we saw appear.
    pub filled_at: Option<DateTime<Utc>>,
}

/// A value that was replaced by another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Revision {
    pub date: NaiveDate,
    pub old: Decimal,
    pub new: Decimal,
    pub known_at: DateTime<Utc>,
}

impl Store {
    pub async fn observation_versions(&self, series: &Series) -> Result<Versions<Decimal>> {
        within(REQUEST_BUDGET, async {
            let rows: Vec<(NaiveDate, String, DateTime<Utc>, i64)> = sqlx::query_as(
                "select ref_date, value::text, known_at, fetch_id
                 from observation
                 where series = $1
                 order by ref_date, known_at",
            )
            .bind(series.id)
            .fetch_all(&self.pool)
            .await?;
            let version = |(date, value, known_at, fetch_id): (NaiveDate, String, DateTime<Utc>, i64)| {
                Ok(Version { date, value: exact(&value)?, known_at, known: Known::new(known_at, fetch_id)? })
            };
            let rows = rows.into_iter().map(version).collect::<Result<_>>()?;
            Ok(Versions { rows, filled_at: self.filled_at(series.id).await? })
        })
        .await
    }

    /// Of the closing rates in reais. Of a day with two closes the later one rules, since when we know it.
    pub async fn closing_versions(&self, currency: Currency) -> Result<Versions<Quote>> {
        type Row = (NaiveDate, String, String, DateTime<Utc>, i64);
        within(REQUEST_BUDGET, async {
            let rows: Vec<Row> = sqlx::query_as(
                "select ref_date, buy::text, sell::text, known_at, fetch_id
                 from fx_bulletin
                 where currency = $1 and bulletin = 'closing' and quote_currency = 'BRL'
                 order by ref_date, known_at, published_at",
            )
            .bind(currency.code())
            .fetch_all(&self.pool)
            .await?;
            let version = |(date, buy, sell, known_at, fetch_id): Row| {
                let value = Quote { buy: exact(&buy)?, sell: exact(&sell)? };
                Ok(Version { date, value, known_at, known: Known::new(known_at, fetch_id)? })
            };
            let rows = rows.into_iter().map(version).collect::<Result<_>>()?;
            Ok(Versions { rows, filled_at: self.filled_at("fx").await? })
        })
        .await
    }

    /// A page of the values of a series that were replaced, the newest first, and how many there are.
    pub async fn revisions(
        &self,
        series: &Series,
        days: DateRange,
        offset: usize,
        limit: usize,
    ) -> Result<(usize, Vec<Revision>)> {
        within(REQUEST_BUDGET, async {
            let rows: Vec<(NaiveDate, String, String, DateTime<Utc>)> = sqlx::query_as(
                "select ref_date, old::text, value::text, known_at
                 from (
                     select ref_date, value, known_at,
                            lag(value) over (partition by ref_date order by known_at) as old
                     from observation
                     where series = $1 and ref_date between $2 and $3
                 ) versions
                 where old is not null
                 order by known_at desc, ref_date desc",
            )
            .bind(series.id)
            .bind(days.from)
            .bind(days.to)
            .fetch_all(&self.pool)
            .await?;
            let total = rows.len();
            let revision = |(date, old, new, known_at): (NaiveDate, String, String, DateTime<Utc>)| {
                Ok(Revision { date, old: exact(&old)?, new: exact(&new)?, known_at })
            };
            let page = rows.into_iter().skip(offset).take(limit).map(revision).collect::<Result<_>>()?;
            Ok((total, page))
        })
        .await
    }

    async fn filled_at(&self, source: &str) -> Result<Option<DateTime<Utc>>> {
        Ok(sqlx::query_scalar("select max(filled_at) from source_part where source = $1")
            .bind(source)
            .fetch_one(&self.pool)
            .await?)
    }
}
