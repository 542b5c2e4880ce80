//! Parts shared by all pages: language, links, the banner above synthetic data, and response headers.

use std::convert::Infallible;

use askama::Template;
use axum::extract::FromRequestParts;
use axum::response::{IntoResponse, Response};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use vintem_domain::VERSION;
use vintem_domain::lang::{Lang, LocalizedText};

use crate::assets;
use crate::context::PageContext;

/// The maximum number of filings, companies or search hits on a page, so that pages cannot bypass the plans.
pub(crate) const MAX_PAGE_ROWS: usize = 10;

/// Scripts and styles come from our own host only, never inline.
const STRICT_CSP: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
     font-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'";

/// The API reference inserts its own style elements; no other page needs that.
const CSP_WITH_INLINE_STYLES: &str = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; \
     img-src 'self' data:; font-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'self'; \
     frame-ancestors 'none'";

/// Short, so that new plan limits or a switch to real data show up within a minute.
const PAGE_CACHE_CONTROL: &str = "private, max-age=60";

const LANG_COOKIE_SECONDS: u32 = 365 * 24 * 3600;

/// The parts of a request that every page reads.
#[derive(Debug, Clone)]
pub(crate) struct PageRequest {
    pub(crate) headers: HeaderMap,
    pub(crate) uri: Uri,
}

impl<S: Sync> FromRequestParts<S> for PageRequest {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(Self { headers: parts.headers.clone(), uri: parts.uri.clone() })
    }
}

impl PageRequest {
    /// The language that the reader chose with the language switch, now or earlier, or else the browser's language.
    pub(crate) fn lang(&self) -> Lang {
        let chosen = self.lang_from_query().or_else(|| self.lang_from_cookie());
        chosen.unwrap_or_else(|| {
            let accepted = self.headers.get(header::ACCEPT_LANGUAGE).and_then(|value| value.to_str().ok());
            accepted.map_or(Lang::default(), Lang::from_accept_language)
        })
    }

    fn lang_from_query(&self) -> Option<Lang> {
        self.uri.query()?.split('&').find_map(|pair| parse_lang(pair.strip_prefix("lang=")?))
    }

    fn lang_from_cookie(&self) -> Option<Lang> {
        let cookies = self.headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
        cookies.flat_map(|value| value.split(';')).find_map(|pair| parse_lang(pair.trim().strip_prefix("lang=")?))
    }
}

fn parse_lang(text: &str) -> Option<Lang> {
    match text {
        "en" => Some(Lang::En),
        "pt" => Some(Lang::Pt),
        _ => None,
    }
}

/// Title and description of a page, as browsers and search engines show them.
pub(crate) struct PageMetadata {
    pub(crate) title: String,
    pub(crate) description: String,
    /// The page's own path, without a query.
    pub(crate) path: String,
    pub(crate) is_indexable: bool,
}

impl PageMetadata {
    /// For pages with a fixed title.
    pub(crate) fn new(lang: Lang, path: &str, title: LocalizedText, description: LocalizedText) -> Self {
        Self::with_title(path, format!("{} · Vintém", title.in_lang(lang)), description.in_lang(lang).to_owned())
    }

    pub(crate) fn with_title(path: &str, title: String, description: String) -> Self {
        Self { title, description, path: path.to_owned(), is_indexable: true }
    }

    pub(crate) fn noindex(self) -> Self {
        Self { is_indexable: false, ..self }
    }
}

/// `page` in `layout.html` and the templates that extend it.
pub(crate) struct Layout {
    pub(crate) lang: Lang,
    /// Whether the query sets the language. If so, a cookie remembers it.
    has_lang_param: bool,
    pub(crate) title: String,
    pub(crate) description: String,
    pub(crate) path: String,
    pub(crate) is_indexable: bool,
    /// The query without `lang`; ends in `&` unless it is empty, so that `lang=` can follow.
    query_without_lang: String,
    pub(crate) synthetic: bool,
    /// Whether the operator has configured a contact.
    pub(crate) has_contact: bool,
    pub(crate) public_url: String,
}

impl Layout {
    pub(crate) fn new(settings: &PageContext, request: &PageRequest, metadata: PageMetadata) -> Self {
        let query = request.uri.query().unwrap_or("");
        let other_pairs = query.split('&').filter(|pair| !pair.is_empty() && !pair.starts_with("lang="));
        Self {
            lang: request.lang(),
            has_lang_param: request.lang_from_query().is_some(),
            title: metadata.title,
            description: metadata.description,
            path: metadata.path,
            is_indexable: metadata.is_indexable,
            query_without_lang: other_pairs.fold(String::new(), |query, pair| query + pair + "&"),
            synthetic: settings.snapshot.get().is_some_and(|snapshot| snapshot.is_synthetic()),
            has_contact: settings.contact.is_some(),
            public_url: settings.public_url.clone(),
        }
    }

    /// Selects the text in the language of the page.
    pub(crate) fn localize(&self, en: &'static str, pt: &'static str) -> &'static str {
        LocalizedText::new(en, pt).in_lang(self.lang)
    }

    pub(crate) fn html_lang(&self) -> &'static str {
        self.localize("en", "pt-BR")
    }

    /// This page in the other language.
    pub(crate) fn other_lang_url(&self) -> String {
        format!("{}?{}lang={}", self.path, self.query_without_lang, self.localize("pt", "en"))
    }

    /// The value of `aria-current` for a link: `page` if it leads to this page, `true` if it leads to its parent.
    pub(crate) fn aria_current(&self, path: &str) -> &'static str {
        match self.path.strip_prefix(path) {
            Some("") => "page",
            Some(rest) if path == "/docs/guides" && rest.starts_with('/') => "true",
            _ => "false",
        }
    }

    /// The URL of an asset; it changes with the content.
    pub(crate) fn asset_url(&self, name: &str) -> String {
        assets::asset_url(name)
    }

    pub(crate) fn version(&self) -> &'static str {
        VERSION
    }
}

/// Whether a page may have inline styles.
#[derive(Clone, Copy)]
pub(crate) enum StylePolicy {
    ExternalOnly,
    AllowInline,
}

/// Renders a page and adds the headers that all pages have.
pub(crate) fn html_response(template: &impl Template, page: &Layout, styles: StylePolicy) -> Response {
    let Ok(html) = template.render() else {
        // Rendering to memory does not fail in practice, but a page must not panic.
        return (StatusCode::INTERNAL_SERVER_ERROR, "Could not render the page.\n").into_response();
    };

    let policy = match styles {
        StylePolicy::ExternalOnly => STRICT_CSP,
        StylePolicy::AllowInline => CSP_WITH_INLINE_STYLES,
    };
    let headers = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CONTENT_SECURITY_POLICY, policy),
        (header::CONTENT_LANGUAGE, page.html_lang()),
        (header::CACHE_CONTROL, PAGE_CACHE_CONTROL),
        // In addition to the headers that every response varies on.
        (header::VARY, "Cookie"),
    ];
    let mut response = (headers, html).into_response();

    if page.has_lang_param {
        let secure = if page.public_url.starts_with("https://") { "; Secure" } else { "" };
        let lang = page.localize("en", "pt");
        let cookie = format!("lang={lang}; Path=/; Max-Age={LANG_COOKIE_SECONDS}; SameSite=Lax{secure}");
        if let Ok(cookie) = HeaderValue::from_str(&cookie) {
            response.headers_mut().insert(header::SET_COOKIE, cookie);
        }
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page_request(address: &str, cookie: &'static str, accepted: &'static str) -> PageRequest {
        let mut headers = HeaderMap::new();
        headers.insert(header::COOKIE, HeaderValue::from_static(cookie));
        headers.insert(header::ACCEPT_LANGUAGE, HeaderValue::from_static(accepted));
        PageRequest { headers, uri: address.parse().unwrap() }
    }

    #[test]
    fn lang_param_wins_over_cookie_and_cookie_over_accept_language() {
        for (address, cookie, accepted, lang) in [
            ("/", "", "", Lang::En),
            ("/", "", "pt-BR,pt;q=0.9", Lang::Pt),
            ("/", "a=b; lang=en", "pt-BR", Lang::En),
            ("/", "lang=pt", "en", Lang::Pt),
            ("/", "lang=de; slang=pt", "en", Lang::En),
            ("/?lang=en", "lang=pt", "pt-BR", Lang::En),
            ("/?a=1&lang=pt", "", "en", Lang::Pt),
            ("/?lang=de", "", "pt", Lang::Pt),
            ("/?slang=pt", "", "", Lang::En),
        ] {
            assert_eq!(page_request(address, cookie, accepted).lang(), lang, "{address} {cookie} {accepted}");
        }
    }
}
