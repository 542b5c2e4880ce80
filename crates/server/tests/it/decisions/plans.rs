//! Plans and who may call what.

use serde_json::{Value, json};
use vintem_domain::Plan;
use vintem_domain::plan::Offer;
use vintem_domain::route::{Feature, OPTIONS, ROUTES, route};
use vintem_testkit::{TestDatabase, TestReplica};

use super::served;
use crate::{Outcome, friday};

#[tokio::test]
async fn the_plan_list_and_the_pricing_page_say_what_the_gate_does() -> Outcome {
    let served = served().await?;
    let list = served.read("/api/v1/plans").await?;
    let page = served.replica.get("/pricing").await?.text().await?;
    for (at, plan) in Plan::ALL.into_iter().enumerate() {
        let listed = list["plans"][at].to_string();
        let (_, key) = served.replica.create_key(plan).await?;
        for feature in Feature::sold(&Offer::default()) {
            let path = path_of(feature).replace("{id}", "99999999");
            let is_let_in = served.replica.get_with(&path, &key).await?.status() != 403;
            let sentence = feature.sentence().in_lang(vintem_domain::Lang::En);
            assert_eq!(listed.contains(sentence), is_let_in, "{} and {sentence}", plan.id());
            assert!(page.contains(sentence), "{sentence} on the page");
        }
    }
    Ok(())
}

/// What is asked for to have a feature: a route of its own, or an option of others.
fn path_of(feature: Feature) -> String {
    if let Some(route) = ROUTES.iter().find(|route| route.feature == feature) {
        return format!("{}?q=a", route.path);
    }
    let option = OPTIONS.iter().find(|option| option.feature == feature).expect("a route or an option");
    format!("{}?{}={}", route(option.operations[0]).path, option.parameter, option.value.unwrap_or("a"))
}

#[tokio::test]
async fn plans_are_in_order_of_rank_with_sentences_in_both_languages() -> Outcome {
    let served = served().await?;
    let english = served.read("/api/v1/plans").await?;
    let asked = served.replica.http.get(served.replica.url("/api/v1/plans")).header("Accept-Language", "pt-BR");
    let portuguese: Value = served.replica.send(asked).await?.json().await?;
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
async fn a_refusal_names_both_plans_and_the_way_up_and_says_that_a_key_is_valid() -> Outcome {
    let served = served().await?;
    let (_, bronze) = served.replica.create_key(Plan::Bronze).await?;
    let with_key = served.replica.get_with("/api/v1/filings", &bronze).await?;
    assert_eq!(with_key.status(), 403);
    let with_key: Value = with_key.json().await?;
    assert_eq!(with_key["error"], "upgrade_required");
    assert_eq!((&with_key["current_plan"], &with_key["required_plan"]), (&json!("bronze"), &json!("gold")));
    assert_eq!(with_key["upgrade_url"], served.replica.url("/pricing"));
    let message = with_key["message"].as_str().expect("text");
    assert!(message.contains("valid") && message.contains("Gold"), "{message}");

    let anonymous = served.replica.get("/api/v1/filings").await?;
    assert_eq!(anonymous.status(), 403, "anonymous is the Free plan");
    let anonymous: Value = anonymous.json().await?;
    assert_eq!((&anonymous["current_plan"], &anonymous["required_plan"]), (&json!("free"), &json!("gold")));
    assert!(!anonymous["message"].as_str().expect("text").contains("valid"), "there is no key to speak of");
    Ok(())
}

#[tokio::test]
async fn no_key_is_there_before_somebody_makes_one() -> Outcome {
    let database = TestDatabase::demo(friday()).await?;
    let replica = TestReplica::start(&database, friday()).await?;
    assert!(replica.store()?.list_keys(i64::MAX, 10).await?.is_empty());
    Ok(())
}
