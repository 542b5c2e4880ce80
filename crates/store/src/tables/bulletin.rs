//! Bulletins of exchange rates.

use chrono::{NaiveDate, NaiveDateTime};
use sqlx::Row;
use sqlx::postgres::PgRow;
use vintem_domain::{Currency, Decimal, Quote};

use super::stored_values::{RowProvenance, parse_stored_decimal};
use super::table::ColumnValue::{Date, Numeric, OptionalNumeric, Text, Timestamp};
use super::table::{DataTable, EventQuery, TableColumn};
use crate::{Result, StoreError};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewBulletin {
    pub currency: Currency,
    pub date: NaiveDate,
    pub kind: BulletinKind,
    /// In Brasília time, as published.
    pub published_at: NaiveDateTime,
    pub quote_currency: String,
    pub buy: Decimal,
    pub sell: Decimal,
    /// The rate against the dollar, if the bulletin states one.
    pub parity: Option<Quote>,
}

/// One bulletin of exchange rates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BulletinRow<'r> {
    pub date: NaiveDate,
    /// In Brasília time, as published.
    pub published_at: NaiveDateTime,
    pub kind: BulletinKind,
    pub quote_currency: &'r str,
    pub quote: Quote,
    pub parity: Option<Quote>,
    pub provenance: RowProvenance,
}

const COLUMNS: &[TableColumn<NewBulletin>] = &[
    TableColumn::key("currency", Text(|bulletin| bulletin.currency.code())),
    TableColumn::key("ref_date", Date(|bulletin| bulletin.date)),
    TableColumn::key("bulletin", Text(|bulletin| bulletin.kind.id())),
    TableColumn::key("published_at", Timestamp(|bulletin| bulletin.published_at)),
    TableColumn::value("quote_currency", Text(|bulletin| &bulletin.quote_currency)),
    TableColumn::value("buy", Numeric(|bulletin| bulletin.buy)),
    TableColumn::value("sell", Numeric(|bulletin| bulletin.sell)),
    TableColumn::fillable("parity_buy", OptionalNumeric(|bulletin| bulletin.parity.map(|parity| parity.buy))),
    TableColumn::fillable("parity_sell", OptionalNumeric(|bulletin| bulletin.parity.map(|parity| parity.sell))),
];

impl<'r> BulletinRow<'r> {
    /// Reads a row of `BULLETIN_TABLE.select_list`.
    pub(crate) fn read(row: &'r PgRow) -> Result<Self> {
        let kind: &str = row.try_get(const { column("bulletin") })?;
        let kind = BulletinKind::from_id(kind).ok_or_else(|| StoreError::UnreadableData(format!("bulletin {kind}")))?;

        Ok(Self {
            date: row.try_get(const { column("ref_date") })?,
            published_at: row.try_get(const { column("published_at") })?,
            kind,
            quote_currency: row.try_get(const { column("quote_currency") })?,
            quote: Quote {
                buy: parse_stored_decimal(row.try_get(const { column("buy") })?)?,
                sell: parse_stored_decimal(row.try_get(const { column("sell") })?)?,
            },
            parity: read_parity(row)?,
            provenance: RowProvenance::new(
                row.try_get(const { column("known_at") })?,
                row.try_get(const { column("fetch_id") })?,
            )?,
        })
    }
}

fn read_parity(row: &PgRow) -> Result<Option<Quote>> {
    let buy: Option<&str> = row.try_get(const { column("parity_buy") })?;
    let sell: Option<&str> = row.try_get(const { column("parity_sell") })?;
    let (Some(buy), Some(sell)) = (buy, sell) else { return Ok(None) };

    Ok(Some(Quote { buy: parse_stored_decimal(buy)?, sell: parse_stored_decimal(sell)? }))
}

pub const BULLETIN_TABLE: DataTable<NewBulletin> = DataTable {
    name: "fx_bulletin",
    columns: COLUMNS,
    records_absence: false,
    has_generation: false,
    event_query: Some(EventQuery {
        old_columns: &["buy", "sell"],
        sql: "select case when is_new then 'fx.published' else 'series.revised' end, $1,
                     case when is_new
                          then jsonb_build_object('pair', currency || '/BRL', 'date', ref_date)
                          else jsonb_build_object('series', 'fx', 'pair', currency || '/BRL', 'date', ref_date,
                                   'old', jsonb_build_object('buy', old_buy::text, 'sell', old_sell::text),
                                   'new', jsonb_build_object('buy', buy::text, 'sell', sell::text))
                     end
              from changed
              where bulletin = 'closing' and quote_currency = 'BRL'
                and case when is_new
                         then ref_date >= $3
                         -- A changed parity is a version, but no news about the rate in reais.
                         else (buy, scale(buy), sell, scale(sell))
                              is distinct from (old_buy, scale(old_buy), old_sell, scale(old_sell))
                    end
              order by ref_date, currency",
    }),
};

const fn column(name: &str) -> usize {
    BULLETIN_TABLE.position(name)
}

/// In the order of publication within a day.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum BulletinKind {
    Opening,
    Intermediate,
    /// The day's rate.
    Closing,
    /// A second close, for the interbank market, published until June 2011.
    Interbank,
}

impl BulletinKind {
    pub const ALL: [Self; 4] = [Self::Opening, Self::Intermediate, Self::Closing, Self::Interbank];

    pub fn from_id(id: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.id() == id)
    }

    pub const fn id(self) -> &'static str {
        match self {
            Self::Opening => "opening",
            Self::Intermediate => "intermediate",
            Self::Closing => "closing",
            Self::Interbank => "interbank",
        }
    }
}
