//! `/docs/guides`, `/terms`, `/privacy`, `/data`: texts that are Markdown in the project, in both languages.

use std::sync::LazyLock;

use askama::Template;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use http::header;
use vintem_domain::Problem;
use vintem_domain::lang::{Lang, Text};

use crate::layout::{Asked, Head, Layout, Styles, html_response};
use crate::markdown::{self, Document};
use crate::pricing::is_page;
use crate::{PageSettings, Shared, refuse};

/// A text in both languages, as it is in the project.
struct Source {
    id: &'static str,
    markdown: Text,
}

macro_rules! guide {
    ($id:literal) => {
        Source {
            id: $id,
            markdown: Text::new(
                include_str!(concat!("../../../docs/guides/", $id, ".md")),
                include_str!(concat!("../../../docs/guides/pt/", $id, ".md")),
            ),
        }
    };
}

macro_rules! text {
    ($id:literal) => {
        Source {
            id: $id,
            markdown: Text::new(
                include_str!(concat!("../../../docs/site/en/", $id, ".md")),
                include_str!(concat!("../../../docs/site/pt/", $id, ".md")),
            ),
        }
    };
}

/// In the order in which they are listed.
static GUIDES: [Source; 8] = [
    guide!("quickstart"),
    guide!("series"),
    guide!("limits"),
    guide!("exports"),
    guide!("csv"),
    guide!("webhooks"),
    guide!("point-in-time"),
    guide!("versioning"),
];

static TEXTS: [Source; 3] = [text!("data"), text!("terms"), text!("privacy")];

/// Read once: a text never changes while the process runs.
struct Texts {
    en: Vec<Document>,
    pt: Vec<Document>,
}

impl Texts {
    fn read(sources: &[Source]) -> Self {
        let all = |lang| sources.iter().map(|source| markdown::read(source.markdown.in_lang(lang))).collect();
        Self { en: all(Lang::En), pt: all(Lang::Pt) }
    }

    fn in_lang(&self, lang: Lang) -> &[Document] {
        match lang {
            Lang::En => &self.en,
            Lang::Pt => &self.pt,
        }
    }
}

static READ_GUIDES: LazyLock<Texts> = LazyLock::new(|| Texts::read(&GUIDES));
static READ_TEXTS: LazyLock<Texts> = LazyLock::new(|| Texts::read(&TEXTS));

/// Where the texts of the site say who is to be asked.
const CONTACT: &str = "{contact}";
const NOBODY_NAMED: Text = Text::new("the operator of this service", "o operador deste serviço");

#[derive(Template)]
#[template(path = "guides.html")]
struct GuidesPage {
    page: Layout,
    guides: Vec<Listed>,
}

#[derive(Template)]
#[template(path = "text.html")]
struct TextPage {
    page: Layout,
    contents_name: &'static str,
    contents: Vec<Listed>,
    html: String,
    /// Where it is to be had as it was written.
    markdown: Option<String>,
}

/// A text in a list of them.
pub(crate) struct Listed {
    pub(crate) path: String,
    pub(crate) title: &'static str,
    pub(crate) summary: &'static str,
}

pub(crate) fn listed(lang: Lang) -> Vec<Listed> {
    let guides = GUIDES.iter().zip(READ_GUIDES.in_lang(lang));
    guides.map(|(source, guide)| entry(format!("/docs/guides/{}", source.id), guide)).collect()
}

fn entry(path: String, document: &'static Document) -> Listed {
    Listed { path, title: &document.title, summary: &document.summary }
}

const TITLE: Text = Text::new("Guides", "Guias");
const DESCRIPTION: Text = Text::new(
    "Quickstart, which Selic and which CDI, limits and errors, exports, webhooks, point in time.",
    "Início rápido, qual Selic e qual CDI, limites e erros, exportações, webhooks, dados de um dia.",
);

pub(crate) async fn show_guides(State(settings): State<Shared>, asked: Asked) -> Response {
    let lang = asked.lang();
    let page = Layout::new(&settings, &asked, Head::new(lang, "/docs/guides", TITLE, DESCRIPTION));
    let guides = GuidesPage { page, guides: listed(lang) };
    html_response(&guides, &guides.page, Styles::File)
}

/// A guide as a page, or with `.md` behind its name as it was written.
pub(crate) async fn show_guide(State(settings): State<Shared>, Path(name): Path<String>, asked: Asked) -> Response {
    let (id, as_markdown) = name.strip_suffix(".md").map_or((name.as_str(), false), |id| (id, true));
    let lang = asked.lang();
    let Some(at) = GUIDES.iter().position(|guide| guide.id == id) else { return refuse(Problem::NoSuchPath) };
    if as_markdown {
        let headers =
            [(header::CONTENT_TYPE, "text/markdown; charset=utf-8"), (header::CACHE_CONTROL, "private, max-age=60")];
        return (headers, GUIDES[at].markdown.in_lang(lang)).into_response();
    }
    let (contents, guide) = (listed(lang), &READ_GUIDES.in_lang(lang)[at]);
    let path = &contents[at].path;
    let head = Head::named(path, format!("{} · Vintém", guide.title), guide.summary.clone());
    let text = TextPage {
        page: Layout::new(&settings, &asked, head),
        contents_name: TITLE.in_lang(lang),
        html: guide.html.clone(),
        markdown: Some(format!("{path}.md")),
        contents,
    };
    html_response(&text, &text.page, Styles::File)
}

pub(crate) async fn show_data(State(settings): State<Shared>, asked: Asked) -> Response {
    show_text(&settings, &asked, "data")
}

pub(crate) async fn show_terms(State(settings): State<Shared>, asked: Asked) -> Response {
    show_text(&settings, &asked, "terms")
}

pub(crate) async fn show_privacy(State(settings): State<Shared>, asked: Asked) -> Response {
    show_text(&settings, &asked, "privacy")
}

fn show_text(settings: &PageSettings, asked: &Asked, id: &str) -> Response {
    let lang = asked.lang();
    let documents = TEXTS.iter().zip(READ_TEXTS.in_lang(lang));
    let contents: Vec<Listed> =
        documents.clone().map(|(source, document)| entry(format!("/{}", source.id), document)).collect();
    let Some((_, document)) = documents.into_iter().find(|(source, _)| source.id == id) else {
        return refuse(Problem::NoSuchPath);
    };
    let named = document.summary.replace(CONTACT, NOBODY_NAMED.in_lang(lang));
    let head = Head::named(&format!("/{id}"), format!("{} · Vintém", document.title), named);
    let text = TextPage {
        page: Layout::new(settings, asked, head),
        contents_name: Text::new("Texts", "Textos").in_lang(lang),
        contents,
        html: document.html.replace(CONTACT, &contact_html(settings.contact.as_deref(), lang)),
        markdown: None,
    };
    html_response(&text, &text.page, Styles::File)
}

/// A link to the operator, whose setting is no HTML of ours.
fn contact_html(contact: Option<&str>, lang: Lang) -> String {
    let Some(contact) = contact else { return NOBODY_NAMED.in_lang(lang).to_owned() };
    let shown = markdown::escaped(contact);
    let scheme = if is_page(contact) { "" } else { "mailto:" };
    format!("<a href=\"{scheme}{shown}\" rel=\"noreferrer noopener external\">{shown}</a>")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is between the fences: what readers copy.
    fn blocks(markdown: &str) -> Vec<&str> {
        markdown.split("\n```").skip(1).step_by(2).collect()
    }

    #[test]
    fn both_languages_have_the_same_code() {
        for source in &GUIDES {
            let (en, pt) = (blocks(source.markdown.en), blocks(source.markdown.pt));
            assert!(!en.is_empty(), "{}", source.id);
            assert_eq!(en, pt, "{}", source.id);
        }
    }

    #[test]
    fn every_text_has_a_title_and_says_what_it_is_for() {
        for document in [Lang::En, Lang::Pt]
            .into_iter()
            .flat_map(|lang| READ_GUIDES.in_lang(lang).iter().chain(READ_TEXTS.in_lang(lang)))
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
    fn the_operators_address_is_escaped() {
        let html = contact_html(Some("https://x\"><script>"), Lang::En);
        assert!(!html.contains("<script>") && !html.contains("x\">"), "{html}");
        assert_eq!(
            contact_html(Some("a@example.com"), Lang::En),
            "<a href=\"mailto:a@example.com\" rel=\"noreferrer noopener external\">a@example.com</a>"
        );
        assert_eq!(contact_html(None, Lang::Pt), "o operador deste serviço");
    }
}
