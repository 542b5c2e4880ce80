//! Bundles the files of `openapi/` into `openapi.yaml` and `openapi.pt-BR.yaml`. `openapi/README.md` explains the
//! conventions of these files.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, bail, ensure};

use super::outline::{OutlineNode, parse_outline};
use super::values::StatedValue;
use vintem_domain::lang::Lang;

const FIRST_LINE: &str = "# Generated from openapi/ by `just documents`. Edit the files there.";

/// Names the other files and what every operation and response has.
const PRESET_FILE: &str = "bundle.yaml";

/// The sections of `components`, in the order of the bundle.
const COMPONENT_SECTIONS: [&str; 5] = ["securitySchemes", "parameters", "headers", "responses", "schemas"];

/// The files by their paths below `openapi/`.
pub type SourceFiles = BTreeMap<String, String>;

/// The description in one language.
pub fn bundle_description(
    sources: &SourceFiles,
    values: &BTreeMap<String, StatedValue>,
    lang: Lang,
) -> anyhow::Result<String> {
    let presets = Presets::parse(sources)?;
    let mut description = Description::merge(sources, &presets.files)?;
    description.localize(lang)?;

    for path in &mut description.paths {
        for operation in &mut path.children {
            presets.complete_operation(operation).with_context(|| path.text.clone())?;
        }
    }

    for response in description.components.get_mut("responses").into_iter().flatten() {
        presets.complete_response(response);
    }

    fill_values(&description.to_text()?, values)
}

/// Reads all YAML files of a directory and of its subdirectories.
pub fn read_sources(directory: &Path) -> anyhow::Result<SourceFiles> {
    let mut sources = SourceFiles::new();
    let mut directories = vec![directory.to_owned()];

    while let Some(current) = directories.pop() {
        for entry in std::fs::read_dir(current)? {
            let path = entry?.path();
            if path.is_dir() {
                directories.push(path);
            } else if path.extension().is_some_and(|extension| extension == "yaml") {
                let name = path.strip_prefix(directory)?.to_str().context("a name in UTF-8")?;
                sources.insert(name.to_owned(), std::fs::read_to_string(&path)?);
            }
        }
    }

    Ok(sources)
}

/// What `bundle.yaml` says.
struct Presets {
    files: Vec<String>,
    /// The headers of every response.
    headers: Vec<String>,
    /// The responses of every operation: status and component.
    responses: Vec<(String, String)>,
    /// The responses that operations name in `x-responses`: status and component.
    named_responses: Vec<(String, String)>,
}

impl Presets {
    fn parse(sources: &SourceFiles) -> anyhow::Result<Self> {
        let text = sources.get(PRESET_FILE).context(PRESET_FILE)?;
        let sections = parse_outline(text);
        let section = |key: &str| sections.iter().find(|section| section.key() == key).context(key.to_owned());
        let list = |key| anyhow::Ok(section(key)?.items().into_iter().map(str::to_owned).collect());
        let mapping = |key| {
            let entries = section(key)?.children.iter();
            anyhow::Ok(entries.map(|entry| (entry.key().to_owned(), entry.value().to_owned())).collect())
        };

        let presets = Self {
            files: list("files")?,
            headers: list("headers")?,
            responses: mapping("responses")?,
            named_responses: mapping("x-responses")?,
        };

        for name in sources.keys().filter(|name| *name != PRESET_FILE) {
            ensure!(presets.files.contains(name), "{PRESET_FILE} does not list {name}");
        }

        Ok(presets)
    }

    /// Adds the responses that every operation has and those that it names, and completes its own.
    fn complete_operation(&self, operation: &mut OutlineNode) -> anyhow::Result<()> {
        let mut shared: Vec<&(String, String)> = self.responses.iter().collect();
        let named = operation.take_child("x-responses");
        for status in named.iter().flat_map(OutlineNode::items) {
            let response = self.named_responses.iter().find(|(other, _)| other == status);
            shared.push(response.with_context(|| format!("{PRESET_FILE} has no response for {status}"))?);
        }

        let responses = operation.child_mut("responses").context("an operation without responses")?;
        for response in &mut responses.children {
            self.complete_response(response);
        }

        let indent = responses.indent + 2;
        for (status, component) in shared {
            ensure!(responses.child(status).is_none(), "{status} is there twice");
            let key = format!("'{status}'");
            responses.children.push(reference(indent, &key, "responses", component));
        }
        responses.children.sort_by(|one, other| one.key().cmp(other.key()));

        Ok(())
    }

    /// Adds the headers that every response has and those that it names.
    fn complete_response(&self, response: &mut OutlineNode) {
        if response.child("$ref").is_some() {
            return;
        }

        let indent = response.indent + 2;
        let named = response.take_child("x-headers");
        let names = self.headers.iter().map(String::as_str).chain(named.iter().flat_map(OutlineNode::items));
        let own = response.take_child("headers");

        let mut headers = OutlineNode::new(indent, "headers:");
        headers.children = names.map(|name| reference(indent + 2, name, "headers", name)).collect();
        headers.children.extend(own.into_iter().flat_map(|own| own.children));

        let after_description = response.children.iter().position(|child| child.key() == "description");
        response.children.insert(after_description.map_or(0, |index| index + 1), headers);
    }
}

/// An entry that refers to a component.
fn reference(indent: usize, key: &str, section: &str, component: &str) -> OutlineNode {
    let target = OutlineNode::new(indent + 2, format!("$ref: '#/components/{section}/{component}'"));
    OutlineNode { indent, text: format!("{key}:"), children: vec![target] }
}

/// The files merged into one.
#[derive(Default)]
struct Description {
    /// Everything but paths and components: `info`, `tags` and the like.
    head: Vec<OutlineNode>,
    paths: Vec<OutlineNode>,
    components: BTreeMap<String, Vec<OutlineNode>>,
}

impl Description {
    fn merge(sources: &SourceFiles, files: &[String]) -> anyhow::Result<Self> {
        let mut merged = Self::default();

        for file in files {
            let text =
                sources.get(file).with_context(|| format!("{PRESET_FILE} lists {file}, which does not exist"))?;
            for section in parse_outline(text) {
                merged.add(section).with_context(|| file.clone())?;
            }
        }

        Ok(merged)
    }

    fn add(&mut self, section: OutlineNode) -> anyhow::Result<()> {
        match section.key() {
            "paths" => append(&mut self.paths, section.children),
            "components" => {
                for components in section.children {
                    let key = components.key().to_owned();
                    ensure!(COMPONENT_SECTIONS.contains(&key.as_str()), "components/{key} has no place in the bundle");
                    append(self.components.entry(key).or_default(), components.children)?;
                }
                Ok(())
            }
            _ => append(&mut self.head, vec![section]),
        }
    }

    fn localize(&mut self, lang: Lang) -> anyhow::Result<()> {
        let components = self.components.values_mut().flatten();
        for node in self.head.iter_mut().chain(&mut self.paths).chain(components) {
            localize(node, lang).with_context(|| node.text.clone())?;
        }
        Ok(())
    }

    fn to_text(&self) -> anyhow::Result<String> {
        let mut text = format!("{FIRST_LINE}\n");
        for section in &self.head {
            section.write_to(&mut text);
            text.push('\n');
        }

        text.push_str("paths:\n");
        for path in &self.paths {
            path.write_to(&mut text);
            text.push('\n');
        }

        text.push_str("components:\n");
        for key in COMPONENT_SECTIONS {
            let Some(components) = self.components.get(key) else { continue };
            text.push_str(&format!("  {key}:\n"));
            for component in components {
                component.write_to(&mut text);
                text.push('\n');
            }
        }

        // Elsewhere than on operations and responses these mean nothing.
        for line in text.lines().map(str::trim_start) {
            let is_ours = ["x-responses:", "x-headers:", "x-summary-pt:", "x-description-pt:"];
            ensure!(!is_ours.iter().any(|key| line.starts_with(key)), "misplaced: {line}");
        }

        Ok(format!("{}\n", text.trim_end()))
    }
}

/// The texts for people, each with the key of its Portuguese version.
const TRANSLATED_KEYS: [(&str, &str); 2] = [("summary", "x-summary-pt"), ("description", "x-description-pt")];

/// Keys whose contents are data, not description.
const DATA_KEYS: [&str; 4] = ["example", "value", "default", "enum"];

/// Leaves each text in one language only. Every text must have a Portuguese version.
fn localize(node: &mut OutlineNode, lang: Lang) -> anyhow::Result<()> {
    for (key, portuguese_key) in TRANSLATED_KEYS {
        let portuguese = node.take_child(portuguese_key);
        let Some(text) = node.child_mut(key).filter(|child| !child.value().is_empty()) else {
            ensure!(portuguese.is_none(), "{portuguese_key} without {key}");
            continue;
        };

        let portuguese = portuguese.with_context(|| format!("{key} without {portuguese_key}: {}", text.text))?;
        if lang == Lang::Pt {
            text.text = format!("{key}: {}", portuguese.value());
            text.children = portuguese.children;
        }
    }

    // A property may have such a name.
    let are_properties = node.key() == "properties";
    for child in node.children.iter_mut().filter(|child| are_properties || !DATA_KEYS.contains(&child.key())) {
        localize(child, lang).with_context(|| child.text.clone())?;
    }
    Ok(())
}

/// Adds entries to a mapping, each once.
fn append(entries: &mut Vec<OutlineNode>, added: Vec<OutlineNode>) -> anyhow::Result<()> {
    for entry in added {
        let is_repeated = entries.iter().any(|other| other.key() == entry.key());
        ensure!(!is_repeated, "{} is there twice", entry.key());
        entries.push(entry);
    }

    Ok(())
}

/// Replaces each `${name}` by the value that the code has for it.
fn fill_values(text: &str, values: &BTreeMap<String, StatedValue>) -> anyhow::Result<String> {
    let mut filled = String::new();
    for line in text.lines() {
        fill_line(line, values, &mut filled).with_context(|| line.trim().to_owned())?;
        filled.push('\n');
    }

    Ok(filled)
}

fn fill_line(line: &str, values: &BTreeMap<String, StatedValue>, output: &mut String) -> anyhow::Result<()> {
    let mut rest = line;
    while let Some((before, after)) = rest.split_once("${") {
        let (name, after) = after.split_once('}').context("no } after ${")?;
        output.push_str(before);

        match values.get(name) {
            Some(StatedValue::Text(value)) => output.push_str(value),
            Some(StatedValue::List(items)) => {
                ensure!(after.is_empty() && before.ends_with(": "), "a list must be all of a value");
                let item_indent = line.len() - line.trim_start().len() + 2;
                output.truncate(output.trim_end().len());
                for item in items {
                    output.push_str(&format!("\n{}- {item}", " ".repeat(item_indent)));
                }
            }
            None => bail!("values.rs has no {name}"),
        }

        rest = after;
    }
    output.push_str(rest);

    Ok(())
}
