//! `openapi.yaml` and `openapi.pt-BR.yaml`, the description of the API: they are bundled from `openapi/`, they state the
//! values that the code has, and their CSV examples look like the responses.

mod bundle;
mod csv_examples;
mod outline;
mod values;

use bundle::{SourceFiles, bundle_description, read_sources};
use serde_json::Value;
use values::stated_values;
use vintem_domain::lang::Lang;

use crate::TestResult;
use crate::architecture::{check_document, workspace_root};

#[test]
fn documents_include_the_description_bundled_from_its_sources() -> TestResult {
    let sources = read_sources(&workspace_root().join("openapi"))?;
    check_document("openapi.yaml", &bundle_description(&sources, &stated_values(Lang::En), Lang::En)?)?;
    check_document("openapi.pt-BR.yaml", &bundle_description(&sources, &stated_values(Lang::Pt), Lang::Pt)?)
}

/// A reader of the Portuguese reference finds the same operations, fields and examples, in other words.
#[test]
fn both_languages_describe_the_same_api() -> TestResult {
    let read = |file: &str| -> anyhow::Result<Value> {
        let document = yaml_serde::from_str(&std::fs::read_to_string(workspace_root().join(file))?)?;
        Ok(without_texts(document))
    };
    assert_eq!(read("openapi.yaml")?, read("openapi.pt-BR.yaml")?);
    Ok(())
}

/// The description without its texts for people.
fn without_texts(document: Value) -> Value {
    match document {
        Value::Object(entries) => {
            let is_text = |key: &str, value: &Value| matches!(key, "summary" | "description") && value.is_string();
            let kept = entries.into_iter().filter(|(key, value)| !is_text(key, value));
            Value::Object(kept.map(|(key, value)| (key, without_texts(value))).collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(without_texts).collect()),
        other => other,
    }
}

#[test]
fn the_bundle_has_what_presets_and_code_add() -> TestResult {
    let bundle = |lang| bundle_description(&small_sources(), &stated_values(lang), lang);
    assert_eq!(bundle(Lang::En)?, SMALL_BUNDLE);

    let portuguese = SMALL_BUNDLE.replace("# A heading", "# Um título").replace("At most 100 rows", "Até 100 linhas");
    assert_eq!(bundle(Lang::Pt)?, portuguese);
    Ok(())
}

#[test]
fn mistakes_in_the_sources_are_named() {
    let mistakes = [
        ("main.yaml", "info:\n  title: ${no_such_value}\n", "values.rs has no no_such_value"),
        ("main.yaml", "info:\n  title: One of ${plan_ids}\n", "a list must be all of a value"),
        ("main.yaml", "paths:\n  /a:\n    get:\n", "/a is there twice"),
        ("main.yaml", "paths:\n  /b:\n    get:\n      x-responses: [418]\n", "bundle.yaml has no response for 418"),
        ("main.yaml", "info:\n  x-headers: [ETag]\n", "misplaced: x-headers: [ETag]"),
        ("main.yaml", "info:\n  summary: Text\n", "summary without x-summary-pt"),
        ("main.yaml", "info:\n  x-description-pt: Texto\n", "x-description-pt without description"),
        ("forgotten.yaml", "paths:\n", "bundle.yaml does not list forgotten.yaml"),
    ];

    for (file, addition, expected) in mistakes {
        let mut sources = small_sources();
        sources.entry(file.to_owned()).or_default().push_str(addition);

        let error = bundle_description(&sources, &stated_values(Lang::En), Lang::En).expect_err(expected);
        assert!(format!("{error:#}").contains(expected), "{error:#}");
    }
}

/// A description of one operation.
fn small_sources() -> SourceFiles {
    [("bundle.yaml", SMALL_PRESETS), ("main.yaml", SMALL_SOURCE)].map(|(name, text)| (name.into(), text.into())).into()
}

const SMALL_PRESETS: &str = "
files:
  - main.yaml
headers:
  - X-Plan
responses:
  '429': RateLimited
x-responses:
  '304': NotModified
";

const SMALL_SOURCE: &str = "
# Not copied.
openapi: 3.0.3

paths:
  /a:
    get:
      x-responses: [304]
      responses:
        '200':
          description: |
            # A heading

            At most ${max_page_rows} rows.
          x-description-pt: |
            # Um título

            Até ${max_page_rows} linhas.
          x-headers: [ETag]
          content: {}

components:
  schemas:
    Plan:
      enum: ${plan_ids}
";

const SMALL_BUNDLE: &str = "\
# Generated from openapi/ by `just documents`. Edit the files there.
openapi: 3.0.3

paths:
  /a:
    get:
      responses:
        '200':
          description: |
            # A heading

            At most 100 rows.
          headers:
            X-Plan:
              $ref: '#/components/headers/X-Plan'
            ETag:
              $ref: '#/components/headers/ETag'
          content: {}
        '304':
          $ref: '#/components/responses/NotModified'
        '429':
          $ref: '#/components/responses/RateLimited'

components:
  schemas:
    Plan:
      enum:
        - free
        - bronze
        - gold
        - platinum
";
