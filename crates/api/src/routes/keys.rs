//! Key management for the owner of a key: show it, label it, rotate its secret, revoke it.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, patch, post};
use chrono::{NaiveDate, TimeDelta};
use http::{HeaderValue, StatusCode, header};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use vintem_domain::feature::Feature;
use vintem_domain::key::is_valid_label;
use vintem_domain::{KeyId, LocalizedText, Problem};
use vintem_store::keys::OwnerChangeResult;

use crate::api_error::ApiError;
use crate::app::{App, AppState, Handlers};
use crate::bodies::format_instant;
use crate::caller::Caller;
use crate::keyring::generate_key;
use crate::request_body::{RequestBody, deserialize_present};
use crate::responses;

#[derive(Serialize)]
struct KeyBody {
    key: String,
    plan: &'static str,
    label: String,
    rate_limit: u32,
    created_at: String,
    last_used_on: Option<NaiveDate>,
    expires_at: Option<String>,
    /// Only during the grace period after a rotation.
    previous_key: Option<String>,
    previous_key_ends_at: Option<String>,
    /// The support contact, if the plan includes support.
    #[serde(skip_serializing_if = "Option::is_none")]
    support: Option<String>,
}

#[derive(Deserialize)]
struct UpdateKeyRequest {
    label: Option<Value>,
}

/// How long the old secret stays valid after a rotation.
#[derive(Deserialize, Default)]
pub struct RotateRequest {
    /// `null` is not a number, so it must not count as a missing field.
    #[serde(default, deserialize_with = "deserialize_present")]
    grace_seconds: Option<Value>,
}

#[derive(Serialize)]
struct RotatedKeyBody<'a> {
    message: &'static str,
    api_key: &'a str,
    plan: &'static str,
    rate_limit: u32,
    previous_key_ends_at: String,
}

/// One day: long enough to deploy the new secret everywhere.
pub const MAX_GRACE_SECONDS: u32 = 24 * 3600;

pub fn handlers() -> Handlers {
    vec![
        ("get_key", get(get_key)),
        ("update_key", patch(update_key)),
        ("revoke_key", delete(revoke_key)),
        ("rotate_key", post(rotate_key)),
    ]
}

async fn get_key(caller: Caller, State(app): AppState) -> Result<Response, ApiError> {
    let key = caller.require_key()?;
    key_details_response(&app, &caller, key).await
}

async fn update_key(caller: Caller, State(app): AppState, body: RequestBody) -> Result<Response, ApiError> {
    let key = caller.require_key()?;
    let expected = LocalizedText::new(
        "The body must be a JSON object with exactly one `label` field.",
        "O corpo deve ser um objeto JSON com um único campo `label`.",
    );

    let body: UpdateKeyRequest = body.read_json_object(expected).await?;
    let label = parse_label(body.label.as_ref())?;
    require_changed(app.store.set_key_label(key, label, app.clock.now()).await?)?;
    key_details_response(&app, &caller, key).await
}

async fn revoke_key(caller: Caller, State(app): AppState) -> Result<Response, ApiError> {
    let key = caller.require_key()?;
    let Some(rows) = app.store.revoke_key_as_owner(key).await? else { return Err(Problem::InvalidKey.into()) };
    app.keyring.apply_rows(&rows);

    let no_store = [(header::CACHE_CONTROL, HeaderValue::from_static("no-store"))];
    Ok((StatusCode::NO_CONTENT, no_store).into_response())
}

async fn rotate_key(caller: Caller, State(app): AppState, body: RequestBody) -> Result<Response, ApiError> {
    let id = caller.require_key()?;
    let now = app.clock.now();
    let grace_period = RotateRequest::read_grace_period(body).await?;
    let ends_at = now + grace_period;

    let key = generate_key();
    let secret = app.keyring.pepper().new_secret(&key);
    let rows = require_changed(app.store.rotate_key(id, &secret, now, ends_at).await?)?;
    app.keyring.apply_rows(&rows);

    let message = LocalizedText::new(
        "Your API key has a new secret. Store it safely: it is shown only once.",
        "Sua chave de API tem um novo segredo. Guarde-o em local seguro: ele só aparece uma vez.",
    );
    let body = RotatedKeyBody {
        message: message.in_lang(caller.lang),
        api_key: key.reveal(),
        plan: caller.plan.id(),
        rate_limit: app.settings.offer.limits.for_plan(caller.plan),
        previous_key_ends_at: format_instant(ends_at),
    };
    Ok(responses::uncached_json(StatusCode::OK, &body))
}

impl RotateRequest {
    pub async fn read_grace_period(body: RequestBody) -> Result<TimeDelta, Problem> {
        let expected = LocalizedText::new(
            "The body must be empty, or a JSON object with the field `grace_seconds` at most once.",
            "O corpo deve estar vazio ou ser um objeto JSON com o campo `grace_seconds` no máximo uma vez.",
        );
        let body: Self = body.read_optional_json_object(expected).await?;
        Ok(TimeDelta::seconds(parse_grace_seconds(body.grace_seconds.as_ref())?.into()))
    }
}

async fn key_details_response(app: &App, caller: &Caller, key: KeyId) -> Result<Response, ApiError> {
    let Some(details) = app.store.key_details(key).await? else { return Err(Problem::InvalidKey.into()) };
    let now = app.clock.now();
    let former = details.former_secret.filter(|former| former.ends_at > now);

    let body = KeyBody {
        key: format!("{}…", details.display_prefix),
        plan: caller.plan.id(),
        label: details.label,
        rate_limit: app.settings.offer.limits.for_plan(caller.plan),
        created_at: format_instant(details.created_at),
        last_used_on: details.last_used_on,
        expires_at: details.expires_at.map(format_instant),
        support: app.settings.support_contact.clone().filter(|_| Feature::Support.required_plan() <= caller.plan),
        previous_key: former.as_ref().map(|former| format!("{}…", former.display_prefix)),
        previous_key_ends_at: former.as_ref().map(|former| format_instant(former.ends_at)),
    };
    Ok(responses::uncached_json(StatusCode::OK, &body))
}

fn require_changed<T>(change: OwnerChangeResult<T>) -> Result<T, Problem> {
    match change {
        OwnerChangeResult::Done(result) => Ok(result),
        // The key was valid when the request was admitted, and has expired or been revoked since.
        OwnerChangeResult::KeyInvalid => Err(Problem::InvalidKey),
        OwnerChangeResult::TooManyChanges { retry_after_seconds } => {
            Err(Problem::TooManyKeyChanges { retry_after_seconds })
        }
    }
}

fn parse_label(label: Option<&Value>) -> Result<&str, Problem> {
    label.and_then(Value::as_str).filter(|label| is_valid_label(label)).ok_or(Problem::BadField {
        name: "label",
        requirement: LocalizedText::new(
            "must be a string of at most 100 characters without control characters",
            "deve ser um texto de no máximo 100 caracteres, sem caracteres de controle",
        ),
    })
}

fn parse_grace_seconds(grace: Option<&Value>) -> Result<u32, Problem> {
    let Some(grace) = grace else { return Ok(MAX_GRACE_SECONDS) };
    let seconds = grace.as_u64().and_then(|seconds| u32::try_from(seconds).ok());
    seconds.filter(|seconds| *seconds <= MAX_GRACE_SECONDS).ok_or(Problem::BadField {
        name: "grace_seconds",
        requirement: LocalizedText::new(
            "must be an integer from 0 to 86400",
            "deve ser um número inteiro de 0 a 86400",
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn grace_period_is_a_whole_number_of_seconds_up_to_a_day() {
        assert_eq!(parse_grace_seconds(None), Ok(86_400));
        assert_eq!(parse_grace_seconds(Some(&json!(0))), Ok(0));
        assert_eq!(parse_grace_seconds(Some(&json!(86_400))), Ok(86_400));
        for value in [json!(-1), json!(86_401), json!(1.5), json!("5"), json!(null), json!(u64::MAX), json!([])] {
            assert!(parse_grace_seconds(Some(&value)).is_err(), "{value}");
        }

        let read = |body: &str| serde_json::from_str::<RotateRequest>(body).expect("an object").grace_seconds;
        assert_eq!((read("{}"), read(r#"{"grace_seconds":null}"#)), (None, Some(Value::Null)));
    }

    #[test]
    fn label_length_is_counted_in_characters_and_may_be_zero() {
        let label = |value: Value| parse_label(Some(&value)).map(str::to_owned);
        assert_eq!(label(json!("é".repeat(100))), Ok("é".repeat(100)));
        assert_eq!(label(json!("")), Ok(String::new()));
        for value in [json!("é".repeat(101)), json!("a\nb"), json!("a\u{0}"), json!(1), json!(null), json!([])] {
            assert!(label(value.clone()).is_err(), "{value}");
        }
        assert!(parse_label(None).is_err());
    }
}
