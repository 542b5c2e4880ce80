//! Finds series in the catalog by words and by group.

use crate::fx::Currency;
use crate::lang::LocalizedText;
use crate::series::{Publisher, Series, SeriesGroup};
use crate::text::normalize_text;

/// How well a series matches; the best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum MatchRank {
    /// The query is its id or its code.
    Identifier,
    /// Every word begins a word of its id or name.
    Name,
    /// Further words begin words of its tags.
    Tag,
    /// Further words begin words of its group or its publisher.
    GroupOrPublisher,
}

/// The words and the group that callers ask for; every series matches an empty search.
pub struct CatalogSearch {
    query: String,
    group: Option<SeriesGroup>,
}

impl CatalogSearch {
    pub fn new(query: &str, group: Option<SeriesGroup>) -> Self {
        Self { query: normalize_text(query), group }
    }

    /// `None` if the series does not match.
    pub fn rank_series(&self, series: &Series) -> Option<MatchRank> {
        let code = series.sgs_code.map(|code| code.to_string());
        let identifiers: Vec<&str> = [Some(series.id), code.as_deref()].into_iter().flatten().collect();
        self.rank(series.group, &identifiers, series.name, series.tags, series.publisher.name())
    }

    pub fn rank_currency(&self, currency: Currency) -> Option<MatchRank> {
        let identifiers = [currency.series_id(), currency.code()];
        let tags = ["PTAX", "BRL"];
        self.rank(SeriesGroup::ExchangeRates, &identifiers, currency.series_name(), &tags, Publisher::Bcb.name())
    }

    fn rank(
        &self,
        group: SeriesGroup,
        identifiers: &[&str],
        name: LocalizedText,
        tags: &[&str],
        publisher: LocalizedText,
    ) -> Option<MatchRank> {
        if self.group.is_some_and(|wanted| wanted != group) {
            return None;
        }
        if self.query.is_empty() {
            return Some(MatchRank::Name);
        }

        if identifiers.iter().any(|identifier| normalize_text(identifier) == self.query) {
            return Some(MatchRank::Identifier);
        }
        let group = group.name();
        let texts = [
            (MatchRank::Name, [identifiers, &[name.en, name.pt]].concat()),
            (MatchRank::Tag, tags.to_vec()),
            (MatchRank::GroupOrPublisher, vec![group.en, group.pt, publisher.en, publisher.pt]),
        ];
        let rank_of_word = |word: &str| {
            let is_found = |text: &&str| words(&normalize_text(text)).any(|other| other.starts_with(word));
            texts.iter().find(|(_, texts)| texts.iter().any(&is_found)).map(|(rank, _)| *rank)
        };
        // The word that fits worst decides; a query of punctuation alone finds nothing.
        let ranks: Option<Vec<MatchRank>> = words(&self.query).map(rank_of_word).collect();
        ranks?.into_iter().max()
    }
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|character: char| !character.is_alphanumeric()).filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::series::served_series;

    fn found(query: &str, group: &str) -> Vec<&'static str> {
        let search = CatalogSearch::new(query, SeriesGroup::from_id(group));
        let mut ranked: Vec<_> =
            served_series().filter_map(|series| Some((search.rank_series(series)?, series.id))).collect();
        ranked.sort_by_key(|(rank, _)| *rank);
        ranked.into_iter().map(|(_, id)| id).collect()
    }

    #[test]
    fn people_find_series_by_the_words_they_know() {
        assert_eq!(found("aluguel", ""), ["igp-m"]);
        assert_eq!(found("IGP-M", "")[0], "igp-m");
        assert_eq!(found("189", ""), ["igp-m"]);
        // TR and TBF belong to the same group.
        assert_eq!(found("poupança", ""), ["savings", "savings-old", "tr", "tbf"]);
        assert_eq!(found("POUPANCA", ""), found("poupança", ""));
        assert_eq!(found("selic", "")[..2], ["selic", "selic-effective"]);
        assert_eq!(found("dívida bruta", ""), ["gross-debt"]);
        assert!(found("inadimplência", "").starts_with(&["default-total", "default-households"]));
        for nothing in ["xyzzy", "%%", "selic xyzzy"] {
            assert_eq!(found(nothing, ""), Vec::<&str>::new(), "{nothing}");
        }
    }

    #[test]
    fn a_group_narrows_the_catalog() {
        assert_eq!(found("", "fiscal"), ["net-debt", "gross-debt", "primary-balance", "nominal-balance"]);
        assert_eq!(found("debt", "fiscal")[..2], ["net-debt", "gross-debt"]);
        assert!(found("", "").into_iter().eq(served_series().map(|series| series.id)), "in the order of the catalog");
    }
}
