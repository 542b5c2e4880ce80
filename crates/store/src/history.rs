//! All versions of values and rows, for point-in-time queries and revisions.

use chrono::{DateTime, NaiveDate, NaiveDateTime, Utc};
use futures_util::TryStreamExt;
use sqlx::postgres::PgRow;
use sqlx::{AssertSqlSafe, Row};
use vintem_domain::{Company, Currency, DateRange, Decimal, PublishedRates, Series};

use crate::pool::{query, query_scalar};
use crate::tables::bulletin::{BULLETIN_TABLE, BulletinRow};
use crate::tables::company::load_companies;
use crate::tables::filing::{FILING_TABLE, FilingRow};
use crate::tables::observation::{OBSERVATION_TABLE, Observation};
use crate::tables::stored_values::{RowProvenance, parse_stored_decimal};
use crate::{Result, Store, with_timeout};

/// One version of a value, and when we learned of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValueVersion<V> {
    pub date: NaiveDate,
    pub value: V,
    pub known_at: DateTime<Utc>,
    pub provenance: RowProvenance,
}

/// Every version of every value, ordered by date and then by when we learned of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VersionHistory<V> {
    pub rows: Vec<ValueVersion<V>>,
    /// When the backfill was complete. We saw later versions appear.
    pub backfilled_at: Option<DateTime<Utc>>,
}

impl<V> VersionHistory<V> {
    /// Without a recorded backfill, the first load counts as the backfill.
    fn new(rows: Vec<ValueVersion<V>>, backfilled_at: Option<DateTime<Utc>>) -> Self {
        let first_known_at = rows.iter().map(|row| row.known_at).min();
        Self { rows, backfilled_at: backfilled_at.or(first_known_at) }
    }
}

/// The replacement of a value by another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Revision {
    pub date: NaiveDate,
    pub old: Decimal,
    pub new: Decimal,
    pub known_at: DateTime<Utc>,
}

impl Store {
    pub async fn observation_versions(&self, series: &Series) -> Result<VersionHistory<Observation>> {
        with_timeout(self.timeouts.bulk_query, async {
            let statement = format!(
                "select {columns}
                 from observation
                 where series = $1
                 order by ref_date, known_at",
                columns = OBSERVATION_TABLE.select_list("observation")
            );
            let rows = query(AssertSqlSafe(statement)).bind(series.id).fetch_all(&self.pool).await?;

            let to_version = |row: &PgRow| {
                let (observation, provenance) = Observation::read(row)?;
                let known_at = row.try_get("known_at")?;
                Ok(ValueVersion { date: observation.date, value: observation, known_at, provenance })
            };
            let rows = rows.iter().map(to_version).collect::<Result<_>>()?;
            Ok(VersionHistory::new(rows, self.load_backfilled_at(series.id).await?))
        })
        .await
    }

    /// The closing rates in reais, each with its time of publication. A day can have several, each with its own
    /// versions.
    pub async fn closing_rate_versions(
        &self,
        currency: Currency,
    ) -> Result<VersionHistory<(NaiveDateTime, PublishedRates)>> {
        with_timeout(self.timeouts.bulk_query, async {
            let statement = format!(
                "select {columns}
                 from fx_bulletin
                 where currency = $1 and bulletin = 'closing' and quote_currency = 'BRL'
                 order by ref_date, published_at, known_at",
                columns = BULLETIN_TABLE.select_list("fx_bulletin")
            );
            let rows = query(AssertSqlSafe(statement)).bind(currency.code()).fetch_all(&self.pool).await?;

            let to_version = |row: &PgRow| {
                let BulletinRow { date, published_at, quote, parity, provenance, .. } = BulletinRow::read(row)?;
                let value = (published_at, PublishedRates { quote, parity });
                Ok(ValueVersion { date, value, known_at: row.try_get("known_at")?, provenance })
            };
            let rows = rows.iter().map(to_version).collect::<Result<_>>()?;
            Ok(VersionHistory::new(rows, self.load_backfilled_at("fx").await?))
        })
        .await
    }

    /// The total number of revisions of a series, and one page of them, newest first. Provisional values have none.
    pub async fn revisions(
        &self,
        series: &Series,
        range: DateRange,
        offset: usize,
        limit: usize,
    ) -> Result<(usize, Vec<Revision>)> {
        const VERSIONS: &str = "select ref_date, value, known_at,
                lag(value) over (partition by ref_date order by known_at) as old_value
            from observation
            where series = $1 and ref_date between $2 and $3 and not provisional";
        self.load_revisions(VERSIONS, series.id, range, offset, limit).await
    }

    /// Like [`Self::revisions`], for the closing sell rate of a currency in reais.
    pub async fn closing_rate_revisions(
        &self,
        currency: Currency,
        range: DateRange,
        offset: usize,
        limit: usize,
    ) -> Result<(usize, Vec<Revision>)> {
        const VERSIONS: &str = "select ref_date, sell as value, known_at,
                lag(sell) over (partition by ref_date, published_at order by known_at) as old_value
            from fx_bulletin
            where currency = $1 and ref_date between $2 and $3 and bulletin = 'closing' and quote_currency = 'BRL'";
        self.load_revisions(VERSIONS, currency.code(), range, offset, limit).await
    }

    /// `versions` selects every version of the values of `subject`, each with the value that it replaced.
    async fn load_revisions(
        &self,
        versions: &'static str,
        subject: &str,
        range: DateRange,
        offset: usize,
        limit: usize,
    ) -> Result<(usize, Vec<Revision>)> {
        with_timeout(self.timeouts.bulk_query, async {
            let statement = format!(
                "select ref_date, old_value::text as old_value, value::text as value, known_at
                 from ({versions}) versions
                 where old_value is distinct from value and old_value is not null
                 order by known_at desc, ref_date desc"
            );
            let rows = query(AssertSqlSafe(statement))
                .bind(subject)
                .bind(range.from)
                .bind(range.to)
                .fetch_all(&self.pool)
                .await?;

            let total = rows.len();
            let to_revision = |row: &PgRow| {
                Ok(Revision {
                    date: row.try_get("ref_date")?,
                    old: parse_stored_decimal(row.try_get("old_value")?)?,
                    new: parse_stored_decimal(row.try_get("value")?)?,
                    known_at: row.try_get("known_at")?,
                })
            };
            let page = rows.iter().skip(offset).take(limit).map(to_revision).collect::<Result<_>>()?;
            Ok((total, page))
        })
        .await
    }

    /// The registry as it was known before an instant. An instant before the first load gets the registry of that load;
    /// the flag of a company says whether we learned of it only later.
    pub async fn companies_known_before(&self, instant: DateTime<Utc>) -> Result<Vec<(Company, RowProvenance, bool)>> {
        with_timeout(self.timeouts.bulk_query, async {
            load_companies(&mut *self.pool.begin().await?, Some(instant)).await
        })
        .await
    }

    /// Visits the filings that were replaced or withdrawn at or after an instant. Each is passed in its version from
    /// before the instant (or in its first version, if we learned of it only later), with whether it was absent.
    pub async fn for_each_filing_replaced_since(
        &self,
        instant: DateTime<Utc>,
        mut on_row: impl FnMut(FilingRow<'_>, bool),
    ) -> Result<()> {
        with_timeout(self.timeouts.bulk_query, async {
            let statement = format!(
                "select distinct on (id) {columns}, absent
                 from filing_version filing
                 where id = any(array(select id from filing_version where supersedes and known_at >= $1))
                   and (known_at < $1 or not supersedes)
                 order by id, known_at desc",
                columns = FILING_TABLE.select_list("filing")
            );
            let mut transaction = self.pool.begin().await?;
            let mut rows = query(AssertSqlSafe(statement)).bind(instant).fetch(&mut *transaction);

            while let Some(row) = rows.try_next().await? {
                on_row(FilingRow::read(&row)?, row.try_get("absent")?);
            }
            Ok(())
        })
        .await
    }

    async fn load_backfilled_at(&self, source: &str) -> Result<Option<DateTime<Utc>>> {
        Ok(query_scalar("select max(filled_at) from source_part where source = $1")
            .bind(source)
            .fetch_one(&self.pool)
            .await?)
    }
}
