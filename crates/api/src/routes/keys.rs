//! What the owner of a key does with it: see it, label it, rotate its secret, revoke it.

use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, patch, post};
use chrono::{NaiveDate, TimeDelta};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use vintem_domain::key::is_label;
use vintem_domain::route::Feature;
use vintem_domain::{KeyId, Problem, Text};
use vintem_store::keys::{NewSecret, OwnChange};

use super::status::instant;
use super::{AppState, Handlers};
use crate::body::{read_object, read_optional_object};
use crate::caller::Caller;
use crate::problem::Refusal;
use crate::{App, answer, new_key};

#[derive(Serialize)]
struct KeyBody {
    key: String,
    plan: &'static str,
    label: String,
    rate_limit: u32,
    created_at: String,
    last_used_on: Option<NaiveDate>,
    expires_at: Option<String>,
    /// While a rotation leaves it its time.
    previous_key: Option<String>,
    previous_key_ends_at: Option<String>,
    /// Whom to ask, where the plan includes that.
    #[serde(skip_serializing_if = "Option::is_none")]
    support: Option<String>,
}

#[derive(Deserialize)]
struct UpdateBody {
    label: Option<Value>,
}

/// How long what is rotated away is still to be good for.
#[derive(Deserialize, Default)]
pub struct RotateBody {
    /// `null` is not a number: it is told from a field that is not there.
    #[serde(default, deserialize_with = "given")]
    grace_seconds: Option<Value>,
}

#[derive(Serialize)]
struct RotatedBody<'a> {
    message: &'static str,
    api_key: &'a str,
    plan: &'static str,
    rate_limit: u32,
    previous_key_ends_at: String,
}

/// A day: long enough to bring a new secret to wherever the old one is used.
const LONGEST_GRACE_SECONDS: u32 = 24 * 3600;

pub fn handlers() -> Handlers {
    vec![
        ("get_key", get(get_key)),
        ("update_key", patch(update_key)),
        ("revoke_key", delete(revoke_key)),
        ("rotate_key", post(rotate_key)),
    ]
}

async fn get_key(caller: Caller, State(app): AppState) -> Result<Response, Refusal> {
    let key = caller.required_key()?;
    show(&app, &caller, key).await
}

async fn update_key(caller: Caller, State(app): AppState, headers: HeaderMap, body: Body) -> Result<Response, Refusal> {
    let key = caller.required_key()?;
    let expected = Text::new(
        "The body must be one JSON object with the field label, once.",
        "O corpo deve ser um objeto JSON com o campo label, uma vez.",
    );
    let body: UpdateBody = read_object(&headers, body, expected).await?;
    let label = read_label(body.label.as_ref())?;
    done(app.store.set_key_label(key, label, app.clock.now()).await?)?;
    show(&app, &caller, key).await
}

async fn revoke_key(caller: Caller, State(app): AppState) -> Result<Response, Refusal> {
    let key = caller.required_key()?;
    let Some(rows) = app.store.revoke_own_key(key).await? else { return Err(Problem::InvalidKey.into()) };
    app.keyring.take_in(&rows);
    let no_store = [(header::CACHE_CONTROL, HeaderValue::from_static("no-store"))];
    Ok((StatusCode::NO_CONTENT, no_store).into_response())
}

async fn rotate_key(caller: Caller, State(app): AppState, headers: HeaderMap, body: Body) -> Result<Response, Refusal> {
    let id = caller.required_key()?;
    let (now, grace) = (app.clock.now(), RotateBody::read(&headers, body).await?);
    let ends_at = now + grace;
    let (key, pepper) = (new_key(), app.keyring.pepper());
    let secret = NewSecret { hmac: pepper.hmac(key.reveal()), pepper_id: &pepper.id(), shown: key.shown() };
    let rows = done(app.store.rotate_key(id, &secret, now, ends_at).await?)?;
    app.keyring.take_in(&rows);
    let message = Text::new(
        "Your API key has a new secret. It is shown only now: keep it safe.",
        "Sua chave de API tem um novo segredo. Ele só é mostrado agora: guarde-o bem.",
    );
    let body = RotatedBody {
        message: message.in_lang(caller.lang),
        api_key: key.reveal(),
        plan: caller.plan.id(),
        rate_limit: app.settings.offer.limits.of(caller.plan),
        previous_key_ends_at: instant(ends_at),
    };
    Ok(answer::uncached(StatusCode::OK, &body))
}

impl RotateBody {
    pub async fn read(headers: &HeaderMap, body: Body) -> Result<TimeDelta, Problem> {
        let expected = Text::new(
            "The body must be empty, or one JSON object with the field grace_seconds, at most once.",
            "O corpo deve ser vazio, ou um objeto JSON com o campo grace_seconds, no máximo uma vez.",
        );
        let body: Self = read_optional_object(headers, body, expected).await?;
        Ok(TimeDelta::seconds(read_grace(body.grace_seconds.as_ref())?.into()))
    }
}

async fn show(app: &App, caller: &Caller, key: KeyId) -> Result<Response, Refusal> {
    let Some(details) = app.store.key_details(key).await? else { return Err(Problem::InvalidKey.into()) };
    let now = app.clock.now();
    let former = details.former.filter(|former| former.ends_at > now);
    let body = KeyBody {
        key: format!("{}…", details.shown),
        plan: caller.plan.id(),
        label: details.label,
        rate_limit: app.settings.offer.limits.of(caller.plan),
        created_at: instant(details.created_at),
        last_used_on: details.last_used_on,
        expires_at: details.expires_at.map(instant),
        support: app.settings.support.clone().filter(|_| Feature::Support.plan() <= caller.plan),
        previous_key: former.as_ref().map(|former| format!("{}…", former.shown)),
        previous_key_ends_at: former.as_ref().map(|former| instant(former.ends_at)),
    };
    Ok(answer::uncached(StatusCode::OK, &body))
}

fn done<T>(change: OwnChange<T>) -> Result<T, Problem> {
    match change {
        OwnChange::Done(done) => Ok(done),
        // It was valid when the request came in, and ended since.
        OwnChange::Gone => Err(Problem::InvalidKey),
        OwnChange::TooMany { retry_after_seconds } => Err(Problem::TooManyKeyChanges { retry_after_seconds }),
    }
}

fn read_label(label: Option<&Value>) -> Result<&str, Problem> {
    label.and_then(Value::as_str).filter(|label| is_label(label)).ok_or(Problem::BadField {
        name: "label",
        must: Text::new(
            "be a text of at most 100 characters without control characters",
            "ser um texto de no máximo 100 caracteres, sem caracteres de controle",
        ),
    })
}

/// A field that is there, whatever its value.
pub fn given<'de, D: Deserializer<'de>>(field: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(field).map(Some)
}

fn read_grace(grace: Option<&Value>) -> Result<u32, Problem> {
    let Some(grace) = grace else { return Ok(LONGEST_GRACE_SECONDS) };
    let seconds = grace.as_u64().and_then(|seconds| u32::try_from(seconds).ok());
    seconds.filter(|seconds| *seconds <= LONGEST_GRACE_SECONDS).ok_or(Problem::BadField {
        name: "grace_seconds",
        must: Text::new("be a whole number from 0 to 86400", "ser um número inteiro de 0 a 86400"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_grace_is_a_whole_number_of_seconds_up_to_a_day() {
        assert_eq!(read_grace(None), Ok(86_400));
        assert_eq!(read_grace(Some(&json!(0))), Ok(0));
        assert_eq!(read_grace(Some(&json!(86_400))), Ok(86_400));
        for value in [json!(-1), json!(86_401), json!(1.5), json!("5"), json!(null), json!(u64::MAX), json!([])] {
            assert!(read_grace(Some(&value)).is_err(), "{value}");
        }
        let read = |body: &str| serde_json::from_str::<RotateBody>(body).expect("an object").grace_seconds;
        assert_eq!((read("{}"), read(r#"{"grace_seconds":null}"#)), (None, Some(Value::Null)));
    }

    #[test]
    fn a_label_is_measured_in_characters_and_may_be_empty() {
        let label = |value: Value| read_label(Some(&value)).map(str::to_owned);
        assert_eq!(label(json!("é".repeat(100))), Ok("é".repeat(100)));
        assert_eq!(label(json!("")), Ok(String::new()));
        for value in [json!("é".repeat(101)), json!("a\nb"), json!("a\u{0}"), json!(1), json!(null), json!([])] {
            assert!(label(value.clone()).is_err(), "{value}");
        }
        assert!(read_label(None).is_err());
    }
}
