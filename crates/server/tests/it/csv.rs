//! Lists as CSV: the same cells as the JSON rows, parsed by a third-party reader.

use anyhow::Context;
use serde_json::Value;
use vintem_domain::Plan;
use vintem_domain::route::GATED_PARAMETERS;
use vintem_testkit::{TestDatabase, TestReplica};

use crate::{TestResult, friday};

/// The query parameters for an operation, without `limit`.
fn query_for(operation: &str) -> &'static str {
    match operation {
        "compare_series" => "ids=selic,ipca,cdi-daily",
        "list_business_days" => "from=2026-01-01&to=2026-02-28",
        "list_holidays" => "year=2027",
        "search_companies" | "search_filings" => "q=companhia",
        "list_companies" | "list_filings" | "list_fx" | "list_selic" => "provenance=true&as_of=2026-11-12",
        "get_usage" => "detail=true",
        _ => "",
    }
}

/// Flattens the rows of a JSON list into table rows.
fn flatten_rows(operation: &str, body: &Value) -> Vec<Value> {
    let rows = body["data"].as_array().cloned().unwrap_or_default();
    let mut flat = Vec::new();

    for mut row in rows {
        match operation {
            "list_business_days" => row = serde_json::json!({"date": row, "calendar": body["calendar"]}),
            "list_bulletins" => {
                row["date"] = body["date"].clone();
                row["pair"] = body["series"]["code"].clone();
            }
            "compare_series" => {
                for series in body["series"].as_array().into_iter().flatten() {
                    let id = series["id"].as_str().unwrap_or_default();
                    let cell = row["values"][id].clone();
                    row[id] = cell["value"].clone();
                    row[format!("{id}_date")] = cell["date"].clone();
                }
            }
            "list_holidays" => {
                row["name_en"] = row["names"]["en"].clone();
                row["name_pt"] = row["names"]["pt"].clone();
                row["calendar"] = body["calendar"].clone();
            }
            "list_series" => {
                row["name_en"] = row["names"]["en"].clone();
                row["name_pt"] = row["names"]["pt"].clone();
            }
            "get_usage" => {
                for group in row["groups"].as_array().into_iter().flatten() {
                    let mut group = group.clone();
                    group["date"] = row["date"].clone();
                    flat.push(group);
                }
                continue;
            }
            _ if body["series"].is_object() => {
                row["unit"] = body["series"]["unit"].clone();
                row["series"] = body["series"]["code"].clone();
                row["series_id"] = body["series_id"].clone();
                row["unit_code"] = body["unit_code"].clone();
            }
            _ => {}
        }

        let provenance = row["provenance"].as_array().cloned().unwrap_or_default();
        for name in ["source", "address", "fetched_at", "known_at", "sha256"] {
            let values = provenance.iter().map(|entry| entry[name].clone()).collect();
            row[format!("provenance_{name}")] = Value::Array(values);
        }
        flat.push(row);
    }

    flat
}

/// The cell expected for a JSON value.
fn expected_cell(column: &str, value: &Value) -> String {
    match value {
        Value::Null if column == "derived" => "false".to_owned(),
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Array(values) => values.iter().map(|value| expected_cell("", value)).collect::<Vec<_>>().join(" | "),
        value => value.to_string(),
    }
}

async fn parse_csv(response: reqwest::Response, separator: u8) -> anyhow::Result<(Vec<String>, Vec<Vec<String>>)> {
    let bytes = response.bytes().await?;
    let mut reader = csv::ReaderBuilder::new().delimiter(separator).from_reader(&bytes[..]);
    let columns = reader.headers()?.iter().map(str::to_owned).collect();
    let row = |row: csv::Result<csv::StringRecord>| Ok(row?.iter().map(str::to_owned).collect());
    Ok((columns, reader.records().map(row).collect::<csv::Result<_>>()?))
}

#[tokio::test]
async fn every_csv_list_has_the_cells_of_its_json() -> TestResult {
    let database = TestDatabase::create_demo(friday()).await?;
    let replica = TestReplica::start_with_high_limits(&database, friday()).await?;
    let (_, key) = replica.create_key(Plan::Platinum).await?;

    let filing = find_filing_with_statements(&replica, &key).await?;
    let company = filing["company_id"].as_str().context("a company")?;
    let filing = filing["id"].as_str().context("a filing")?;

    let csv = GATED_PARAMETERS.iter().find(|option| option.value == Some("csv")).context("an option")?;
    for route in csv.routes() {
        let operation = route.operation;
        let id = match operation {
            "list_filing_versions" | "get_filing_statements" => filing,
            "list_company_filings" | "list_statements" | "list_statement_periods" | "list_shares" => company,
            _ => "ipca",
        };

        // As strings, JSON numbers keep their digits.
        let options = [("limit", "limit=50"), ("numbers", "numbers=string")];
        let options = options.into_iter().filter(|(name, _)| route.takes_param(name)).map(|(_, option)| option);
        let query: Vec<&str> = std::iter::once(query_for(operation)).chain(options).collect();
        let path = format!("{}?{}", route.path.replace("{id}", id), query.join("&"));

        let body: Value = replica.get_with_key(&path, &key).await?.json().await?;
        let response = replica.get_with_key(&format!("{path}&format=csv"), &key).await?;
        assert_eq!(response.status(), 200, "{operation}");
        assert_eq!(response.headers()["content-type"], "text/csv; charset=utf-8; header=present");

        let (columns, rows) = parse_csv(response, b',').await?;
        let expected = flatten_rows(operation, &body);

        // The demo data has no revisions; every other list has rows.
        assert!(!expected.is_empty() || operation == "list_revisions", "{operation}: {body}");
        assert_eq!(rows.len(), expected.len(), "{operation}");

        // Fetching the usage twice changes it, so only the number of rows is compared.
        let is_usage = operation == "get_usage";
        for (row, expected) in rows.iter().zip(&expected).filter(|_| !is_usage) {
            for (column, seen) in columns.iter().zip(row) {
                assert_eq!(*seen, expected_cell(column, &expected[column]), "{operation} {column}");
            }

            let missing = expected.as_object().into_iter().flatten().find(|(name, value)| {
                let is_flat = !matches!(value, Value::Object(_)) && !matches!(name.as_str(), "provenance" | "groups");
                let is_requested = !name.starts_with("provenance_") || path.contains("provenance=true");
                is_flat && is_requested && !columns.contains(*name)
            });
            assert_eq!(missing, None, "{operation} has it in JSON alone");
        }
    }

    Ok(())
}

/// Few companies of the demo have financial statements.
async fn find_filing_with_statements(replica: &TestReplica, key: &str) -> anyhow::Result<Value> {
    let annual: Value = replica.get_with_key("/api/v1/filings?category=DFP&limit=100", key).await?.json().await?;
    for filing in annual["data"].as_array().context("filings")? {
        let id = filing["id"].as_str().context("an id")?;
        let path = format!("/api/v1/filings/{id}/statements?limit=1");
        let statements: Value = replica.get_with_key(&path, key).await?.json().await?;
        if statements["total"].as_u64() > Some(0) {
            return Ok(filing.clone());
        }
    }
    anyhow::bail!("no annual filing has statements")
}

#[tokio::test]
async fn the_brazilian_locale_uses_semicolons_decimal_commas_and_a_bom() -> TestResult {
    let database = TestDatabase::create_demo(friday()).await?;
    let replica = TestReplica::start(&database, friday()).await?;
    let (_, key) = replica.create_key(Plan::Platinum).await?;

    let path = "/api/v1/market/fx?limit=3&order=asc";
    let (_, plain) = parse_csv(replica.get_with_key(&format!("{path}&format=csv"), &key).await?, b',').await?;
    let brazilian = replica.get_with_key(&format!("{path}&format=csv&locale=pt-BR"), &key).await?;
    let text = brazilian.text().await?;

    let expected: Vec<String> =
        plain.iter().map(|row| format!("{};{}", row[..2].join(";"), row[2..4].join(";").replace('.', ","))).collect();

    // reqwest recognizes the byte order mark and removes it, so the raw bytes are checked below.
    let mut lines = text.trim_start_matches('\u{feff}').split("\r\n");
    assert_eq!(lines.next(), Some("date;pair;buy;sell;derived;unit;series;series_id;unit_code"));
    for expected in expected {
        let line = lines.next().context("a line")?;
        assert!(line.starts_with(&format!("{expected};")), "{line} is not {expected}");
    }

    let raw = replica.get_with_key(&format!("{path}&format=csv&locale=pt-BR"), &key).await?.bytes().await?;
    assert!(raw.starts_with("\u{feff}date;".as_bytes()));

    Ok(())
}

#[tokio::test]
async fn csv_has_its_own_etag_filename_and_links() -> TestResult {
    let database = TestDatabase::create_demo(friday()).await?;
    let replica = TestReplica::start(&database, friday()).await?;
    let (_, key) = replica.create_key(Plan::Platinum).await?;

    let build_request = |path: &str, accept: &str, tag: &str| {
        replica
            .http
            .get(replica.url(path))
            .header("X-API-Key", &key)
            .header("Accept", accept)
            .header("If-None-Match", tag)
    };

    let path = "/api/v1/companies?limit=2";
    let json = replica.send(build_request(path, "*/*", "\"none\"")).await?;
    let csv = replica.send(build_request(path, "text/csv", "\"none\"")).await?;

    assert!(json.headers()["content-type"].to_str()?.starts_with("application/json"));
    assert!(csv.headers()["content-type"].to_str()?.starts_with("text/csv"));
    assert!(!csv.headers().contains_key("content-disposition"));

    let tag = csv.headers()["etag"].to_str()?.to_owned();
    assert_ne!(json.headers()["etag"], tag.as_str());
    assert_eq!(replica.send(build_request(path, "text/csv", &tag)).await?.status(), 304);
    assert_eq!(replica.send(build_request(path, "*/*", &tag)).await?.status(), 200);

    let saved = replica.get_with_key("/api/v1/companies?limit=2&format=csv&download=1&locale=pt-BR", &key).await?;
    assert_eq!(saved.headers()["content-disposition"], "attachment; filename=\"vintem-companies-2026-11-13.csv\"");
    let link = saved.headers()["link"].to_str()?;
    assert!(link.contains("format=csv") && link.contains("download=1") && link.contains("locale=pt-BR"), "{link}");

    for (query, name) in [("format=xml", "format"), ("locale=fr", "locale"), ("download=yes", "download")] {
        let response = replica.get_with_key(&format!("/api/v1/companies?{query}"), &key).await?;
        assert_eq!(response.status(), 400);
        assert!(response.text().await?.contains(&format!("`{name}`")));
    }

    Ok(())
}

#[tokio::test]
async fn csv_returns_all_filings_in_page_order() -> TestResult {
    let database = TestDatabase::create_demo(friday()).await?;
    let replica = TestReplica::start_with_high_limits(&database, friday()).await?;
    let (_, key) = replica.create_key(Plan::Platinum).await?;
    let mut paged_ids = Vec::new();
    loop {
        let path = format!("/api/v1/filings?limit=100&offset={}", paged_ids.len());
        let page: Value = replica.get_with_key(&path, &key).await?.json().await?;
        let rows = page["data"].as_array().context("data")?;
        paged_ids.extend(rows.iter().map(|row| row["id"].as_str().unwrap_or_default().to_owned()));
        if paged_ids.len() as u64 >= page["total"].as_u64().context("a total")? || rows.is_empty() {
            break;
        }
    }

    let response = replica.get_with_key("/api/v1/filings?limit=5000000&format=csv", &key).await?;
    let (_, rows) = parse_csv(response, b',').await?;
    assert!(rows.iter().map(|row| &row[0]).eq(&paged_ids));

    Ok(())
}

#[tokio::test]
async fn csv_can_be_compressed() -> TestResult {
    let database = TestDatabase::create_demo(friday()).await?;
    let replica = TestReplica::start(&database, friday()).await?;
    let (_, key) = replica.create_key(Plan::Platinum).await?;
    for path in ["/api/v1/market/fx?format=csv", "/api/v1/filings?format=csv&limit=1000"] {
        let request = replica.http.get(replica.url(path)).header("X-API-Key", &key).header("Accept-Encoding", "gzip");
        let response = replica.send(request).await?;
        assert_eq!(response.headers()["content-encoding"], "gzip");
        // Read to the end, because a broken connection is an error only here.
        assert!(response.bytes().await?.starts_with(&[0x1f, 0x8b]));
    }

    Ok(())
}

#[tokio::test]
async fn errors_are_json_even_when_csv_was_requested() -> TestResult {
    let database = TestDatabase::create_demo(friday()).await?;
    let replica = TestReplica::start(&database, friday()).await?;
    let (_, key) = replica.create_key(Plan::Gold).await?;

    let response = replica.get_with_key("/api/v1/filings?format=csv", &key).await?;
    assert_eq!((response.status().as_u16(), &response.headers()["content-type"]), (403, &"application/json".parse()?));
    let body: Value = response.json().await?;
    assert_eq!((&body["error"], &body["required_plan"]), (&"upgrade_required".into(), &"platinum".into()));
    Ok(())
}
