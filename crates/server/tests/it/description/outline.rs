//! YAML as an outline: lines, each with the lines indented below it.
//!
//! The bundle repeats the lines of its sources as they are written, so quotes, folded texts and the digits of examples
//! stay the same. Comments and blank lines are left out, except inside texts.

use std::iter::Peekable;
use std::str::Lines;

/// A line, and the lines indented below it.
#[derive(Debug, Clone)]
pub struct OutlineNode {
    pub indent: usize,
    /// The line without its indentation.
    pub text: String,
    pub children: Vec<Self>,
}

impl OutlineNode {
    pub fn new(indent: usize, text: impl Into<String>) -> Self {
        Self { indent, text: text.into(), children: Vec::new() }
    }

    /// The key of a mapping entry, without quotes.
    pub fn key(&self) -> &str {
        let key = self.text.split_once(':').map_or(self.text.as_str(), |(key, _)| key);
        key.trim_matches('\'')
    }

    /// The value that follows the key on the same line.
    pub fn value(&self) -> &str {
        self.text.split_once(": ").map_or("", |(_, value)| value)
    }

    /// The items of a list, written as `key: [a, b]` or one to a line.
    pub fn items(&self) -> Vec<&str> {
        match self.value().strip_prefix('[') {
            Some(list) => list.trim_end_matches(']').split(',').map(str::trim).collect(),
            None => self.children.iter().map(|item| item.text.trim_start_matches("- ")).collect(),
        }
    }

    pub fn child(&self, key: &str) -> Option<&Self> {
        self.children.iter().find(|child| child.key() == key)
    }

    pub fn child_mut(&mut self, key: &str) -> Option<&mut Self> {
        self.children.iter_mut().find(|child| child.key() == key)
    }

    /// Removes a child and returns it.
    pub fn take_child(&mut self, key: &str) -> Option<Self> {
        let index = self.children.iter().position(|child| child.key() == key)?;
        Some(self.children.remove(index))
    }

    pub fn write_to(&self, output: &mut String) {
        if !self.text.is_empty() {
            output.push_str(&" ".repeat(self.indent));
            output.push_str(&self.text);
        }
        output.push('\n');

        for child in &self.children {
            child.write_to(output);
        }
    }
}

/// The lines of a file that are not indented, with everything below them.
pub fn parse_outline(text: &str) -> Vec<OutlineNode> {
    parse_nodes(&mut text.lines().peekable(), None)
}

fn parse_nodes(lines: &mut Peekable<Lines<'_>>, parent_indent: Option<usize>) -> Vec<OutlineNode> {
    let mut nodes = Vec::new();
    let belongs_here = |line: &&str| is_ignored(line) || parent_indent.is_none_or(|parent| indent_of(line) > parent);

    while let Some(line) = lines.next_if(belongs_here) {
        if is_ignored(line) {
            continue;
        }

        let mut node = OutlineNode::new(indent_of(line), line.trim());
        node.children =
            if begins_text(line) { parse_text(lines, node.indent) } else { parse_nodes(lines, Some(node.indent)) };
        nodes.push(node);
    }

    nodes
}

/// The lines of a literal or folded text, blank ones and those that look like comments included.
fn parse_text(lines: &mut Peekable<Lines<'_>>, parent_indent: usize) -> Vec<OutlineNode> {
    let mut nodes = Vec::new();
    while let Some(line) = lines.next_if(|line| line.trim().is_empty() || indent_of(line) > parent_indent) {
        nodes.push(OutlineNode::new(indent_of(line), line.trim()));
    }

    while nodes.last().is_some_and(|node| node.text.is_empty()) {
        nodes.pop();
    }

    nodes
}

fn begins_text(line: &str) -> bool {
    [": |", ": |-", ": >", ": >-"].iter().any(|ending| line.ends_with(ending))
}

fn is_ignored(line: &str) -> bool {
    let text = line.trim();
    text.is_empty() || text.starts_with('#')
}

fn indent_of(line: &str) -> usize {
    line.len() - line.trim_start().len()
}
