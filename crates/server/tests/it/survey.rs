//! `vintem doctor --live`: names what is not as expected, stores nothing, and records what can be replayed.

use std::collections::BTreeSet;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use vintem_ingest::fetch::UpstreamAddresses;
use vintem_ingest::recording::Recorder;
use vintem_ingest::survey::{HostSurvey, SurveyFinding, SurveyOptions, SurveyProblem, survey};
use vintem_testkit::TempDirectory;
use vintem_testkit::upstreams::{FakeUpstreamOptions, FakeUpstreams, Fault, UpstreamService};

use crate::{TestResult, friday, vintem_binary};

/// Columns of the registry about persons.
const PERSON_COLUMNS: [&str; 4] = ["RESP", "EMAIL_RESP", "TEL_RESP", "EMAIL"];

fn addresses(upstreams: &FakeUpstreams) -> UpstreamAddresses {
    UpstreamAddresses { sgs: upstreams.sgs_url(), ptax: upstreams.ptax_url(), cvm: upstreams.cvm_url() }
}

fn options(recorder: Option<Arc<Recorder>>) -> SurveyOptions {
    SurveyOptions {
        contact: "https://example.com".to_owned(),
        pause: Duration::ZERO,
        max_bytes_per_host: u64::MAX,
        recorder,
    }
}

fn findings(surveys: &[HostSurvey]) -> impl Iterator<Item = &SurveyFinding> {
    surveys.iter().flat_map(|host| &host.findings)
}

/// Target and problem of all that is not as expected.
fn problems(surveys: &[HostSurvey]) -> BTreeSet<(String, &'static str)> {
    let of = |finding: &SurveyFinding| {
        finding.problems.iter().map(|problem| (finding.target.name(), problem.id())).collect::<Vec<_>>()
    };
    findings(surveys).flat_map(of).collect()
}

fn change_json(change: impl Fn(&mut serde_json::Value) + Send + Sync + 'static) -> Fault {
    Fault::transform_body(move |body| {
        let mut page: serde_json::Value = serde_json::from_slice(&body).expect("JSON");
        for bulletin in page["value"].as_array_mut().expect("a list") {
            change(bulletin);
        }
        page.to_string().into_bytes()
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_survey_finds_nothing_wrong_with_publishers_that_are_as_expected() -> TestResult {
    let upstreams = FakeUpstreams::start(FakeUpstreamOptions::default())?;
    let surveys = survey(&addresses(&upstreams), &options(None), friday()).await?;
    assert_eq!(problems(&surveys), BTreeSet::new());
    assert!(surveys.iter().all(|host| host.skipped == 0 && host.bytes() > 0));
    for service in [UpstreamService::Sgs, UpstreamService::Ptax, UpstreamService::Cvm] {
        assert_eq!(upstreams.max_in_flight(service), 1, "{service:?} gets one request at a time");
    }

    // Once a host has sent as much as it may, it is left alone.
    let few_bytes = SurveyOptions { max_bytes_per_host: 1, ..options(None) };
    let surveys = survey(&addresses(&upstreams), &few_bytes, friday()).await?;
    assert!(surveys.iter().all(|host| host.findings.len() == 1 && host.skipped > 20));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn each_divergence_is_reported_by_name() -> TestResult {
    let upstreams = FakeUpstreams::start(FakeUpstreamOptions::default())?;
    let without_column = Fault::transform_zip_member(|table| {
        let text: Vec<u8> = table;
        let at = text.windows(7).position(|word| word == b"Assunto").expect("the column");
        [&text[..at], b"Resumo", &text[at + 7..]].concat()
    });
    let new_label = change_json(|bulletin| {
        if bulletin["tipoBoletim"] == "Abertura" {
            bulletin["tipoBoletim"] = "Prévia".into();
        }
    });
    let other_hour = change_json(|bulletin| {
        let time = bulletin["dataHoraCotacao"].as_str().expect("text");
        bulletin["dataHoraCotacao"] = time.replace(" 13:", " 16:").into();
    });
    upstreams.set_fault("ipe_cia_aberta_2014.zip", Some(without_column));
    upstreams.set_fault("@moeda='USD'&@dataInicial='01-01-2019'", Some(new_label));
    upstreams.set_fault("@moeda='EUR'&@dataInicial='01-01-2019'", Some(other_hour));
    upstreams.set_fault("bcdata.sgs.4389/dados?formato=json&dataInicial=02/01/2015", Some(Fault::SgsValuesNotFound));

    let surveys = survey(&addresses(&upstreams), &options(None), friday()).await?;
    let expected = [
        ("cdi 2015-01-02..2015-02-01", "empty_window"),
        ("fx EUR-2019", "shifted_hour"),
        ("fx USD-2019", "unknown_label"),
        ("ipe 2014", "missing_column"),
    ];
    assert_eq!(problems(&surveys), expected.map(|(target, problem)| (target.to_owned(), problem)).into());
    let unread: Vec<String> =
        findings(&surveys).filter(|finding| finding.has_failed()).map(|finding| finding.target.name()).collect();
    assert_eq!(unread, ["ipe 2014"]);

    // A host that refuses our user agent.
    upstreams.clear_faults();
    upstreams.set_fault("/dados/CIA_ABERTA/", Some(Fault::Status(403)));
    let surveys = survey(&addresses(&upstreams), &options(None), friday()).await?;
    assert!(findings(&surveys).all(|finding| {
        let is_blocked = finding.problems.iter().map(SurveyProblem::id).eq(["blocked"]);
        is_blocked == (finding.target.source().id() == "ipe" || finding.target.source().id() == "companies")
    }));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replayed_recording_gives_the_same_rows_and_names_no_person() -> TestResult {
    let upstreams = FakeUpstreams::start(FakeUpstreamOptions::default())?;
    let directory = TempDirectory::create()?;
    let kit = directory.path().join("kit");
    let recorder = Arc::new(Recorder::create(&kit)?);
    let original = survey(&addresses(&upstreams), &options(Some(recorder)), friday()).await?;
    assert_eq!(problems(&original), BTreeSet::new());
    assert!(Recorder::create(&kit).is_err(), "two kits must not mix");

    let replayed =
        FakeUpstreams::start(FakeUpstreamOptions { kit: Some(kit.clone()), ..FakeUpstreamOptions::default() })?;
    let replay = survey(&addresses(&replayed), &options(None), friday()).await?;
    assert_eq!(problems(&replay), BTreeSet::new());
    let tables = |surveys: &[HostSurvey]| -> Vec<_> {
        findings(surveys)
            .map(|found| (found.target.name(), found.rows, found.bad_rows.clone(), found.rows_sha256))
            .collect()
    };
    assert_eq!(tables(&replay), tables(&original));
    assert!(tables(&original).len() > 200);

    let mut registries = Vec::new();
    for file in std::fs::read_dir(&kit)? {
        let body = std::fs::read(file?.path())?;
        if body.starts_with(b"CNPJ_CIA;") {
            registries.push(body.iter().map(|byte| char::from(*byte)).collect::<String>());
        }
    }
    assert_eq!(registries.len(), 1);
    let mut lines = registries[0].lines();
    let columns: Vec<&str> = lines.next().expect("a header").split(';').collect();
    let persons = PERSON_COLUMNS.map(|name| columns.iter().position(|column| *column == name).expect(name));
    let mut companies = 0;
    for line in lines {
        let fields: Vec<&str> = line.split(';').collect();
        assert!(persons.iter().all(|column| fields[*column].is_empty()), "{line}");
        companies += 1;
    }
    assert!(companies > 100);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_prints_a_line_for_each_source_and_fails_if_something_cannot_be_read() -> TestResult {
    let upstreams = FakeUpstreams::start(FakeUpstreamOptions::default())?;
    let directory = TempDirectory::create()?;
    let doctor = || -> anyhow::Result<(bool, String)> {
        let output = Command::new(vintem_binary())
            .current_dir(directory.path())
            .env_clear()
            .args(["doctor", "--live"])
            .env("VINTEM_SGS_URL", upstreams.sgs_url())
            .env("VINTEM_PTAX_URL", upstreams.ptax_url())
            .env("VINTEM_CVM_URL", upstreams.cvm_url())
            .output()?;
        let text = String::from_utf8(output.stdout)? + &String::from_utf8(output.stderr)?;
        Ok((output.status.success(), text))
    };
    upstreams.set_fault("cad_cia_aberta.csv", Some(Fault::HtmlWith200));
    let (is_ok, text) = tokio::task::block_in_place(doctor)?;
    assert!(!is_ok, "{text}");
    for line in [
        "FAIL  companies: 0 of 1 answers can be used, 0 rows",
        "companies: unreadable: it should be a table with semicolons, but it is a page of HTML or XML",
        "ok    ipe: ",
        "host  CVM: ",
    ] {
        assert!(text.contains(line), "{line} is missing in:\n{text}");
    }
    Ok(())
}
