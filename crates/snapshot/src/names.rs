//! What companies are called, reduced to what people say: `BANCO BRADESCO S.A.` is Bradesco to everybody.

use vintem_domain::Company;

use crate::analysis::words;
use crate::index::{Called, Names};

/// Words that a name may have or lack without being another.
const COMMON: [&str; 19] = [
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
const MOST_BEGINNINGS: usize = 6;

/// What begins a piece that is a name without its spaces.
const UNSPACED: &str = "=";

/// What these words are as a name.
pub fn called(words: &[String]) -> Called {
    let not_empty = |piece: String| if piece.is_empty() { Vec::new() } else { vec![piece] };
    Called { telling: not_empty(telling(words).join("_")), unspaced: not_empty(unspaced(words)) }
}

fn telling(words: &[String]) -> Vec<&str> {
    words.iter().map(String::as_str).filter(|word| !COMMON.contains(word)).collect()
}

/// `Neo Energia S.A.` and `Neoenergia` are the same to whoever types.
fn unspaced(words: &[String]) -> String {
    let said: String = words.iter().map(String::as_str).filter(|word| *word != "sa").collect();
    if said.is_empty() { said } else { format!("{UNSPACED}{said}") }
}

pub fn of_company(company: &Company) -> Names {
    let mut names = Names::default();
    for name in [&company.name, &company.trade_name] {
        add(name, &mut names.whole, &mut names.beginnings);
    }
    for name in company.former_names.iter().chain(&company.former_trade_names) {
        add(name, &mut names.former, &mut names.beginnings);
    }
    for ticker in &company.tickers {
        add(ticker, &mut names.whole, &mut names.beginnings);
    }
    for pieces in [&mut names.whole, &mut names.former, &mut names.beginnings] {
        pieces.sort_unstable();
        pieces.dedup();
    }
    names
}

/// The name, and what stands before and after a dash in it: `PETRÓLEO BRASILEIRO S.A. - PETROBRAS` is either. What is in
/// parentheses is no name by itself.
fn add(name: &str, whole: &mut Vec<String>, beginnings: &mut Vec<String>) {
    for part in std::iter::once(name).chain(name.split('-')) {
        let words = words(part);
        let Called { telling: whole_words, unspaced } = called(&words);
        whole.extend(whole_words.into_iter().chain(unspaced));
        let said = telling(&words);
        beginnings.extend((1..=said.len().min(MOST_BEGINNINGS)).map(|count| said[..count].join("_")));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_what_people_say() {
        let company = Company {
            name: "PETRÓLEO BRASILEIRO  S.A.  - PETROBRAS".to_owned(),
            trade_name: "PETROBRAS".to_owned(),
            former_names: vec!["BANCO DO PETRÓLEO S/A".to_owned()],
            tickers: vec!["PETR4".to_owned()],
            ..Company::default()
        };
        let names = of_company(&company);
        assert_eq!(
            names.whole,
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
        assert!(names.beginnings.contains(&"petroleo_brasileiro".to_owned()));
        let called = |text: &str| called(&words(text));
        assert_eq!((called("Banco S.A.").telling.len(), called("Banco S.A.").unspaced), (0, vec!["=banco".to_owned()]));
        assert_eq!(called("Neo Energia").unspaced, called("NEOENERGIA S.A.").unspaced);
        assert_eq!(called("S/A"), Called::default());
    }
}
