//! Search: prefixes, phrases and typos, facet counts, highlights, and resolving one company.

use serde_json::Value;
use vintem_domain::Plan;
use vintem_testkit::{TestDatabase, TestReplica};

use crate::{TestResult, friday};

struct SearchService {
    replica: TestReplica,
    key: String,
    /// Kept alive, because dropping it removes the database, and with it the keys that were not used yet.
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
        let response = self.replica.send(self.replica.http.get(url).header("X-API-Key", &self.key)).await?;
        Ok((response.status().as_u16(), response.json().await?))
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
    let service = SearchService::start().await?;

    for (list_path, facets_path, names) in [
        ("/api/v1/companies", "/api/v1/companies/facets", &["status", "sector"][..]),
        ("/api/v1/filings", "/api/v1/filings/facets", &["category"]),
    ] {
        let facets = service.get_ok(facets_path, &[]).await?;
        let all = expect_total(&service.get_ok(list_path, &[]).await?);
        for name in names {
            let counts = facet_counts(&facets, name);
            assert!(counts.is_sorted_by_key(|(_, count)| std::cmp::Reverse(*count)), "{counts:?}");
            assert_eq!(counts.iter().map(|(_, count)| count).sum::<u64>(), all, "{name}");
            for (value, count) in counts {
                assert_eq!(expect_total(&service.get_ok(list_path, &[(name, value)]).await?), count, "{name} {value}");
            }
        }
    }

    let facets = service.get_ok("/api/v1/filings/facets", &[]).await?;
    for (year, count) in facet_counts(&facets, "year") {
        let from = format!("{year}-01-01");
        let to = format!("{year}-12-31");
        assert_eq!(
            expect_total(&service.get_ok("/api/v1/filings", &[("from", &from), ("to", &to)]).await?),
            count,
            "{year}"
        );
    }

    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn search_returns_facets_and_highlights() -> TestResult {
    let service = SearchService::start().await?;
    for (path, names) in
        [("/api/v1/companies/search", ["status", "sector"]), ("/api/v1/filings/search", ["category", "year"])]
    {
        let q = if path.contains("companies") { "s.a." } else { "reunião" };
        let plain = service.get_ok(path, &[("q", q)]).await?;
        assert!(plain.get("facets").is_none() && plain["data"][0].get("highlight").is_none());

        let body = service.get_ok(path, &[("q", q), ("facets", "true"), ("highlight", "true")]).await?;
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

    for invalid_value in ["yes", "1", ""] {
        let (status, body) =
            service.get_status_and_body("/api/v1/filings/search", &[("q", "ata"), ("facets", invalid_value)]).await?;
        assert_eq!((status, expect_text(&body["error"])), (400, "bad_request"));
    }

    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn resolve_finds_a_company_by_each_identifier() -> TestResult {
    let service = SearchService::start().await?;
    let list = service.get_ok("/api/v1/companies", &[("limit", "100")]).await?;
    let is_listed = |row: &&Value| row["tickers"].as_array().is_some_and(|tickers| !tickers.is_empty());
    let company = list["data"].as_array().expect("rows").iter().find(is_listed).expect("a traded company");
    let id = expect_text(&company["id"]);
    let cnpj = expect_text(&company["cnpj"]);
    let padded = format!("{id:0>8}");

    for (parameter, value) in [
        ("cnpj", cnpj),
        ("code", id),
        ("code", &padded),
        ("ticker", expect_text(&company["tickers"][0])),
        ("name", expect_text(&company["name"])),
    ] {
        let resolved = service.get_ok("/api/v1/companies/resolve", &[(parameter, value)]).await?;
        assert_eq!(
            (expect_text(&resolved["company"]["id"]), expect_text(&resolved["matched_by"])),
            (id, parameter),
            "{value}"
        );
        assert_eq!(resolved["score"].as_f64(), Some(1.0), "{value}");
    }

    let words: Vec<&str> = expect_text(&company["name"]).split(' ').collect();
    let beginning = service.get_ok("/api/v1/companies/resolve", &[("name", &words[..2].join(" "))]).await?;
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
            service.get_status_and_body("/api/v1/companies/resolve", parameters).await?.0,
            status,
            "{parameters:?}"
        );
    }

    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn prefixes_phrases_and_typos_are_understood() -> TestResult {
    let service = SearchService::start().await?;
    let count_found = |q: &'static str| {
        let service = &service;
        async move { anyhow::Ok(expect_total(&service.get_ok("/api/v1/filings/search", &[("q", q)]).await?)) }
    };

    let exact_count = count_found("dividendos ").await?;
    assert!(exact_count > 0);
    assert!(count_found("dividen").await? >= exact_count);
    assert_eq!(count_found("dividen ").await?, 0);
    assert_eq!(count_found("dividnedos ").await?, exact_count);
    assert_eq!(count_found("DIVIDÊNDOS ").await?, exact_count);

    // Quoted words must be adjacent and in this order; unquoted words may be anywhere.
    let phrase = count_found("\"fato relevante\"").await?;
    let words = count_found("relevante fato ").await?;
    let reversed = count_found("\"relevante fato\"").await?;
    assert!(phrase > 0 && phrase <= words && reversed < phrase, "{phrase} {words} {reversed}");

    Ok(())
}
