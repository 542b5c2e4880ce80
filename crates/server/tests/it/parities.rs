//! Parities, the published rates against the dollar: stored, filled in where they were missing, and used by crosses.

use chrono::{DateTime, Duration, NaiveDate, NaiveDateTime, Utc};
use serde_json::{Value, json};
use vintem_domain::{Currency, DataOrigin, Dataset, Plan, Quote};
use vintem_ingest::fetch::compress_for_archive;
use vintem_ingest::ingestor::{NoopReporter, parse_source_names};
use vintem_ingest::parsers::ptax::parse_bulletins;
use vintem_ingest::upstreams::ptax::backfill_parities;
use vintem_store::Store;
use vintem_store::load::{ArchivedResponse, BulletinKind, NewBulletin, NewFetch};
use vintem_store::sources::{CheckedValues, CrossCheck, CrossCheckFinding};
use vintem_testkit::upstreams::{FakeUpstreamOptions, UpstreamService};
use vintem_testkit::{TempDirectory, TestDatabase, TestReplica, TestReplicaOptions, wait_until};

use crate::ingest::{FAST_RETRY, IngestHarness};
use crate::{TestResult, friday};

type RateTexts = (&'static str, &'static str);

fn parse_quote((buy, sell): RateTexts) -> anyhow::Result<Quote> {
    Ok(Quote { buy: buy.parse()?, sell: sell.parse()? })
}

fn closing_bulletin(
    currency: Currency,
    published_at: &str,
    rates: RateTexts,
    parity: Option<RateTexts>,
) -> anyhow::Result<NewBulletin> {
    let published_at: NaiveDateTime = published_at.parse()?;
    let Quote { buy, sell } = parse_quote(rates)?;
    Ok(NewBulletin {
        currency,
        date: published_at.date(),
        kind: BulletinKind::Closing,
        published_at,
        quote_currency: "BRL".to_owned(),
        buy,
        sell,
        parity: parity.map(parse_quote).transpose()?,
    })
}

/// Loads bulletins with events, and returns how many were appended.
async fn load_bulletins(store: &Store, hours: i64, rows: &[NewBulletin]) -> anyhow::Result<u64> {
    let fetch = NewFetch::without_response("test:fx".into(), friday() + Duration::hours(hours), [7; 32]);
    let mut load = store.begin_load(Dataset::Fx, DataOrigin::Real, &fetch).await?;
    load.emit_events_since("2026-11-01".parse()?);
    load.append_bulletins(rows).await?;
    Ok(load.commit().await?)
}

/// The buying parities of a currency, in order of publication.
async fn current_parities(store: &Store, currency: Currency) -> anyhow::Result<Vec<Option<String>>> {
    let mut parities = Vec::new();
    let mut reader = store.open_reader().await?;
    reader.for_each_bulletin(currency, |row| parities.push(row.parity.map(|parity| parity.buy.to_string()))).await?;
    Ok(parities)
}

async fn fx_generation(store: &Store) -> anyhow::Result<Option<i64>> {
    Ok(store.dataset_states().await?.get(&Dataset::Fx).map(|state| state.generation))
}

async fn count_events(database: &TestDatabase) -> anyhow::Result<i64> {
    let mut connection = database.connect().await?;
    Ok(sqlx::query_scalar("select count(*) from event").fetch_one(&mut connection).await?)
}

#[tokio::test]
async fn a_missing_parity_is_filled_in_and_a_changed_one_is_a_version_without_an_event() -> TestResult {
    let database = TestDatabase::create_empty().await?;
    let store = database.open_store()?;
    let with_parity = |parity| closing_bulletin(Currency::Aud, "2026-10-05T13:00:00", ("3.6000", "3.6010"), parity);

    let first = Some(("0.6600", "0.6602"));
    let second = Some(("0.6601", "0.6603"));
    for (hours, parity, appended, current, generation) in [
        (0, None, 1, None, 1),
        (1, first, 0, Some("0.6600"), 2),
        (2, None, 0, Some("0.6600"), 2),
        (3, first, 0, Some("0.6600"), 2),
        (4, second, 1, Some("0.6601"), 3),
    ] {
        let rows = [with_parity(parity)?];
        assert_eq!(load_bulletins(&store, hours, &rows).await?, appended, "load {hours}");
        assert_eq!(current_parities(&store, Currency::Aud).await?, [current.map(str::to_owned)], "load {hours}");
        assert_eq!(fx_generation(&store).await?, Some(generation), "load {hours}");
    }
    assert_eq!(count_events(&database).await?, 0, "no rate in reais has changed");

    let revised = closing_bulletin(Currency::Aud, "2026-10-05T13:00:00", ("3.6001", "3.6010"), second)?;
    assert_eq!(load_bulletins(&store, 5, &[revised]).await?, 1);
    assert_eq!(count_events(&database).await?, 1);

    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn parities_are_backfilled_from_archived_bodies_without_versions_events_or_requests() -> TestResult {
    let harness = IngestHarness::with_options(FakeUpstreamOptions::default(), FAST_RETRY).await?;
    let sources = parse_source_names(&["fx".to_owned()])?;
    let report = harness.ingestor.run(&sources, Some("2026-10-01".parse()?), &NoopReporter).await?;
    assert!(report.failures.is_empty() && report.appended > 0, "{report:#?}");

    let mut connection = harness.database.connect().await?;
    let count_and_times = "select count(*), min(known_at), max(known_at) from fx_bulletin";
    let before: (i64, DateTime<Utc>, DateTime<Utc>) =
        sqlx::query_as(count_and_times).fetch_one(&mut connection).await?;
    let checksum = harness.database.checksum().await?;

    sqlx::query("update fx_bulletin set parity_buy = null, parity_sell = null").execute(&mut connection).await?;
    assert_ne!(harness.database.checksum().await?, checksum);

    // A day later, so that a new version would have another time.
    harness.advance_days(1);
    harness.upstreams.clear_requests();
    let store = harness.database.open_store()?;
    let completed = backfill_parities(&store, "2026-11-14".parse()?).await?;
    println!("completed: {completed}");
    assert_eq!(completed, u64::try_from(before.0)?);

    let generation = fx_generation(&store).await?;
    assert_eq!(backfill_parities(&store, "2026-11-14".parse()?).await?, 0, "nothing is left");
    assert_eq!(fx_generation(&store).await?, generation);

    let after: (i64, DateTime<Utc>, DateTime<Utc>) = sqlx::query_as(count_and_times).fetch_one(&mut connection).await?;
    assert_eq!(after, before);
    assert_eq!(harness.database.checksum().await?, checksum);
    assert_eq!(count_events(&harness.database).await?, 0);
    assert!(harness.upstreams.requests_to(UpstreamService::Ptax).is_empty());

    Ok(())
}

#[tokio::test]
async fn a_bulletin_whose_archived_body_has_no_parity_stays_without_one() -> TestResult {
    let body = r#"{"value":[
        {"paridadeCompra":0.6600,"paridadeVenda":0.6602,"cotacaoCompra":3.6000,"cotacaoVenda":3.6010,
         "dataHoraCotacao":"2026-10-05 13:05:00.1","tipoBoletim":"Fechamento"},
        {"paridadeCompra":0.0,"paridadeVenda":0.0,"cotacaoCompra":3.6100,"cotacaoVenda":3.6110,
         "dataHoraCotacao":"2026-10-06 13:05:00.1","tipoBoletim":"Fechamento"}]}"#;
    let today = friday().date_naive();
    let mut rows = parse_bulletins(Currency::Aud, body.as_bytes(), today)?.rows;
    for row in &mut rows {
        row.parity = None;
    }

    let database = TestDatabase::create_empty().await?;
    let store = database.open_store()?;
    let archived = compress_for_archive(body.as_bytes());
    let sha256 = archived.sha256;
    let response = ArchivedResponse { status: 200, content_type: "application/json".to_owned(), body: archived };
    let fetch = NewFetch { source_url: "test:fx".to_owned(), fetched_at: friday(), sha256, response: Some(response) };
    let mut load = store.begin_load(Dataset::Fx, DataOrigin::Real, &fetch).await?;
    load.append_bulletins(&rows).await?;
    assert_eq!(load.commit().await?, 2);

    for completed in [1, 0] {
        assert_eq!(backfill_parities(&store, today).await?, completed);
        assert_eq!(current_parities(&store, Currency::Aud).await?, [Some("0.6600".to_owned()), None]);
    }

    Ok(())
}

#[tokio::test]
async fn crosses_use_the_parities_that_bulletins_show() -> TestResult {
    let database = TestDatabase::create_empty().await?;
    let store = database.open_store()?;
    let dollar = Some(("1.0000", "1.0000"));
    let rows = [
        closing_bulletin(Currency::Usd, "2026-11-11T13:00:00", ("5.4000", "5.4006"), dollar)?,
        closing_bulletin(Currency::Usd, "2026-11-12T13:00:00", ("5.4000", "5.4006"), dollar)?,
        closing_bulletin(Currency::Aud, "2026-11-11T13:00:00", ("3.5600", "3.5610"), None)?,
        closing_bulletin(Currency::Aud, "2026-11-12T13:00:00", ("3.5640", "3.5655"), Some(("0.6600", "0.6602")))?,
        closing_bulletin(Currency::Jpy, "2026-11-12T13:00:00", ("0.03519", "0.03520"), Some(("153.43", "153.45")))?,
    ];
    load_bulletins(&store, 0, &rows).await?;

    let replica = TestReplica::start_with_high_limits(&database, friday()).await?;
    let (_, gold) = replica.create_key(Plan::Gold).await?;
    let get = async |path: &str| -> anyhow::Result<Value> {
        let response = replica.get_with_key(&format!("/api/v1/market/{path}"), &gold).await?;
        anyhow::ensure!(response.status() == 200, "{path}: {}", response.status());
        Ok(response.json().await?)
    };

    let closing = get("fx/bulletins?pair=AUD/BRL&numbers=string").await?["data"][0].clone();
    assert_eq!((&closing["parity_buy"], &closing["parity_sell"]), (&json!("0.6600"), &json!("0.6602")));
    let without_parity = get("fx/bulletins?pair=AUD/BRL&date=2026-11-11").await?["data"][0].clone();
    assert!(without_parity.get("parity_buy").is_none() && without_parity.get("parity_sell").is_none());

    for (pair, buy, sell) in [
        ("AUD/USD", "0.6600", "0.6602"),
        ("USD/AUD", "1.51469252", "1.51515152"),
        ("USD/JPY", "153.43", "153.45"),
        ("JPY/USD", "0.00651678", "0.00651763"),
        ("AUD/JPY", "101.26380000", "101.30769000"),
    ] {
        for as_of in ["", "&as_of=2026-11-12"] {
            let rate = get(&format!("fx/current?pair={pair}&numbers=string{as_of}")).await?;
            assert_eq!((&rate["buy"], &rate["sell"]), (&json!(buy), &json!(sell)), "{pair} {as_of}");
            assert_eq!((&rate["derived"], &rate["date"]), (&json!(true), &json!("2026-11-12")), "{pair} {as_of}");
        }
    }

    // On a day without a parity the rates in reais are divided.
    let from_reais = get("fx?pair=AUD/USD&numbers=string&to=2026-11-11&provenance=true").await?;
    assert_eq!(
        (&from_reais["data"][0]["buy"], &from_reais["data"][0]["sell"]),
        (&json!("0.65918602"), &json!("0.65944444"))
    );

    Ok(())
}

#[tokio::test]
async fn a_range_before_the_real_is_empty_and_says_where_earlier_rates_are() -> TestResult {
    let database = TestDatabase::create_demo(friday()).await?;
    let replica = TestReplica::start_with_high_limits(&database, friday()).await?;

    for source in ["fx?pair=USD/BRL&", "fx?pair=BRL/USD&", "fx?pair=EUR/USD&", "series/usd-brl?"] {
        let path = format!("/api/v1/market/{source}from=1990-01-01&to=1994-06-30");
        for (language, words) in [("en", "Rates in BRL begin on"), ("pt-BR", "As cotações em BRL começam em")] {
            let request = replica.http.get(replica.url(&path)).header("Accept-Language", language);
            let response = replica.send(request).await?;
            assert_eq!(response.status(), 200, "{path}");

            let body: Value = response.json().await?;
            assert_eq!((&body["data"], &body["total"]), (&json!([]), &json!(0)), "{path}");
            let message = body["message"].as_str().unwrap_or_default();
            assert!(message.contains(words) && message.contains("1994-07-01"), "{body}");
            assert!(message.contains("/api/v1/market/fx/bulletins"), "{body}");
        }
    }

    for path in ["fx?to=1994-07-01", "fx?from=1990-01-01", "selic?to=1994-06-30"] {
        let body: Value = replica.get(&format!("/api/v1/market/{path}")).await?.json().await?;
        assert!(body["data"].is_array() && body.get("message").is_none(), "{path}: {body}");
    }

    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disputed_rate_marks_what_is_computed_from_it_also_after_a_start_from_the_copy() -> TestResult {
    let database = TestDatabase::create_empty().await?;
    let directory = TempDirectory::create()?;
    let store = database.open_store()?;
    let time = "2026-11-05T13:00:00";
    let rows = [
        closing_bulletin(Currency::Usd, time, ("5.0000", "5.0010"), Some(("1.0000", "1.0000")))?,
        closing_bulletin(Currency::Eur, time, ("6.0000", "6.0010"), Some(("1.2000", "1.2002")))?,
        closing_bulletin(Currency::Gbp, time, ("7.0000", "7.0010"), Some(("1.4000", "1.4002")))?,
        closing_bulletin(Currency::Usd, "2026-11-06T13:00:00", ("5.1000", "5.1010"), Some(("1.0000", "1.0000")))?,
    ];
    load_bulletins(&store, 0, &rows).await?;
    let day = "2026-11-05".parse()?;
    let finding = |id: &str, values, disputed_days: &[NaiveDate]| CrossCheckFinding {
        check: CrossCheck::new(id.to_owned(), friday()),
        judged: vec![values],
        disputed_days: disputed_days.to_vec(),
    };
    let findings = [
        finding("usd-sell", CheckedValues::ClosingRates(Currency::Usd), &[day]),
        finding("eur-sell", CheckedValues::ClosingRates(Currency::Eur), &[day]),
        finding("eur-buy", CheckedValues::ClosingRates(Currency::Eur), &[day]),
        finding("gbp-from-parity", CheckedValues::Parities(Currency::Gbp), &[day]),
    ];
    let generation = fx_generation(&store).await?.expect("it is loaded");
    store.save_cross_checks(&findings, friday()).await?;
    assert_eq!(fx_generation(&store).await?, Some(generation + 1), "once for all checks");
    store.save_cross_checks(&findings, friday()).await?;
    store.save_cross_checks(&[], friday() - Duration::minutes(1)).await?;
    // Another check still disputes the same day.
    store.save_cross_checks(&[&findings[..2], &findings[3..]].concat(), friday()).await?;
    assert_eq!(
        fx_generation(&store).await?,
        Some(generation + 2),
        "neither repetition nor an older run changes anything"
    );
    let mut reader = store.open_reader().await?;
    assert_eq!(reader.disputed_days(CheckedValues::ClosingRates(Currency::Eur)).await?, [day]);

    for is_first_start in [true, false] {
        let flags = ["--data-dir", directory.path().to_str().expect("a path of ours is text")];
        let options = TestReplicaOptions { flags: &flags, redis_prefix: None };
        let replica = TestReplica::start_with_options(&database, friday() + Duration::days(1), options).await?;
        let (_, key) = replica.create_key(Plan::Platinum).await?;
        for (pair, is_disputed) in [
            ("USD/BRL", true),
            ("BRL/USD", true),
            ("EUR/USD", false),
            ("EUR/GBP", true),
            ("GBP/USD", true),
            ("GBP/BRL", false),
        ] {
            let path = format!("/api/v1/market/fx?pair={pair}&from=2026-11-05&to=2026-11-05");
            let body: Value = replica.get_with_key(&path, &key).await?.json().await?;
            let mark = body["data"][0].get("disputed");
            assert_eq!(mark, is_disputed.then_some(&json!(true)), "{pair}, first start: {is_first_start}: {body}");
        }
        let current: Value = replica.get_with_key("/api/v1/market/fx/current?pair=USD/BRL", &key).await?.json().await?;
        assert_eq!((&current["date"], current.get("disputed")), (&json!("2026-11-06"), None), "{current}");

        if is_first_start {
            let copy = directory.path().join("snapshot/served");
            wait_until("the copy is on disk", std::time::Duration::from_secs(20), || async { copy.exists() }).await;
            // Without a new generation, so that only the copy has them.
            let mut connection = database.connect().await?;
            sqlx::query("delete from disputed_day").execute(&mut connection).await?;
        }
    }

    // Checks that no longer run dispute nothing.
    store.save_cross_checks(&findings, friday()).await?;
    store.save_cross_checks(&[], friday()).await?;
    assert_eq!(store.cross_checks().await?, []);
    let mut reader = store.open_reader().await?;
    assert!(reader.disputed_days(CheckedValues::ClosingRates(Currency::Usd)).await?.is_empty());
    Ok(())
}
