//! `/docs/guides`, `/terms`, `/privacy`, `/data`: pages rendered from the Markdown files in `docs/`, in both languages.

use std::sync::LazyLock;

use askama::Template;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use http::header;
use vintem_domain::Problem;
use vintem_domain::lang::{Lang, LocalizedText};

use crate::context::{PageContext, SharedSettings};
use crate::layout::{Layout, PageMetadata, PageRequest, StylePolicy, html_response};
use crate::markdown::{self, RenderedDocument};
use crate::pricing::is_web_url;
use crate::problem_response::problem_response;

/// The Markdown of a page in both languages.
struct MarkdownSource {
    id: &'static str,
    markdown: LocalizedText,
}

macro_rules! guide_source {
    ($id:literal) => {
        MarkdownSource {
            id: $id,
            markdown: LocalizedText::new(
                include_str!(concat!("../../../docs/guides/", $id, ".md")),
                include_str!(concat!("../../../docs/guides/pt/", $id, ".md")),
            ),
        }
    };
}

macro_rules! site_text_source {
    ($id:literal) => {
        MarkdownSource {
            id: $id,
            markdown: LocalizedText::new(
                include_str!(concat!("../../../docs/site/en/", $id, ".md")),
                include_str!(concat!("../../../docs/site/pt/", $id, ".md")),
            ),
        }
    };
}

/// In display order.
static GUIDE_SOURCES: [MarkdownSource; 10] = [
    guide_source!("quickstart"),
    guide_source!("series"),
    guide_source!("contracts"),
    guide_source!("limits"),
    guide_source!("exports"),
    guide_source!("csv"),
    guide_source!("webhooks"),
    guide_source!("point-in-time"),
    guide_source!("statements"),
    guide_source!("versioning"),
];

static SITE_TEXT_SOURCES: [MarkdownSource; 3] =
    [site_text_source!("data"), site_text_source!("terms"), site_text_source!("privacy")];

/// Documents rendered once: they never change while the process runs.
struct LocalizedDocuments {
    en: Vec<RenderedDocument>,
    pt: Vec<RenderedDocument>,
}

impl LocalizedDocuments {
    fn render(sources: &[MarkdownSource]) -> Self {
        let render_all = |lang| sources.iter().map(|source| markdown::render(source.markdown.in_lang(lang))).collect();
        Self { en: render_all(Lang::En), pt: render_all(Lang::Pt) }
    }

    fn in_lang(&self, lang: Lang) -> &[RenderedDocument] {
        match lang {
            Lang::En => &self.en,
            Lang::Pt => &self.pt,
        }
    }
}

static RENDERED_GUIDES: LazyLock<LocalizedDocuments> = LazyLock::new(|| LocalizedDocuments::render(&GUIDE_SOURCES));
static RENDERED_SITE_TEXTS: LazyLock<LocalizedDocuments> =
    LazyLock::new(|| LocalizedDocuments::render(&SITE_TEXT_SOURCES));

/// Replaced with the contact of the operator.
const CONTACT_PLACEHOLDER: &str = "{contact}";
const DEFAULT_CONTACT: LocalizedText = LocalizedText::new("the operator of this service", "o operador deste serviço");

#[derive(Template)]
#[template(path = "guides.html")]
struct GuidesPage {
    page: Layout,
    guides: Vec<DocumentLink>,
}

#[derive(Template)]
#[template(path = "text.html")]
struct TextPage {
    page: Layout,
    contents_label: &'static str,
    contents: Vec<DocumentLink>,
    html: String,
    markdown_url: Option<String>,
}

pub(crate) struct DocumentLink {
    pub(crate) path: String,
    pub(crate) title: &'static str,
    pub(crate) summary: &'static str,
}

pub(crate) fn list_guides(lang: Lang) -> Vec<DocumentLink> {
    let guides = GUIDE_SOURCES.iter().zip(RENDERED_GUIDES.in_lang(lang));
    guides.map(|(source, guide)| document_link(format!("/docs/guides/{}", source.id), guide)).collect()
}

fn document_link(path: String, document: &'static RenderedDocument) -> DocumentLink {
    DocumentLink { path, title: &document.title, summary: &document.summary }
}

const TITLE: LocalizedText = LocalizedText::new("Guides", "Guias");
const DESCRIPTION: LocalizedText = LocalizedText::new(
    "Quickstart, series, contracts and savings, rate limits and errors, bulk export, CSV, webhooks and point-in-time data.",
    "Início rápido, séries, contratos e poupança, limites e erros, exportação, CSV, webhooks e dados point-in-time.",
);

pub(crate) async fn show_guides(State(settings): State<SharedSettings>, request: PageRequest) -> Response {
    let lang = request.lang();
    let page = Layout::new(&settings, &request, PageMetadata::new(lang, "/docs/guides", TITLE, DESCRIPTION));
    let guides = GuidesPage { page, guides: list_guides(lang) };
    html_response(&guides, &guides.page, StylePolicy::ExternalOnly)
}

/// A guide as a page, or as Markdown if its name ends in `.md`.
pub(crate) async fn show_guide(
    State(settings): State<SharedSettings>,
    Path(name): Path<String>,
    request: PageRequest,
) -> Response {
    let (id, as_markdown) = name.strip_suffix(".md").map_or((name.as_str(), false), |id| (id, true));
    let lang = request.lang();
    let Some(index) = GUIDE_SOURCES.iter().position(|guide| guide.id == id) else {
        return problem_response(Problem::NoSuchPath);
    };

    if as_markdown {
        let headers =
            [(header::CONTENT_TYPE, "text/markdown; charset=utf-8"), (header::CACHE_CONTROL, "private, max-age=60")];
        return (headers, GUIDE_SOURCES[index].markdown.in_lang(lang)).into_response();
    }

    let contents = list_guides(lang);
    let guide = &RENDERED_GUIDES.in_lang(lang)[index];
    let path = &contents[index].path;
    let metadata = PageMetadata::with_title(path, format!("{} · Vintém", guide.title), guide.summary.clone());
    let text = TextPage {
        page: Layout::new(&settings, &request, metadata),
        contents_label: TITLE.in_lang(lang),
        html: guide.html.clone(),
        markdown_url: Some(format!("{path}.md")),
        contents,
    };
    html_response(&text, &text.page, StylePolicy::ExternalOnly)
}

pub(crate) async fn show_data(State(settings): State<SharedSettings>, request: PageRequest) -> Response {
    render_site_text(&settings, &request, "data")
}

pub(crate) async fn show_terms(State(settings): State<SharedSettings>, request: PageRequest) -> Response {
    render_site_text(&settings, &request, "terms")
}

pub(crate) async fn show_privacy(State(settings): State<SharedSettings>, request: PageRequest) -> Response {
    render_site_text(&settings, &request, "privacy")
}

fn render_site_text(settings: &PageContext, request: &PageRequest, id: &str) -> Response {
    let lang = request.lang();
    let documents = SITE_TEXT_SOURCES.iter().zip(RENDERED_SITE_TEXTS.in_lang(lang));
    let contents: Vec<DocumentLink> =
        documents.clone().map(|(source, document)| document_link(format!("/{}", source.id), document)).collect();
    let Some((_, document)) = documents.into_iter().find(|(source, _)| source.id == id) else {
        return problem_response(Problem::NoSuchPath);
    };

    let summary = document.summary.replace(CONTACT_PLACEHOLDER, DEFAULT_CONTACT.in_lang(lang));
    let metadata = PageMetadata::with_title(&format!("/{id}"), format!("{} · Vintém", document.title), summary);
    let text = TextPage {
        page: Layout::new(settings, request, metadata),
        contents_label: LocalizedText::new("About this site", "Sobre o site").in_lang(lang),
        contents,
        html: document.html.replace(CONTACT_PLACEHOLDER, &contact_html(settings.contact.as_deref(), lang)),
        markdown_url: None,
    };
    html_response(&text, &text.page, StylePolicy::ExternalOnly)
}

/// A link to the operator. The setting is escaped, because it may contain anything.
fn contact_html(contact: Option<&str>, lang: Lang) -> String {
    let Some(contact) = contact else { return DEFAULT_CONTACT.in_lang(lang).to_owned() };
    let escaped = markdown::escape_html(contact);
    let scheme = if is_web_url(contact) { "" } else { "mailto:" };
    format!("<a href=\"{scheme}{escaped}\" rel=\"noreferrer noopener external\">{escaped}</a>")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The code between fences, which readers copy.
    fn code_blocks(markdown: &str) -> Vec<&str> {
        markdown.split("\n```").skip(1).step_by(2).collect()
    }

    #[test]
    fn guides_have_the_same_code_blocks_in_both_languages() {
        for source in &GUIDE_SOURCES {
            let en = code_blocks(source.markdown.en);
            let pt = code_blocks(source.markdown.pt);
            assert!(!en.is_empty(), "{}", source.id);
            assert_eq!(en, pt, "{}", source.id);
        }
    }

    #[test]
    fn every_document_has_a_title_and_a_summary() {
        for document in [Lang::En, Lang::Pt]
            .into_iter()
            .flat_map(|lang| RENDERED_GUIDES.in_lang(lang).iter().chain(RENDERED_SITE_TEXTS.in_lang(lang)))
        {
            assert!(!document.title.is_empty() && document.title.len() < 60, "{document:?}");
            assert!(
                document.summary.len() > 20 && document.summary.len() < 400,
                "{}: {}",
                document.title,
                document.summary
            );
        }
    }

    #[test]
    fn operator_contact_is_escaped() {
        let html = contact_html(Some("https://x\"><script>"), Lang::En);
        assert!(!html.contains("<script>") && !html.contains("x\">"), "{html}");
        assert_eq!(
            contact_html(Some("a@example.com"), Lang::En),
            "<a href=\"mailto:a@example.com\" rel=\"noreferrer noopener external\">a@example.com</a>"
        );
        assert_eq!(contact_html(None, Lang::Pt), "o operador deste serviço");
    }
}
