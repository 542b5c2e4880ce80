//! Serves the publishers' real files and compares every value with the file, character for character.
//!
//! This is a separate test binary because the files are not in the repository: run `just real-data DIR`. It fails
//! without the directory.

mod statements;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use chrono::{DateTime, NaiveDate, Utc};
use serde_json::Value;
use serde_json::value::RawValue;
use vintem_domain::series::{self, cross_check_series, published_series};
use vintem_domain::{
    Calendar, Currency, CvmDataset, DataOrigin, Dataset, DateRange, Decimal, ManualClock, Plan, Series,
};
use vintem_ingest::fetch::UpstreamAddresses;
use vintem_ingest::ingestor::Ingestor;
use vintem_ingest::parsers::{company_registry, ptax};
use vintem_ingest::source::DataSource;
use vintem_store::load::{BulletinKind, Filing, NewBulletin, NewFetch};
use vintem_testkit::{TestDatabase, TestReplica, TestReplicaOptions};

type TestResult = anyhow::Result<()>;

fn real_data_directory() -> anyhow::Result<PathBuf> {
    let configured = std::env::var_os("VINTEM_REAL_DATA").map(PathBuf::from);
    let directory = configured.ok_or_else(|| anyhow::anyhow!("VINTEM_REAL_DATA names no directory of real files"))?;
    anyhow::ensure!(directory.is_dir(), "{} is no directory", directory.display());
    Ok(directory)
}

fn fixed_now() -> DateTime<Utc> {
    "2026-11-13T18:00:00Z".parse().expect("an instant")
}

/// An ingestor that only loads files: its upstream addresses lead nowhere.
fn build_file_ingestor(database: &TestDatabase) -> anyhow::Result<Ingestor> {
    let nowhere = || "http://127.0.0.1:9".to_owned();
    let addresses = UpstreamAddresses { sgs: nowhere(), ptax: nowhere(), cvm: nowhere() };
    Ok(Ingestor::new(database.open_store()?, Arc::new(ManualClock::new(fixed_now())), &addresses, "")?)
}

async fn start_replica(database: &TestDatabase) -> anyhow::Result<TestReplica> {
    let flags = ["--limit-free=100000", "--limit-platinum=100000"];
    TestReplica::start_with_options(database, fixed_now(), TestReplicaOptions { flags: &flags, redis_prefix: None })
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn every_value_of_every_series_is_served_as_it_was_published() -> TestResult {
    let directory = real_data_directory()?;
    let database = TestDatabase::create_empty().await?;
    let ingestor = build_file_ingestor(&database)?;
    let mut files = Vec::new();

    for series in published_series().chain(cross_check_series()) {
        if let Some(bytes) = load_series_file(&ingestor, &directory, series).await? {
            files.push((series, bytes));
        }
    }

    assert!(files.len() >= 6, "{} files", files.len());

    let replica = start_replica(&database).await?;
    let store = database.open_store()?;
    let mut compared = 0;
    let mut differences = Vec::new();
    for (series, bytes) in files {
        let published: Vec<Value> = serde_json::from_slice(&bytes)?;
        let mut stored: Vec<(String, String)> = Vec::new();
        if published_series().any(|published| published == series) {
            let path = format!("/api/v1/market/series/{}?numbers=string&order=asc&limit=20000", series.id);
            let list: Value = replica.get(&path).await?.json().await?;
            for row in list["data"].as_array().expect("rows") {
                stored.push((as_text(&row["date"]), as_text(&row["value"])));
            }
        } else {
            let values = store.current_observations(series.id).await?;
            stored.extend(values.iter().map(|row| (row.date.to_string(), row.value.to_string())));
        }

        for row in &published {
            let day = as_text(&row["data"]);
            let value = as_text(&row["valor"]);
            let date = format!("{}-{}-{}", &day[6..], &day[3..5], &day[..2]);
            compared += 1;
            if !stored.iter().any(|row| *row == (date.clone(), value.clone())) {
                differences.push(format!("{} {date} {value}", series.id));
            }
        }

        assert_eq!(stored.len(), published.len(), "{}", series.id);
    }

    println!("values_compared: {compared}");
    println!("differences: {}", differences.len());
    assert!(differences.is_empty(), "{differences:#?}");
    assert_eq!(replica.build_exports()?.failed_datasets, Vec::<String>::new(), "every value fits into its column");

    Ok(())
}

/// Loads the file of a series, if there is one, and returns its bytes.
async fn load_series_file(
    ingestor: &Ingestor,
    directory: &Path,
    series: &'static Series,
) -> anyhow::Result<Option<Vec<u8>>> {
    let code = series.sgs_code.expect("it is published");
    let Ok(bytes) = std::fs::read(directory.join(format!("sgs/{code}.json"))) else { return Ok(None) };

    let report = ingestor.load_file(DataSource::Series(series), "file", &bytes, fixed_now()).await?;
    assert_eq!(report.quarantined(), 0, "{}", series.id);
    Ok(Some(bytes))
}

#[tokio::test(flavor = "multi_thread")]
async fn whole_years_accumulate_to_the_published_figures() -> TestResult {
    let directory = real_data_directory()?;
    let database = TestDatabase::create_empty().await?;
    let ingestor = build_file_ingestor(&database)?;
    for id in ["cdi-daily", "selic-daily", "ipca"] {
        let series = series::find_series(id).expect("in the table of series");
        assert!(load_series_file(&ingestor, &directory, series).await?.is_some(), "there is no file of {id}");
    }

    let replica = start_replica(&database).await?;
    let accumulated = async |path: String| -> anyhow::Result<Value> {
        Ok(replica.get(&format!("/api/v1/market/{path}&numbers=string")).await?.json().await?)
    };

    for (year, percent, expected) in [
        (2022, 100, "1.12390989"),
        (2023, 100, "1.13039435"),
        (2024, 100, "1.10875983"),
        (2025, 100, "1.14324227"),
        (2024, 110, "1.12026360"),
        (2025, 110, "1.15864501"),
    ] {
        let next = year + 1;
        let path = format!("cdi/accumulated?from={year}-01-01&to={next}-01-01&percent={percent}");
        let body = accumulated(path).await?;
        assert_eq!(accumulated(format!("cdi/accumulated?year={year}&percent={percent}")).await?, body);
        println!("cdi_{year}_at_{percent}: {}", as_text(&body["factor"]));
        assert_eq!(as_text(&body["factor"]), expected, "{body}");
        assert_eq!(body["missing_total"], 0);
    }

    for (year, expected) in [(2023, "4.62"), (2024, "4.83"), (2025, "4.26")] {
        let next = year + 1;
        let body = accumulated(format!("ipca/accumulated?from={year}-01-01&to={next}-01-01")).await?;
        for query in [format!("year={year}"), format!("from={year}-01-01&to={year}-12-31")] {
            assert_eq!(accumulated(format!("ipca/accumulated?{query}")).await?, body, "{query}");
        }
        let change: Decimal = as_text(&body["change_percent"]).parse()?;
        println!("ipca_{year}: {change}");
        assert_eq!(change.round_dp(2).to_string(), expected, "{body}");
    }

    // All inflation since 1980, and the Selic accumulated since 1986.
    for (path, expected) in [
        ("ipca/accumulated?from=1980-01-01", "975335087902.62034582"),
        ("selic/accumulated?from=1986-06-04", "68750582729.16047068"),
    ] {
        let body = accumulated(path.to_owned()).await?;
        println!("{path}: {}", as_text(&body["factor"]));
        assert_eq!(as_text(&body["factor"]), expected, "{body}");
    }

    Ok(())
}

#[test]
fn business_days_match_the_published_daily_rates() -> TestResult {
    let directory = real_data_directory()?;
    for (code, rows) in [(12, 2_508), (11, 10_062)] {
        let published: Vec<Value> =
            serde_json::from_slice(&std::fs::read(directory.join(format!("sgs/{code}.json")))?)?;
        let day = |row: &Value| NaiveDate::parse_from_str(&as_text(&row["data"]), "%d/%m/%Y").expect("a day");
        let published: Vec<NaiveDate> = published.iter().map(day).collect();

        let range = DateRange { from: published[0], to: published[published.len() - 1] };
        let expected: Vec<NaiveDate> = Calendar::Settlement.business_days(range).collect();
        let differing = expected.iter().filter(|day| !published.contains(day)).count()
            + published.iter().filter(|day| !expected.contains(day)).count();

        println!(
            "days_of_series_{code}: {}, from {} to {}, differences {differing}",
            published.len(),
            range.from,
            range.to
        );
        assert_eq!((published.len(), differing), (rows, 0));
    }

    Ok(())
}

fn as_text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_closing_rate_of_the_samples_is_served_as_it_was_published() -> TestResult {
    let directory = real_data_directory()?;
    let database = TestDatabase::create_empty().await?;
    let samples = std::fs::read_to_string(directory.join("ptax/ptax_samples.json"))?;
    let samples: std::collections::BTreeMap<String, &RawValue> = serde_json::from_str(&samples)?;
    let mut expected: Vec<(String, String, String, String)> = Vec::new();

    for (name, body) in &samples {
        let Some(rest) = name.strip_prefix("CotacaoMoeda") else { continue };
        let Some(currency) = rest.split('_').find_map(Currency::from_code) else { continue };
        let parsed = ptax::parse_bulletins(currency, body.get().as_bytes(), fixed_now().date_naive())?;
        assert!(parsed.bad_rows.is_empty(), "{name}: {:?}", parsed.bad_rows);

        // The numbers as written in the file, before any parser has touched them.
        #[derive(serde::Deserialize)]
        struct PtaxEnvelope<'a> {
            #[serde(borrow)]
            value: Vec<std::collections::BTreeMap<String, &'a RawValue>>,
        }
        let envelope: PtaxEnvelope<'_> = serde_json::from_str(body.get())?;
        for row in envelope.value {
            let token =
                |key: &str| row.get(key).map(|value| value.get().trim_matches('"').to_owned()).unwrap_or_default();
            if token("tipoBoletim").starts_with("Fechamento") && !token("tipoBoletim").ends_with("rio") {
                let date = token("dataHoraCotacao")[..10].to_owned();
                expected.push((currency.code().to_owned(), date, token("cotacaoCompra"), token("cotacaoVenda")));
            }
        }

        let fetch = NewFetch::without_response(format!("sample:{name}"), fixed_now(), [1; 32]);
        let mut load = database.open_store()?.begin_load(Dataset::Fx, DataOrigin::Real, &fetch).await?;
        load.append_bulletins(&parsed.rows).await?;
        load.commit().await?;
    }

    let replica = start_replica(&database).await?;
    let mut differences = Vec::new();

    for (currency, date, buy, sell) in &expected {
        let path = format!("/api/v1/market/fx?pair={currency}BRL&from={date}&to={date}&numbers=string");
        let list: Value = replica.get(&path).await?.json().await?;
        let row = &list["data"][0];
        if (as_text(&row["buy"]), as_text(&row["sell"])) != (buy.clone(), sell.clone()) {
            differences.push(format!("{currency} {date} {buy} {sell}: {row}"));
        }
    }

    println!("rates_compared: {}", expected.len());
    println!("differences: {}", differences.len());
    assert!(!expected.is_empty() && differences.is_empty(), "{differences:#?}");
    assert_eq!(replica.build_exports()?.failed_datasets, Vec::<String>::new(), "every rate fits into its column");

    Ok(())
}

/// The samples have no dollar on the days of these crosses, and no yen at all.
#[tokio::test(flavor = "multi_thread")]
async fn a_cross_of_the_samples_is_the_published_parity_or_else_comes_from_the_rates_in_reais() -> TestResult {
    let directory = real_data_directory()?;
    let samples = std::fs::read_to_string(directory.join("ptax/ptax_samples.json"))?;
    let samples: std::collections::BTreeMap<String, &RawValue> = serde_json::from_str(&samples)?;
    let dollar = |published_at: &str, buy: &str, sell: &str| -> anyhow::Result<NewBulletin> {
        let published_at: chrono::NaiveDateTime = published_at.parse()?;
        Ok(NewBulletin {
            currency: Currency::Usd,
            date: published_at.date(),
            kind: BulletinKind::Closing,
            published_at,
            quote_currency: "BRL".to_owned(),
            buy: buy.parse()?,
            sell: sell.parse()?,
            parity: None,
        })
    };
    let mut rows = vec![
        dollar("2022-01-03T13:11:50.357", "5.6303", "5.6309")?,
        dollar("2026-06-05T13:03:38.306", "5.1000", "5.1006")?,
    ];
    for (name, currency) in [
        ("CotacaoMoedaPeriodo_AUD_2022-01-01_2022-01-05", Currency::Aud),
        ("CotacaoMoedaPeriodo_EUR_2026-06-05_tail", Currency::Eur),
    ] {
        let body = samples.get(name).ok_or_else(|| anyhow::anyhow!("there is no sample {name}"))?;
        rows.extend(ptax::parse_bulletins(currency, body.get().as_bytes(), fixed_now().date_naive())?.rows);
    }

    let database = TestDatabase::create_empty().await?;
    let fetch = NewFetch::without_response("sample:crosses".to_owned(), fixed_now(), [1; 32]);
    let mut load = database.open_store()?.begin_load(Dataset::Fx, DataOrigin::Real, &fetch).await?;
    load.append_bulletins(&rows).await?;
    load.commit().await?;

    let replica = start_replica(&database).await?;
    let cross = async |pair: &str, date: &str| -> anyhow::Result<(String, String)> {
        let path = format!("/api/v1/market/fx?pair={pair}&from={date}&to={date}&numbers=string");
        let list: Value = replica.get(&path).await?.json().await?;
        Ok((as_text(&list["data"][0]["buy"]), as_text(&list["data"][0]["sell"])))
    };
    assert_eq!(cross("AUDUSD", "2022-01-03").await?, ("0.7186".to_owned(), "0.7188".to_owned()));
    assert_eq!(cross("USDAUD", "2022-01-03").await?, ("1.39120757".to_owned(), "1.39159477".to_owned()));

    // This bulletin was quoted without its parity.
    let (buy, sell) = cross("EURUSD", "2026-06-05").await?;
    let ratio = |numerator: &str, denominator: &str| -> anyhow::Result<Decimal> {
        Ok((numerator.parse::<Decimal>()? / denominator.parse::<Decimal>()?).round_dp(8))
    };
    assert_eq!(buy.parse::<Decimal>()?, ratio("5.9088", "5.1006")?);
    assert_eq!(sell.parse::<Decimal>()?, ratio("5.9100", "5.1000")?);

    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn as_of_returns_the_registry_of_that_day() -> TestResult {
    let directory = real_data_directory()?;
    let database = TestDatabase::create_empty().await?;
    let ingestor = build_file_ingestor(&database)?;
    let companies = DataSource::from_id("companies").expect("a source");
    let mut states = Vec::new();

    for (file, known_at) in [("2024-06", "2024-06-15T12:00:00Z"), ("2026-05", "2026-05-15T12:00:00Z")] {
        let bytes = std::fs::read(directory.join(format!("cvm/cad_cia_aberta_{file}.csv")))?;
        ingestor.load_file(companies, file, &bytes, known_at.parse()?).await?;
        states.push(fetch_all_companies(&database, "").await?);
    }

    assert_ne!(states[0], states[1]);

    for (as_of, state) in
        [("2024-06-15", 0), ("2025-01-01", 0), ("2026-05-14", 0), ("2026-05-15", 1), ("2026-11-13", 1)]
    {
        let mut companies_then = fetch_all_companies(&database, &format!("&as_of={as_of}")).await?;
        for company in &mut companies_then {
            let certainty = company.as_object_mut().and_then(|company| company.remove("known"));
            assert_eq!(certainty, Some(Value::from("observed")));
        }

        let differing = companies_then.iter().zip(&states[state]).filter(|(one, other)| one != other).count();
        println!("companies_as_of_{as_of}: {}, differences {differing}", companies_then.len());
        assert_eq!((companies_then.len(), differing), (states[state].len(), 0));
    }

    // Before our first registry file: companies registered by then, with no cancellation from a later day.

    let earlier = fetch_all_companies(&database, "&as_of=2015-01-01").await?;
    println!("companies_as_of_2015-01-01: {}", earlier.len());
    assert!(!earlier.is_empty() && earlier.len() < states[0].len());
    for company in &earlier {
        assert_eq!(company["known"], "estimated");
        for date in ["registered_on", "cancelled_on", "status_since"] {
            assert!(company[date].as_str().is_none_or(|date| date <= "2015-01-01"), "{company}");
        }
    }

    Ok(())
}

/// All companies served, fetched page by page.
async fn fetch_all_companies(database: &TestDatabase, query: &str) -> anyhow::Result<Vec<Value>> {
    let replica = start_replica(database).await?;
    let (_, key) = replica.create_key(Plan::Platinum).await?;
    let mut companies = Vec::new();

    loop {
        let path = format!("/api/v1/companies?limit=100&offset={}{query}", companies.len());
        let page: Value = replica.get_with_key(&path, &key).await?.json().await?;
        let rows = page["data"].as_array().cloned().unwrap_or_default();

        if rows.is_empty() {
            anyhow::ensure!(page["total"] == companies.len(), "{} of {}", companies.len(), page["total"]);
            return Ok(companies);
        }
        companies.extend(rows);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_registry_files_become_versions_and_the_older_one_stays_readable() -> TestResult {
    let directory = real_data_directory()?;
    let database = TestDatabase::create_empty().await?;
    let ingestor = build_file_ingestor(&database)?;
    let older = std::fs::read(directory.join("cvm/cad_cia_aberta_2024-06.csv"))?;
    let newer = std::fs::read(directory.join("cvm/cad_cia_aberta_2026-05.csv"))?;

    let companies = DataSource::from_id("companies").expect("a source");
    ingestor.load_file(companies, "2024-06", &older, "2024-06-15T00:00:00Z".parse()?).await?;
    ingestor.load_file(companies, "2026-05", &newer, "2026-05-15T00:00:00Z".parse()?).await?;

    let mut connection = database.connect().await?;
    let counts_query = "
        with old as (
            select distinct on (cvm_code) * from company_version where known_at < '2025-01-01'
            order by cvm_code, known_at desc
        ), current as (
            select distinct on (cvm_code) * from company_version order by cvm_code, known_at desc
        )
        select count(*) filter (where old.cvm_code is null),
               count(*) filter (where current.cvm_code is null or current.absent),
               count(*) filter (where old.name <> current.name),
               count(*) filter (where old.status <> current.status),
               count(*) filter (where old.sector <> current.sector)
        from old full join current using (cvm_code)";
    let counts: (i64, i64, i64, i64, i64) = sqlx::query_as(counts_query).fetch_one(&mut connection).await?;
    println!(
        "new: {}, gone: {}, names: {}, statuses: {}, sectors: {}",
        counts.0, counts.1, counts.2, counts.3, counts.4
    );
    assert_eq!(counts, (52, 0, 70, 88, 5));

    // Everything known in 2024 is still there.
    let old: Vec<(i32, String, String, String)> = sqlx::query_as(
        "select distinct on (cvm_code) cvm_code, name, status, sector
         from company_version
         where known_at < '2025-01-01'
         order by cvm_code, known_at desc",
    )
    .fetch_all(&mut connection)
    .await?;

    let mut published: Vec<(i32, String, String, String)> = company_registry::parse_companies(&older)?
        .rows
        .into_iter()
        .map(|company| (i32::try_from(company.id).unwrap_or(0), company.name, company.status, company.sector))
        .collect();
    published.sort();
    assert_eq!(old, published);

    Ok(())
}

/// The expected company must come first in this percentage of the queries, and in the top results of all of them.
const MIN_FIRST_PERCENT: usize = 97;
const TOP_RESULTS: usize = 5;

#[tokio::test(flavor = "multi_thread")]
async fn companies_are_found_as_people_type_them() -> TestResult {
    let directory = real_data_directory()?;
    let database = TestDatabase::create_empty().await?;
    let ingestor = build_file_ingestor(&database)?;
    let companies = DataSource::from_id("companies").expect("a source");
    for (month, known_at) in [("2024-06", "2024-06-15T00:00:00Z"), ("2026-05", "2026-05-15T00:00:00Z")] {
        let registry = std::fs::read(directory.join(format!("cvm/cad_cia_aberta_{month}.csv")))?;
        ingestor.load_file(companies, month, &registry, known_at.parse()?).await?;
    }

    // The index needs at least one filing, because a search reads companies and filings.
    let fetch = NewFetch::without_response("test:filings".into(), fixed_now(), [2; 32]);
    let mut load = database.open_store()?.begin_load(Dataset::Filings, DataOrigin::Real, &fetch).await?;
    load.append_filings(&[Filing {
        id: "1".into(),
        cvm_dataset: CvmDataset::Ipe,
        company_id: 9512,
        company_name: "PETROBRAS".into(),
        category: "Fato Relevante".into(),
        delivered_on: fixed_now().date_naive(),
        version: 1,
        ..Filing::default()
    }])
    .await?;
    load.commit().await?;

    let replica = start_replica(&database).await?;
    let (_, key) = replica.create_key(Plan::Platinum).await?;

    let queries: Vec<(&str, &str)> =
        include_str!("relevance.txt").lines().filter_map(|line| line.split_once(" = ")).collect();
    let mut first = 0;
    let mut misses = Vec::new();
    let mut lost = Vec::new();

    for (query, code) in &queries {
        let path = reqwest::Url::parse_with_params(&replica.url("/api/v1/companies/search"), [("q", query)])?;
        let response = replica.send(replica.http.get(path).header("X-API-Key", &key)).await?;
        let body: Value = response.json().await?;
        let found: Vec<String> = body["data"].as_array().expect("rows").iter().map(|row| as_text(&row["id"])).collect();

        if found.first().map(String::as_str) == Some(*code) {
            first += 1;
            continue;
        }

        let seen: Vec<String> =
            body["data"].as_array().expect("rows").iter().take(TOP_RESULTS).map(|row| as_text(&row["name"])).collect();
        misses.push(format!("{query}: {code} is not the first of {seen:?}"));
        if !found.iter().take(TOP_RESULTS).any(|id| id == code) {
            lost.push(*query);
        }
    }

    for miss in &misses {
        println!("{miss}");
    }
    println!("queries: {}", queries.len());
    println!("in_the_first_five: {}", queries.len() - lost.len());
    println!("first: {first}");
    assert!(queries.len() >= 120, "{} queries", queries.len());
    assert!(lost.is_empty(), "{lost:?}");
    assert!(first * 100 >= queries.len() * MIN_FIRST_PERCENT, "{misses:#?}");

    Ok(())
}
