//! The two languages of messages and pages: English and Portuguese.

use crate::quality_list::{Preference, parse_quality_list};

/// English unless the client prefers Portuguese.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Lang {
    #[default]
    En,
    Pt,
}

/// A text in both languages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LocalizedText {
    pub en: &'static str,
    pub pt: &'static str,
}

impl LocalizedText {
    pub const fn new(en: &'static str, pt: &'static str) -> Self {
        Self { en, pt }
    }

    /// A text built at run time. Its memory is never freed, so build it once, in a `LazyLock`.
    pub fn leak(en: String, pt: String) -> Self {
        Self { en: en.leak(), pt: pt.leak() }
    }

    pub const fn in_lang(&self, lang: Lang) -> &'static str {
        match lang {
            Lang::En => self.en,
            Lang::Pt => self.pt,
        }
    }
}

impl Lang {
    /// The language for an `Accept-Language` header: the highest quality wins, and the first one in a tie.
    pub fn from_accept_language(header: &str) -> Self {
        let mut best = Lang::En;
        let mut best_quality = 0;
        for Preference { range, quality } in parse_quality_list(header) {
            let language = range.split('-').next().unwrap_or_default();
            let lang = match language {
                _ if language.eq_ignore_ascii_case("pt") => Lang::Pt,
                _ if language.eq_ignore_ascii_case("en") || language == "*" => Lang::En,
                _ => continue,
            };
            if quality > best_quality {
                best = lang;
                best_quality = quality;
            }
        }

        best
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accept_language_picks_the_highest_weight() {
        let cases = [
            ("", Lang::En),
            ("pt-BR,pt;q=0.9,en;q=0.5", Lang::Pt),
            ("en;q=0.5, pt;q=0.85", Lang::Pt),
            ("en,pt", Lang::En),
            ("de, fr", Lang::En),
            ("pt;q=0", Lang::En),
            ("*", Lang::En),
            ("PT", Lang::Pt),
        ];
        for (header, lang) in cases {
            assert_eq!(Lang::from_accept_language(header), lang, "{header}");
        }
    }
}
