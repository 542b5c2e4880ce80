//! Reads `openapi.yaml`: lists its operations and validates responses against it.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context;
use reqwest::header::HeaderMap;
use serde_json::{Map, Value, json};

#[derive(Debug)]
pub struct OpenApiSpec {
    document: Value,
    /// Path templates, matched by the same router as in the service.
    path_router: matchit::Router<String>,
    /// `components/schemas` as JSON Schema, the target of references.
    schemas: Value,
}

/// One operation of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpecOperation {
    pub id: String,
    pub method: String,
    pub path: String,
    pub plan: String,
    pub query_parameters: BTreeSet<String>,
    /// The required parameters with the file's own example values: `from=2024-01-01&to=…`.
    pub required_query: String,
    /// Parameters that require a plan, with that plan.
    pub gated_parameters: BTreeMap<String, String>,
    pub statuses: BTreeSet<u16>,
}

/// A response as received.
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
    pub fn load_project_spec() -> anyhow::Result<Self> {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../openapi.yaml");
        Self::new(yaml_serde::from_str(&std::fs::read_to_string(file)?)?)
    }

    pub fn new(document: Value) -> anyhow::Result<Self> {
        let mut path_router = matchit::Router::new();
        for path in document["paths"].as_object().context("paths")?.keys() {
            path_router.insert(path, path.clone())?;
        }
        let schemas = to_json_schema(&document["components"]["schemas"]);
        Ok(Self { document, path_router, schemas })
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
                let example_pair = |parameter: &&Value| {
                    let example = &parameter["example"];
                    let example = example.as_str().map_or_else(|| example.to_string(), str::to_owned);
                    format!("{}={}", parameter["name"].as_str().unwrap_or_default(), example.replace(' ', "%20"))
                };

                let required: Vec<String> =
                    query.iter().filter(|parameter| parameter["required"] == true).map(example_pair).collect();
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

    /// Returns how a response violates the file. Undocumented paths outside `/api/` are not checked.
    pub fn validate_response(&self, observed: &ObservedResponse) -> Vec<String> {
        let Ok(found) = self.path_router.at(&observed.path) else {
            // Requests with two contradicting keys are rejected before routing, hence 400.
            let is_slash_redirect = observed.status == 308 && observed.path.ends_with('/');
            let is_undocumented_allowed = !observed.path.starts_with("/api/")
                || is_slash_redirect
                || matches!(observed.status, 400 | 401 | 404 | 429 | 503);
            return if is_undocumented_allowed { vec![] } else { vec![format!("{} is in no file", observed.path)] };
        };

        let method = if observed.method == "HEAD" { "get".to_owned() } else { observed.method.to_lowercase() };
        let operation = &self.document["paths"][found.value][&method];
        // The service rejects every method that the file does not list.
        if operation.is_null() {
            let is_rejection = matches!(observed.status, 204 | 400 | 401 | 405 | 429 | 503);
            return if is_rejection {
                vec![]
            } else {
                vec![format!("{} {} is in no file", observed.method, observed.path)]
            };
        }

        let response = self.resolve_ref(&operation["responses"][observed.status.to_string()]);
        if response.is_null() {
            return vec![format!(
                "{} {} answered {}, which the file does not name",
                observed.method, observed.path, observed.status
            )];
        }

        let mut violations = self.find_missing_headers(response, observed);
        if observed.method != "HEAD" {
            violations.extend(self.find_body_errors(response, observed));
        }
        let context = format!("{} {} {}", observed.method, observed.path, observed.status);
        violations.into_iter().map(|violation| format!("{context}: {violation}")).collect()
    }

    fn find_missing_headers(&self, response: &Value, observed: &ObservedResponse) -> Vec<String> {
        let documented: BTreeMap<&String, &Value> = response["headers"].as_object().into_iter().flatten().collect();
        let required = documented.into_iter().filter(|(_, header)| self.resolve_ref(header)["required"] == true);
        required
            .filter(|(name, _)| !observed.headers.contains_key(name.as_str()))
            .map(|(name, _)| format!("no {name}"))
            .collect()
    }

    fn find_body_errors(&self, response: &Value, observed: &ObservedResponse) -> Vec<String> {
        let content_type = observed.headers.get("content-type").and_then(|value| value.to_str().ok()).unwrap_or("");
        let essence = content_type.split(';').next().unwrap_or("").trim();

        let Some(contents) = response["content"].as_object() else {
            return if observed.body.is_empty() { vec![] } else { vec!["a body where the file has none".into()] };
        };
        let Some(content) = contents.get(essence) else { return vec![format!("content type {content_type}")] };
        // A compressed body holds the same JSON, so it is not checked again.
        if essence != "application/json" || observed.headers.contains_key("content-encoding") {
            return vec![];
        }

        let Ok(body) = serde_json::from_slice::<Value>(&observed.body) else { return vec!["no JSON".into()] };
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

    /// Follows a `$ref` within the file.
    fn resolve_ref<'d>(&'d self, value: &'d Value) -> &'d Value {
        match value["$ref"].as_str().and_then(|reference| reference.strip_prefix('#')) {
            Some(pointer) => self.document.pointer(pointer).unwrap_or(&Value::Null),
            None => value,
        }
    }
}

/// Converts an OpenAPI 3.0 schema to JSON Schema: `nullable` becomes a type, and examples are dropped.
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
