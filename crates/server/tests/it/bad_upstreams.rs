//! What upstreams send when something is wrong with them: each kind has its decided outcome, and nothing that is refused
//! ever touches what is served.

use std::collections::BTreeSet;
use std::time::Duration;

use vintem_ingest::fetch::Patience;
use vintem_ingest::run::RunReport;
use vintem_testkit::upstreams::{Fault, StallAt, UpstreamOptions};

use crate::Outcome;
use crate::ingest::{IMPATIENT, World};

/// A silence is a silence after a moment; whatever else comes may take as long as a busy machine needs.
const HASTY: Patience = Patience { timeout: Duration::from_millis(500), ..IMPATIENT };

#[derive(Debug, Clone, Copy, PartialEq)]
enum Decided {
    /// No answer that could be read: the part fails and is asked for again.
    Failed,
    /// Set aside whole, with its reason.
    Refused,
    /// Loaded, and somebody is told.
    Alert,
    /// So many rows set aside, the rest loaded.
    Rows(u64),
    /// Nothing to say.
    Fine,
}

struct Mutant {
    name: String,
    source: &'static str,
    path: &'static str,
    fault: Fault,
    decided: Decided,
}

const CDI: &str = "bcdata.sgs.4389/";
const USD: &str = "'USD'";
const REGISTRY: &str = "cad_cia_aberta.csv";
const IPE: &str = "ipe_cia_aberta_2026.zip";

fn sgs() -> Vec<Mutant> {
    let text = |change: fn(String) -> String| {
        Fault::transform(move |body| change(String::from_utf8_lossy(&body).into_owned()).into_bytes())
    };
    // The value of the newest row, replaced.
    fn newest(body: &str, value: &str) -> String {
        let at = body.rfind("\"valor\":").map_or(0, |at| at + 8);
        format!("{}{value}}}]", &body[..at])
    }
    let table: Vec<(&str, Fault, Decided)> = vec![
        ("a page of HTML with 200", Fault::HtmlWith200, Decided::Failed),
        ("an empty 200", Fault::Empty200, Decided::Failed),
        ("an empty array", Fault::EmptyArray, Decided::Refused),
        ("JSON that is called HTML", Fault::JsonAsHtml, Decided::Fine),
        ("no values where there were some", Fault::NotFoundValues, Decided::Refused),
        ("an empty 404", Fault::NotFoundEmpty, Decided::Failed),
        ("every window too wide", Fault::WindowTooWide { with_200: false }, Decided::Failed),
        ("429 without a wait", Fault::TooManyRequests { retry_after: None }, Decided::Failed),
        ("503 without a wait", Fault::Unavailable { retry_after: None }, Decided::Failed),
        ("a page of HTML with 500", Fault::ServerErrorPage, Decided::Failed),
        ("403", Fault::Status(403), Decided::Failed),
        ("204", Fault::Status(204), Decided::Failed),
        ("silence", Fault::Stall(StallAt::Head), Decided::Failed),
        ("silence in the middle", Fault::Stall(StallAt::HalfBody), Decided::Failed),
        ("a body that is cut", Fault::CutBody, Decided::Failed),
        ("gzip that is none", Fault::GzipGarbage, Decided::Failed),
        ("a redirect to another host", Fault::RedirectToOtherHost, Decided::Failed),
        ("half of the body as if it were all", Fault::WrongContentLength, Decided::Failed),
        ("decimal commas", text(|body| body.replace('.', ",")), Decided::Refused),
        ("dates the other way round", text(|body| body.replace("/2026\"", "-2026\"")), Decided::Refused),
        ("keys of another name", text(|body| body.replace("\"valor\"", "\"value\"")), Decided::Refused),
        (
            "numbers instead of texts",
            text(|body| body.replace("\"valor\":\"", "\"valor\":").replace("\"}", "}")),
            Decided::Refused,
        ),
        ("half an array", text(|body| body[..body.len() / 2].to_owned()), Decided::Failed),
        ("two arrays", text(|body| format!("{body}{body}")), Decided::Failed),
        ("NaN", text(|body| newest(&body, "\"NaN\"")), Decided::Rows(1)),
        ("1e308", text(|body| newest(&body, "\"1e308\"")), Decided::Rows(1)),
        (
            "forty digits",
            text(|body| newest(&body, "\"1.0000000000000000000000000000000000000001\"")),
            Decided::Rows(1),
        ),
        ("no value", text(|body| newest(&body, "null")), Decided::Rows(1)),
        ("an empty value", text(|body| newest(&body, "\"\"")), Decided::Rows(1)),
        ("a negative rate", text(|body| newest(&body, "\"-1.00\"")), Decided::Refused),
        ("a rate a hundred times as high", text(|body| newest(&body, "\"1490.00\"")), Decided::Refused),
        ("a rate beyond all bounds", text(|body| newest(&body, "\"99999999\"")), Decided::Refused),
        (
            "the same day twice with two values",
            text(|body| body.replacen('[', "[{\"data\":\"11/11/2026\",\"valor\":\"1.11\"},", 1)),
            Decided::Rows(2),
        ),
        (
            "a day of the year 1900",
            text(|body| body.replacen('[', "[{\"data\":\"01/01/1900\",\"valor\":\"1.11\"},", 1)),
            Decided::Rows(1),
        ),
        (
            "a day that is none",
            text(|body| body.replacen('[', "[{\"data\":\"31/02/2026\",\"valor\":\"1.11\"},", 1)),
            Decided::Rows(1),
        ),
        (
            "a day of the future",
            text(|body| body.replacen(']', ",{\"data\":\"01/12/2026\",\"valor\":\"14.90\"}]", 1)),
            Decided::Fine,
        ),
    ];
    let mutant = |(name, fault, decided): (&str, Fault, Decided)| Mutant {
        name: format!("SGS: {name}"),
        source: "cdi",
        path: CDI,
        fault,
        decided,
    };
    table.into_iter().map(mutant).collect()
}

fn ptax() -> Vec<Mutant> {
    let text = |change: fn(String) -> String| {
        Fault::transform(move |body| change(String::from_utf8_lossy(&body).into_owned()).into_bytes())
    };
    let table: Vec<(&str, Fault, Decided)> = vec![
        ("a page of HTML with 200", Fault::HtmlWith200, Decided::Failed),
        ("an array", Fault::EmptyArray, Decided::Failed),
        ("an envelope without a value", Fault::Replace(b"{}".to_vec()), Decided::Failed),
        ("no bulletins where there were some", Fault::Replace(b"{\"value\":[]}".to_vec()), Decided::Refused),
        ("a page of HTML with 500", Fault::ServerErrorPage, Decided::Failed),
        ("a body that is cut", Fault::CutBody, Decided::Failed),
        (
            "a label that nobody knows",
            text(|body| body.replacen("\"Abertura\"", "\"Fechamento Novo\"", 1)),
            Decided::Rows(1),
        ),
        (
            "rates of zero",
            text(|body| body.replace("\"cotacaoVenda\":", "\"cotacaoVenda\":0.0,\"antes\":")),
            Decided::Refused,
        ),
        (
            "rates as texts",
            text(|body| body.replace("\"cotacaoCompra\":", "\"cotacaoCompra\":\"x\",\"antes\":")),
            Decided::Refused,
        ),
    ];
    let mutant = |(name, fault, decided): (&str, Fault, Decided)| Mutant {
        name: format!("PTAX: {name}"),
        source: "fx",
        path: USD,
        fault,
        decided,
    };
    table.into_iter().map(mutant).collect()
}

/// A name, a change to a table of the regulator, what is decided.
type Change = (&'static str, fn(Vec<u8>) -> Vec<u8>, Decided);

fn tables() -> Vec<Change> {
    fn lines(table: &[u8]) -> Vec<Vec<u8>> {
        table.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect()
    }
    fn replaced(table: Vec<u8>, from: u8, to: u8) -> Vec<u8> {
        table.into_iter().map(|byte| if byte == from { to } else { byte }).collect()
    }
    vec![
        ("a page of HTML", |_| b"<html><body>Em manuten\xe7\xe3o</body></html>".to_vec(), Decided::Refused),
        ("nothing", |_| Vec::new(), Decided::Refused),
        ("its header alone", |table| lines(&table)[0].clone(), Decided::Refused),
        (
            "a column renamed",
            |mut table| {
                table[0] = b'X';
                table
            },
            Decided::Refused,
        ),
        (
            "its first column gone",
            |table| {
                lines(&table)
                    .into_iter()
                    .flat_map(|line| line.splitn(2, |byte| *byte == b';').nth(1).unwrap_or_default().to_vec())
                    .collect()
            },
            Decided::Refused,
        ),
        ("another separator", |table| replaced(table, b';', b','), Decided::Refused),
        ("tabs between its fields", |table| replaced(table, b';', b'\t'), Decided::Refused),
        (
            "UTF-8",
            |table| table.iter().map(|byte| char::from(*byte)).collect::<String>().into_bytes(),
            Decided::Refused,
        ),
        ("a byte order mark", |table| [b"\xef\xbb\xbf".to_vec(), table].concat(), Decided::Refused),
        (
            "half of its rows",
            |table| {
                let lines = lines(&table);
                lines[..lines.len() / 2].concat()
            },
            Decided::Refused,
        ),
        (
            "every tenth row torn",
            |table| {
                let torn =
                    |(at, line): (usize, Vec<u8>)| if at > 0 && at % 10 == 0 { b"a;b;c\r\n".to_vec() } else { line };
                lines(&table).into_iter().enumerate().flat_map(torn).collect()
            },
            Decided::Refused,
        ),
        (
            "a row torn",
            |table| {
                let mut lines = lines(&table);
                lines.insert(2, b"a;b;c\r\n".to_vec());
                lines.concat()
            },
            Decided::Rows(1),
        ),
        (
            "a further column",
            |table| {
                let more = |(at, line): (usize, Vec<u8>)| {
                    let end = line.len() - 2;
                    [&line[..end], if at == 0 { b";NOVA" } else { b";     " }, &line[end..]].concat()
                };
                lines(&table).into_iter().enumerate().flat_map(more).collect()
            },
            Decided::Alert,
        ),
        (
            "its first two columns swapped",
            |table| {
                let swapped = |line: Vec<u8>| {
                    let mut fields: Vec<&[u8]> = line.split(|byte| *byte == b';').collect();
                    fields.swap(0, 1);
                    fields.join(&b';')
                };
                lines(&table).into_iter().flat_map(swapped).collect()
            },
            Decided::Alert,
        ),
    ]
}

fn cvm() -> Vec<Mutant> {
    let mut mutants = Vec::new();
    for (name, change, decided) in tables() {
        let of = |file: &str| format!("CVM: {file} that is or has {name}");
        let (registry, member) = (Fault::transform(change), Fault::transform_member(change));
        mutants.push(Mutant { name: of("a registry"), source: "companies", path: REGISTRY, fault: registry, decided });
        mutants.push(Mutant { name: of("filings"), source: "ipe", path: IPE, fault: member, decided });
    }
    for tenths in 1..=9 {
        let (name, fault) = (format!("CVM: {tenths} tenths of an archive"), Fault::TruncatedZip { tenths });
        mutants.push(Mutant { name, source: "ipe", path: IPE, fault, decided: Decided::Refused });
    }
    for (name, fault, decided) in [
        ("an archive that inflates without end", Fault::ZipBomb, Decided::Refused),
        ("names that lead out of an archive", Fault::PathTraversalZip, Decided::Refused),
        ("an archive without its member", Fault::MissingMember, Decided::Refused),
        ("a page instead of an archive", Fault::HtmlWith200, Decided::Refused),
        ("an archive that is gone", Fault::NotFoundEmpty, Decided::Failed),
        ("an archive that stops coming", Fault::Stall(StallAt::HalfBody), Decided::Failed),
        ("an archive elsewhere", Fault::RedirectToOtherHost, Decided::Failed),
    ] {
        mutants.push(Mutant { name: format!("CVM: {name}"), source: "ipe", path: IPE, fault, decided });
    }
    mutants
}

fn outcome(report: &RunReport) -> Decided {
    match (report.failures.first(), report.alerts.is_empty(), report.set_aside) {
        (Some((_, _, problem)), ..) if problem.contains("not believed") => Decided::Refused,
        (Some(_), ..) => Decided::Failed,
        (None, false, _) => Decided::Alert,
        (None, true, 0) => Decided::Fine,
        (None, true, rows) => Decided::Rows(rows),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_kind_of_bad_series_has_its_outcome_and_what_is_served_stays() -> Outcome {
    each_has_its_outcome(sgs()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn each_kind_of_bad_bulletins_has_its_outcome_and_what_is_served_stays() -> Outcome {
    each_has_its_outcome(ptax()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn each_kind_of_bad_table_has_its_outcome_and_what_is_served_stays() -> Outcome {
    each_has_its_outcome(cvm()).await
}

#[test]
fn at_least_forty_kinds_of_bad_answers_are_tried() {
    let kinds = [sgs(), ptax(), cvm()].map(|mutants| mutants.len());
    assert!(kinds.iter().all(|count| *count >= 5) && kinds.iter().sum::<usize>() >= 40, "{kinds:?}");
}

async fn each_has_its_outcome(mutants: Vec<Mutant>) -> Outcome {
    // Enough rows that one of them is less than a hundredth.
    let options = UpstreamOptions { ipe_rows_per_year: 150, companies: 150, ..UpstreamOptions::default() };
    let world = World::with(options, IMPATIENT).await?;
    let sources: BTreeSet<&str> = mutants.iter().map(|mutant| mutant.source).collect();
    let filled = world.ingest(&Vec::from_iter(sources.iter().copied())).await?;
    assert!(filled.failures.is_empty(), "{:#?}", filled.failures);
    let (replica, key) = world.serve().await?;
    let paths = [
        ("cdi", "/api/v1/market/series/cdi?limit=20000"),
        ("fx", "/api/v1/market/fx?limit=20000"),
        ("companies", "/api/v1/companies?limit=100"),
        ("companies", "/api/v1/companies?limit=100&offset=100"),
        ("ipe", "/api/v1/filings?limit=100"),
    ];
    let paths: Vec<&str> = paths.iter().filter(|(source, _)| sources.contains(source)).map(|(_, path)| *path).collect();
    assert!(!paths.is_empty());
    let bodies = || async {
        let mut bodies = Vec::new();
        for path in &paths {
            bodies.push(replica.get_with(path, &key).await?.bytes().await?);
        }
        anyhow::Ok(bodies)
    };
    let (mut objections, mut refused) = (Vec::new(), 0);
    let count = mutants.len();
    for mutant in mutants {
        world.let_pass(0);
        let (before, quarantined) = (bodies().await?, world.quarantined_files().await?);
        let patience = if matches!(mutant.fault, Fault::Stall(_)) { HASTY } else { IMPATIENT };
        world.upstreams.set_fault(mutant.path, Some(mutant.fault));
        let report = world.ingest_with(patience, mutant.source).await?;
        world.upstreams.clear_faults();
        let seen = outcome(&report);
        if seen != mutant.decided {
            objections.push(format!(
                "{}: {seen:?} and not {:?}: {:?} {:?}",
                mutant.name,
                mutant.decided,
                report.failures.first().map(|failure| &failure.2),
                report.alerts
            ));
        }
        if mutant.decided == Decided::Refused {
            refused += 1;
            if world.quarantined_files().await? <= quarantined {
                objections.push(format!("{}: not set aside", mutant.name));
            }
        }
        if matches!(mutant.decided, Decided::Refused | Decided::Failed) {
            replica.settled().await?;
            if bodies().await? != before {
                objections.push(format!("{}: something else is served", mutant.name));
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

/// Of this whole process: upstreams, ingestion and service.
fn peak_memory_mib() -> anyhow::Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find(|line| line.starts_with("VmHWM")).unwrap_or_default();
    Ok(line.split_whitespace().nth(1).unwrap_or_default().parse::<u64>()? / 1024)
}
