//! `openapi.yaml`, the description of the API: it is bundled from `openapi/`, it states the values that the code has,
//! and its CSV examples look like the responses.

mod bundle;
mod csv_examples;
mod outline;
mod values;

use bundle::{SourceFiles, bundle_description, read_sources};
use values::stated_values;

use crate::TestResult;
use crate::architecture::{check_document, workspace_root};

#[test]
fn documents_include_the_description_bundled_from_its_sources() -> TestResult {
    let sources = read_sources(&workspace_root().join("openapi"))?;
    check_document("openapi.yaml", &bundle_description(&sources, &stated_values())?)
}

#[test]
fn the_bundle_has_what_presets_and_code_add() -> TestResult {
    let bundle = bundle_description(&small_sources(), &stated_values())?;
    assert_eq!(bundle, SMALL_BUNDLE);
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
        ("forgotten.yaml", "paths:\n", "bundle.yaml does not list forgotten.yaml"),
    ];

    for (file, addition, expected) in mistakes {
        let mut sources = small_sources();
        sources.entry(file.to_owned()).or_default().push_str(addition);

        let error = bundle_description(&sources, &stated_values()).expect_err(expected);
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
