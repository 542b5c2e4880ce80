//! The two languages of messages and pages: English and Portuguese.

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

    pub const fn in_lang(&self, lang: Lang) -> &'static str {
        match lang {
            Lang::En => self.en,
            Lang::Pt => self.pt,
        }
    }
}

impl Lang {
    /// Chooses a language by an `Accept-Language` header: the highest weight wins, the first one in a tie.
    pub fn from_accept_language(header: &str) -> Self {
        let mut best_lang = Lang::En;
        let mut best_weight = 0;
        for range in header.split(',').take(20) {
            let mut parts = range.split(';');
            let tag = parts.next().unwrap_or("").trim().to_ascii_lowercase();
            let weight = parts.find_map(|part| part.trim().strip_prefix("q=")).map_or(1000, parse_quality_thousandths);
            let primary = tag.split('-').next().unwrap_or("");
            let lang = match primary {
                "pt" => Lang::Pt,
                "en" | "*" => Lang::En,
                _ => continue,
            };

            if weight > best_weight {
                best_lang = lang;
                best_weight = weight;
            }
        }
        best_lang
    }
}

/// `0.85` → 850. Anything that is not a weight counts as 0.
fn parse_quality_thousandths(text: &str) -> u32 {
    let (whole, fraction) = text.trim().split_once('.').unwrap_or((text.trim(), ""));
    let digits = fraction.bytes().chain(std::iter::repeat(b'0')).take(3);
    let mut value = whole.parse::<u32>().map_or(0, |whole| whole.min(1));
    for digit in digits {
        value = value * 10 + u32::from(digit.is_ascii_digit()) * u32::from(digit.wrapping_sub(b'0') % 10);
    }
    value.min(1000)
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
