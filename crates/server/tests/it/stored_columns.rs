//! Every value is stored in its own column and read back into its own field. The fields of a test row all have different
//! values, so two swapped columns are noticed, wherever they are swapped.

use std::collections::BTreeSet;

use chrono::{Duration, NaiveDate};
use serde_json::Value;
use sqlx::AssertSqlSafe;
use vintem_domain::{Cnpj, Company, Currency, CvmDataset, DataOrigin, Dataset, PublishedRates, Quote};
use vintem_store::Store;
use vintem_store::load::{BulletinKind, Filing, ListedSecurity, LoadTransaction, NewBulletin, NewFetch};
use vintem_store::reader::FilingRow;
use vintem_testkit::TestDatabase;

use crate::{TestResult, friday};

/// A filing whose texts begin with the names of their columns. Each version has other values.
#[allow(clippy::needless_update, reason = "a new column is tested from when it is listed here")]
fn filing(version: u16) -> Filing {
    Filing {
        id: "id".to_owned(),
        cvm_dataset: CvmDataset::Itr,
        company_id: 4321,
        company_name: format!("company_name {version}"),
        category: format!("category {version}"),
        doc_type: format!("doc_type {version}"),
        kind: format!("kind {version}"),
        subject: format!("subject {version}"),
        delivered_on: day(10 + version),
        reference_date: Some(day(20 + version)),
        version,
        protocol: format!("protocol {version}"),
        url: format!("url {version}"),
        ..Filing::default()
    }
}

/// A company whose texts begin with the names of their columns.
fn company(version: u16) -> Company {
    Company {
        id: 4321,
        name: format!("name {version}"),
        cnpj: Some(cnpj()),
        status: format!("status {version}"),
        sector: format!("sector {version}"),
        trade_name: format!("trade_name {version}"),
        markets: vec![format!("markets {version}")],
        registered_on: Some(day(version)),
        cancelled_on: Some(day(10 + version)),
        status_since: Some(day(20 + version)),
        category: format!("category {version}"),
        situation: format!("situation {version}"),
        control: format!("control {version}"),
        city: format!("city {version}"),
        state: format!("state {version}"),
        auditor: format!("auditor {version}"),
        is_registered: true,
        ..Company::default()
    }
}

fn security() -> ListedSecurity {
    ListedSecurity {
        document_id: 1,
        cnpj: cnpj(),
        ticker: "ticker".to_owned(),
        reference_date: day(1),
        version: 2,
        market: "market".to_owned(),
        segment: "segment".to_owned(),
        traded_from: Some(day(3)),
        traded_until: None,
    }
}

fn cnpj() -> Cnpj {
    Cnpj::parse("33.000.167/0001-01").expect("a CNPJ")
}

fn day(number: u16) -> NaiveDate {
    NaiveDate::from_ymd_opt(2026, 1, number.into()).expect("a day of January")
}

async fn begin_load(store: &Store, dataset: Dataset, hours: i64) -> anyhow::Result<LoadTransaction> {
    let fetch = NewFetch::without_response("test:".into(), friday() + Duration::hours(hours), [7; 32]);
    Ok(store.begin_load(dataset, DataOrigin::Real, &fetch).await?)
}

#[tokio::test]
async fn every_field_of_a_filing_is_read_back_from_its_own_column() -> TestResult {
    let database = TestDatabase::create_empty().await?;
    let store = database.open_store()?;
    for version in [1, 2] {
        let mut load = begin_load(&store, Dataset::Filings, version.into()).await?;
        load.append_filings(&[filing(version)]).await?;
        assert_eq!(load.commit().await?, 1);
    }

    assert_fields_differ(&filing_fields(&filing(2)));
    assert_texts_are_in_their_columns(&database, "filing_version", &["filing_set"]).await?;

    let mut reader = store.open_reader().await?;
    let mut current = Vec::new();
    reader.for_each_filing(|row| current.push(row_fields(row))).await?;
    assert_eq!(current, [filing_fields(&filing(2))]);

    let mut changed = Vec::new();
    reader.for_each_filing_since(1, |row, is_absent| changed.push((row_fields(row), is_absent))).await?;
    assert_eq!(changed, [(filing_fields(&filing(2)), false)]);

    let mut replaced = Vec::new();
    let second_load = friday() + Duration::hours(2);
    store
        .for_each_filing_replaced_since(second_load, |row, is_absent| replaced.push((row_fields(row), is_absent)))
        .await?;
    assert_eq!(replaced, [(filing_fields(&filing(1)), false)]);

    Ok(())
}

#[tokio::test]
async fn every_field_of_a_company_is_read_back_from_its_own_column() -> TestResult {
    let database = TestDatabase::create_empty().await?;
    let store = database.open_store()?;
    for version in [1, 2] {
        let mut load = begin_load(&store, Dataset::Companies, version.into()).await?;
        load.append_companies(&[company(version)]).await?;
        load.append_securities(&[security()]).await?;
        load.commit().await?;
    }

    let first = Company { tickers: vec!["ticker".to_owned()], ..company(1) };
    let second = Company {
        former_names: vec!["name 1".to_owned()],
        former_trade_names: vec!["trade_name 1".to_owned()],
        tickers: vec!["ticker".to_owned()],
        ..company(2)
    };

    assert_fields_differ(&fields_of("Company", &format!("{second:?}")));
    assert_texts_are_in_their_columns(&database, "company_version", &["cnpj"]).await?;
    assert_texts_are_in_their_columns(&database, "security_version", &["cnpj"]).await?;

    let current = store.open_reader().await?.companies().await?;
    assert_eq!(current.into_iter().map(|(company, _)| company).collect::<Vec<_>>(), [second]);

    let second_load = friday() + Duration::hours(2);
    let former = store.companies_known_before(second_load).await?;
    assert_eq!(former.into_iter().map(|(company, _, _)| company).collect::<Vec<_>>(), [first]);

    Ok(())
}

#[tokio::test]
async fn buy_and_sell_rates_are_read_back_from_their_own_columns() -> TestResult {
    let database = TestDatabase::create_empty().await?;
    let store = database.open_store()?;
    let bulletin = NewBulletin {
        currency: Currency::Eur,
        date: day(5),
        kind: BulletinKind::Closing,
        published_at: day(6).and_hms_opt(13, 0, 0).expect("a time of day"),
        quote_currency: "BRL".to_owned(),
        buy: "6.1234".parse()?,
        sell: "6.2345".parse()?,
        parity: Some(Quote { buy: "1.1234".parse()?, sell: "1.2345".parse()? }),
    };
    let mut load = begin_load(&store, Dataset::Fx, 1).await?;
    load.append_bulletins(std::slice::from_ref(&bulletin)).await?;
    assert_eq!(load.commit().await?, 1);

    let mut current = Vec::new();
    let quote = Quote { buy: bulletin.buy, sell: bulletin.sell };
    let mut reader = store.open_reader().await?;
    let rates = PublishedRates { quote, parity: bulletin.parity };
    let mut collect = |date, published_at, quote_currency: &str, rates| {
        current.push((date, published_at, quote_currency.to_owned(), rates));
    };
    reader
        .for_each_bulletin(Currency::Eur, |row| {
            let rates = PublishedRates { quote: row.quote, parity: row.parity };
            collect(row.date, row.published_at, row.quote_currency, rates);
        })
        .await?;
    assert_eq!(current, [(bulletin.date, bulletin.published_at, "BRL".to_owned(), rates)]);

    let history = store.closing_rate_versions(Currency::Eur).await?;
    let versions: Vec<_> = history.rows.iter().map(|row| (row.date, row.value)).collect();
    assert_eq!(versions, [(bulletin.date, (bulletin.published_at, rates))]);

    let quote = Quote { buy: bulletin.buy, sell: bulletin.sell };
    assert_eq!(
        store.current_closing_rates(Currency::Eur).await?,
        [(bulletin.date, PublishedRates { quote, parity: bulletin.parity })]
    );

    Ok(())
}

/// The fields of a filing as text. A stored row has the same fields with the same names, so a new one needs no change
/// here.
fn filing_fields(filing: &Filing) -> String {
    fields_of("Filing", &format!("{filing:?}"))
}

fn row_fields(row: FilingRow<'_>) -> String {
    let fields = fields_of("FilingRow", &format!("{row:?}"));
    let (fields, _) = fields.split_once(", provenance: ").expect("a row has a provenance");
    fields.to_owned()
}

fn fields_of(type_name: &str, debug: &str) -> String {
    let fields = debug.strip_prefix(&format!("{type_name} {{ ")).and_then(|rest| rest.strip_suffix(" }"));
    fields.unwrap_or_else(|| panic!("{debug} is no {type_name}")).to_owned()
}

/// Two fields with the same value could be swapped unnoticed.
fn assert_fields_differ(fields: &str) {
    let values: Vec<&str> =
        fields.split(", ").map(|field| field.split_once(": ").expect("a field has a name").1).collect();
    let distinct: BTreeSet<&str> = values.iter().copied().collect();
    assert_eq!(distinct.len(), values.len(), "give each field a value of its own: {fields}");
}

/// Checks that each text in a table begins with the name of its column, except in columns that take only certain texts.
async fn assert_texts_are_in_their_columns(database: &TestDatabase, table: &str, except: &[&str]) -> TestResult {
    let mut connection = database.connect().await?;
    let text_columns: Vec<String> = sqlx::query_scalar(
        "select column_name::text
         from information_schema.columns
         where table_name = $1 and data_type = 'text'",
    )
    .bind(table)
    .fetch_all(&mut connection)
    .await?;
    assert!(text_columns.len() > except.len());

    let select = format!("select to_jsonb({table})::text from {table}");
    let rows: Vec<String> = sqlx::query_scalar(AssertSqlSafe(select)).fetch_all(&mut connection).await?;
    assert!(!rows.is_empty());

    for row in rows {
        let row: Value = serde_json::from_str(&row)?;
        for column in text_columns.iter().filter(|column| !except.contains(&column.as_str())) {
            let text = row[column].as_str().expect("a text");
            assert!(text.is_empty() || text.starts_with(column.as_str()), "{table}.{column} has {text}");
        }
    }

    Ok(())
}
