//! Webhooks: create, change, test and rotate them, and list or replay their deliveries.

pub mod request;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, patch, post};
use http::{HeaderValue, StatusCode, header};
use serde::Serialize;
use serde_json::value::RawValue;
use vintem_deliver::webhook::WebhookSecret;
use vintem_domain::event::{EventKind, WEBHOOK_TEST_EVENT};
use vintem_domain::webhook::{DeliveryState, EventFilter};
use vintem_domain::{LocalizedText, Problem};
use vintem_store::webhooks::{DeliveryRow, NewWebhook, TestEvent, WebhookRow, WebhookTestOutcome, WebhookUpdate};

use super::keys::RotateRequest;
use crate::api_error::ApiError;
use crate::app::{AppState, Handlers};
use crate::bodies::format_instant;
use crate::caller::Caller;
use crate::event_body::render_test_event;
use crate::params::{MAX_PAGE_ROWS, QueryParams, canonical_query, invalid_param};
use crate::request_body::RequestBody;
use crate::responses::{self, WholeList, with_page_links_to};
use request::{parse_event_filter, parse_webhook_status, read_webhook_request, validate_url};

#[derive(Serialize)]
struct WebhookBody {
    id: String,
    url: String,
    types: Vec<&'static str>,
    filters: FiltersBody,
    status: &'static str,
    disabled_reason: Option<&'static str>,
    created_at: String,
    last_success_at: Option<String>,
    /// Only in the response that creates the webhook.
    #[serde(skip_serializing_if = "Option::is_none")]
    secret: Option<String>,
}

#[derive(Serialize)]
struct FiltersBody {
    companies: Vec<String>,
    categories: Vec<String>,
    series: Vec<String>,
    pairs: Vec<String>,
}

#[derive(Serialize)]
struct WebhooksBody {
    data: Vec<WebhookBody>,
    #[serde(flatten)]
    position: WholeList,
}

#[derive(Serialize)]
struct RotatedWebhookSecretBody {
    message: &'static str,
    secret: String,
    previous_secret_ends_at: String,
}

#[derive(Serialize)]
struct DeliveryBody {
    id: String,
    event_id: String,
    r#type: String,
    state: &'static str,
    created_at: String,
    next_attempt_at: Option<String>,
    delivered_at: Option<String>,
    attempts: Box<RawValue>,
}

#[derive(Serialize)]
struct DeliveriesBody {
    data: Vec<DeliveryBody>,
    total: u64,
    limit: usize,
    offset: usize,
}

const WEBHOOK_ID_PREFIX: &str = "whk_";

type IdPath = Result<Path<String>, PathRejection>;
pub fn handlers() -> Handlers {
    vec![
        ("create_webhook", post(create_webhook)),
        ("list_webhooks", get(list_webhooks)),
        ("get_webhook", get(get_webhook)),
        ("update_webhook", patch(update_webhook)),
        ("delete_webhook", delete(delete_webhook)),
        ("test_webhook", post(test_webhook)),
        ("rotate_webhook", post(rotate_webhook)),
        ("list_deliveries", get(list_deliveries)),
        ("replay_delivery", post(replay_delivery)),
    ]
}

async fn create_webhook(caller: Caller, State(app): AppState, body: RequestBody) -> Result<Response, ApiError> {
    let key = caller.require_key()?;
    let request = read_webhook_request(body).await?;
    let filter = parse_event_filter(&app, &request, EventFilter::default())?;
    let url = validate_url(&app, &caller, request.url.as_ref()).await?;

    let id = generate_id(WEBHOOK_ID_PREFIX);
    let secret = WebhookSecret::random();
    let sealed_secret = app.settings.webhook_secrets.seal(&id, &secret);
    let webhook =
        NewWebhook { id: &id, url: &url, filter: &filter, sealed_secret: &sealed_secret, now: app.clock.now() };
    let row = app.store.create_webhook(key, &webhook).await?.ok_or(Problem::TooManyWebhooks)?;

    let body = WebhookBody { secret: Some(secret.reveal()), ..row.into() };
    Ok(responses::uncached_json(StatusCode::CREATED, &body))
}

async fn list_webhooks(caller: Caller, State(app): AppState) -> Result<Response, ApiError> {
    let rows = app.store.list_webhooks(caller.require_key()?).await?;
    let data: Vec<WebhookBody> = rows.into_iter().map(Into::into).collect();
    Ok(responses::uncached_json(StatusCode::OK, &WebhooksBody { position: WholeList::of(data.len()), data }))
}

async fn get_webhook(caller: Caller, State(app): AppState, id: IdPath) -> Result<Response, ApiError> {
    let key = caller.require_key()?;
    let id = parse_webhook_id(id)?;
    let row = app.store.find_webhook(key, &id).await?.ok_or(Problem::NoSuchWebhook)?;
    Ok(responses::uncached_json(StatusCode::OK, &WebhookBody::from(row)))
}

async fn update_webhook(
    caller: Caller,
    State(app): AppState,
    id: IdPath,
    body: RequestBody,
) -> Result<Response, ApiError> {
    let key = caller.require_key()?;
    let id = parse_webhook_id(id)?;
    let request = read_webhook_request(body).await?;
    let current = app.store.find_webhook(key, &id).await?.ok_or(Problem::NoSuchWebhook)?;

    let changes_filter = request.types.is_some() || request.filters.is_some();
    let filter = parse_event_filter(&app, &request, current.filter)?;
    let status = request.status.as_ref().map(parse_webhook_status).transpose()?;
    let url = match &request.url {
        Some(url) => Some(validate_url(&app, &caller, Some(url)).await?),
        None => None,
    };

    let update = WebhookUpdate { url: url.as_deref(), filter: changes_filter.then_some(&filter), status };
    let row = app.store.update_webhook(key, &id, &update).await?.ok_or(Problem::NoSuchWebhook)?;
    Ok(responses::uncached_json(StatusCode::OK, &WebhookBody::from(row)))
}

async fn delete_webhook(caller: Caller, State(app): AppState, id: IdPath) -> Result<Response, ApiError> {
    let key = caller.require_key()?;
    let id = parse_webhook_id(id)?;
    if !app.store.delete_webhook(key, &id).await? {
        return Err(Problem::NoSuchWebhook.into());
    }

    let no_store = [(header::CACHE_CONTROL, HeaderValue::from_static("no-store"))];
    Ok((StatusCode::NO_CONTENT, no_store).into_response())
}

async fn test_webhook(caller: Caller, State(app): AppState, id: IdPath) -> Result<Response, ApiError> {
    let key = caller.require_key()?;
    let id = parse_webhook_id(id)?;
    let now = app.clock.now();

    let event_id = generate_id("evt_");
    let body = render_test_event(&event_id, &id, now);
    let event = TestEvent { id: &event_id, kind: WEBHOOK_TEST_EVENT, body: &body };
    match app.store.queue_test_delivery(key, &id, &event, now).await? {
        WebhookTestOutcome::Queued(row) => Ok(responses::uncached_json(StatusCode::ACCEPTED, &DeliveryBody::from(row))),
        WebhookTestOutcome::NoSuchWebhook => Err(Problem::NoSuchWebhook.into()),
        WebhookTestOutcome::NotActive => Err(Problem::WebhookNotActive.into()),
    }
}

async fn rotate_webhook(
    caller: Caller,
    State(app): AppState,
    id: IdPath,
    body: RequestBody,
) -> Result<Response, ApiError> {
    let key = caller.require_key()?;
    let id = parse_webhook_id(id)?;
    let ends_at = app.clock.now() + RotateRequest::read_grace_period(body).await?;

    let secret = WebhookSecret::random();
    let sealed_secret = app.settings.webhook_secrets.seal(&id, &secret);
    if !app.store.rotate_webhook_secret(key, &id, &sealed_secret, ends_at).await? {
        return Err(Problem::NoSuchWebhook.into());
    }

    let message = LocalizedText::new(
        "Your webhook has a new secret. Store it safely: it is shown only once.",
        "Seu webhook tem um novo segredo. Guarde-o em local seguro: ele só aparece uma vez.",
    );
    let body = RotatedWebhookSecretBody {
        message: message.in_lang(caller.lang),
        secret: secret.reveal(),
        previous_secret_ends_at: format_instant(ends_at),
    };
    Ok(responses::uncached_json(StatusCode::OK, &body))
}

async fn list_deliveries(
    caller: Caller,
    State(app): AppState,
    id: IdPath,
    query: QueryParams,
) -> Result<Response, ApiError> {
    let key = caller.require_key()?;
    let state = parse_delivery_state(&query)?;
    let pagination = query.pagination(MAX_PAGE_ROWS)?;
    let id = parse_webhook_id(id)?;

    let offset = i64::try_from(pagination.offset).unwrap_or(i64::MAX);
    let limit = pagination.limit as i64;
    let deliveries = app.store.list_deliveries(key, &id, state, offset, limit).await?;
    let (rows, total) = deliveries.ok_or(Problem::NoSuchWebhook)?;

    let data = rows.into_iter().map(Into::into).collect();
    let body = DeliveriesBody { data, total, limit: pagination.limit, offset: pagination.offset };
    let response = responses::uncached_json(StatusCode::OK, &body);
    let url = format!("{}{}", app.settings.public_url, caller.path());
    let total = usize::try_from(total).unwrap_or(usize::MAX);
    Ok(with_page_links_to(response, &url, &canonical_query(caller.query_string()), pagination, total))
}

async fn replay_delivery(
    caller: Caller,
    State(app): AppState,
    ids: Result<Path<(String, String)>, PathRejection>,
) -> Result<Response, ApiError> {
    let key = caller.require_key()?;
    let Path((id, delivery_id)) = ids.map_err(|_| Problem::NoSuchDelivery)?;
    let id = parse_webhook_id(Ok(Path(id)))?;
    let delivery_id = delivery_id.parse().map_err(|_| Problem::NoSuchDelivery)?;

    let row = app.store.replay_delivery(key, &id, delivery_id, app.clock.now()).await?;
    let row = row.ok_or(Problem::NoSuchDelivery)?;
    Ok(responses::uncached_json(StatusCode::ACCEPTED, &DeliveryBody::from(row)))
}

fn generate_id(prefix: &str) -> String {
    format!("{prefix}{:032x}", rand::random::<u128>())
}

/// An ID of another form cannot exist, so it needs no lookup.
fn parse_webhook_id(id: IdPath) -> Result<String, Problem> {
    let Path(id) = id.map_err(|_| Problem::NoSuchWebhook)?;
    let digits = id.strip_prefix(WEBHOOK_ID_PREFIX).unwrap_or_default();
    let is_well_formed = digits.len() == 32 && digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    if is_well_formed { Ok(id) } else { Err(Problem::NoSuchWebhook) }
}

fn parse_delivery_state(query: &QueryParams) -> Result<Option<DeliveryState>, Problem> {
    let Some(text) = query.single_value("state")? else { return Ok(None) };
    match DeliveryState::from_id(text) {
        Some(state) => Ok(Some(state)),
        None => invalid_param(
            "state",
            LocalizedText::new(
                "must be `waiting`, `sending`, `delivered` or `dead`",
                "deve ser `waiting`, `sending`, `delivered` ou `dead`",
            ),
        ),
    }
}

impl From<WebhookRow> for WebhookBody {
    fn from(row: WebhookRow) -> Self {
        let EventFilter { kinds, companies, categories, series, pairs } = row.filter;
        Self {
            id: row.id,
            url: row.url,
            types: kinds.into_iter().map(EventKind::id).collect(),
            filters: FiltersBody { companies, categories, series, pairs },
            status: row.status.id(),
            disabled_reason: row.status.disabled_reason(),
            created_at: format_instant(row.created_at),
            last_success_at: row.last_success_at.map(format_instant),
            secret: None,
        }
    }
}

impl From<DeliveryRow> for DeliveryBody {
    fn from(row: DeliveryRow) -> Self {
        Self {
            id: row.id.to_string(),
            event_id: row.event_id,
            r#type: row.kind,
            state: row.state.id(),
            created_at: format_instant(row.created_at),
            next_attempt_at: row.next_attempt_at.map(format_instant),
            delivered_at: row.delivered_at.map(format_instant),
            attempts: RawValue::from_string(row.attempts_json).unwrap_or_default(),
        }
    }
}
