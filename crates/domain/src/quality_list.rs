//! Preference lists in HTTP headers, such as `pt-BR, en;q=0.8`: `Accept`, `Accept-Encoding` and `Accept-Language`.

/// The quality of a range without `q`, in thousandths.
const FULL_QUALITY: u16 = 1000;

/// One entry of a preference list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Preference<'h> {
    /// As it is in the header: `text/csv`, `br`, `pt-BR`, `*`. Its case has no meaning.
    pub range: &'h str,
    /// In thousandths, from 0 (not acceptable) to 1000.
    pub quality: u16,
}

impl Preference<'_> {
    pub const fn is(&self, range: &str) -> bool {
        self.range.eq_ignore_ascii_case(range)
    }
}

/// The ranges of a header value in their order. Parameters other than `q` are ignored.
pub fn parse_quality_list(header: &str) -> impl Iterator<Item = Preference<'_>> {
    header.split(',').map(|entry| {
        let mut parts = entry.split(';').map(str::trim);
        let range = parts.next().unwrap_or("");
        let quality = parts.find_map(|part| part.strip_prefix("q=").or_else(|| part.strip_prefix("Q=")));

        Preference { range, quality: quality.map_or(FULL_QUALITY, parse_quality) }
    })
}

/// `0.85` → 850. Anything that is not a quality counts as 0.
fn parse_quality(text: &str) -> u16 {
    let text = text.trim();
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let is_number = !whole.is_empty() && whole.bytes().chain(fraction.bytes()).all(|byte| byte.is_ascii_digit());
    if !is_number {
        return 0;
    }
    if whole.bytes().any(|byte| byte != b'0') {
        return FULL_QUALITY;
    }

    let digits = fraction.bytes().map(|byte| u16::from(byte - b'0'));
    digits.chain(std::iter::repeat(0)).take(3).fold(0, |value, digit| value * 10 + digit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_come_in_order_with_their_quality_in_thousandths() {
        let parsed: Vec<(&str, u16)> = parse_quality_list("pt-BR, EN;q=0.85, text/csv; charset=utf-8;Q=0.5,*;q=1.0")
            .map(|preference| (preference.range, preference.quality))
            .collect();
        assert_eq!(parsed, [("pt-BR", 1000), ("EN", 850), ("text/csv", 500), ("*", 1000)]);
        let first = parse_quality_list("Text/CSV;q=0.5").next().unwrap();
        assert!(first.is("text/csv") && !first.is("text"));
    }

    #[test]
    fn a_quality_is_read_to_three_decimals_and_nonsense_is_zero() {
        for (text, quality) in [
            ("1", 1000),
            ("1.000", 1000),
            ("7", 1000),
            ("0", 0),
            ("0.000", 0),
            ("0.3339", 333),
            ("0.", 0),
            (".5", 0),
            ("-1", 0),
            ("", 0),
            ("nonsense", 0),
        ] {
            assert_eq!(parse_quality(text), quality, "{text}");
        }
    }
}
