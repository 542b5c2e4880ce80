//! Company names, reduced to how people say them: everybody calls `BANCO BRADESCO S.A.` Bradesco.

use vintem_domain::Company;

use crate::search_index::{IndexedNames, NameTokens};
use crate::tokenizer::tokenize;

/// Words that do not distinguish one company name from another.
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

/// Longer names are not distinguished beyond this many words.
const MAX_PREFIX_WORDS: usize = 6;

/// Marks a token that is a name without its spaces.
const UNSPACED_MARKER: &str = "=";

/// Builds the tokens that look these words up as a name.
pub fn build_name_tokens(words: &[String]) -> NameTokens {
    let not_empty = |token: String| if token.is_empty() { Vec::new() } else { vec![token] };
    NameTokens { significant: not_empty(significant_words(words).join("_")), unspaced: not_empty(unspaced_name(words)) }
}

fn significant_words(words: &[String]) -> Vec<&str> {
    words.iter().map(String::as_str).filter(|word| !COMMON_NAME_WORDS.contains(word)).collect()
}

/// People type `Neo Energia S.A.` and `Neoenergia` for the same company.
fn unspaced_name(words: &[String]) -> String {
    let letters: String = words.iter().map(String::as_str).filter(|word| *word != "sa").collect();
    if letters.is_empty() { letters } else { format!("{UNSPACED_MARKER}{letters}") }
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

    for tokens in [&mut names.current, &mut names.former, &mut names.prefixes] {
        tokens.sort_unstable();
        tokens.dedup();
    }
    names
}

/// Adds the name and its parts before and after a dash: `PETRÓLEO BRASILEIRO S.A. - PETROBRAS` has two names. Text in
/// parentheses is not a name of its own.
fn add_name_variants(name: &str, full_names: &mut Vec<String>, prefixes: &mut Vec<String>) {
    for part in std::iter::once(name).chain(name.split('-')) {
        let words = tokenize(part);
        let NameTokens { significant, unspaced } = build_name_tokens(&words);
        full_names.extend(significant.into_iter().chain(unspaced));

        let significant = significant_words(&words);
        prefixes.extend((1..=significant.len().min(MAX_PREFIX_WORDS)).map(|count| significant[..count].join("_")));
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

        let name_tokens = |text: &str| build_name_tokens(&tokenize(text));
        assert_eq!(
            (name_tokens("Banco S.A.").significant.len(), name_tokens("Banco S.A.").unspaced),
            (0, vec!["=banco".to_owned()])
        );
        assert_eq!(name_tokens("Neo Energia").unspaced, name_tokens("NEOENERGIA S.A.").unspaced);
        assert_eq!(name_tokens("S/A"), NameTokens::default());
    }
}
