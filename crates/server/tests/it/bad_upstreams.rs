//! Bad upstream responses: every kind has an expected outcome, and a rejected one never changes the served data.

use std::collections::BTreeSet;
use std::time::Duration;

use vintem_ingest::fetch::RetryPolicy;
use vintem_ingest::ingestor::RunReport;
use vintem_testkit::upstreams::{FakeUpstreamOptions, Fault, StallAt};

use crate::TestResult;
use crate::ingest::{FAST_RETRY, IngestHarness};

/// Short enough to recognize a stalled response quickly. Other faults use `FAST_RETRY`, whose timeout allows for a busy
/// machine.
const FAST_RETRY_SHORT_TIMEOUT: RetryPolicy = RetryPolicy { attempt_timeout: Duration::from_millis(500), ..FAST_RETRY };

#[derive(Debug, Clone, Copy, PartialEq)]
enum ExpectedOutcome {
    /// No readable response: the part fails and is fetched again later.
    Failed,
    /// The whole file is quarantined, with a reason.
    Quarantined,
    /// Loaded, with an alert.
    LoadedWithAlert,
    /// This many rows are quarantined, the rest is loaded.
    RowsQuarantined(u64),
    /// Loaded without a remark.
    Loaded,
}

struct FaultCase {
    name: String,
    source: &'static str,
    path: &'static str,
    fault: Fault,
    expected: ExpectedOutcome,
}

const CDI_PATH: &str = "bcdata.sgs.4389/";
const USD_PATH: &str = "'USD'";
const REGISTRY_PATH: &str = "cad_cia_aberta.csv";
const IPE_PATH: &str = "ipe_cia_aberta_2026.zip";

fn sgs_cases() -> Vec<FaultCase> {
    let text = |change: fn(String) -> String| {
        Fault::transform_body(move |body| change(String::from_utf8_lossy(&body).into_owned()).into_bytes())
    };

    // Replaces the value of the newest row.
    fn replace_newest_value(body: &str, value: &str) -> String {
        let at = body.rfind("\"valor\":").map_or(0, |at| at + 8);
        format!("{}{value}}}]", &body[..at])
    }

    let table: Vec<(&str, Fault, ExpectedOutcome)> = vec![
        ("a page of HTML with 200", Fault::HtmlWith200, ExpectedOutcome::Failed),
        ("an empty 200", Fault::Empty200, ExpectedOutcome::Failed),
        ("an empty array", Fault::EmptyArray, ExpectedOutcome::Quarantined),
        ("JSON that is called HTML", Fault::JsonAsHtml, ExpectedOutcome::Loaded),
        ("no values where there were some", Fault::SgsValuesNotFound, ExpectedOutcome::Quarantined),
        ("an empty 404", Fault::EmptyNotFound, ExpectedOutcome::Failed),
        ("every window too wide", Fault::WindowTooWide { with_200: false }, ExpectedOutcome::Failed),
        ("429 without a wait", Fault::TooManyRequests { retry_after: None }, ExpectedOutcome::Failed),
        ("503 without a wait", Fault::Unavailable { retry_after: None }, ExpectedOutcome::Failed),
        ("a page of HTML with 500", Fault::ServerErrorPage, ExpectedOutcome::Failed),
        ("403", Fault::Status(403), ExpectedOutcome::Failed),
        ("204", Fault::Status(204), ExpectedOutcome::Failed),
        ("silence", Fault::Stall(StallAt::Head), ExpectedOutcome::Failed),
        ("silence in the middle", Fault::Stall(StallAt::HalfBody), ExpectedOutcome::Failed),
        ("a body that is cut", Fault::CutBody, ExpectedOutcome::Failed),
        ("gzip that is none", Fault::GzipGarbage, ExpectedOutcome::Failed),
        ("a redirect to another host", Fault::RedirectToOtherHost, ExpectedOutcome::Failed),
        ("half of the body as if it were all", Fault::WrongContentLength, ExpectedOutcome::Failed),
        ("decimal commas", text(|body| body.replace('.', ",")), ExpectedOutcome::Quarantined),
        ("dates the other way round", text(|body| body.replace("/2026\"", "-2026\"")), ExpectedOutcome::Quarantined),
        ("keys of another name", text(|body| body.replace("\"valor\"", "\"value\"")), ExpectedOutcome::Quarantined),
        (
            "numbers instead of texts",
            text(|body| body.replace("\"valor\":\"", "\"valor\":").replace("\"}", "}")),
            ExpectedOutcome::Quarantined,
        ),
        ("half an array", text(|body| body[..body.len() / 2].to_owned()), ExpectedOutcome::Failed),
        ("two arrays", text(|body| format!("{body}{body}")), ExpectedOutcome::Failed),
        ("NaN", text(|body| replace_newest_value(&body, "\"NaN\"")), ExpectedOutcome::RowsQuarantined(1)),
        ("1e308", text(|body| replace_newest_value(&body, "\"1e308\"")), ExpectedOutcome::RowsQuarantined(1)),
        (
            "forty digits",
            text(|body| replace_newest_value(&body, "\"1.0000000000000000000000000000000000000001\"")),
            ExpectedOutcome::RowsQuarantined(1),
        ),
        ("no value", text(|body| replace_newest_value(&body, "null")), ExpectedOutcome::RowsQuarantined(1)),
        ("an empty value", text(|body| replace_newest_value(&body, "\"\"")), ExpectedOutcome::RowsQuarantined(1)),
        ("a negative rate", text(|body| replace_newest_value(&body, "\"-1.00\"")), ExpectedOutcome::Quarantined),
        (
            "a rate a hundred times as high",
            text(|body| replace_newest_value(&body, "\"1490.00\"")),
            ExpectedOutcome::Quarantined,
        ),
        (
            "a rate beyond all bounds",
            text(|body| replace_newest_value(&body, "\"99999999\"")),
            ExpectedOutcome::Quarantined,
        ),
        (
            "the same day twice with two values",
            text(|body| body.replacen('[', "[{\"data\":\"11/11/2026\",\"valor\":\"1.11\"},", 1)),
            ExpectedOutcome::RowsQuarantined(2),
        ),
        (
            "a day of the year 1900",
            text(|body| body.replacen('[', "[{\"data\":\"01/01/1900\",\"valor\":\"1.11\"},", 1)),
            ExpectedOutcome::RowsQuarantined(1),
        ),
        (
            "a day that is none",
            text(|body| body.replacen('[', "[{\"data\":\"31/02/2026\",\"valor\":\"1.11\"},", 1)),
            ExpectedOutcome::RowsQuarantined(1),
        ),
        (
            "a day of the future",
            text(|body| body.replacen(']', ",{\"data\":\"01/12/2026\",\"valor\":\"14.90\"}]", 1)),
            ExpectedOutcome::Loaded,
        ),
    ];
    let to_case = |(name, fault, expected): (&str, Fault, ExpectedOutcome)| FaultCase {
        name: format!("SGS: {name}"),
        source: "cdi",
        path: CDI_PATH,
        fault,
        expected,
    };

    table.into_iter().map(to_case).collect()
}

fn ptax_cases() -> Vec<FaultCase> {
    let text = |change: fn(String) -> String| {
        Fault::transform_body(move |body| change(String::from_utf8_lossy(&body).into_owned()).into_bytes())
    };

    let table: Vec<(&str, Fault, ExpectedOutcome)> = vec![
        ("a page of HTML with 200", Fault::HtmlWith200, ExpectedOutcome::Failed),
        ("an array", Fault::EmptyArray, ExpectedOutcome::Failed),
        ("an envelope without a value", Fault::ReplaceBody(b"{}".to_vec()), ExpectedOutcome::Failed),
        (
            "no bulletins where there were some",
            Fault::ReplaceBody(b"{\"value\":[]}".to_vec()),
            ExpectedOutcome::Quarantined,
        ),
        ("a page of HTML with 500", Fault::ServerErrorPage, ExpectedOutcome::Failed),
        ("a body that is cut", Fault::CutBody, ExpectedOutcome::Failed),
        (
            "a label that nobody knows, every day",
            text(|body| body.replace("\"Abertura\"", "\"Fechamento Novo\"")),
            ExpectedOutcome::LoadedWithAlert,
        ),
        (
            "rates of zero",
            text(|body| body.replace("\"cotacaoVenda\":", "\"cotacaoVenda\":0.0,\"antes\":")),
            ExpectedOutcome::Quarantined,
        ),
        (
            "rates as texts",
            text(|body| body.replace("\"cotacaoCompra\":", "\"cotacaoCompra\":\"x\",\"antes\":")),
            ExpectedOutcome::Quarantined,
        ),
    ];
    let to_case = |(name, fault, expected): (&str, Fault, ExpectedOutcome)| FaultCase {
        name: format!("PTAX: {name}"),
        source: "fx",
        path: USD_PATH,
        fault,
        expected,
    };

    table.into_iter().map(to_case).collect()
}

/// A name, a change to a CVM table, and the expected outcome.
type TableMutation = (&'static str, fn(Vec<u8>) -> Vec<u8>, ExpectedOutcome);

fn cvm_table_mutations() -> Vec<TableMutation> {
    fn split_lines(table: &[u8]) -> Vec<Vec<u8>> {
        table.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect()
    }

    fn replace_byte(table: Vec<u8>, from: u8, to: u8) -> Vec<u8> {
        table.into_iter().map(|byte| if byte == from { to } else { byte }).collect()
    }

    vec![
        ("a page of HTML", |_| b"<html><body>Em manuten\xe7\xe3o</body></html>".to_vec(), ExpectedOutcome::Quarantined),
        ("nothing", |_| Vec::new(), ExpectedOutcome::Quarantined),
        ("its header alone", |table| split_lines(&table)[0].clone(), ExpectedOutcome::Quarantined),
        (
            "a column renamed",
            |mut table| {
                table[0] = b'X';
                table
            },
            ExpectedOutcome::Quarantined,
        ),
        (
            "its first column gone",
            |table| {
                split_lines(&table)
                    .into_iter()
                    .flat_map(|line| line.splitn(2, |byte| *byte == b';').nth(1).unwrap_or_default().to_vec())
                    .collect()
            },
            ExpectedOutcome::Quarantined,
        ),
        ("another separator", |table| replace_byte(table, b';', b','), ExpectedOutcome::Quarantined),
        ("tabs between its fields", |table| replace_byte(table, b';', b'\t'), ExpectedOutcome::Quarantined),
        (
            "UTF-8",
            |table| table.iter().map(|byte| char::from(*byte)).collect::<String>().into_bytes(),
            ExpectedOutcome::Quarantined,
        ),
        ("a byte order mark", |table| [b"\xef\xbb\xbf".to_vec(), table].concat(), ExpectedOutcome::Quarantined),
        (
            "half of its rows",
            |table| {
                let lines = split_lines(&table);
                lines[..lines.len() / 2].concat()
            },
            ExpectedOutcome::Quarantined,
        ),
        (
            "every tenth row torn",
            |table| {
                let tear_every_tenth =
                    |(at, line): (usize, Vec<u8>)| if at > 0 && at % 10 == 0 { b"a;b;c\r\n".to_vec() } else { line };
                split_lines(&table).into_iter().enumerate().flat_map(tear_every_tenth).collect()
            },
            ExpectedOutcome::Quarantined,
        ),
        (
            "a row torn",
            |table| {
                let mut lines = split_lines(&table);
                lines.insert(2, b"a;b;c\r\n".to_vec());
                lines.concat()
            },
            ExpectedOutcome::RowsQuarantined(1),
        ),
        (
            "a further column",
            |table| {
                let add_column = |(at, line): (usize, Vec<u8>)| {
                    let end = line.len() - 2;
                    [&line[..end], if at == 0 { b";NOVA" } else { b";     " }, &line[end..]].concat()
                };
                split_lines(&table).into_iter().enumerate().flat_map(add_column).collect()
            },
            ExpectedOutcome::LoadedWithAlert,
        ),
        (
            "its first two columns swapped",
            |table| {
                let swap_columns = |line: Vec<u8>| {
                    let mut fields: Vec<&[u8]> = line.split(|byte| *byte == b';').collect();
                    fields.swap(0, 1);
                    fields.join(&b';')
                };
                split_lines(&table).into_iter().flat_map(swap_columns).collect()
            },
            ExpectedOutcome::LoadedWithAlert,
        ),
    ]
}

fn cvm_cases() -> Vec<FaultCase> {
    let mut cases = Vec::new();
    for (name, change, expected) in cvm_table_mutations() {
        let case_name = |file: &str| format!("CVM: {file} that is or has {name}");
        let registry = Fault::transform_body(change);
        let member = Fault::transform_zip_member(change);

        cases.push(FaultCase {
            name: case_name("a registry"),
            source: "companies",
            path: REGISTRY_PATH,
            fault: registry,
            expected,
        });
        cases.push(FaultCase { name: case_name("filings"), source: "ipe", path: IPE_PATH, fault: member, expected });
    }

    for tenths in 1..=9 {
        let name = format!("CVM: {tenths} tenths of an archive");
        let fault = Fault::TruncatedZip { tenths };
        cases.push(FaultCase { name, source: "ipe", path: IPE_PATH, fault, expected: ExpectedOutcome::Quarantined });
    }

    for (name, fault, expected) in [
        ("an archive that inflates without end", Fault::ZipBomb, ExpectedOutcome::Quarantined),
        ("names that lead out of an archive", Fault::PathTraversalZip, ExpectedOutcome::Quarantined),
        ("an archive without its member", Fault::MissingMember, ExpectedOutcome::Quarantined),
        ("a page instead of an archive", Fault::HtmlWith200, ExpectedOutcome::Quarantined),
        ("an archive that is gone", Fault::EmptyNotFound, ExpectedOutcome::Failed),
        ("an archive that stops coming", Fault::Stall(StallAt::HalfBody), ExpectedOutcome::Failed),
        ("an archive elsewhere", Fault::RedirectToOtherHost, ExpectedOutcome::Failed),
    ] {
        cases.push(FaultCase { name: format!("CVM: {name}"), source: "ipe", path: IPE_PATH, fault, expected });
    }

    cases
}

fn classify_report(report: &RunReport) -> ExpectedOutcome {
    match (report.failures.first(), report.alerts.is_empty(), report.quarantined) {
        (Some((_, _, problem)), ..) if problem.contains("was rejected") => ExpectedOutcome::Quarantined,
        (Some(_), ..) => ExpectedOutcome::Failed,
        (None, false, _) => ExpectedOutcome::LoadedWithAlert,
        (None, true, 0) => ExpectedOutcome::Loaded,
        (None, true, rows) => ExpectedOutcome::RowsQuarantined(rows),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_bad_sgs_response_has_its_outcome_and_leaves_served_data_unchanged() -> TestResult {
    assert_expected_outcomes(sgs_cases()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn every_bad_ptax_response_has_its_outcome_and_leaves_served_data_unchanged() -> TestResult {
    assert_expected_outcomes(ptax_cases()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn every_bad_cvm_file_has_its_outcome_and_leaves_served_data_unchanged() -> TestResult {
    assert_expected_outcomes(cvm_cases()).await
}

#[test]
fn at_least_forty_kinds_of_bad_responses_are_tested() {
    let kinds = [sgs_cases(), ptax_cases(), cvm_cases()].map(|cases| cases.len());
    assert!(kinds.iter().all(|count| *count >= 5) && kinds.iter().sum::<usize>() >= 40, "{kinds:?}");
}

async fn assert_expected_outcomes(cases: Vec<FaultCase>) -> TestResult {
    // Enough rows that one of them is less than 1%.
    let options = FakeUpstreamOptions { ipe_rows_per_year: 150, companies: 150, ..FakeUpstreamOptions::default() };
    let harness = IngestHarness::with_options(options, FAST_RETRY).await?;

    let sources: BTreeSet<&str> = cases.iter().map(|case| case.source).collect();
    let first_run = harness.ingest(&Vec::from_iter(sources.iter().copied())).await?;
    assert!(first_run.failures.is_empty(), "{:#?}", first_run.failures);

    let (replica, key) = harness.start_replica().await?;

    let paths = [
        ("cdi", "/api/v1/market/series/cdi?limit=20000"),
        ("fx", "/api/v1/market/fx?limit=20000"),
        ("companies", "/api/v1/companies?limit=100"),
        ("companies", "/api/v1/companies?limit=100&offset=100"),
        ("ipe", "/api/v1/filings?limit=100"),
    ];
    let paths: Vec<&str> = paths.iter().filter(|(source, _)| sources.contains(source)).map(|(_, path)| *path).collect();
    assert!(!paths.is_empty());

    let get_bodies = || async {
        let mut bodies = Vec::new();
        for path in &paths {
            bodies.push(replica.get_with_key(path, &key).await?.bytes().await?);
        }
        anyhow::Ok(bodies)
    };

    let mut objections = Vec::new();
    let mut refused = 0;
    let count = cases.len();
    for case in cases {
        harness.advance_days(0);
        let before = get_bodies().await?;
        let quarantined_before = harness.quarantined_file_count().await?;

        let retry_policy = if matches!(case.fault, Fault::Stall(_)) { FAST_RETRY_SHORT_TIMEOUT } else { FAST_RETRY };
        harness.upstreams.set_fault(case.path, Some(case.fault));
        let report = harness.ingest_with_retry_policy(retry_policy, case.source).await?;
        harness.upstreams.clear_faults();

        let outcome = classify_report(&report);
        if outcome != case.expected {
            objections.push(format!(
                "{}: {outcome:?} and not {:?}: {:?} {:?}",
                case.name,
                case.expected,
                report.failures.first().map(|failure| &failure.2),
                report.alerts
            ));
        }

        if case.expected == ExpectedOutcome::Quarantined {
            refused += 1;
            if harness.quarantined_file_count().await? <= quarantined_before {
                objections.push(format!("{}: not set aside", case.name));
            }
        }

        if matches!(case.expected, ExpectedOutcome::Quarantined | ExpectedOutcome::Failed) {
            replica.wait_for_current_snapshot().await?;
            if get_bodies().await? != before {
                objections.push(format!("{}: something else is served", case.name));
            }
        }
    }

    println!("kinds: {count}");
    println!("refused_whole: {refused}");
    println!("peak_memory_mib: {}", peak_memory_mib()?);
    println!("objections: {}", objections.len());

    assert!(objections.is_empty(), "{objections:#?}");
    assert!(peak_memory_mib()? < 300);

    Ok(())
}

/// The peak memory of this whole process: fake upstreams, ingestion and replica.
fn peak_memory_mib() -> anyhow::Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find(|line| line.starts_with("VmHWM")).unwrap_or_default();
    Ok(line.split_whitespace().nth(1).unwrap_or_default().parse::<u64>()? / 1024)
}
