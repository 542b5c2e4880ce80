//! What companies are called, reduced to what people say: `BANCO BRADESCO S.A.` is Bradesco to everybody.

use vintem_domain::Company;

use crate::search_index::{IndexedNames, NameTokens};
use crate::tokenizer::tokenize;

/// Words that a name may have or lack without being another.
const COMMON_NAME_WORDS: [&str; 19] = [
    "sa",
    "s",
    "a",
    "ltda",
    "cia",
    "companhia",
    "banco",
    "bco",
    "grupo",
    "holding",
    "participacao",
    "energia",
    "e",
    "de",
    "do",
    "da",
    "dos",
    "das",
    "o",
];

/// More words of a name are not told apart.
const MAX_PREFIX_WORDS: usize = 6;

/// What begins a piece that is a name without its spaces.
const UNSPACED_MARKER: &str = "=";

/// What these words are as a name.
pub fn build_name_tokens(words: &[String]) -> NameTokens {
    let not_empty = |piece: String| if piece.is_empty() { Vec::new() } else { vec![piece] };
    NameTokens { significant: not_empty(significant_words(words).join("_")), unspaced: not_empty(unspaced_name(words)) }
}

fn significant_words(words: &[String]) -> Vec<&str> {
    words.iter().map(String::as_str).filter(|word| !COMMON_NAME_WORDS.contains(word)).collect()
}

/// `Neo Energia S.A.` and `Neoenergia` are the same to whoever types.
fn unspaced_name(words: &[String]) -> String {
    let said: String = words.iter().map(String::as_str).filter(|word| *word != "sa").collect();
    if said.is_empty() { said } else { format!("{UNSPACED_MARKER}{said}") }
}

pub fn build_indexed_names(company: &Company) -> IndexedNames {
    let mut names = IndexedNames::default();
    for name in [&company.name, &company.trade_name] {
        add_name_variants(name, &mut names.current, &mut names.prefixes);
    }
    for name in company.former_names.iter().chain(&company.former_trade_names) {
        add_name_variants(name, &mut names.former, &mut names.prefixes);
    }
    for ticker in &company.tickers {
        add_name_variants(ticker, &mut names.current, &mut names.prefixes);
    }
    for pieces in [&mut names.current, &mut names.former, &mut names.prefixes] {
        pieces.sort_unstable();
        pieces.dedup();
    }
    names
}

/// The name, and what stands before and after a dash in it: `PETRÓLEO BRASILEIRO S.A. - PETROBRAS` is either. What is in
/// parentheses is no name by itself.
fn add_name_variants(name: &str, full_names: &mut Vec<String>, prefixes: &mut Vec<String>) {
    for part in std::iter::once(name).chain(name.split('-')) {
        let words = tokenize(part);
        let NameTokens { significant: whole_words, unspaced } = build_name_tokens(&words);
        full_names.extend(whole_words.into_iter().chain(unspaced));
        let said = significant_words(&words);
        prefixes.extend((1..=said.len().min(MAX_PREFIX_WORDS)).map(|count| said[..count].join("_")));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn company_names_are_indexed_without_legal_forms_and_common_words() {
        let company = Company {
            name: "PETRÓLEO BRASILEIRO  S.A.  - PETROBRAS".to_owned(),
            trade_name: "PETROBRAS".to_owned(),
            former_names: vec!["BANCO DO PETRÓLEO S/A".to_owned()],
            tickers: vec!["PETR4".to_owned()],
            ..Company::default()
        };
        let names = build_indexed_names(&company);
        assert_eq!(
            names.current,
            [
                "=petr4",
                "=petrobras",
                "=petroleobrasileiro",
                "=petroleobrasileiropetrobras",
                "petr4",
                "petrobras",
                "petroleo_brasileiro",
                "petroleo_brasileiro_petrobras"
            ]
        );
        assert_eq!(names.former, ["=bancodopetroleo", "petroleo"]);
        assert!(names.prefixes.contains(&"petroleo_brasileiro".to_owned()));
        let called = |text: &str| build_name_tokens(&tokenize(text));
        assert_eq!(
            (called("Banco S.A.").significant.len(), called("Banco S.A.").unspaced),
            (0, vec!["=banco".to_owned()])
        );
        assert_eq!(called("Neo Energia").unspaced, called("NEOENERGIA S.A.").unspaced);
        assert_eq!(called("S/A"), NameTokens::default());
    }
}
