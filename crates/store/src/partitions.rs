//! Tables that are partitioned by time. Partitions are added ahead of time, and dropped when all of their rows have
//! expired: to delete as many rows would take long and leave the table as large as it was.

use std::collections::BTreeSet;

use chrono::{Datelike, Days, Months, NaiveDate};
use sqlx::{AssertSqlSafe, PgConnection, Row};
use vintem_domain::event::EVENT_RETENTION_DAYS;

use crate::pool::query;
use crate::{Result, Store};

/// What one partition holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Period {
    Day,
    Month,
}

impl Period {
    fn first_day(self, day: NaiveDate) -> NaiveDate {
        match self {
            Self::Day => day,
            Self::Month => day.with_day(1).unwrap_or(day),
        }
    }

    fn add(self, day: NaiveDate, count: u32) -> NaiveDate {
        match self {
            Self::Day => day + Days::new(count.into()),
            Self::Month => day + Months::new(count),
        }
    }

    fn subtract(self, day: NaiveDate, count: u32) -> NaiveDate {
        match self {
            Self::Day => day - Days::new(count.into()),
            Self::Month => day - Months::new(count),
        }
    }

    fn suffix(self, first_day: NaiveDate) -> String {
        match self {
            Self::Day => first_day.format("%Y_%m_%d").to_string(),
            Self::Month => first_day.format("%Y_%m").to_string(),
        }
    }

    fn parse_suffix(self, suffix: &str) -> Option<NaiveDate> {
        let text = match self {
            Self::Day => suffix.to_owned(),
            Self::Month => format!("{suffix}_01"),
        };
        NaiveDate::parse_from_str(&text, "%Y_%m_%d").ok()
    }
}

/// What a table is partitioned by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PartitionKey {
    Date,
    /// An id that begins with the milliseconds since 2020 (`move_sequence_to_now`).
    TimedId,
}

impl PartitionKey {
    /// The least key of a day.
    fn lower_bound(self, day: NaiveDate) -> String {
        match self {
            Self::Date => day.to_string(),
            Self::TimedId => ((day - ID_EPOCH).num_milliseconds() << ID_BITS_PER_MILLISECOND).to_string(),
        }
    }
}

/// As in `move_sequence_to_now`.
const ID_EPOCH: NaiveDate = NaiveDate::from_ymd_opt(2020, 1, 1).unwrap();
const ID_BITS_PER_MILLISECOND: u32 = 12;

#[derive(Debug)]
pub struct PartitionedTable {
    name: &'static str,
    key: PartitionKey,
    period: Period,
    /// Periods for which rows are kept.
    kept_periods: u32,
    /// Periods that are there ahead of time: enough for a service that cannot add any for a while.
    periods_ahead: u32,
}

pub const USAGE_CHUNKS: PartitionedTable = PartitionedTable {
    name: "usage_chunk",
    key: PartitionKey::Date,
    period: Period::Day,
    kept_periods: 400,
    periods_ahead: 7,
};

pub const USAGE_DAYS: PartitionedTable = PartitionedTable {
    name: "usage_day",
    key: PartitionKey::Date,
    period: Period::Month,
    kept_periods: 25,
    periods_ahead: 3,
};

const EVENTS: PartitionedTable = PartitionedTable {
    name: "event",
    key: PartitionKey::TimedId,
    period: Period::Day,
    kept_periods: EVENT_RETENTION_DAYS,
    periods_ahead: 7,
};

const DELIVERIES: PartitionedTable = PartitionedTable { name: "delivery", ..EVENTS };

/// Deliveries before the events that they tell of.
const PARTITIONED_TABLES: [PartitionedTable; 4] = [USAGE_CHUNKS, USAGE_DAYS, DELIVERIES, EVENTS];

/// The days of a partition: from the first, if there is one, up to but excluding the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct DayRange {
    start: Option<NaiveDate>,
    end: NaiveDate,
}

#[derive(Debug)]
struct Partition {
    name: String,
    days: DayRange,
    /// Somebody began to drop it and was interrupted.
    is_detaching: bool,
}

impl PartitionedTable {
    /// The days of the partition with this name. Rows from before the table was partitioned are in a partition that is
    /// named by its end.
    fn parse_partition_days(&self, name: &str) -> Option<DayRange> {
        let suffix = name.strip_prefix(self.name)?.strip_prefix('_')?;
        if let Some(end) = suffix.strip_prefix("until_") {
            return Some(DayRange { start: None, end: self.period.parse_suffix(end)? });
        }
        let start = self.period.parse_suffix(suffix)?;
        Some(DayRange { start: Some(start), end: self.period.add(start, 1) })
    }

    async fn list_partitions(&self, connection: &mut PgConnection) -> Result<Vec<Partition>> {
        let rows = query(
            "select inhrelid::regclass::text as name, inhdetachpending as is_detaching
             from pg_inherits
             where inhparent = $1::regclass",
        )
        .bind(self.name)
        .fetch_all(connection)
        .await?;

        let mut partitions = Vec::new();
        for row in rows {
            let name: String = row.try_get("name")?;
            if let Some(days) = self.parse_partition_days(&name) {
                partitions.push(Partition { name, days, is_detaching: row.try_get("is_detaching")? });
            }
        }
        Ok(partitions)
    }

    /// Adds the partitions of these days, unless they exist.
    async fn add_partitions(
        &self,
        connection: &mut PgConnection,
        days: impl IntoIterator<Item = NaiveDate>,
    ) -> Result<()> {
        let partitions = self.list_partitions(&mut *connection).await?;
        let exists = |day: NaiveDate| {
            let mut all = partitions.iter().map(|partition| partition.days);
            all.any(|days| days.start.is_none_or(|start| start <= day) && day < days.end)
        };

        let first_days: BTreeSet<NaiveDate> = days.into_iter().map(|day| self.period.first_day(day)).collect();
        for first_day in first_days.into_iter().filter(|day| !exists(*day)) {
            query("select add_partition($1, $2, $3, $4)")
                .bind(self.name)
                .bind(format!("{}_{}", self.name, self.period.suffix(first_day)))
                .bind(self.key.lower_bound(first_day))
                .bind(self.key.lower_bound(self.period.add(first_day, 1)))
                .execute(&mut *connection)
                .await?;
        }
        Ok(())
    }

    /// Drops the partitions whose rows have all expired, and returns their names.
    async fn drop_expired_partitions(&self, connection: &mut PgConnection, today: NaiveDate) -> Result<Vec<String>> {
        let first_kept_day = self.period.subtract(today, self.kept_periods);
        let mut dropped = Vec::new();
        for Partition { name, days, is_detaching } in self.list_partitions(&mut *connection).await? {
            if days.end > first_kept_day {
                continue;
            }

            if self.name == EVENTS.name {
                forget_events(&mut *connection, &name).await?;
            }
            // Does not block those who use other partitions.
            let mode = if is_detaching { "finalize" } else { "concurrently" };
            let detach = format!("alter table {} detach partition {name} {mode}", self.name);
            sqlx::raw_sql(AssertSqlSafe(detach)).execute(&mut *connection).await?;
            sqlx::raw_sql(AssertSqlSafe(format!("drop table {name}"))).execute(&mut *connection).await?;
            dropped.push(name);
        }
        Ok(dropped)
    }
}

/// Adds the partitions of the current and the next days and months, unless they exist.
pub async fn add_next_partitions(connection: &mut PgConnection, today: NaiveDate) -> Result<()> {
    for table in &PARTITIONED_TABLES {
        let current = table.period.first_day(today);
        let days = (0..=table.periods_ahead).map(|ahead| table.period.add(current, ahead));
        table.add_partitions(&mut *connection, days).await?;
    }
    Ok(())
}

/// Notes that the events of a partition can no longer be read, before they disappear.
async fn forget_events(connection: &mut PgConnection, partition: &str) -> Result<()> {
    let update = format!(
        "update event_feed
         set forgotten_position = greatest(forgotten_position, (select max(position) from {partition}))"
    );
    query(AssertSqlSafe(update)).execute(connection).await?;
    Ok(())
}

impl Store {
    /// Adds the partitions of the next days and drops those that have expired. Returns the names of the dropped ones.
    pub async fn maintain_partitions(&self, today: NaiveDate) -> Result<Vec<String>> {
        let mut connection = self.sessions.acquire().await?;
        add_next_partitions(&mut connection, today).await?;
        let mut dropped = Vec::new();
        for table in &PARTITIONED_TABLES {
            dropped.extend(table.drop_expired_partitions(&mut connection, today).await?);
        }
        Ok(dropped)
    }

    /// Adds the partitions of these days, unless they exist.
    pub(crate) async fn add_partitions(
        &self,
        table: &PartitionedTable,
        days: impl IntoIterator<Item = NaiveDate>,
    ) -> Result<()> {
        let mut connection = self.sessions.acquire().await?;
        table.add_partitions(&mut connection, days).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_days_of_a_partition_follow_from_its_name() {
        let range = |start: Option<&str>, end: &str| {
            Some(DayRange { start: start.map(|day| day.parse().unwrap()), end: end.parse().unwrap() })
        };
        let [chunks, usage, ..] = PARTITIONED_TABLES;
        assert_eq!(chunks.parse_partition_days("usage_chunk_2026_12_31"), range(Some("2026-12-31"), "2027-01-01"));
        assert_eq!(usage.parse_partition_days("usage_day_2026_12"), range(Some("2026-12-01"), "2027-01-01"));
        assert_eq!(usage.parse_partition_days("usage_day_until_2026_12"), range(None, "2026-12-01"));
        assert_eq!(usage.parse_partition_days("usage_day_other"), None);
        assert_eq!(usage.parse_partition_days("usage_chunk_2026_12"), None);
    }
}
