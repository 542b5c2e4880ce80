//! The stand-ins themselves, over HTTP: one test for each oddity of the real services that they promise to have.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod cvm;
mod faults;
mod ptax;
mod real_files;
mod record;
mod sgs;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Cursor, Read};
use std::time::Duration;

use chrono::{Days, NaiveDate, NaiveDateTime};
use reqwest::{Method, Response, StatusCode};
use serde_json::Value;
use vintem_testkit::http_client;
use vintem_testkit::upstreams::{Fault, IpeRow, StallAt, Upstream, UpstreamOptions, Upstreams};

const REGISTRY: &str = "/dados/CIA_ABERTA/CAD/DADOS/cad_cia_aberta.csv";

struct Client {
    upstreams: Upstreams,
    http: reqwest::Client,
}

impl Client {
    fn new() -> Self {
        Self::with(UpstreamOptions::default())
    }

    fn with(options: UpstreamOptions) -> Self {
        let http = http_client().user_agent("stand-in tests").build().unwrap();
        Self { upstreams: Upstreams::start(options).unwrap(), http }
    }

    fn url(&self, path: &str) -> String {
        format!("{}{path}", self.upstreams.cvm_url())
    }

    async fn get(&self, path: &str) -> Response {
        self.http.get(self.url(path)).send().await.unwrap()
    }

    async fn bytes(&self, path: &str) -> Vec<u8> {
        let answer = self.get(path).await;
        assert_eq!(answer.status(), 200, "{path}");
        answer.bytes().await.unwrap().to_vec()
    }

    async fn text(&self, path: &str) -> String {
        String::from_utf8(self.bytes(path).await).unwrap()
    }

    /// Dates and values of a window of a series.
    async fn series(&self, code: u32, from: &str, to: &str) -> Vec<(NaiveDate, String)> {
        rows(&self.text(&window(code, from, to)).await)
    }

    async fn quotes(&self, currency: &str, from: &str, to: &str) -> Vec<Quote> {
        quotes(&self.text(&period(currency, from, to)).await)
    }

    async fn archive(&self, set: &str, year: i32) -> BTreeMap<String, String> {
        members(&self.bytes(&archive(set, year)).await)
    }

    /// The rows of a year of filings, each split into its fields.
    async fn filings(&self, year: i32) -> Vec<Vec<String>> {
        let members = self.archive("ipe", year).await;
        assert_eq!(members.len(), 1);
        fields(&members[&format!("ipe_cia_aberta_{year}.csv")])
    }
}

fn window(code: u32, from: &str, to: &str) -> String {
    format!("/dados/serie/bcdata.sgs.{code}/dados?formato=json&dataInicial={from}&dataFinal={to}")
}

fn period(currency: &str, from: &str, to: &str) -> String {
    format!(
        "/olinda/servico/PTAX/versao/v1/odata/CotacaoMoedaPeriodo(moeda=@moeda,dataInicial=@dataInicial,\
         dataFinalCotacao=@dataFinalCotacao)?@moeda='{currency}'&@dataInicial='{from}'&@dataFinalCotacao='{to}'\
         &$format=json&$top=10000"
    )
}

fn archive(set: &str, year: i32) -> String {
    format!("/dados/CIA_ABERTA/DOC/{}/DADOS/{set}_cia_aberta_{year}.zip", set.to_uppercase())
}

fn rows(body: &str) -> Vec<(NaiveDate, String)> {
    let row = |row: &Value| {
        assert_eq!(row.as_object().unwrap().keys().collect::<Vec<_>>(), ["data", "valor"]);
        let date = NaiveDate::parse_from_str(row["data"].as_str().unwrap(), "%d/%m/%Y").unwrap();
        (date, row["valor"].as_str().unwrap().to_owned())
    };
    serde_json::from_str::<Vec<Value>>(body).unwrap().iter().map(row).collect()
}

/// One bulletin, its numbers as the texts that they are.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Quote {
    buy: String,
    sell: String,
    stamp: String,
    label: String,
}

impl Quote {
    fn date(&self) -> NaiveDate {
        self.stamp[..10].parse().unwrap()
    }

    fn fraction(&self) -> &str {
        self.stamp.rsplit_once('.').unwrap().1
    }
}

fn quotes(body: &str) -> Vec<Quote> {
    let envelope: Value = serde_json::from_str(body).unwrap();
    assert!(envelope["@odata.context"].as_str().unwrap().contains("odata$metadata#"));
    let (_, value) = body.split_once("\"value\":[").unwrap();
    let text = |row: &str, name: &str| {
        let (_, rest) = row.split_once(&format!("\"{name}\":")).unwrap();
        rest.split([',', '}']).next().unwrap().trim_matches('"').to_owned()
    };
    let rows = value.split_inclusive('}').filter(|row| row.contains("cotacaoCompra"));
    rows.map(|row| Quote {
        buy: text(row, "cotacaoCompra"),
        sell: text(row, "cotacaoVenda"),
        stamp: text(row, "dataHoraCotacao"),
        label: text(row, "tipoBoletim"),
    })
    .collect()
}

/// By name, from the regulator's encoding.
fn members(archive: &[u8]) -> BTreeMap<String, String> {
    let mut archive = zip::ZipArchive::new(Cursor::new(archive)).unwrap();
    let mut members = BTreeMap::new();
    for at in 0..archive.len() {
        let mut file = archive.by_index(at).unwrap();
        let mut content = Vec::new();
        file.read_to_end(&mut content).unwrap();
        members.insert(file.name().unwrap().into_owned(), latin1(&content));
    }
    members
}

fn latin1(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| char::from(*byte)).collect()
}

fn fields(csv: &str) -> Vec<Vec<String>> {
    assert!(csv.ends_with("\r\n") && csv.matches('\n').count() == csv.matches("\r\n").count());
    csv.lines().skip(1).map(|line| line.split(';').map(str::to_owned).collect()).collect()
}

fn number(text: &str) -> f64 {
    text.parse().unwrap()
}

fn day(text: &str) -> NaiveDate {
    text.parse().unwrap()
}

fn header<'a>(answer: &'a Response, name: &str) -> &'a str {
    answer.headers().get(name).map_or("", |value| value.to_str().unwrap())
}
