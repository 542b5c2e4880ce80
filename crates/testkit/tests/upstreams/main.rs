//! Tests of the fake upstreams over HTTP: one for each oddity of the real services that they reproduce.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod cvm;
mod faults;
mod ptax;
mod real_files;
mod request_log;
mod sgs;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Cursor, Read};
use std::time::Duration;

use chrono::{Days, NaiveDate, NaiveDateTime};
use reqwest::{Method, Response, StatusCode};
use serde_json::Value;
use vintem_testkit::http_client_builder;
use vintem_testkit::upstreams::{FakeUpstreamOptions, FakeUpstreams, Fault, IpeRow, StallAt, UpstreamService};

const REGISTRY_PATH: &str = "/dados/CIA_ABERTA/CAD/DADOS/cad_cia_aberta.csv";

struct TestClient {
    upstreams: FakeUpstreams,
    http: reqwest::Client,
}

impl TestClient {
    fn new() -> Self {
        Self::with_options(FakeUpstreamOptions::default())
    }

    fn with_options(options: FakeUpstreamOptions) -> Self {
        let http = http_client_builder().user_agent("stand-in tests").build().unwrap();
        Self { upstreams: FakeUpstreams::start(options).unwrap(), http }
    }

    fn url(&self, path: &str) -> String {
        format!("{}{path}", self.upstreams.cvm_url())
    }

    async fn get(&self, path: &str) -> Response {
        self.http.get(self.url(path)).send().await.unwrap()
    }

    async fn get_bytes(&self, path: &str) -> Vec<u8> {
        let response = self.get(path).await;
        assert_eq!(response.status(), 200, "{path}");
        response.bytes().await.unwrap().to_vec()
    }

    async fn get_text(&self, path: &str) -> String {
        String::from_utf8(self.get_bytes(path).await).unwrap()
    }

    /// Dates and values of a series within a window.
    async fn get_series(&self, code: u32, from: &str, to: &str) -> Vec<(NaiveDate, String)> {
        parse_sgs_rows(&self.get_text(&sgs_window_path(code, from, to)).await)
    }

    async fn get_quotes(&self, currency: &str, from: &str, to: &str) -> Vec<PtaxQuote> {
        parse_quotes(&self.get_text(&ptax_period_path(currency, from, to)).await)
    }

    async fn get_archive(&self, set: &str, year: i32) -> BTreeMap<String, String> {
        unzip_members(&self.get_bytes(&archive_path(set, year)).await)
    }

    /// The rows of one year of filings, split into fields.
    async fn get_filings(&self, year: i32) -> Vec<Vec<String>> {
        let members = self.get_archive("ipe", year).await;
        assert_eq!(members.len(), 1);
        parse_csv_rows(&members[&format!("ipe_cia_aberta_{year}.csv")])
    }
}

fn sgs_window_path(code: u32, from: &str, to: &str) -> String {
    format!("/dados/serie/bcdata.sgs.{code}/dados?formato=json&dataInicial={from}&dataFinal={to}")
}

fn ptax_period_path(currency: &str, from: &str, to: &str) -> String {
    format!(
        "/olinda/servico/PTAX/versao/v1/odata/CotacaoMoedaPeriodo(moeda=@moeda,dataInicial=@dataInicial,\
         dataFinalCotacao=@dataFinalCotacao)?@moeda='{currency}'&@dataInicial='{from}'&@dataFinalCotacao='{to}'\
         &$format=json&$top=10000"
    )
}

fn archive_path(set: &str, year: i32) -> String {
    format!("/dados/CIA_ABERTA/DOC/{}/DADOS/{set}_cia_aberta_{year}.zip", set.to_uppercase())
}

fn parse_sgs_rows(body: &str) -> Vec<(NaiveDate, String)> {
    let row = |row: &Value| {
        assert_eq!(row.as_object().unwrap().keys().collect::<Vec<_>>(), ["data", "valor"]);
        let date = NaiveDate::parse_from_str(row["data"].as_str().unwrap(), "%d/%m/%Y").unwrap();
        (date, row["valor"].as_str().unwrap().to_owned())
    };
    serde_json::from_str::<Vec<Value>>(body).unwrap().iter().map(row).collect()
}

/// One bulletin, with its numbers as text.
#[derive(Debug, Clone, PartialEq, Eq)]
struct PtaxQuote {
    buy: String,
    sell: String,
    timestamp: String,
    label: String,
}

impl PtaxQuote {
    fn date(&self) -> NaiveDate {
        self.timestamp[..10].parse().unwrap()
    }

    fn second_fraction(&self) -> &str {
        self.timestamp.rsplit_once('.').unwrap().1
    }
}

fn parse_quotes(body: &str) -> Vec<PtaxQuote> {
    let envelope: Value = serde_json::from_str(body).unwrap();
    assert!(envelope["@odata.context"].as_str().unwrap().contains("odata$metadata#"));

    let (_, value) = body.split_once("\"value\":[").unwrap();
    let text = |row: &str, name: &str| {
        let (_, rest) = row.split_once(&format!("\"{name}\":")).unwrap();
        rest.split([',', '}']).next().unwrap().trim_matches('"').to_owned()
    };
    let rows = value.split_inclusive('}').filter(|row| row.contains("cotacaoCompra"));
    rows.map(|row| PtaxQuote {
        buy: text(row, "cotacaoCompra"),
        sell: text(row, "cotacaoVenda"),
        timestamp: text(row, "dataHoraCotacao"),
        label: text(row, "tipoBoletim"),
    })
    .collect()
}

/// The members of an archive by name, decoded from Latin-1.
fn unzip_members(archive: &[u8]) -> BTreeMap<String, String> {
    let mut archive = zip::ZipArchive::new(Cursor::new(archive)).unwrap();
    let mut members = BTreeMap::new();
    for index in 0..archive.len() {
        let mut file = archive.by_index(index).unwrap();
        let mut content = Vec::new();
        file.read_to_end(&mut content).unwrap();
        members.insert(file.name().unwrap().into_owned(), decode_latin1(&content));
    }
    members
}

fn decode_latin1(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| char::from(*byte)).collect()
}

fn parse_csv_rows(csv: &str) -> Vec<Vec<String>> {
    assert!(csv.ends_with("\r\n") && csv.matches('\n').count() == csv.matches("\r\n").count());
    csv.lines().skip(1).map(|line| line.split(';').map(str::to_owned).collect()).collect()
}

fn parse_number(text: &str) -> f64 {
    text.parse().unwrap()
}

fn parse_date(text: &str) -> NaiveDate {
    text.parse().unwrap()
}

fn header_text<'a>(response: &'a Response, name: &str) -> &'a str {
    response.headers().get(name).map_or("", |value| value.to_str().unwrap())
}
