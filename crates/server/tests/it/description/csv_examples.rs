//! The CSV examples of the description, compared with the responses to the same requests.

use std::collections::BTreeSet;

use anyhow::Context;
use serde_json::Value;
use vintem_domain::Plan;
use vintem_testkit::{OpenApiSpec, SpecOperation, TestDatabase, TestReplica};

use crate::{TestResult, friday};

/// Columns that hold one of a few values. Those of an example must be among the real ones.
const NAMING_COLUMNS: [&str; 7] = ["calendar", "derived", "kind", "pair", "quote_currency", "series", "unit"];

#[tokio::test]
async fn csv_examples_have_the_columns_of_the_responses() -> TestResult {
    let description = OpenApiSpec::load_project_spec()?;
    let database = TestDatabase::create_demo(friday()).await?;
    let replica = TestReplica::start_with_high_limits(&database, friday()).await?;
    let (_, key) = replica.create_key(Plan::Platinum).await?;
    let filings: Value = replica.get_with_key("/api/v1/filings?category=DFP&limit=1", &key).await?.json().await?;

    let mut differences = Vec::new();
    let mut example_count = 0;
    for operation in description.operations()? {
        let Some(example) = csv_example(&description, &operation) else { continue };
        let path = request_path(&description, &operation, &filings["data"][0])?;
        let response = replica.get_with_key(&path, &key).await?;
        anyhow::ensure!(response.status() == 200, "{path} answered {}", response.status());

        let example = CsvTable::parse(example.as_bytes()).with_context(|| operation.id.clone())?;
        let served = CsvTable::parse(&response.bytes().await?)?;
        differences.extend(example.differences_from(&served).iter().map(|difference| format!("{path}: {difference}")));
        example_count += 1;
    }

    println!("csv_examples: {example_count}");
    assert!(differences.is_empty(), "{differences:#?}");
    assert!(example_count > 15);

    Ok(())
}

fn csv_example<'d>(description: &'d OpenApiSpec, operation: &SpecOperation) -> Option<&'d str> {
    let method = operation.method.to_lowercase();
    let response = &description.document()["paths"][&operation.path][method]["responses"]["200"];
    response["content"]["text/csv"]["example"].as_str()
}

/// The request that an example answers: with the description's own examples for the parameters that it requires. The
/// demo data has other companies and filings.
fn request_path(description: &OpenApiSpec, operation: &SpecOperation, filing: &Value) -> anyhow::Result<String> {
    let id = match operation.id.as_str() {
        "list_company_filings" => &filing["company_id"],
        "list_filing_versions" | "get_filing_statements" => &filing["id"],
        "list_statements" | "list_statement_periods" | "list_shares" => &filing["company_id"],
        _ => &description.document()["components"]["parameters"]["SeriesId"]["example"],
    };
    let path = operation.path.replace("{id}", id.as_str().context("an id")?);

    let limit = if operation.query_parameters.contains("limit") { "&limit=100" } else { "" };
    Ok(format!("{path}?format=csv{limit}&{}", operation.required_query))
}

struct CsvTable {
    columns: Vec<String>,
    rows: Vec<csv::StringRecord>,
}

impl CsvTable {
    /// Fails if a row has more or fewer cells than the header.
    fn parse(bytes: &[u8]) -> csv::Result<Self> {
        let mut reader = csv::Reader::from_reader(bytes);
        let columns = reader.headers()?.iter().map(str::to_owned).collect();
        let rows = reader.records().collect::<csv::Result<_>>()?;
        Ok(Self { columns, rows })
    }

    fn differences_from(&self, served: &Self) -> Vec<String> {
        if self.columns != served.columns {
            return vec![format!("the example has {:?}, the response {:?}", self.columns, served.columns)];
        }

        let mut differences = Vec::new();
        // The demo data has no revisions.
        let compared_columns = NAMING_COLUMNS.iter().filter(|_| !served.rows.is_empty());
        for column in compared_columns {
            let example_cells = self.cells(column);
            let served_cells = served.cells(column);
            if !example_cells.is_subset(&served_cells) {
                differences.push(format!("{column} is {example_cells:?}, in the response {served_cells:?}"));
            }
        }

        differences
    }

    /// The different cells of a column; none if the table does not have it.
    fn cells(&self, column: &str) -> BTreeSet<&str> {
        let index = self.columns.iter().position(|name| name == column);
        let cells = self.rows.iter().filter_map(|row| row.get(index?));
        cells.collect()
    }
}
