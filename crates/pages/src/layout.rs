//! What all pages share: the language, the links, the banner over synthetic data, and the headers.

use askama::Template;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, StatusCode, Uri, header};
use vintem_domain::lang::{Lang, Text};

use crate::PageSettings;

/// Where scripts and styles may come from: here alone, and never from within the page.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
     font-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The API reference writes its own style elements; the other pages need no such leave.
const POLICY_WITH_INLINE_STYLES: &str = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; \
     img-src 'self' data:; font-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; \
     frame-ancestors 'none'";

/// A change of plan limits or a switch to real data is to be seen within a minute.
const PAGE_CACHE: &str = "public, max-age=60";

/// What `layout.html` and its children read as `page`.
pub(crate) struct Layout {
    pub(crate) lang: Lang,
    /// Whether the reader chose the language by its link; the choice then goes along from page to page.
    chosen: bool,
    /// The page's own path.
    path: &'static str,
    pub(crate) synthetic: bool,
    pub(crate) public_url: String,
}

impl Layout {
    pub(crate) fn new(settings: &PageSettings, path: &'static str, headers: &HeaderMap, uri: &Uri) -> Self {
        let chosen = lang_of_query(uri.query().unwrap_or(""));
        Self {
            lang: chosen.unwrap_or_else(|| lang_of_headers(headers)),
            chosen: chosen.is_some(),
            path,
            synthetic: (settings.synthetic)(),
            public_url: settings.public_url.clone(),
        }
    }

    /// One text of a template, in the language of the page.
    pub(crate) fn say(&self, en: &'static str, pt: &'static str) -> &'static str {
        Text::new(en, pt).in_lang(self.lang)
    }

    pub(crate) fn html_lang(&self) -> &'static str {
        self.say("en", "pt-BR")
    }

    /// The address of one of our pages.
    pub(crate) fn link(&self, path: &str) -> String {
        if self.chosen { format!("{path}?lang={}", self.say("en", "pt")) } else { path.to_owned() }
    }

    /// This page in the other language.
    pub(crate) fn other_link(&self) -> String {
        format!("{}?lang={}", self.path, self.say("pt", "en"))
    }

    /// `page` for the link to the page that is open, as `aria-current` wants it.
    pub(crate) fn current(&self, path: &str) -> &'static str {
        if path == self.path { "page" } else { "false" }
    }

    /// In the address of style and script, so that a new version never meets the old ones in a cache.
    pub(crate) fn version(&self) -> &'static str {
        env!("CARGO_PKG_VERSION")
    }
}

/// Whether a page may carry styles of its own.
#[derive(Clone, Copy)]
pub(crate) enum Styles {
    File,
    FileAndInline,
}

pub(crate) fn html_response(template: &impl Template, lang: Lang, styles: Styles) -> Response {
    let Ok(html) = template.render() else {
        // Our templates only write to memory, so this is never seen; still no reason to panic.
        return (StatusCode::INTERNAL_SERVER_ERROR, "The page could not be written.\n").into_response();
    };
    let policy = match styles {
        Styles::File => POLICY,
        Styles::FileAndInline => POLICY_WITH_INLINE_STYLES,
    };
    let headers = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CONTENT_LANGUAGE, Text::new("en", "pt-BR").in_lang(lang)),
        (header::CONTENT_SECURITY_POLICY, policy),
        (header::CACHE_CONTROL, PAGE_CACHE),
    ];
    (headers, html).into_response()
}

/// `2000` → `2,000`, in Portuguese `2.000`.
pub(crate) fn grouped(number: u32, lang: Lang) -> String {
    let separator = match lang {
        Lang::En => ',',
        Lang::Pt => '.',
    };
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(separator);
        }
        text.push(digit);
    }
    text
}

fn lang_of_query(query: &str) -> Option<Lang> {
    let value = query.split('&').find_map(|pair| pair.strip_prefix("lang="))?;
    match value {
        "en" => Some(Lang::En),
        "pt" => Some(Lang::Pt),
        _ => None,
    }
}

fn lang_of_headers(headers: &HeaderMap) -> Lang {
    let accepted = headers.get(header::ACCEPT_LANGUAGE).and_then(|value| value.to_str().ok());
    accepted.map_or(Lang::default(), Lang::from_accept_language)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_as_the_language_does() {
        for (number, en, pt) in
            [(30, "30", "30"), (500, "500", "500"), (2000, "2,000", "2.000"), (1234567, "1,234,567", "1.234.567")]
        {
            assert_eq!(grouped(number, Lang::En), en);
            assert_eq!(grouped(number, Lang::Pt), pt);
        }
    }

    #[test]
    fn only_our_two_languages_can_be_asked_for() {
        assert_eq!(lang_of_query("lang=pt"), Some(Lang::Pt));
        assert_eq!(lang_of_query("a=1&lang=en"), Some(Lang::En));
        assert_eq!(lang_of_query("lang=de"), None);
        assert_eq!(lang_of_query("slang=pt"), None);
        assert_eq!(lang_of_query(""), None);
    }
}
