//! Search as people type, and what comes with it: counts, matched parts, and the one company that is meant.

use serde_json::Value;
use vintem_domain::Plan;
use vintem_testkit::{TestDatabase, TestReplica};

use crate::{TestResult, friday};

struct SearchService {
    replica: TestReplica,
    key: String,
    /// Gone when it is dropped, and with it the keys that were not used yet.
    _database: TestDatabase,
}

impl SearchService {
    async fn start() -> anyhow::Result<Self> {
        let database = TestDatabase::create_demo(friday()).await?;
        let replica = TestReplica::start_with_high_limits(&database, friday()).await?;
        let (_, key) = replica.create_key(Plan::Platinum).await?;
        Ok(Self { replica, key, _database: database })
    }

    async fn get_status_and_body(&self, path: &str, parameters: &[(&str, &str)]) -> anyhow::Result<(u16, Value)> {
        let url = reqwest::Url::parse_with_params(&self.replica.url(path), parameters)?;
        let answer = self.replica.send(self.replica.http.get(url).header("X-API-Key", &self.key)).await?;
        Ok((answer.status().as_u16(), answer.json().await?))
    }

    async fn get_ok(&self, path: &str, parameters: &[(&str, &str)]) -> anyhow::Result<Value> {
        let (status, body) = self.get_status_and_body(path, parameters).await?;
        anyhow::ensure!(status == 200, "{path} {parameters:?}: {status} {body}");
        Ok(body)
    }
}

fn facet_counts<'b>(body: &'b Value, name: &str) -> Vec<(&'b str, u64)> {
    let counts = body[name].as_array().unwrap_or_else(|| panic!("{name} in {body}"));
    counts.iter().map(|row| (expect_text(&row["value"]), row["count"].as_u64().expect("a number"))).collect()
}

fn expect_text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("a text, not {value}"))
}

fn expect_total(body: &Value) -> u64 {
    body["total"].as_u64().expect("a number")
}

#[tokio::test(flavor = "multi_thread")]
async fn facet_counts_equal_filtered_totals() -> TestResult {
    let served = SearchService::start().await?;
    for (place, path, names) in [
        ("/api/v1/companies", "/api/v1/companies/facets", &["status", "sector"][..]),
        ("/api/v1/filings", "/api/v1/filings/facets", &["category"]),
    ] {
        let facets = served.get_ok(path, &[]).await?;
        let all = expect_total(&served.get_ok(place, &[]).await?);
        for name in names {
            let counts = facet_counts(&facets, name);
            assert!(counts.is_sorted_by_key(|(_, count)| std::cmp::Reverse(*count)), "{counts:?}");
            assert_eq!(counts.iter().map(|(_, count)| count).sum::<u64>(), all, "{name}");
            for (value, count) in counts {
                assert_eq!(expect_total(&served.get_ok(place, &[(name, value)]).await?), count, "{name} {value}");
            }
        }
    }
    let facets = served.get_ok("/api/v1/filings/facets", &[]).await?;
    for (year, count) in facet_counts(&facets, "year") {
        let (from, to) = (format!("{year}-01-01"), format!("{year}-12-31"));
        assert_eq!(
            expect_total(&served.get_ok("/api/v1/filings", &[("from", &from), ("to", &to)]).await?),
            count,
            "{year}"
        );
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn search_returns_facets_and_highlights() -> TestResult {
    let served = SearchService::start().await?;
    for (path, names) in
        [("/api/v1/companies/search", ["status", "sector"]), ("/api/v1/filings/search", ["category", "year"])]
    {
        let q = if path.contains("companies") { "s.a." } else { "reunião" };
        let plain = served.get_ok(path, &[("q", q)]).await?;
        assert!(plain.get("facets").is_none() && plain["data"][0].get("highlight").is_none());
        let body = served.get_ok(path, &[("q", q), ("facets", "true"), ("highlight", "true")]).await?;
        assert!(expect_total(&body) > 0 && expect_total(&body) == expect_total(&plain), "{body}");
        for name in names {
            let sum: u64 = facet_counts(&body["facets"], name).iter().map(|(_, count)| count).sum();
            assert_eq!(sum, expect_total(&body), "{path} {name}");
        }
        for row in body["data"].as_array().expect("rows") {
            for (field, pieces) in row["highlight"].as_object().expect("fields") {
                let pieces = pieces.as_array().expect("pieces");
                let joined: String = pieces.iter().map(|piece| expect_text(&piece["text"])).collect();
                assert!(pieces.iter().any(|piece| piece["matched"] == Value::Bool(true)), "{row}");
                assert!(row[field] == Value::String(joined.clone()) || field == "former_names", "{field} {joined}");
            }
        }
        if path.contains("filings") {
            let highlight = &body["data"][0]["highlight"];
            assert!(highlight.as_object().is_some_and(|fields| !fields.is_empty()), "{highlight}");
        }
    }
    for wrong in ["yes", "1", ""] {
        let (status, body) =
            served.get_status_and_body("/api/v1/filings/search", &[("q", "ata"), ("facets", wrong)]).await?;
        assert_eq!((status, expect_text(&body["error"])), (400, "bad_request"));
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn resolve_finds_a_company_by_each_identifier() -> TestResult {
    let served = SearchService::start().await?;
    let list = served.get_ok("/api/v1/companies", &[("limit", "100")]).await?;
    let traded = |row: &&Value| row["tickers"].as_array().is_some_and(|tickers| !tickers.is_empty());
    let company = list["data"].as_array().expect("rows").iter().find(traded).expect("a traded company");
    let (id, cnpj) = (expect_text(&company["id"]), expect_text(&company["cnpj"]));
    let padded = format!("{id:0>8}");
    for (clue, value) in [
        ("cnpj", cnpj),
        ("code", id),
        ("code", &padded),
        ("ticker", expect_text(&company["tickers"][0])),
        ("name", expect_text(&company["name"])),
    ] {
        let resolved = served.get_ok("/api/v1/companies/resolve", &[(clue, value)]).await?;
        assert_eq!(
            (expect_text(&resolved["company"]["id"]), expect_text(&resolved["matched_by"])),
            (id, clue),
            "{value}"
        );
        assert_eq!(resolved["score"].as_f64(), Some(1.0), "{value}");
    }
    let words: Vec<&str> = expect_text(&company["name"]).split(' ').collect();
    let beginning = served.get_ok("/api/v1/companies/resolve", &[("name", &words[..2].join(" "))]).await?;
    assert!(beginning["score"].as_f64() <= Some(1.0));
    for (parameters, status) in [
        (&[][..], 400),
        (&[("code", id), ("cnpj", cnpj)], 400),
        (&[("name", " ")], 400),
        (&[("code", "1"), ("code", "2")], 400),
        (&[("code", "99999999")], 404),
        (&[("ticker", "NADA99")], 404),
        (&[("name", "xyzzyqwertyuiop")], 404),
    ] {
        assert_eq!(
            served.get_status_and_body("/api/v1/companies/resolve", parameters).await?.0,
            status,
            "{parameters:?}"
        );
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn prefixes_phrases_and_typos_are_understood() -> TestResult {
    let served = SearchService::start().await?;
    let found = |q: &'static str| {
        let served = &served;
        async move { anyhow::Ok(expect_total(&served.get_ok("/api/v1/filings/search", &[("q", q)]).await?)) }
    };
    let whole = found("dividendos ").await?;
    assert!(whole > 0);
    assert!(found("dividen").await? >= whole);
    assert_eq!(found("dividen ").await?, 0);
    assert_eq!(found("dividnedos ").await?, whole);
    assert_eq!(found("DIVIDÊNDOS ").await?, whole);
    // In quotes words stand together in this order; without, anywhere.
    let (phrase, words, reversed) =
        (found("\"fato relevante\"").await?, found("relevante fato ").await?, found("\"relevante fato\"").await?);
    assert!(phrase > 0 && phrase <= words && reversed < phrase, "{phrase} {words} {reversed}");
    Ok(())
}
