//! Descriptions of the features and restrictions of each plan, derived from the route table.

use crate::feature::Feature;
use crate::lang::{Lang, LocalizedText};
use crate::plan::{Plan, PlanConfig};

/// Describes the features of a plan, one sentence each.
pub fn describe_features(plan: Plan, config: &PlanConfig, lang: Lang) -> Vec<String> {
    let limits = &config.limits;
    let mut sentences = vec![describe_rate_limit(limits.for_plan(plan), limits.window_seconds, lang)];

    if plan == Plan::Free {
        let text = LocalizedText::new(
            "No API key required: the limit applies per IP address or, with a free key, per key",
            "Não exige chave de API: o limite vale por endereço IP ou, com uma chave gratuita, por chave",
        );
        sentences.push(text.in_lang(lang).to_owned());
    }

    let included = Feature::available(config).filter(|feature| feature.required_plan() <= plan);
    sentences.extend(included.map(|feature| feature.description().in_lang(lang).to_owned()));
    sentences
}

/// Describes the features that a plan does not include, each with the lowest plan that includes it.
pub fn describe_restrictions(plan: Plan, config: &PlanConfig, lang: Lang) -> Vec<String> {
    Feature::available(config)
        .filter(|feature| feature.required_plan() > plan)
        .map(|feature| {
            let missing = feature.missing_description().in_lang(lang);
            let required_plan = feature.required_plan().name();
            match lang {
                Lang::En => format!("{missing} (requires {required_plan})"),
                Lang::Pt => format!("{missing} (exige o plano {required_plan})"),
            }
        })
        .collect()
}

fn describe_rate_limit(limit: u32, window_seconds: u32, lang: Lang) -> String {
    match (lang, window_seconds) {
        (Lang::En, 60) => format!("{limit} requests per minute"),
        (Lang::Pt, 60) => format!("{limit} requisições por minuto"),
        (Lang::En, _) => format!("{limit} requests per {window_seconds} seconds"),
        (Lang::Pt, _) => format!("{limit} requisições a cada {window_seconds} segundos"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn priority_support_is_listed_only_when_offered() {
        let with_support = PlanConfig { priority_support: true, ..PlanConfig::default() };
        let last_feature = |config: &PlanConfig| describe_features(Plan::Platinum, config, Lang::En).pop().unwrap();
        assert_eq!(last_feature(&with_support), "Priority support");
        assert!(last_feature(&PlanConfig::default()).starts_with("Webhooks"));
        assert_eq!(
            describe_restrictions(Plan::Gold, &with_support, Lang::En).pop().unwrap(),
            "No priority support (requires Platinum)"
        );
    }

    #[test]
    fn platinum_has_no_restrictions_and_free_only_reaches_market_data() {
        assert_eq!(describe_restrictions(Plan::Platinum, &PlanConfig::default(), Lang::En), Vec::<String>::new());
        assert_eq!(
            describe_restrictions(Plan::Free, &PlanConfig::default(), Lang::En),
            [
                "No companies (requires Bronze)",
                "No search (requires Bronze)",
                "No filings (requires Gold)",
                "No financial statements (requires Gold)",
                "No historical data (requires Gold)",
                "No bulk export (requires Gold)",
                "No CSV output (requires Platinum)",
                "No events (requires Platinum)",
                "No webhooks (requires Platinum)"
            ]
        );
        assert_eq!(describe_features(Plan::Free, &PlanConfig::default(), Lang::En).len(), 4);
    }
}
