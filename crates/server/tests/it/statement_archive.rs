//! The archive of financial statements. The regulator's files have only the newest version of each document, so every form
//! that was ever published must be readable from the archive, and a file that says the same again must add nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;
use std::time::{Duration, Instant};

use anyhow::Context;
use chrono::{Days, NaiveDate, NaiveTime};
use serde_json::Value;
use sha2::{Digest, Sha256};
use vintem_domain::event::EVENT_RETENTION_DAYS;
use vintem_domain::{Clock, Decimal, Plan, StatementSet};
use vintem_ingest::ingestor::PartOutcome;
use vintem_ingest::source::{DataSource, SourcePart};
use vintem_ingest::upstreams::PartReport;
use vintem_testkit::upstreams::{FakeUpstreamOptions, Fault, StatementOptions, ZipMember, read_zip};
use vintem_testkit::{TestReplica, http_client_builder, parse_env_var, wait_until};

use crate::TestResult;
use crate::ingest::{FAST_RETRY, IngestHarness, parse_date};

/// The year whose archives are loaded, and the Sunday on which they are first: until then all of its documents arrived
/// but for late versions.
const YEAR: i32 = 2024;
const FIRST_SUNDAY: NaiveDate = NaiveDate::from_ymd_opt(2025, 11, 16).expect("a day of the calendar");

/// Company code, reference date and version.
type DocumentKey = (u32, NaiveDate, u16);

struct ArchiveHarness {
    harness: IngestHarness,
    set: StatementSet,
}

impl ArchiveHarness {
    async fn new(set: StatementSet, companies: usize, statements: StatementOptions) -> anyhow::Result<Self> {
        let options = FakeUpstreamOptions { today: FIRST_SUNDAY, companies, statements, ..Default::default() };
        let harness = IngestHarness::with_options(options, FAST_RETRY).await?;
        let archive = Self { harness, set };
        archive.set_today(FIRST_SUNDAY);
        Ok(archive)
    }

    fn set_today(&self, today: NaiveDate) {
        self.harness.clock.set((today + Days::new(1)).and_time(NaiveTime::MIN).and_utc());
        self.harness.upstreams.set_today(today);
    }

    /// Loads the year, and fails if that fails.
    async fn load(&self) -> anyhow::Result<PartReport> {
        match self.try_load().await? {
            PartOutcome::Succeeded(report) => Ok(report),
            outcome => anyhow::bail!("{outcome:?}"),
        }
    }

    async fn try_load(&self) -> anyhow::Result<PartOutcome> {
        let sources = [DataSource::Statements(self.set)];
        let planned = self.harness.ingestor.plan(&sources, &Default::default()).await?;
        let part = planned.iter().find(|planned| planned.part == SourcePart::StatementYear(self.set, YEAR));
        Ok(self.harness.ingestor.run_part(part.context("the year is not planned")?, None, false).await?)
    }

    fn archive_path(&self) -> String {
        let set = self.set.id();
        format!("/dados/CIA_ABERTA/DOC/{}/DADOS/{set}_cia_aberta_{YEAR}.zip", set.to_uppercase())
    }

    async fn download(&self) -> anyhow::Result<Vec<u8>> {
        let url = format!("{}{}", self.harness.upstreams.cvm_url(), self.archive_path());
        let response = http_client_builder().build()?.get(url).send().await?.error_for_status()?;
        Ok(response.bytes().await?.to_vec())
    }

    /// What must be archived of the file that is published now, by a plain reading of it.
    async fn published_documents(&self) -> anyhow::Result<BTreeMap<DocumentKey, String>> {
        canonical_documents(&self.download().await?, self.set)
    }

    /// The archived forms of all documents, oldest first.
    async fn archived_forms(&self) -> anyhow::Result<BTreeMap<DocumentKey, Vec<String>>> {
        let mut forms: BTreeMap<DocumentKey, Vec<String>> = BTreeMap::new();
        let mut connection = self.harness.database.connect().await?;
        let statements: Vec<(i64, NaiveDate)> = sqlx::query_as(
            "select distinct cvm_code, reference_date from statement_document where filing_set = $1 order by 1, 2",
        )
        .bind(self.set.id())
        .fetch_all(&mut connection)
        .await?;

        let store = self.harness.database.open_store()?;
        for (company, date) in statements {
            let company = u32::try_from(company)?;
            for statement in store.archived_statements(self.set, company, date).await? {
                let body = zstd::decode_all(&statement.body.compressed[..])?;
                anyhow::ensure!(Sha256::digest(&body)[..] == statement.body.sha256, "the checksum of {company} {date}");
                let form = String::from_utf8(body)?;
                let rows = form.lines().filter(|line| line.contains(';')).count() - form.matches('[').count();
                anyhow::ensure!(statement.row_count as usize == rows, "the row count of {company} {date}");
                forms.entry((company, date, statement.version)).or_default().push(form);
            }
        }
        Ok(forms)
    }

    async fn documents_delivered_before(&self, day: NaiveDate) -> anyhow::Result<BTreeSet<DocumentKey>> {
        let rows: Vec<(i32, NaiveDate, i16)> = sqlx::query_as(
            "select cvm_code::integer, reference_date, version::smallint
             from filing_version
             where filing_set = $1 and delivered_on < $2 and reference_date is not null",
        )
        .bind(self.set.id())
        .bind(day)
        .fetch_all(&mut self.harness.database.connect().await?)
        .await?;
        rows.into_iter().map(|(code, date, version)| Ok((code.try_into()?, date, version.try_into()?))).collect()
    }

    /// Bytes of the documents as stored, and of all tables that hold them.
    async fn archive_bytes(&self) -> anyhow::Result<(i64, i64)> {
        let mut connection = self.harness.database.connect().await?;
        Ok(sqlx::query_as(
            "select coalesce(sum(octet_length(compressed)), 0)::bigint,
                    pg_total_relation_size('raw_body') + pg_total_relation_size('statement_document')
             from raw_body
             where sha256 in (select body from statement_document)",
        )
        .fetch_one(&mut connection)
        .await?)
    }
}

/// The canonical form of each document, as `parsers::statements` describes it, written as plainly as possible.
fn canonical_documents(archive: &[u8], set: StatementSet) -> anyhow::Result<BTreeMap<DocumentKey, String>> {
    let mut members = read_zip(archive)?;
    members.sort_by(|one, other| one.name.cmp(&other.name));
    let prefix = format!("{}_cia_aberta_", set.id());
    let mut codes = BTreeMap::new();
    let mut documents: BTreeMap<DocumentKey, String> = BTreeMap::new();
    for ZipMember { name, content } in &members {
        let Some(table) = name.strip_prefix(&prefix).and_then(|rest| rest.strip_suffix(&format!("_{YEAR}.csv"))) else {
            continue;
        };
        if table == "parecer" {
            continue;
        }

        let text: String = content.iter().copied().map(char::from).collect();
        let mut lines = text.lines();
        let header: Vec<&str> = lines.next().context("no header")?.split(';').collect();
        let has_code = header.contains(&"CD_CVM");
        let first_content = if has_code { 5 } else { 4 };
        let mut rows: BTreeMap<DocumentKey, Vec<String>> = BTreeMap::new();
        for line in lines {
            let fields: Vec<&str> = line.split(';').collect();
            let code: u32 = if has_code { fields[4].parse()? } else { codes[fields[0]] };
            codes.insert(fields[0].to_owned(), code);
            rows.entry((code, fields[1].parse()?, fields[2].parse()?))
                .or_default()
                .push(fields[first_content..].join(";"));
        }
        for (key, mut rows) in rows {
            rows.sort();
            rows.dedup();
            let header = header[first_content..].join(";");
            *documents.entry(key).or_default() += &format!("[{table}]\n{header}\n{}\n", rows.join("\n"));
        }
    }
    Ok(documents)
}

#[tokio::test(flavor = "multi_thread")]
async fn every_form_of_a_statement_is_kept_and_repetition_adds_nothing() -> TestResult {
    let companies = parse_env_var("VINTEM_STATEMENT_COMPANIES").unwrap_or(60);
    let rows_per_document = parse_env_var("VINTEM_STATEMENT_ROWS").unwrap_or(84);
    let weeks: u64 = parse_env_var("VINTEM_STATEMENT_WEEKS").unwrap_or(4);
    let restated_per_thousand_weekly = parse_env_var("VINTEM_STATEMENT_RESTATED").unwrap_or(100);

    for set in StatementSet::ALL {
        let options = StatementOptions { rows_per_document, restated_per_thousand_weekly };
        let archive = ArchiveHarness::new(set, companies, options).await?;
        let started = Instant::now();
        let first = archive.load().await?;
        println!("{}_rows: {}", set.id(), first.rows);
        println!("{}_archive_seconds: {:.1}", set.id(), started.elapsed().as_secs_f64());

        // The forms of each document by their hashes, oldest first.
        let mut expected: BTreeMap<DocumentKey, Vec<[u8; 32]>> = BTreeMap::new();
        let mut changed_documents = 0;
        let mut documents = 0;
        let mut first_bytes = 0;
        for week in 0..=weeks {
            archive.set_today(FIRST_SUNDAY + Days::new(7 * week));
            let report = if week == 0 { first.clone() } else { archive.load().await? };
            let published = archive.published_documents().await?;
            let mut new_forms = 0;
            for (key, form) in &published {
                let hash: [u8; 32] = Sha256::digest(form).into();
                let forms = expected.entry(*key).or_default();
                if forms.last() != Some(&hash) {
                    forms.push(hash);
                    new_forms += 1;
                }
            }
            assert_eq!(report.appended, new_forms, "{} in week {week}", set.id());
            assert_eq!(report.quarantined(), 0);
            if week == 0 {
                documents = published.len();
                let (document_bytes, table_bytes) = archive.archive_bytes().await?;
                first_bytes = document_bytes;
                println!("{}_documents: {documents}", set.id());
                println!("{}_archive_mib: {:.1}", set.id(), document_bytes as f64 / 1_048_576.0);
                println!("{}_postgres_mib: {:.1}", set.id(), table_bytes as f64 / 1_048_576.0);
            } else {
                changed_documents += new_forms;
            }

            // The publisher writes the same file again, with another time.
            archive.harness.upstreams.rewrite_file(&format!("{}_cia_aberta_{YEAR}.zip", set.id()));
            let repeated = archive.load().await?;
            assert_eq!((repeated.appended, repeated.unchanged), (0, true), "{} in week {week}", set.id());
        }

        let archived = archive.archived_forms().await?;
        let hashes: BTreeMap<DocumentKey, Vec<[u8; 32]>> = archived
            .iter()
            .map(|(key, forms)| (*key, forms.iter().map(|form| Sha256::digest(form).into()).collect()))
            .collect();
        assert!(hashes == expected, "{}: the archive differs from what was published", set.id());
        assert!(archived.values().any(|forms| forms.len() > 1), "nothing was restated");

        let (bytes, _) = archive.archive_bytes().await?;
        let growth = (bytes - first_bytes) as f64 / first_bytes as f64;
        let changed = changed_documents as f64 / documents as f64;
        println!("{}_changed_percent: {:.1}", set.id(), 100.0 * changed);
        println!("{}_growth_percent: {:.1}", set.id(), 100.0 * growth);
        assert!(growth < 1.1 * changed + 0.01, "{growth} for {changed}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn statements_are_archived_beside_their_index_and_never_the_opinions() -> TestResult {
    let options = StatementOptions { rows_per_document: 40, restated_per_thousand_weekly: 0 };
    let archive = ArchiveHarness::new(StatementSet::Dfp, 30, options).await?;
    archive.load().await?;

    // The manifest has the hash of every table that was read, as a plain reading of the archive gives it.
    let mut connection = archive.harness.database.connect().await?;
    let (address, manifest): (String, Vec<u8>) = sqlx::query_as(
        "select address, compressed from raw_fetch join raw_body on raw_body.sha256 = raw_fetch.body
         where dataset = 'statements'",
    )
    .fetch_one(&mut connection)
    .await?;
    assert!(address.ends_with(&archive.archive_path()), "{address}");
    let manifest = String::from_utf8(zstd::decode_all(&manifest[..])?)?;
    let index = format!("dfp_cia_aberta_{YEAR}.csv");
    let mut expected: Vec<String> = read_zip(&archive.download().await?)?
        .into_iter()
        .filter(|member| !member.name.contains("parecer") && member.name != index)
        .map(|ZipMember { name, content }| format!("{name} {} {:x}", content.len(), Sha256::digest(&content)))
        .collect();
    expected.sort();
    let mut lines: Vec<&str> = manifest.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, expected);

    // The opinions name natural persons.
    let bodies: Vec<Vec<u8>> = sqlx::query_scalar("select compressed from raw_body").fetch_all(&mut connection).await?;
    for body in bodies {
        let body = zstd::decode_all(&body[..])?;
        assert!(!String::from_utf8_lossy(&body).contains("PARECER"));
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_archive_leaves_the_archived_statements_and_the_index_alone() -> TestResult {
    let options = StatementOptions { rows_per_document: 40, restated_per_thousand_weekly: 0 };
    let archive = ArchiveHarness::new(StatementSet::Dfp, 30, options).await?;
    archive.load().await?;
    let before = archive.archived_forms().await?;

    archive.set_today(FIRST_SUNDAY + Days::new(7));
    let renamed = Fault::transform_zip_members(|name, content| {
        let renamed =
            |content: Vec<u8>| String::from_utf8_lossy(&content).replace("VL_CONTA", "VALOR_CONTA").into_bytes();
        if name.contains("BPA_con") { renamed(content) } else { content }
    });
    archive.harness.upstreams.set_fault(&archive.archive_path(), Some(renamed));
    let PartOutcome::Failed { error, .. } = archive.try_load().await? else { panic!("it was accepted") };
    let problem = error.to_string();
    assert!(problem.contains("dfp_cia_aberta_BPA_con_2024.csv: it lacks the columns VL_CONTA"), "{problem}");
    assert_eq!(archive.archived_forms().await?, before);
    assert_eq!(archive.harness.quarantined_file_count().await?, 1);
    let report = archive.harness.ingest(&["dfp"]).await?;
    assert!(report.failures.is_empty() && report.rows > 0, "{:#?}", report.failures);

    // An archive that someone saved earlier fills in what was known then.
    archive.harness.upstreams.clear_faults();
    let file = archive.download().await?;
    let source = DataSource::from_id("dfp-statements").context("a source")?;
    let known_at = parse_date("2025-06-30").and_time(NaiveTime::MIN).and_utc();
    let ingestor = &archive.harness.ingestor;
    let loaded = ingestor.load_file(source, "dfp_cia_aberta_2024.zip", &file, known_at).await?;
    assert_eq!(loaded.appended as usize, before.len());
    let store = archive.harness.database.open_store()?;
    let (company, date, _) = *before.keys().next().context("no document")?;
    let forms = store.archived_statements(StatementSet::Dfp, company, date).await?;
    assert_eq!((forms.len(), forms[0].known_at, &forms[0].body), (2, known_at, &forms[1].body));
    Ok(())
}

/// The values of the filed period in a canonical form, by everything that identifies them.
fn filed_values(form: &str) -> anyhow::Result<BTreeMap<String, Decimal>> {
    let mut values = BTreeMap::new();
    let mut table = "";
    let mut columns: Vec<&str> = Vec::new();
    for line in form.lines() {
        if line.starts_with('[') {
            (table, columns) = (line, Vec::new());
            continue;
        }
        let fields: Vec<&str> = line.split(';').collect();
        if columns.is_empty() {
            columns = fields;
            continue;
        }
        let field = |name: &str| columns.iter().position(|column| *column == name).map_or("", |at| fields[at]);
        if field("ORDEM_EXERC") == "ÚLTIMO" {
            let scale = if field("ESCALA_MOEDA") == "MIL" { Decimal::ONE_THOUSAND } else { Decimal::ONE };
            let is_per_share = field("CD_CONTA").starts_with("3.99");
            let value = Decimal::from_str(field("VL_CONTA"))? * if is_per_share { Decimal::ONE } else { scale };
            let identity = ["DT_INI_EXERC", "DT_FIM_EXERC", "COLUNA_DF", "CD_CONTA"].map(field).join(" ");
            values.insert(format!("{table} {identity}"), value.normalize());
        }
    }
    Ok(values)
}

/// What the next form or version of a document changes.
#[derive(Debug, PartialEq)]
struct Restatement {
    previous_version: u16,
    accounts: usize,
    old_sum: Decimal,
    new_sum: Decimal,
}

/// `None` if no value differs.
fn restatement(previous_version: u16, old: &str, new: &str) -> anyhow::Result<Option<Restatement>> {
    let (old, new) = (filed_values(old)?, filed_values(new)?);
    let accounts: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    let value = |values: &BTreeMap<String, Decimal>, account| values.get(account).copied().unwrap_or_default();
    let values = accounts.into_iter().map(|account| (value(&old, account), value(&new, account)));
    let changed: Vec<(Decimal, Decimal)> = values.filter(|(old, new)| old != new).collect();
    let restatement = Restatement {
        previous_version,
        accounts: changed.len(),
        old_sum: changed.iter().map(|(old, _)| old).sum(),
        new_sum: changed.iter().map(|(_, new)| new).sum(),
    };
    Ok(Some(restatement).filter(|_| !changed.is_empty()))
}

#[tokio::test(flavor = "multi_thread")]
async fn new_and_restated_statements_are_announced_once_with_what_changed() -> TestResult {
    let options = StatementOptions { rows_per_document: 420, restated_per_thousand_weekly: 100 };
    let archive = ArchiveHarness::new(StatementSet::Dfp, 150, options).await?;
    archive.load().await?;
    let before = archive.published_documents().await?;
    let today = FIRST_SUNDAY + Days::new(7 * 12);
    archive.set_today(today);
    archive.harness.ingest(&["dfp"]).await?;
    archive.load().await?;
    archive.load().await?;
    let after = archive.published_documents().await?;
    let delivered_before = archive.documents_delivered_before(today - Days::new(EVENT_RETENTION_DAYS.into())).await?;

    let mut published: Vec<DocumentKey> = Vec::new();
    let mut is_old_news = 0;
    let mut restated: BTreeMap<DocumentKey, Restatement> = BTreeMap::new();
    for (key, form) in &after {
        let (company, date, _) = *key;
        if !before.contains_key(key) {
            match delivered_before.contains(key) {
                true => is_old_news += 1,
                false => published.push(*key),
            }
        }
        let earlier = before.range((company, date, 0)..=*key).next_back();
        if let Some(((_, _, previous_version), earlier_form)) = earlier
            && let Some(restatement) = restatement(*previous_version, earlier_form, form)?
        {
            restated.insert(*key, restatement);
        }
    }
    assert!(!published.is_empty() && is_old_news > 0, "{published:?}, {is_old_news} delivered long before");
    assert!(restated.values().any(|one| one.accounts > 100) && restated.values().any(|one| one.accounts < 10));

    let replica = TestReplica::start_with_high_limits(&archive.harness.database, archive.harness.clock.now()).await?;
    let (_, key) = replica.create_key(Plan::Platinum).await?;
    replica.publish_events().await?;
    let path = "/api/v1/events?limit=1000&types=statement.published,statement.restated";
    let read_feed = async || -> anyhow::Result<Vec<Value>> {
        let body: Value = replica.get_with_key(path, &key).await?.json().await?;
        Ok(body["data"].as_array().cloned().unwrap_or_default())
    };
    wait_until("the feed has all events", Duration::from_secs(10), || async {
        read_feed().await.is_ok_and(|events| events.len() == published.len() + restated.len())
    })
    .await;

    let mut announced: Vec<DocumentKey> = Vec::new();
    let mut changed: BTreeMap<DocumentKey, Restatement> = BTreeMap::new();
    for event in read_feed().await? {
        let data = &event["data"];
        let document = announced_document(data).with_context(|| event.to_string())?;
        if event["type"] == "statement.published" {
            assert_eq!((&data["set"], &data["available"]), (&"dfp".into(), &true.into()));
            announced.push(document);
            continue;
        }
        let changes = data["changes"].as_array().context("no changes")?;
        let sum = |field: &str| -> anyhow::Result<Decimal> {
            changes.iter().map(|change| Ok(Decimal::from_str(&change[field].to_string())?)).sum()
        };
        let accounts = usize::try_from(data["total_changes"].as_u64().context("no number of changes")?)?;
        assert_eq!(changes.len(), accounts.min(20));
        let previous_version = u16::try_from(data["previous_version"].as_u64().context("no version")?)?;
        let mut restatement = Restatement { previous_version, accounts, old_sum: sum("old")?, new_sum: sum("new")? };
        if let Some(expected) = restated.get(&document).filter(|_| accounts > changes.len()) {
            (restatement.old_sum, restatement.new_sum) = (expected.old_sum, expected.new_sum);
        }
        assert_eq!(changed.insert(document, restatement), None, "announced twice: {event}");
    }
    announced.sort_unstable();
    assert_eq!(announced, published);
    assert_eq!(changed, restated);
    Ok(())
}

fn announced_document(data: &Value) -> Option<DocumentKey> {
    let company = data["company_id"].as_str()?.parse().ok()?;
    let version = u16::try_from(data["version"].as_u64()?).ok()?;
    Some((company, parse_date(data["reference_date"].as_str()?), version))
}
