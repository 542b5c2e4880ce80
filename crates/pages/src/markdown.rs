//! From Markdown to HTML. What goes in is our own: guides and texts of the site, embedded in the binary.

use pulldown_cmark::{CowStr, Event, HeadingLevel, Options, Parser, Tag, TagEnd, html};

/// A text that was read once: its title, its first paragraph, and all of it as HTML.
#[derive(Debug)]
pub(crate) struct RenderedDocument {
    pub(crate) title: String,
    pub(crate) summary: String,
    pub(crate) html: String,
}

/// Headings get an id by which they can be linked to; links among guides lead to their pages; long lines of code can be
/// scrolled to by keyboard.
pub(crate) fn render(markdown: &str) -> RenderedDocument {
    let parser = Parser::new_ext(markdown, Options::ENABLE_TABLES);
    let mut events: Vec<Event<'_>> = parser.map(rewrite_link).collect();
    let (title, summary) = (first_element_text(&events, is_title), first_element_text(&events, is_paragraph));
    add_heading_ids(&mut events);
    let mut html = String::with_capacity(markdown.len() * 2);
    html::push_html(&mut html, events.into_iter());
    // Long lines of code are scrolled to, also by keyboard.
    let html = html.replace("<pre>", "<pre tabindex=\"0\">");
    RenderedDocument { title, summary, html }
}

/// Text that is no HTML of ours, as HTML.
pub(crate) fn escape_html(text: &str) -> String {
    askama::filters::escape(text, askama::filters::Html).map(|text| text.to_string()).unwrap_or_default()
}

fn is_title(tag: &Tag<'_>) -> bool {
    matches!(tag, Tag::Heading { level: HeadingLevel::H1, .. })
}

fn is_paragraph(tag: &Tag<'_>) -> bool {
    matches!(tag, Tag::Paragraph)
}

/// `csv.md` and `csv.md#part` → `/docs/guides/csv…`; what leads away says so, and does not say from where.
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

/// The words of the first element that is one of these.
fn first_element_text(events: &[Event<'_>], is_wanted: impl Fn(&Tag<'_>) -> bool) -> String {
    let starts = |event: &Event<'_>| matches!(event, Event::Start(tag) if is_wanted(tag));
    let within = events.iter().skip_while(|event| !starts(event)).skip(1);
    let ends = |event: &&Event<'_>| !matches!(event, Event::End(TagEnd::Heading(_) | TagEnd::Paragraph));
    within
        .take_while(ends)
        .filter_map(|event| match event {
            Event::Text(text) | Event::Code(text) => Some(text.as_ref()),
            Event::SoftBreak => Some(" "),
            _ => None,
        })
        .collect()
}

fn add_heading_ids(events: &mut [Event<'_>]) {
    for at in 0..events.len() {
        let slug = match &events[at] {
            Event::Start(Tag::Heading { level, .. }) if *level != HeadingLevel::H1 => {
                slugify(&first_element_text(&events[at..], |tag| matches!(tag, Tag::Heading { .. })))
            }
            _ => continue,
        };
        if let Event::Start(Tag::Heading { id, .. }) = &mut events[at] {
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
            "# Lists as `CSV`\n\nEvery list.\nFor *Platinum*.\n\n## Ask for it\n\n[x](exports.md#now) [y](/pricing)\n";
        let document = render(text);
        assert_eq!(document.title, "Lists as CSV");
        assert_eq!(document.summary, "Every list. For Platinum.");
        assert!(document.html.contains("<h2 id=\"ask-for-it\">Ask for it</h2>"), "{}", document.html);
        assert!(document.html.contains("href=\"/docs/guides/exports#now\""));
        assert!(document.html.contains("href=\"/pricing\""));
        let away = render("# A\n\n[x](https://example.com/?a=1&b=2)\n").html;
        assert!(
            away.contains("<a href=\"https://example.com/?a=1&#38;b=2\" rel=\"noreferrer noopener external\">x</a>"),
            "{away}"
        );
    }
}
