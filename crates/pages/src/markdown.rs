//! Renders Markdown to HTML. The input is trusted: our own guides and site texts, embedded in the binary.

use pulldown_cmark::{CowStr, Event, HeadingLevel, Options, Parser, Tag, TagEnd, html};

/// A rendered text: its title, its first paragraph, and the whole text as HTML.
#[derive(Debug)]
pub(crate) struct RenderedDocument {
    pub(crate) title: String,
    pub(crate) summary: String,
    pub(crate) html: String,
}

/// Headings get an ID so that they can be linked to, links between guides lead to their pages, and code blocks can be
/// scrolled by keyboard.
pub(crate) fn render(markdown: &str) -> RenderedDocument {
    let parser = Parser::new_ext(markdown, Options::ENABLE_TABLES);
    let mut events: Vec<Event<'_>> = parser.filter(|event| !is_comment(event)).map(rewrite_link).collect();
    let title = first_element_text(&events, is_title);
    let summary = first_element_text(&events, is_paragraph);
    add_heading_ids(&mut events);

    let mut html = String::with_capacity(markdown.len() * 2);
    html::push_html(&mut html, events.into_iter());
    // A focusable code block can be scrolled by keyboard.
    let html = html.replace("<pre>", "<pre tabindex=\"0\">");
    RenderedDocument { title, summary, html }
}

pub(crate) fn escape_html(text: &str) -> String {
    askama::filters::escape(text, askama::filters::Html).map(|text| text.to_string()).unwrap_or_default()
}

/// Comments are for editors of the text, not for readers.
fn is_comment(event: &Event<'_>) -> bool {
    matches!(event, Event::Html(text) if text.starts_with("<!--"))
}

fn is_title(tag: &Tag<'_>) -> bool {
    matches!(tag, Tag::Heading { level: HeadingLevel::H1, .. })
}

fn is_paragraph(tag: &Tag<'_>) -> bool {
    matches!(tag, Tag::Paragraph)
}

/// `csv.md` and `csv.md#part` → `/docs/guides/csv…`. External links are marked as such and send no referrer.
fn rewrite_link(event: Event<'_>) -> Event<'_> {
    match event {
        Event::Start(Tag::Link { dest_url, .. }) if dest_url.contains("://") => Event::InlineHtml(
            format!("<a href=\"{}\" rel=\"noreferrer noopener external\">", escape_html(&dest_url)).into(),
        ),
        Event::Start(Tag::Link { link_type, dest_url, title, id }) => {
            let dest_url = match dest_url.split_once(".md") {
                Some((guide, rest)) if !guide.contains(['/', ':']) => format!("/docs/guides/{guide}{rest}").into(),
                _ => dest_url,
            };
            Event::Start(Tag::Link { link_type, dest_url, title, id })
        }
        other => other,
    }
}

/// The text of the first matching element.
fn first_element_text(events: &[Event<'_>], is_match: impl Fn(&Tag<'_>) -> bool) -> String {
    let is_start = |event: &Event<'_>| matches!(event, Event::Start(tag) if is_match(tag));
    let content = events.iter().skip_while(|event| !is_start(event)).skip(1);
    let is_inside = |event: &&Event<'_>| !matches!(event, Event::End(TagEnd::Heading(_) | TagEnd::Paragraph));

    content
        .take_while(is_inside)
        .filter_map(|event| match event {
            Event::Text(text) | Event::Code(text) => Some(text.as_ref()),
            Event::SoftBreak => Some(" "),
            _ => None,
        })
        .collect()
}

fn add_heading_ids(events: &mut [Event<'_>]) {
    for index in 0..events.len() {
        let slug = match &events[index] {
            Event::Start(Tag::Heading { level, .. }) if *level != HeadingLevel::H1 => {
                slugify(&first_element_text(&events[index..], |tag| matches!(tag, Tag::Heading { .. })))
            }
            _ => continue,
        };
        if let Event::Start(Tag::Heading { id, .. }) = &mut events[index] {
            *id = Some(CowStr::from(slug));
        }
    }
}

fn slugify(heading: &str) -> String {
    let words = heading.split(|character: char| !character.is_alphanumeric()).filter(|word| !word.is_empty());
    words.map(str::to_lowercase).collect::<Vec<_>>().join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rendered_document_has_title_summary_and_heading_ids() {
        let text =
            "# Lists as `CSV`\n\nEvery list.\nFor *Platinum*.\n\n## Get a list\n\n[x](exports.md#now) [y](/pricing)\n";
        let document = render(text);
        assert_eq!(document.title, "Lists as CSV");
        assert_eq!(document.summary, "Every list. For Platinum.");
        assert!(document.html.contains("<h2 id=\"get-a-list\">Get a list</h2>"), "{}", document.html);
        assert!(document.html.contains("href=\"/docs/guides/exports#now\""));
        assert!(document.html.contains("href=\"/pricing\""));

        let external = render("# A\n\n[x](https://example.com/?a=1&b=2)\n").html;
        assert!(
            external
                .contains("<a href=\"https://example.com/?a=1&#38;b=2\" rel=\"noreferrer noopener external\">x</a>"),
            "{external}"
        );
    }
}
