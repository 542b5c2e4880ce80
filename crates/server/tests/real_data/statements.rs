//! The regulator's real statements: every value in a file is read from its document, character for character.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use sha2::{Digest, Sha256};
use vintem_domain::statement::{
    AccountRow, CashFlowMethod, Statement, StatementContent, StatementScope, StatementTable, TableContent, TableLayout,
};
use vintem_domain::{Company, CompanyId, DataOrigin, Dataset, Decimal, Plan, StatementSet};
use vintem_ingest::parsers::statements::{CanonicalStatement, StatementCollector};
use vintem_store::load::{NewFetch, RawBody, StatementDocument};
use vintem_testkit::TestDatabase;

use crate::{TestResult, fixed_now, real_data_directory, start_replica};

const SAMPLES: [(&str, StatementSet, i32); 4] = [
    ("dfp-2023-10", StatementSet::Dfp, 2023),
    ("dfp-2023-12", StatementSet::Dfp, 2023),
    ("dfp-2024", StatementSet::Dfp, 2024),
    ("itr-2025", StatementSet::Itr, 2025),
];

const ITAU: CompanyId = 19348;
const WEG: CompanyId = 5410;
const CELPAR: CompanyId = 16675;

/// The text of a table, if the sample has it.
fn read_table(samples: &str, table: StatementTable, set: StatementSet, year: i32) -> anyhow::Result<Option<Vec<u8>>> {
    let name = table.archive_member_name(set, year);
    let directory = real_data_directory()?.join("statements");
    let of_shares = (table.layout() == TableLayout::Shares && samples == "dfp-2024").then(|| directory.join("capital"));
    let file = of_shares.unwrap_or_else(|| directory.join(samples)).join(name);
    if file.exists() { Ok(Some(std::fs::read(file)?)) } else { Ok(None) }
}

fn collect_documents(samples: &str, set: StatementSet, year: i32) -> anyhow::Result<Vec<CanonicalStatement>> {
    let mut collector = StatementCollector::default();
    for table in StatementTable::all_of_year(year) {
        if let Some(bytes) = read_table(samples, table, set, year)? {
            collector.add_table(table, &bytes)?;
        }
    }
    Ok(collector.finish().0.collect::<Result<_, _>>()?)
}

/// The rows of a document, found by what a test knows of them.
struct Document {
    body: String,
}

impl Document {
    fn find(samples: &str, company_id: CompanyId, reference_date: &str) -> anyhow::Result<Self> {
        let (_, set, year) = SAMPLES.into_iter().find(|(name, ..)| *name == samples).expect("a sample");
        let documents = collect_documents(samples, set, year)?;
        let is_wanted = |document: &CanonicalStatement| {
            document.key.company_id == company_id && document.key.reference_date.to_string() == reference_date
        };
        let document = documents.into_iter().find(is_wanted).expect("the sample has it");
        Ok(Self { body: document.body })
    }

    /// `period` is its first and its last day, or the day of a balance.
    fn value(
        &self,
        (statement, scope): (Statement, StatementScope),
        period: &str,
        account: &str,
    ) -> anyhow::Result<String> {
        let content = StatementContent::parse(&self.body)?;
        let matches = |row: &&AccountRow<'_>| {
            let key = row.key;
            let period_start = key.period_start.map(|start| format!("{start}/")).unwrap_or_default();
            key.statement == statement
                && key.scope == scope
                && key.account == account
                && format!("{period_start}{}", key.period_end) == period
        };
        let rows: Vec<&AccountRow<'_>> = content.accounts.iter().filter(matches).collect();
        anyhow::ensure!(rows.len() == 1, "{account} of {period}: {rows:?}");
        Ok(rows[0].value.to_string())
    }
}

#[test]
fn statements_are_collected_without_a_bad_row() -> TestResult {
    for (samples, set, year) in SAMPLES {
        let mut collector = StatementCollector::default();
        let mut lines = 0;
        for table in StatementTable::all_of_year(year).filter(|table| table.layout() != TableLayout::Shares) {
            let Some(bytes) = read_table(samples, table, set, year)? else { continue };
            lines += bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).count() as u64 - 1;
            collector.add_table(table, &bytes)?;
        }

        let (documents, mut collected) = collector.finish();
        let documents = documents.collect::<Result<Vec<_>, _>>()?;
        assert!(!documents.is_empty(), "{samples}");
        for document in &documents {
            document.withhold_rows(&mut collected)?;
        }
        assert_eq!((collected.total, collected.bad_rows), (lines, vec![]), "{samples}");
        let kept: u64 = documents.iter().map(|document| u64::from(document.row_count)).sum();
        assert_eq!(kept + collected.merged, lines, "{samples}");
        println!("{samples}: {} documents, {lines} rows, {} repeated", documents.len(), collected.merged);
    }
    Ok(())
}

/// A value of a file: the company, the version, the table, the period as filed, the account and its name.
type FiledKey = (String, String, String, &'static str, String, String, String);

/// Every value of the sample, read from its files by the simplest means: as filed, and what it means.
fn read_filed_values(
    samples: &str,
    set: StatementSet,
    year: i32,
) -> anyhow::Result<BTreeMap<FiledKey, (String, String)>> {
    let mut values = BTreeMap::new();
    for table in StatementTable::all_of_year(year).filter(|table| table.layout() != TableLayout::Shares) {
        let Some(bytes) = read_table(samples, table, set, year)? else { continue };
        let text: String = bytes.iter().map(|byte| char::from(*byte)).collect();
        let mut lines = text.lines().map(|line| line.split(';').collect::<Vec<_>>());
        let header = lines.next().expect("a header");
        for fields in lines {
            let field = |name: &str| {
                header.iter().position(|column| *column == name).map_or(String::new(), |at| fields[at].to_owned())
            };
            let (account, raw) = (field("CD_CONTA"), field("VL_CONTA"));
            let is_per_share = account == "3.99" || account.starts_with("3.99.");
            let thousands = field("ESCALA_MOEDA") == "MIL" && !is_per_share;
            // Ten decimals: a thousand times the value has the point three digits further on.
            let (whole, decimals) = raw.split_once('.').expect("decimals");
            let digits = if thousands { format!("{whole}{}.{}", &decimals[..3], &decimals[3..]) } else { raw.clone() };
            let key = (
                format!("{} {}", field("CD_CVM").trim_start_matches('0'), field("DT_REFER")),
                field("VERSAO"),
                format!("{}/{}", field("DT_INI_EXERC"), field("DT_FIM_EXERC")),
                table.name,
                field("ORDEM_EXERC"),
                format!("{}{account}", field("COLUNA_DF")),
                field("DS_CONTA"),
            );
            values.insert(key, (raw, trim_zeros(&digits)));
        }
    }
    Ok(values)
}

/// Without leading zeros, and without trailing ones behind the point.
fn trim_zeros(digits: &str) -> String {
    let (sign, digits) = digits.strip_prefix('-').map_or(("", digits), |rest| ("-", rest));
    let (whole, decimals) = digits.split_once('.').unwrap_or((digits, ""));
    let whole = whole.trim_start_matches('0');
    let whole = if whole.is_empty() { "0" } else { whole };
    let decimals = decimals.trim_end_matches('0');
    match (whole, decimals) {
        ("0", "") => "0".to_owned(),
        (whole, "") => format!("{sign}{whole}"),
        (whole, decimals) => format!("{sign}{whole}.{decimals}"),
    }
}

#[test]
fn every_filed_value_is_read_from_its_document_with_its_exact_digits() -> TestResult {
    let mut compared = 0;
    let mut differences = Vec::new();
    for (samples, set, year) in SAMPLES {
        let mut read = BTreeMap::new();
        for document in collect_documents(samples, set, year)? {
            let content = StatementContent::parse(&document.body)?;
            assert_eq!(
                (content.unreadable.len(), content.contradictions.len()),
                (0, 0),
                "{samples} {:?}",
                document.key
            );
            for row in content.accounts {
                let table = StatementTable::ALL.into_iter().find(|table| {
                    let (statement, method, scope) = (row.key.statement, row.key.method, row.key.scope);
                    table.content == TableContent::Accounts { statement, method, scope }
                });
                let period_start = row.key.period_start.map_or(String::new(), |start| start.to_string());
                let key = (
                    format!("{} {}", document.key.company_id, document.key.reference_date),
                    document.key.version.to_string(),
                    format!("{period_start}/{}", row.key.period_end),
                    table.expect("each statement has one").name,
                    if row.key.is_comparative { "PENÚLTIMO" } else { "ÚLTIMO" }.to_owned(),
                    format!("{}{}", row.key.column.unwrap_or_default(), row.key.account),
                    row.name.to_owned(),
                );
                read.insert(key, (row.raw_value.to_string(), row.value.to_string()));
            }
        }
        let filed = read_filed_values(samples, set, year)?;
        compared += filed.len();
        differences.extend(filed.into_iter().filter(|(key, value)| read.remove(key).as_ref() != Some(value)));
        differences.extend(read);
    }
    println!("values_compared: {compared}");
    println!("differences: {}", differences.len());
    assert!(differences.is_empty(), "{:#?}", &differences[..differences.len().min(10)]);
    assert!(compared > 5_000, "{compared}");
    Ok(())
}

/// The same key as in the files, of a row that was served.
fn key_of_served_row(company_id: CompanyId, row: &Value) -> FiledKey {
    let text = |field: &str| row[field].as_str().unwrap_or_default().to_owned();
    let is_its_table = |table: &StatementTable| {
        let TableContent::Accounts { statement, method, scope } = table.content else { return false };
        (statement.id(), method.map_or("", CashFlowMethod::id), scope.id())
            == (&*text("statement"), &*text("method"), &*text("scope"))
    };
    (
        format!("{company_id} {}", text("reference_date")),
        row["version"].to_string(),
        format!("{}/{}", text("period_start"), text("period_end")),
        StatementTable::ALL.into_iter().find(is_its_table).expect("each statement has one").name,
        if row["comparative"] == true { "PENÚLTIMO" } else { "ÚLTIMO" }.to_owned(),
        format!("{}{}", text("column"), text("account")),
        text("name"),
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn every_filed_value_is_served_with_its_exact_digits() -> TestResult {
    let mut compared = 0;
    let mut differences = Vec::new();
    for (samples, set, year) in SAMPLES {
        let database = TestDatabase::create_empty().await?;
        let documents = collect_documents(samples, set, year)?;
        load_documents(&database, set, &documents).await?;
        let replica = start_replica(&database).await?;
        let (_, key) = replica.create_key(Plan::Platinum).await?;

        let mut served = BTreeMap::new();
        let companies: BTreeSet<CompanyId> = documents.iter().map(|document| document.key.company_id).collect();
        for company_id in companies {
            let path = format!(
                "/api/v1/companies/{company_id}/statements?scope=all&comparatives=true&limit=10000&numbers=string"
            );
            let body: Value = replica.get_with_key(&path, &key).await?.json().await?;
            let rows = body["data"].as_array().expect("rows");
            assert_eq!(body["total"], rows.len(), "{path}");
            for row in rows {
                let digits = |field: &str| row[field].as_str().unwrap_or_default().to_owned();
                served.insert(key_of_served_row(company_id, row), (digits("raw_value"), digits("value")));
            }
        }
        let filed = read_filed_values(samples, set, year)?;
        compared += filed.len();
        differences.extend(filed.into_iter().filter(|(key, value)| served.remove(key).as_ref() != Some(value)));
        differences.extend(served);
    }
    println!("values_compared: {compared}");
    println!("differences: {}", differences.len());
    assert!(differences.is_empty(), "{:#?}", &differences[..differences.len().min(10)]);
    assert!(compared > 5_000, "{compared}");
    Ok(())
}

async fn load_documents(
    database: &TestDatabase,
    set: StatementSet,
    documents: &[CanonicalStatement],
) -> anyhow::Result<()> {
    let store = database.open_store()?;
    let fetch = NewFetch::without_response("sample:statements".to_owned(), fixed_now(), [1; 32]);
    let of_company = |document: &CanonicalStatement| Company {
        id: document.key.company_id,
        name: format!("Company {}", document.key.company_id),
        is_registered: true,
        ..Company::default()
    };
    let companies: BTreeMap<CompanyId, Company> =
        documents.iter().map(|document| (document.key.company_id, of_company(document))).collect();
    let mut load = store.begin_load(Dataset::Companies, DataOrigin::Real, &fetch).await?;
    load.append_companies(&companies.into_values().collect::<Vec<_>>()).await?;
    load.commit().await?;

    let archived = documents.iter().map(|document| {
        Ok(StatementDocument {
            set,
            company_id: document.key.company_id,
            reference_date: document.key.reference_date,
            version: document.key.version,
            tables: document.tables.iter().map(|name| (*name).to_owned()).collect(),
            row_count: document.row_count,
            body: RawBody {
                sha256: Sha256::digest(&document.body).into(),
                size: document.body.len(),
                compressed: zstd::bulk::compress(document.body.as_bytes(), 3)?,
            },
        })
    });
    let archived = archived.collect::<anyhow::Result<Vec<_>>>()?;
    let mut load = store.begin_load(Dataset::Statements, DataOrigin::Real, &fetch).await?;
    load.append_statements(&archived).await?;
    load.commit().await?;
    Ok(())
}

#[test]
fn known_figures_are_found_under_their_periods() -> TestResult {
    use Statement::{BalanceSheetAssets, CashFlow, Income};
    use StatementScope::Consolidated;

    let celpar = Document::find("dfp-2024", CELPAR, "2024-12-31")?;
    let assets = (BalanceSheetAssets, Consolidated);
    assert_eq!(celpar.value(assets, "2024-12-31", "1")?, "134960740");
    assert_eq!(celpar.value(assets, "2023-12-31", "1")?, "121341438");

    let weg = Document::find("dfp-2024", WEG, "2024-12-31")?;
    assert_eq!(weg.value((CashFlow, Consolidated), "2024-01-01/2024-12-31", "6.05.02")?, "7347599000");
    assert_eq!(weg.value((CashFlow, Consolidated), "2023-01-01/2023-12-31", "6.05.02")?, "6488454000");

    // Quarters beside the year to date.
    for (reference_date, period, revenue, income) in [
        ("2025-03-31", "2025-01-01/2025-03-31", "10078571000", "1637180000"),
        ("2025-06-30", "2025-04-01/2025-06-30", "10207227000", "1692662000"),
        ("2025-06-30", "2025-01-01/2025-06-30", "20285798000", "3329842000"),
    ] {
        let weg = Document::find("itr-2025", WEG, reference_date)?;
        assert_eq!(weg.value((Income, Consolidated), period, "3.01")?, revenue);
        assert_eq!(weg.value((Income, Consolidated), period, "3.11")?, income);
    }
    let weg = Document::find("itr-2025", WEG, "2025-03-31")?;
    assert_eq!(weg.value((Income, Consolidated), "2025-01-01/2025-03-31", "3.99.01.01")?, "0.36848");

    let itau = Document::find("dfp-2024", ITAU, "2024-12-31")?;
    assert_eq!(itau.value(assets, "2024-12-31", "1")?, "2854475000000");
    Ok(())
}

#[test]
fn share_counts_are_read_as_filed() -> TestResult {
    let celpar = Document::find("dfp-2024", CELPAR, "2024-12-31")?;
    let shares = StatementContent::parse(&celpar.body)?.shares.expect("it has some");
    assert_eq!((shares.common, shares.preferred, shares.total), (2_609_000.into(), 30.into(), 2_609_030.into()));
    assert_eq!(shares.treasury_total, Decimal::ZERO);
    Ok(())
}
