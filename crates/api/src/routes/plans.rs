//! Plans: the list of plans, and registration of free keys.

use axum::extract::State;
use axum::response::Response;
use axum::routing::{get, post};
use http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use vintem_domain::email::is_valid_email;
use vintem_domain::plan_description::{describe_features, describe_restrictions};
use vintem_domain::text::hex_encode;
use vintem_domain::{AddressBucket, KeyActor, LocalizedText, Plan, Problem};
use vintem_meter::DailyCap;
use vintem_store::keys::{KeyOptions, NewKey};

use crate::api_error::ApiError;
use crate::app::{App, AppState, Handlers};
use crate::caller::Caller;
use crate::keyring::generate_key;
use crate::request_body::RequestBody;
use crate::responses;
use crate::snapshot_request::SnapshotRequest;

#[derive(Serialize)]
struct PlansBody {
    plans: Vec<PlanBody>,
}

#[derive(Serialize)]
struct PlanBody {
    id: &'static str,
    name: &'static str,
    price: u32,
    currency: &'static str,
    rate_limit: u32,
    rate_limit_unit: String,
    billing: &'static str,
    features: Vec<String>,
    restrictions: Vec<String>,
}

/// Other fields, such as a plan, are ignored.
#[derive(Deserialize)]
struct RegisterKeyRequest {
    name: Option<Value>,
    email: Option<Value>,
}

#[derive(Serialize)]
struct RegisteredKeyBody<'a> {
    message: &'static str,
    api_key: &'a str,
    plan: &'static str,
    rate_limit: u32,
}

pub const MAX_NAME_CHARS: usize = 100;
/// How many addresses' worth of registrations larger IPv6 networks have: a site with its /48, a provider with its /32.
const IPV6_LIMIT_FACTORS: [(u8, u32); 2] = [(48, 10), (32, 100)];

pub fn handlers() -> Handlers {
    vec![("list_plans", get(list_plans)), ("register_key", post(register_key))]
}

async fn list_plans(request: SnapshotRequest) -> Response {
    let offer = &request.settings().offer;
    let limits = &offer.limits;
    let unit = match limits.window_seconds {
        60 => "requests/minute".to_owned(),
        seconds => format!("requests/{seconds} seconds"),
    };

    let plans = Plan::ALL.map(|plan| PlanBody {
        id: plan.id(),
        name: plan.name(),
        price: plan.monthly_price_usd(),
        currency: "USD",
        rate_limit: limits.for_plan(plan),
        rate_limit_unit: unit.clone(),
        billing: "monthly",
        features: describe_features(plan, offer, request.lang),
        restrictions: describe_restrictions(plan, offer, request.lang),
    });
    responses::cacheable_json(&request, &PlansBody { plans: plans.into() })
}

async fn register_key(caller: Caller, State(app): AppState, body: RequestBody) -> Result<Response, ApiError> {
    let expected = LocalizedText::new(
        "The body must be a JSON object with the fields `name` and `email`, each exactly once.",
        "O corpo deve ser um objeto JSON com os campos `name` e `email`, uma vez cada.",
    );
    let body: RegisterKeyRequest = body.read_json_object(expected).await?;
    let name = parse_name(body.name.as_ref())?;
    let email = parse_email(body.email.as_ref())?;

    let caps = registration_caps(&app, &caller, email);
    if let Err(wait_us) = app.meter.try_take_daily_caps(&caps).await {
        return Err(Problem::TooManyRegistrations { retry_after_seconds: wait_us.div_ceil(1_000_000) }.into());
    }

    let key = generate_key();
    let pepper = app.keyring.pepper();
    let new_key = NewKey { secret: pepper.new_secret(&key), plan: Plan::Free, name, email };
    let options = KeyOptions { created_by: KeyActor::Registration, ..KeyOptions::default() };
    match app.store.create_key_with_options(&new_key, &options).await {
        Ok(row) => app.keyring.apply_rows(&[row]),
        Err(error) => {
            // No key was created, so none is counted.
            app.meter.refund_daily_caps(&caps).await;
            return Err(error.into());
        }
    }

    let message = LocalizedText::new(
        "Your API key was created on the Free plan. Store it safely: it is shown only once.",
        "Sua chave de API foi criada no plano Free. Guarde-a em local seguro: ela só aparece uma vez.",
    );
    let body = RegisteredKeyBody {
        message: message.in_lang(caller.lang),
        api_key: key.reveal(),
        plan: Plan::Free.id(),
        rate_limit: app.settings.offer.limits.for_plan(Plan::Free),
    };
    Ok(responses::uncached_json(StatusCode::CREATED, &body))
}

fn parse_name(name: Option<&Value>) -> Result<&str, Problem> {
    let name = name.and_then(Value::as_str).map_or("", str::trim);
    let has_control_chars = name.chars().any(char::is_control);
    if (1..=MAX_NAME_CHARS).contains(&name.chars().count()) && !has_control_chars {
        return Ok(name);
    }

    let must = LocalizedText::new(
        "must be a string of 1 to 100 characters without control characters",
        "deve ser um texto de 1 a 100 caracteres, sem caracteres de controle",
    );
    Err(Problem::BadField { name: "name", requirement: must })
}

fn parse_email(email: Option<&Value>) -> Result<&str, Problem> {
    let email = email.and_then(Value::as_str).unwrap_or("");
    if is_valid_email(email) {
        return Ok(email);
    }

    let must = LocalizedText::new(
        "must be a valid email address of at most 254 characters, such as ana@example.com",
        "deve ser um endereço de e-mail válido de até 254 caracteres, como ana@example.com",
    );
    Err(Problem::BadField { name: "email", requirement: must })
}

/// The daily caps that a registration counts against: its address, the networks around it, and its e-mail. Only a fingerprint of the
/// e-mail leaves the process.
fn registration_caps(app: &App, caller: &Caller, email: &str) -> Vec<DailyCap> {
    let limit = app.settings.registrations_per_day;
    let address = AddressBucket::from_ip(caller.address);
    let digest = app.keyring.pepper().hmac(&format!("registration {}", email.to_lowercase()));
    let fingerprint = hex_encode(&digest[..16]);

    let mut caps = vec![
        DailyCap { subject: format!("address:{address}"), limit },
        DailyCap { subject: format!("email:{fingerprint}"), limit },
    ];
    for (prefix_length, factor) in IPV6_LIMIT_FACTORS {
        if let Some(network) = address.ipv6_network(prefix_length) {
            caps.push(DailyCap { subject: format!("address:{network}"), limit: limit.saturating_mul(factor) });
        }
    }
    caps
}

#[cfg(test)]
mod tests {
    use super::*;
    use vintem_domain::Lang;

    #[test]
    fn name_length_is_counted_in_characters_after_trimming() {
        let name = |text: &str| parse_name(Some(&Value::String(text.to_owned()))).map(str::to_owned);
        assert_eq!(name(&format!("  {} ", "é".repeat(100))), Ok("é".repeat(100)));
        for text in ["", "   ", "a\r\nb", "a\0", &"é".repeat(101)] {
            assert!(name(text).is_err(), "{text:?}");
        }
        assert!(parse_name(Some(&Value::from(1))).is_err());
        assert!(parse_name(None).is_err());
        assert_eq!(parse_name(None).unwrap_err().message(Lang::En).matches("name").count(), 1);
    }
}
