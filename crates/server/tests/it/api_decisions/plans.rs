//! Plans, and what each of them may call.

use serde_json::{Value, json};
use vintem_domain::Plan;
use vintem_domain::feature::Feature;
use vintem_domain::plan::PlanConfig;
use vintem_domain::route::{GATED_PARAMETERS, ROUTES};
use vintem_testkit::{TestDatabase, TestReplica};

use super::start_demo;
use crate::{TestResult, friday};

#[tokio::test]
async fn the_plan_list_and_the_pricing_page_match_actual_access() -> TestResult {
    let service = start_demo().await?;
    let list = service.get_ok("/api/v1/plans").await?;
    let page = service.replica.get("/pricing").await?.text().await?;

    for (index, plan) in Plan::ALL.into_iter().enumerate() {
        let features_listed = list["plans"][index].to_string();
        let (_, key) = service.replica.create_key(plan).await?;
        for feature in Feature::available(&PlanConfig::default()) {
            let path = path_for_feature(feature).replace("{id}", "99999999");
            let is_allowed = service.replica.get_with_key(&path, &key).await?.status() != 403;
            let sentence = feature.description().in_lang(vintem_domain::Lang::En);
            assert_eq!(features_listed.contains(sentence), is_allowed, "{} and {sentence}", plan.id());
            assert!(page.contains(sentence), "{sentence} on the page");
        }
    }

    Ok(())
}

/// A request that needs the feature: to a route of its own, or with an option of another route.
fn path_for_feature(feature: Feature) -> String {
    if let Some(route) = ROUTES.iter().find(|route| route.feature == feature) {
        let query = if route.takes_param("q") { "?q=a" } else { "" };
        return format!("{}{query}", route.path);
    }
    let option = GATED_PARAMETERS.iter().find(|option| option.feature == feature).expect("a route or an option");
    let route = option.routes().next().expect("a route");
    format!("{}?{}={}", route.path, option.name, option.value.unwrap_or("a"))
}

#[tokio::test]
async fn plans_are_ordered_by_rank_and_described_in_both_languages() -> TestResult {
    let service = start_demo().await?;
    let english = service.get_ok("/api/v1/plans").await?;

    let request = service.replica.http.get(service.replica.url("/api/v1/plans")).header("Accept-Language", "pt-BR");
    let portuguese: Value = service.replica.send(request).await?.json().await?;

    let column = |list: &Value, name: &str| -> Vec<Value> {
        list["plans"].as_array().expect("a list").iter().map(|plan| plan[name].clone()).collect()
    };
    assert_eq!(column(&english, "id"), ["free", "bronze", "gold", "platinum"]);
    assert_eq!(column(&english, "name"), ["Free", "Bronze", "Gold", "Platinum"]);
    assert_eq!(column(&english, "price"), [0, 29, 99, 299]);
    assert_eq!(column(&english, "rate_limit"), [30, 100, 500, 2000]);
    assert_eq!(column(&english, "currency"), ["USD"; 4]);
    assert_eq!(column(&english, "rate_limit_unit"), ["requests/minute"; 4]);
    assert_eq!(column(&english, "billing"), ["monthly"; 4]);
    assert_eq!(column(&english, "restrictions")[3], json!([]), "never null");

    for name in ["features", "restrictions"] {
        assert_ne!(column(&english, name)[0], column(&portuguese, name)[0], "{name}");
    }

    Ok(())
}

#[tokio::test]
async fn an_upgrade_error_names_both_plans_and_the_upgrade_url() -> TestResult {
    let service = start_demo().await?;
    let (_, bronze) = service.replica.create_key(Plan::Bronze).await?;

    let response = service.replica.get_with_key("/api/v1/filings", &bronze).await?;
    assert_eq!(response.status(), 403);
    let with_key: Value = response.json().await?;
    assert_eq!(with_key["error"], "upgrade_required");
    assert_eq!((&with_key["current_plan"], &with_key["required_plan"]), (&json!("bronze"), &json!("gold")));
    assert_eq!(with_key["upgrade_url"], service.replica.url("/pricing"));

    let message = with_key["message"].as_str().expect("text");
    assert!(message.contains("valid") && message.contains("Gold"), "{message}");

    let response = service.replica.get("/api/v1/filings").await?;
    assert_eq!(response.status(), 403, "anonymous is the Free plan");
    let anonymous: Value = response.json().await?;
    assert_eq!((&anonymous["current_plan"], &anonymous["required_plan"]), (&json!("free"), &json!("gold")));
    assert!(!anonymous["message"].as_str().expect("text").contains("valid"), "there is no key to speak of");

    Ok(())
}

#[tokio::test]
async fn a_demo_database_has_no_keys() -> TestResult {
    let database = TestDatabase::create_demo(friday()).await?;
    let replica = TestReplica::start(&database, friday()).await?;
    assert!(replica.open_store()?.list_keys(i64::MAX, 10).await?.is_empty());
    Ok(())
}
