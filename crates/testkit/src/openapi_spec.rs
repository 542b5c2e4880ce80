//! `openapi.yaml` as a judge: which operations it names, and whether an answer is one that it describes.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context;
use reqwest::header::HeaderMap;
use serde_json::{Map, Value, json};

/// The file in its own terms.
#[derive(Debug)]
pub struct OpenApiSpec {
    document: Value,
    /// Path templates, found as the service finds them.
    path_router: matchit::Router<String>,
    /// The schemas as JSON Schema, for others to refer to.
    schemas: Value,
}

/// What the file says of one operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpecOperation {
    pub id: String,
    pub method: String,
    pub path: String,
    pub plan: String,
    pub query_parameters: BTreeSet<String>,
    /// What must be given, as the file's own examples: `from=2024-01-01&to=…`.
    pub required_query: String,
    /// Parameters that take a plan of their own, with that plan.
    pub gated_parameters: BTreeMap<String, String>,
    pub statuses: BTreeSet<u16>,
}

/// An answer as it came over the wire.
#[derive(Debug, Clone)]
pub struct ObservedResponse {
    pub method: String,
    /// Without the query.
    pub path: String,
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
}

impl OpenApiSpec {
    /// The project's own file.
    pub fn load_project_spec() -> anyhow::Result<Self> {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../openapi.yaml");
        Self::new(yaml_serde::from_str(&std::fs::read_to_string(file)?)?)
    }

    pub fn new(document: Value) -> anyhow::Result<Self> {
        let mut templates = matchit::Router::new();
        for path in document["paths"].as_object().context("paths")?.keys() {
            templates.insert(path, path.clone())?;
        }
        let schemas = to_json_schema(&document["components"]["schemas"]);
        Ok(Self { document, path_router: templates, schemas })
    }

    pub fn document(&self) -> &Value {
        &self.document
    }

    pub fn operations(&self) -> anyhow::Result<Vec<SpecOperation>> {
        let mut operations = Vec::new();
        for (path, methods) in self.document["paths"].as_object().context("paths")? {
            for (method, operation) in methods.as_object().context("methods")? {
                let text = |name: &str| operation[name].as_str().unwrap_or_default().to_owned();
                let parameters = operation["parameters"].as_array().map_or(&[][..], Vec::as_slice);
                let query: Vec<&Value> = parameters
                    .iter()
                    .map(|parameter| self.resolve_ref(parameter))
                    .filter(|parameter| parameter["in"] == "query")
                    .collect();
                let name = |parameter: &&Value| parameter["name"].as_str().map(str::to_owned);
                let given = |parameter: &&Value| {
                    let example = &parameter["example"];
                    let example = example.as_str().map_or_else(|| example.to_string(), str::to_owned);
                    format!("{}={}", parameter["name"].as_str().unwrap_or_default(), example.replace(' ', "%20"))
                };
                let required: Vec<String> =
                    query.iter().filter(|parameter| parameter["required"] == true).map(given).collect();
                let statuses = operation["responses"].as_object().context("responses")?.keys();
                operations.push(SpecOperation {
                    id: text("operationId"),
                    method: method.to_uppercase(),
                    path: path.clone(),
                    plan: text("x-required-plan"),
                    query_parameters: query.iter().filter_map(name).collect(),
                    required_query: required.join("&"),
                    gated_parameters: query
                        .iter()
                        .filter_map(|parameter| Some((name(parameter)?, parameter["x-required-plan"].as_str()?.into())))
                        .collect(),
                    statuses: statuses.filter_map(|status| status.parse().ok()).collect(),
                });
            }
        }
        Ok(operations)
    }

    /// What is wrong with an answer by the file; nothing for paths that are none of its own.
    pub fn validate_response(&self, seen: &ObservedResponse) -> Vec<String> {
        let Ok(found) = self.path_router.at(&seen.path) else {
            // Two keys that contradict each other are refused before the path is looked at.
            let is_described_as_nothing =
                !seen.path.starts_with("/api/") || matches!(seen.status, 400 | 401 | 404 | 429 | 503);
            return if is_described_as_nothing { vec![] } else { vec![format!("{} is in no file", seen.path)] };
        };
        let method = if seen.method == "HEAD" { "get".to_owned() } else { seen.method.to_lowercase() };
        let operation = &self.document["paths"][found.value][&method];
        // A method that the file does not name is refused by the service, whatever it is asked.
        if operation.is_null() {
            let refused = matches!(seen.status, 204 | 400 | 401 | 405 | 429 | 503);
            return if refused { vec![] } else { vec![format!("{} {} is in no file", seen.method, seen.path)] };
        }
        let response = self.resolve_ref(&operation["responses"][seen.status.to_string()]);
        if response.is_null() {
            return vec![format!(
                "{} {} answered {}, which the file does not name",
                seen.method, seen.path, seen.status
            )];
        }
        let mut objections = self.find_missing_headers(response, seen);
        if seen.method != "HEAD" {
            objections.extend(self.find_body_errors(response, seen));
        }
        let place = format!("{} {} {}", seen.method, seen.path, seen.status);
        objections.into_iter().map(|objection| format!("{place}: {objection}")).collect()
    }

    fn find_missing_headers(&self, response: &Value, seen: &ObservedResponse) -> Vec<String> {
        let named: BTreeMap<&String, &Value> = response["headers"].as_object().into_iter().flatten().collect();
        let required = named.into_iter().filter(|(_, header)| self.resolve_ref(header)["required"] == true);
        required
            .filter(|(name, _)| !seen.headers.contains_key(name.as_str()))
            .map(|(name, _)| format!("no {name}"))
            .collect()
    }

    fn find_body_errors(&self, response: &Value, seen: &ObservedResponse) -> Vec<String> {
        let content_type = seen.headers.get("content-type").and_then(|value| value.to_str().ok()).unwrap_or("");
        let essence = content_type.split(';').next().unwrap_or("").trim();
        let Some(contents) = response["content"].as_object() else {
            return if seen.body.is_empty() { vec![] } else { vec!["a body where the file has none".into()] };
        };
        let Some(content) = contents.get(essence) else { return vec![format!("content type {content_type}")] };
        // What is compressed was asked for so, and is the same once unpacked.
        if essence != "application/json" || seen.headers.contains_key("content-encoding") {
            return vec![];
        }
        let Ok(body) = serde_json::from_slice::<Value>(&seen.body) else { return vec!["no JSON".into()] };
        let schema = json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "allOf": [to_json_schema(&content["schema"])],
            "components": {"schemas": self.schemas},
        });
        match jsonschema::options().should_validate_formats(true).build(&schema) {
            Ok(validator) => {
                validator.iter_errors(&body).map(|error| format!("{} at {}", error, error.instance_path())).collect()
            }
            Err(error) => vec![format!("a schema that is none: {error}")],
        }
    }

    /// What a `$ref` of the file refers to.
    fn resolve_ref<'d>(&'d self, value: &'d Value) -> &'d Value {
        match value["$ref"].as_str().and_then(|reference| reference.strip_prefix('#')) {
            Some(pointer) => self.document.pointer(pointer).unwrap_or(&Value::Null),
            None => value,
        }
    }
}

/// A schema of OpenAPI 3.0 in terms of JSON Schema: `nullable` becomes a type, examples are nothing to judge by.
fn to_json_schema(schema: &Value) -> Value {
    match schema {
        Value::Array(items) => items.iter().map(to_json_schema).collect(),
        Value::Object(fields) => {
            let mut converted: Map<String, Value> = fields
                .iter()
                .filter(|(name, _)| !matches!(name.as_str(), "nullable" | "example"))
                .map(|(name, value)| (name.clone(), to_json_schema(value)))
                .collect();
            if fields.get("nullable") == Some(&Value::Bool(true)) {
                let kind = converted.remove("type").unwrap_or_default();
                converted.insert("type".into(), json!([kind, "null"]));
            }
            Value::Object(converted)
        }
        other => other.clone(),
    }
}
