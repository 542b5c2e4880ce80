//! Financial statements over HTTP: the rows of companies and filings, point in time, tables, and the demo's statements.

use std::collections::BTreeMap;

use anyhow::Context;
use chrono::{Days, Duration as Span, Months, NaiveDate};
use serde_json::Value;
use sha2::{Digest, Sha256};
use vintem_domain::dates::month_end;
use vintem_domain::statement::StatementTable;
use vintem_domain::{Company, CompanyId, CvmDataset, DataOrigin, Dataset, Plan, StatementSet};
use vintem_store::load::{Filing, NewFetch, RawBody, StatementDocument};
use vintem_store::sources::SourcePartState;
use vintem_testkit::{TestDatabase, TestReplica};

use crate::{TestResult, friday};

const COMPANY: CompanyId = 5410;

fn day(text: &str) -> NaiveDate {
    text.parse().expect("a day")
}

/// A table of a document in its canonical form. The rows have all that follows the name of the statement.
fn table(name: &str, rows: &[&str]) -> String {
    let columns = StatementTable::with_name(name).expect("a table").layout().content_columns().join(";");
    let rows: String = rows.iter().map(|row| format!("DF;REAL;{row}\n")).collect();
    format!("[{name}]\n{columns}\n{rows}")
}

fn document(set: StatementSet, reference_date: NaiveDate, version: u16, text: &str) -> StatementDocument {
    let tables = text.lines().filter_map(|line| line.strip_prefix('[')?.strip_suffix(']')).map(str::to_owned);
    StatementDocument {
        set,
        company_id: COMPANY,
        reference_date,
        version,
        tables: tables.collect(),
        row_count: u32::try_from(text.lines().count()).unwrap_or(0),
        body: RawBody {
            sha256: Sha256::digest(text).into(),
            size: text.len(),
            compressed: zstd::bulk::compress(text.as_bytes(), 3).expect("it fits"),
        },
    }
}

fn filing(set: StatementSet, reference_date: NaiveDate, version: u16, delivered_on: NaiveDate) -> Filing {
    Filing {
        id: format!("{}-{}{version}", set.id(), reference_date.format("%Y%m%d")),
        cvm_dataset: set.cvm_dataset(),
        company_id: COMPANY,
        company_name: "WEG S.A.".to_owned(),
        category: set.id().to_uppercase(),
        delivered_on,
        reference_date: Some(reference_date),
        version,
        ..Filing::default()
    }
}

/// Documents with the day on which we first saw each, and filings.
async fn load(
    database: &TestDatabase,
    documents: Vec<(NaiveDate, StatementDocument)>,
    filings: &[Filing],
) -> anyhow::Result<()> {
    let store = database.open_store()?;
    let fetch_of = |source: &str, seen_on: NaiveDate| {
        NewFetch::without_response(
            format!("test:{source}:{seen_on}"),
            seen_on.and_hms_opt(15, 0, 0).unwrap_or_default().and_utc(),
            [7; 32],
        )
    };
    let company = Company { id: COMPANY, name: "WEG S.A.".to_owned(), is_registered: true, ..Company::default() };
    let mut load =
        store.begin_load(Dataset::Companies, DataOrigin::Real, &fetch_of("companies", day("2020-01-01"))).await?;
    load.append_companies(&[company]).await?;
    load.commit().await?;

    let mut load =
        store.begin_load(Dataset::Filings, DataOrigin::Real, &fetch_of("filings", day("2020-01-01"))).await?;
    load.append_filings(filings).await?;
    load.commit().await?;

    let mut by_day: BTreeMap<NaiveDate, Vec<StatementDocument>> = BTreeMap::new();
    for (seen_on, document) in documents {
        by_day.entry(seen_on).or_default().push(document);
    }
    for (seen_on, documents) in by_day {
        let mut load =
            store.begin_load(Dataset::Statements, DataOrigin::Real, &fetch_of("statements", seen_on)).await?;
        load.append_statements(&documents).await?;
        load.commit().await?;
    }
    Ok(())
}

async fn start(database: &TestDatabase) -> anyhow::Result<(TestReplica, String)> {
    let replica = TestReplica::start_with_high_limits(database, friday()).await?;
    let (_, key) = replica.create_key(Plan::Platinum).await?;
    Ok((replica, key))
}

async fn get(replica: &TestReplica, key: &str, path: &str) -> anyhow::Result<Value> {
    let response = replica.get_with_key(&format!("/api/v1/{path}"), key).await?;
    let status = response.status();
    let text = response.text().await?;
    anyhow::ensure!(status == 200, "{path} answered {status}: {text}");
    serde_json::from_str(&text).context(text)
}

fn rows(body: &Value) -> &[Value] {
    body["data"].as_array().map_or(&[], Vec::as_slice)
}

fn texts<'v>(rows: &'v [Value], field: &str) -> Vec<&'v str> {
    rows.iter().map(|row| row[field].as_str().unwrap_or("-")).collect()
}

/// One row of every statement, consolidated and individual, with a comparative.
fn whole_document() -> String {
    [
        table("BPA_con", &["MIL;ÚLTIMO;2025-12-31;1;Ativo Total;41489701.0000000000;S"]),
        table("BPA_ind", &["MIL;ÚLTIMO;2025-12-31;1;Ativo Total;30000000.0000000000;S"]),
        table("BPP_con", &["MIL;ÚLTIMO;2025-12-31;2.03;Patrimônio Líquido Consolidado;21.5000000000;S"]),
        table(
            "DFC_MI_con",
            &["MIL;ÚLTIMO;2025-01-01;2025-12-31;6.01;Caixa Líquido Atividades Operacionais;-3.0000000000;S"],
        ),
        table(
            "DMPL_con",
            &["MIL;ÚLTIMO;2025-01-01;2025-12-31;Capital Social Integralizado;5.01;Saldos Iniciais;7.0000000000;S"],
        ),
        table("DRA_con", &["MIL;ÚLTIMO;2025-01-01;2025-12-31;4.02;Outros Resultados Abrangentes;9.0000000000;S"]),
        table(
            "DRE_con",
            &[
                "MIL;ÚLTIMO;2025-01-01;2025-12-31;3.01;Receita de Venda de Bens e/ou Serviços;8.0000000000;S",
                "MIL;ÚLTIMO;2025-01-01;2025-12-31;3.04.02.01;Aluguel da fábrica;-1.0000000000;N",
                "MIL;ÚLTIMO;2025-01-01;2025-12-31;3.99.01.01;ON;1.4430000000;N",
                "MIL;PENÚLTIMO;2024-01-01;2024-12-31;3.01;Receita de Venda de Bens e/ou Serviços;6.0000000000;S",
            ],
        ),
        table("DVA_con", &["MIL;ÚLTIMO;2025-01-01;2025-12-31;7.01;Receitas;6.0000000000;S"]),
        format!(
            "[composicao_capital]\n{}\n4197317998;0;4197317998;2000;0;2000\n",
            StatementTable::with_name("composicao_capital").expect("a table").layout().content_columns().join(";")
        ),
    ]
    .concat()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_statement_is_served_as_it_was_filed() -> TestResult {
    let database = TestDatabase::create_empty().await?;
    let year_end = day("2025-12-31");
    let documents = vec![(day("2026-03-01"), document(StatementSet::Dfp, year_end, 1, &whole_document()))];
    load(&database, documents, &[filing(StatementSet::Dfp, year_end, 1, day("2026-02-20"))]).await?;
    let (replica, key) = start(&database).await?;

    let body = get(&replica, &key, "companies/5410/statements?limit=100&numbers=string").await?;
    let described: Vec<String> = rows(&body)
        .iter()
        .map(|row| {
            let text = |field: &str| row[field].as_str().unwrap_or("-").to_owned();
            ["statement", "method", "column", "account", "value", "raw_value", "unit", "period_start"]
                .map(text)
                .join(" ")
        })
        .collect();
    assert_eq!(
        described,
        [
            "balance-sheet-assets - - 1 41489701000 41489701.0000000000 BRL -",
            "balance-sheet-liabilities - - 2.03 21500 21.5000000000 BRL -",
            "income - - 3.01 8000 8.0000000000 BRL 2025-01-01",
            "income - - 3.04.02.01 -1000 -1.0000000000 BRL 2025-01-01",
            "income - - 3.99.01.01 1.443 1.4430000000 BRL/share 2025-01-01",
            "comprehensive-income - - 4.02 9000 9.0000000000 BRL 2025-01-01",
            "cash-flow indirect - 6.01 -3000 -3.0000000000 BRL 2025-01-01",
            "value-added - - 7.01 6000 6.0000000000 BRL 2025-01-01",
            "equity-changes - Capital Social Integralizado 5.01 7000 7.0000000000 BRL 2025-01-01",
        ]
    );
    assert_eq!((&body["total"], &body["unavailable_versions"]), (&Value::from(9), &Value::Array(vec![])));
    let revenue = &rows(&body)[2];
    assert_eq!(revenue["name_en"], "Revenue from goods and services");
    assert_eq!((&revenue["filing_id"], &revenue["filed_on"]), (&"dfp-202512311".into(), &"2026-02-20".into()));
    assert_eq!((&rows(&body)[3]["name_en"], &rows(&body)[3]["fixed"]), (&Value::Null, &Value::Bool(false)));

    // The whole document has both scopes and the comparatives.
    let whole = get(&replica, &key, "filings/dfp-202512311/statements?limit=100").await?;
    assert_eq!(whole["total"], 11);
    let individual = get(&replica, &key, "companies/5410/statements?scope=individual").await?;
    assert_eq!(texts(rows(&individual), "scope"), ["individual"]);
    let page = get(&replica, &key, "companies/5410/statements?limit=2&offset=8&statement=income").await?;
    assert_eq!((rows(&page).len(), &page["total"]), (0, &3.into()));

    let shares = get(&replica, &key, "companies/5410/shares").await?;
    assert_eq!(
        (&rows(&shares)[0]["total"], &rows(&shares)[0]["scale"]),
        (&4_197_317_998_i64.into(), &"unknown".into())
    );
    let periods = get(&replica, &key, "companies/5410/statements/periods").await?;
    let [period] = rows(&periods) else { anyhow::bail!("{periods}") };
    assert_eq!(period["scopes"], serde_json::json!(["consolidated", "individual"]));
    assert_eq!(period["statements"].as_array().map(Vec::len), Some(7));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn cached_statements_become_stale_at_any_hour() -> TestResult {
    let database = TestDatabase::create_empty().await?;
    let text = table("DRE_con", &["MIL;ÚLTIMO;2025-01-01;2025-12-31;3.01;Receita;1.0000000000;S"]);
    let documents = vec![(day("2026-03-01"), document(StatementSet::Dfp, day("2025-12-31"), 1, &text))];
    load(&database, documents, &[filing(StatementSet::Dfp, day("2025-12-31"), 1, friday().date_naive())]).await?;
    let state = SourcePartState {
        source: "dfp-statements".to_owned(),
        part: "2025".to_owned(),
        checked_at: Some(friday()),
        is_open: true,
        ..SourcePartState::default()
    };
    database.open_store()?.save_part_state(&state).await?;
    let (replica, key) = start(&database).await?;
    let is_stale = async || {
        let response = replica.get_with_key("/api/v1/companies/5410/statements", &key).await?;
        anyhow::Ok(response.headers().contains_key("x-data-stale"))
    };

    let becomes_stale_at = friday() + Span::days(4);
    for (minutes, expected) in [(-10, false), (10, true), (-10, false)] {
        replica.clock.set(becomes_stale_at + Span::minutes(minutes));
        for _ in 0..2 {
            assert_eq!(is_stale().await?, expected, "{minutes} minutes after");
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn quarters_and_the_year_to_date_are_told_apart() -> TestResult {
    let database = TestDatabase::create_empty().await?;
    let row =
        |start: &str, end: &str, value: i32| format!("MIL;ÚLTIMO;{start};{end};3.01;Receita;{value}.0000000000;S");
    let first = table("DRE_con", &[&row("2025-01-01", "2025-03-31", 1)]);
    // Some companies begin a period on the last day of the one before.
    let second = table("DRE_con", &[&row("2025-01-01", "2025-06-30", 3), &row("2025-03-31", "2025-06-30", 2)]);
    let annual = table("DRE_con", &[&row("2025-01-01", "2025-12-31", 10)]);
    let seen_on = day("2026-03-01");
    let documents = [
        (StatementSet::Itr, "2025-03-31", first),
        (StatementSet::Itr, "2025-06-30", second),
        (StatementSet::Dfp, "2025-12-31", annual),
    ];
    let documents = documents.map(|(set, end, text)| (seen_on, document(set, day(end), 1, &text)));
    load(&database, documents.into(), &[]).await?;
    let (replica, key) = start(&database).await?;

    for (period, expected) in [("annual", vec![10_000]), ("quarter", vec![2_000, 1_000]), ("ytd", vec![3_000, 1_000])] {
        let body = get(&replica, &key, &format!("companies/5410/statements?period={period}")).await?;
        let values: Vec<i64> = rows(&body).iter().filter_map(|row| row["value"].as_i64()).collect();
        assert_eq!(values, expected, "{period}");
    }

    let path = "companies/5410/statements?layout=table&statement=income&numbers=string";
    let body = get(&replica, &key, path).await?;
    let labels = texts(body["periods"].as_array().context("periods")?, "label");
    assert_eq!(
        labels,
        ["2025-01-01/2025-12-31", "2025-03-31/2025-06-30", "2025-01-01/2025-06-30", "2025-01-01/2025-03-31"]
    );
    assert_eq!(rows(&body)[0]["values"], serde_json::json!(["10000", "2000", "3000", "1000"]));

    let csv = replica.get_with_key(&format!("/api/v1/{path}&format=csv"), &key).await?.text().await?;
    let lines: Vec<&str> = csv.lines().collect();
    assert_eq!(
        lines,
        [
            &*format!("statement,method,scope,column,account,name,name_en,fixed,unit,{}", labels.join(",")),
            "income,,consolidated,,3.01,Receita,,true,BRL,10000,2000,3000,1000",
        ]
    );
    for query in ["layout=table", "layout=table&statement=income&limit=5", "layout=other", "version=0", "period=month"]
    {
        let response = replica.get_with_key(&format!("/api/v1/companies/5410/statements?{query}"), &key).await?;
        assert_eq!(response.status(), 400, "{query}");
    }
    Ok(())
}

/// What happened to a version: when it was delivered (`None` if the index lacks it), and when we saw each of its forms.
#[derive(Debug)]
struct VersionHistory {
    number: u16,
    delivered_on: Option<NaiveDate>,
    seen_on: Vec<NaiveDate>,
}

/// A generator of random numbers that gives the same ones every time.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// The value of a form: told apart from all others.
fn value_of(reference: usize, version: u16, form: usize) -> i64 {
    i64::try_from(reference * 10_000 + form).unwrap_or(0) + i64::from(version) * 100
}

fn random_histories(random: &mut Random, reference_date: NaiveDate) -> Vec<VersionHistory> {
    let mut known_on = reference_date + Days::new(20);
    (1..=1 + random.below(4))
        .map(|number| {
            known_on = known_on + Days::new(1 + random.below(120));
            let is_in_index = random.below(10) > 0;
            let is_archived = random.below(10) > 2 || !is_in_index;
            let first_seen = known_on + Days::new(random.below(100));
            let forms = if is_archived { 1 + random.below(3) } else { 0 };
            VersionHistory {
                number: u16::try_from(number).unwrap_or(0),
                delivered_on: is_in_index.then_some(known_on),
                seen_on: (0..forms).map(|form| first_seen + Days::new(40 * form)).collect(),
            }
        })
        .collect()
}

/// What was known of a document: its value and how we know it, and the versions that nobody archived.
type KnownThen = (Option<(i64, String)>, Vec<u16>);

fn known_then(reference: usize, versions: &[VersionHistory], day: NaiveDate) -> KnownThen {
    let mut unavailable = Vec::new();
    for version in versions.iter().rev() {
        let seen = version.seen_on.iter().rposition(|seen_on| *seen_on <= day);
        let was_delivered = version.delivered_on.map_or(seen.is_some(), |delivered_on| delivered_on <= day);
        if !was_delivered {
            continue;
        }
        if version.seen_on.is_empty() {
            unavailable.push(version.number);
            continue;
        }
        let certainty = if seen.is_some() { "observed" } else { "estimated" };
        let value = value_of(reference, version.number, seen.unwrap_or(0));
        return (Some((value, certainty.to_owned())), unavailable);
    }
    (None, unavailable)
}

#[tokio::test(flavor = "multi_thread")]
async fn as_of_equals_a_plain_model_on_random_days() -> TestResult {
    let mut random = Random(7);
    let mut documents = Vec::new();
    let mut filings = Vec::new();
    let mut histories = Vec::new();
    for reference in 0..12 {
        let reference_date = month_end(day("2020-12-31") + Months::new(3 * reference));
        let set = if reference % 4 == 0 { StatementSet::Dfp } else { StatementSet::Itr };
        let versions = random_histories(&mut random, reference_date);
        let reference = reference as usize;
        for VersionHistory { number, delivered_on, seen_on } in &versions {
            filings.extend(delivered_on.map(|delivered_on| filing(set, reference_date, *number, delivered_on)));
            for (form, seen_on) in seen_on.iter().enumerate() {
                let value = value_of(reference, *number, form);
                let row = format!("UNIDADE;ÚLTIMO;{reference_date};1;Ativo Total;{value}.0000000000;S");
                documents.push((*seen_on, document(set, reference_date, *number, &table("BPA_con", &[&row]))));
            }
        }
        histories.push((reference_date, versions));
    }
    let database = TestDatabase::create_empty().await?;
    load(&database, documents, &filings).await?;
    let (replica, key) = start(&database).await?;

    let mut differences = 0;
    let (mut values_seen, mut unavailable_seen) = (0, 0);
    for _ in 0..200 {
        let as_of = day("2021-01-01") + Days::new(random.below(1_700));
        let body = get(&replica, &key, &format!("companies/5410/statements?limit=1000&as_of={as_of}")).await?;
        let mut served: BTreeMap<String, KnownThen> = BTreeMap::new();
        for row in rows(&body) {
            let value = (row["value"].as_i64().context("a value")?, row["known"].as_str().unwrap_or("-").to_owned());
            served.entry(row["reference_date"].as_str().unwrap_or("-").to_owned()).or_default().0 = Some(value);
        }
        let shares = get(&replica, &key, &format!("companies/5410/shares?as_of={as_of}")).await?;
        assert_eq!(shares["unavailable_versions"], body["unavailable_versions"]);
        for version in body["unavailable_versions"].as_array().context("a list")? {
            let number = u16::try_from(version["version"].as_u64().unwrap_or(0))?;
            served.entry(version["reference_date"].as_str().unwrap_or("-").to_owned()).or_default().1.push(number);
        }

        for (reference, (reference_date, versions)) in histories.iter().enumerate() {
            let expected = known_then(reference, versions, as_of);
            values_seen += usize::from(expected.0.is_some());
            unavailable_seen += expected.1.len();
            let found = served.remove(&reference_date.to_string()).unwrap_or_default();
            if found != expected {
                println!("{reference_date} as of {as_of}: {found:?}, not {expected:?}: {versions:?}");
                differences += 1;
            }
        }
        assert!(served.is_empty(), "{served:?}");
    }
    println!("values: {values_seen}\nunavailable_versions: {unavailable_seen}\ndifferences: {differences}");
    assert!(values_seen > 500 && unavailable_seen > 50);
    assert_eq!(differences, 0);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn demo_statements_add_up_and_restatements_never_change_what_was_filed() -> TestResult {
    let database = TestDatabase::create_demo(friday()).await?;
    let (replica, key) = start(&database).await?;
    let dfp = get(&replica, &key, "filings?category=DFP&limit=100").await?;
    let itr = get(&replica, &key, "filings?category=ITR&limit=100").await?;
    let mut companies: BTreeMap<String, usize> = BTreeMap::new();
    for row in rows(&dfp).iter().chain(rows(&itr)) {
        *companies.entry(row["company_id"].as_str().unwrap_or("-").to_owned()).or_default() += 1;
    }

    let (mut documents, mut changed_comparatives, mut restated, mut unavailable) = (0, 0, 0, 0);
    for company in companies.iter().filter(|(_, count)| **count > 8).map(|(id, _)| id) {
        let periods = get(&replica, &key, &format!("companies/{company}/statements/periods?limit=100")).await?;
        documents += rows(&periods).len();
        restated += rows(&periods).iter().filter(|row| row["version"].as_u64() > Some(1)).count();
        unavailable += rows(&periods).iter().filter(|row| row["available"] == false).count();

        let path = format!("companies/{company}/statements?period=annual&comparatives=true&limit=10000&numbers=string");
        let body = get(&replica, &key, &path).await?;
        let key_of = |row: &Value| ["period_end", "account", "statement"].map(|field| row[field].to_string());
        let without_columns: Vec<&Value> = rows(&body).iter().filter(|row| row["column"].is_null()).collect();
        let (comparatives, filed): (Vec<&Value>, Vec<&Value>) =
            without_columns.into_iter().partition(|row| row["comparative"] == true);
        let filed: BTreeMap<[String; 3], &Value> = filed.into_iter().map(|row| (key_of(row), &row["value"])).collect();
        let is_changed = |row: &&Value| filed.get(&key_of(row)).is_some_and(|value| **value != row["value"]);
        changed_comparatives += comparatives.into_iter().filter(is_changed).count();

        let totals = |account: &str| -> Vec<&Value> {
            filed.iter().filter(|([_, code, _], _)| code == account).map(|(_, value)| *value).collect()
        };
        assert!(!totals("\"1\"").is_empty());
        assert_eq!(totals("\"1\""), totals("\"2\""), "assets and liabilities of {company}");
    }
    println!("documents: {documents}");
    println!("restated: {restated}");
    println!("unavailable: {unavailable}");
    println!("changed_comparatives: {changed_comparatives}");
    assert!(documents >= 80 && restated > 0 && unavailable > 0 && changed_comparatives > 0);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_filing_without_statements_has_none_and_a_missing_document_is_listed() -> TestResult {
    let database = TestDatabase::create_empty().await?;
    let year_end = day("2025-12-31");
    let announcement = Filing {
        id: "7".to_owned(),
        cvm_dataset: CvmDataset::Ipe,
        ..filing(StatementSet::Dfp, year_end, 1, day("2026-02-01"))
    };
    let filings = [
        announcement,
        filing(StatementSet::Dfp, year_end, 1, day("2026-02-20")),
        filing(StatementSet::Dfp, year_end, 2, day("2026-04-20")),
    ];
    let text = table("BPA_ind", &["UNIDADE;ÚLTIMO;2025-12-31;1;Ativo Total;5.0000000000;S"]);
    load(&database, vec![(day("2026-05-01"), document(StatementSet::Dfp, year_end, 2, &text))], &filings).await?;
    let (replica, key) = start(&database).await?;

    let response = replica.get_with_key("/api/v1/filings/7/statements", &key).await?;
    assert_eq!(response.status(), 404);
    assert!(response.text().await?.contains("has no financial statements"));

    let missing = get(&replica, &key, "filings/dfp-202512311/statements").await?;
    assert_eq!((&missing["total"], &missing["unavailable_versions"][0]["version"]), (&0.into(), &1.into()));
    let before = get(&replica, &key, "companies/5410/statements?as_of=2026-03-31").await?;
    assert_eq!((rows(&before).len(), &before["unavailable_versions"][0]["filing_id"]), (0, &"dfp-202512311".into()));
    // The company has no consolidated statements.
    let after = get(&replica, &key, "companies/5410/statements?as_of=2026-04-20").await?;
    assert_eq!((texts(rows(&after), "scope"), texts(rows(&after), "known")), (vec!["individual"], vec!["estimated"]));

    let accounts = get(&replica, &key, "statements/accounts?chart=bank&statement=income&limit=1000").await?;
    assert!(
        rows(&accounts)
            .iter()
            .any(|row| row["account"] == "3.09" && row["name_en"] == "Consolidated net profit or loss")
    );
    Ok(())
}
