//! Webhooks: create, change, test and rotate them, and list or replay their deliveries.

use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, patch, post};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use vintem_deliver::webhook::{AddressError, WebhookSecret};
use vintem_domain::event::{EventKind, WEBHOOK_TEST_EVENT};
use vintem_domain::series::PUBLISHED_SERIES;
use vintem_domain::text::normalize_text;
use vintem_domain::webhook::{DeliveryState, EventFilter, WebhookStatus};
use vintem_domain::{CurrencyPair, Dataset, KeyId, LocalizedText, Problem};
use vintem_snapshot::Snapshot;
use vintem_store::webhooks::{DeliveryRow, NewWebhook, TestEvent, WebhookRow, WebhookTestOutcome, WebhookUpdate};

use super::keys::{RotateRequest, deserialize_present};
use super::status::format_instant;
use super::{AppState, Handlers, require_loaded, today};
use crate::App;
use crate::api_error::ApiError;
use crate::caller::Caller;
use crate::event_body::render_test_event;
use crate::params::{MAX_PAGE_ROWS, QueryParams, invalid_param};
use crate::per_key_limit::acquire_dns_lookup;
use crate::request_body::read_json_object;
use crate::responses::{self, with_page_links};

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
    total: usize,
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

/// The body that creates or changes a webhook. `null` does not count as a missing field.
#[derive(Deserialize)]
struct WebhookRequest {
    #[serde(default, deserialize_with = "deserialize_present")]
    url: Option<Value>,
    #[serde(default, deserialize_with = "deserialize_present")]
    types: Option<Value>,
    #[serde(default, deserialize_with = "deserialize_present")]
    filters: Option<Value>,
    #[serde(default, deserialize_with = "deserialize_present")]
    status: Option<Value>,
}

/// Maximum values per filter.
pub const MAX_FILTER_VALUES: usize = 100;
const WEBHOOK_ID_PREFIX: &str = "whk_";

type IdPath = Result<Path<String>, PathRejection>;
type FieldResult<T> = Result<T, Problem>;

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

async fn create_webhook(
    caller: Caller,
    State(app): AppState,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiError> {
    let key = caller.require_key()?;
    let request = read_webhook_request(&headers, body).await?;
    let filter = parse_event_filter(&app, &request, EventFilter::default())?;
    let url = validate_url(&app, key, request.url.as_ref()).await?;

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
    Ok(responses::uncached_json(StatusCode::OK, &WebhooksBody { total: data.len(), data }))
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
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiError> {
    let key = caller.require_key()?;
    let id = parse_webhook_id(id)?;
    let request = read_webhook_request(&headers, body).await?;
    let current = app.store.find_webhook(key, &id).await?.ok_or(Problem::NoSuchWebhook)?;

    let changes_filter = request.types.is_some() || request.filters.is_some();
    let filter = parse_event_filter(&app, &request, current.filter)?;
    let status = request.status.as_ref().map(parse_webhook_status).transpose()?;
    let url = match &request.url {
        Some(url) => Some(validate_url(&app, key, Some(url)).await?),
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
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiError> {
    let key = caller.require_key()?;
    let id = parse_webhook_id(id)?;
    let ends_at = app.clock.now() + RotateRequest::read_grace_period(&headers, body).await?;

    let secret = WebhookSecret::random();
    let sealed_secret = app.settings.webhook_secrets.seal(&id, &secret);
    if !app.store.rotate_webhook_secret(key, &id, &sealed_secret, ends_at).await? {
        return Err(Problem::NoSuchWebhook.into());
    }

    let message = LocalizedText::new(
        "Your webhook has a new secret. It is shown only now: keep it safe.",
        "Seu webhook tem um novo segredo. Ele só é mostrado agora: guarde-o bem.",
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
    Ok(with_page_links(response, &caller, &app, pagination, usize::try_from(total).unwrap_or(usize::MAX)))
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
fn parse_webhook_id(id: IdPath) -> FieldResult<String> {
    let Path(id) = id.map_err(|_| Problem::NoSuchWebhook)?;
    let digits = id.strip_prefix(WEBHOOK_ID_PREFIX).unwrap_or_default();
    let is_well_formed = digits.len() == 32 && digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    if is_well_formed { Ok(id) } else { Err(Problem::NoSuchWebhook) }
}

async fn read_webhook_request(headers: &HeaderMap, body: Body) -> FieldResult<WebhookRequest> {
    let expected = LocalizedText::new(
        "The body must be one JSON object with the fields url, types, filters or status, each at most once.",
        "O corpo deve ser um objeto JSON com os campos url, types, filters ou status, cada um no máximo uma vez.",
    );
    read_json_object(headers, body, expected).await
}

async fn validate_url(app: &App, key: KeyId, url: Option<&Value>) -> FieldResult<String> {
    let guard = &app.settings.webhook_guard;
    let text = url.and_then(Value::as_str).unwrap_or_default();
    let url = guard.parse_url(text).map_err(url_problem)?;
    let _permit = url.domain().map(|_| acquire_dns_lookup(key)).transpose()?;
    guard.check_url(text).await.map_err(url_problem)?;
    Ok(url.into())
}

fn url_problem(error: AddressError) -> Problem {
    let must = match error {
        AddressError::InvalidUrl => LocalizedText::new(
            "be an address of the form https://host/path of at most 2000 characters",
            "ser um endereço da forma https://host/caminho com no máximo 2000 caracteres",
        ),
        AddressError::HasCredentials => {
            LocalizedText::new("carry neither user nor password", "não conter usuário nem senha")
        }
        AddressError::ForbiddenPort => {
            LocalizedText::new("name port 443, or one from 1024 on", "indicar a porta 443, ou uma a partir de 1024")
        }
        AddressError::NotPublic => {
            LocalizedText::new("lead to a public address of the internet", "levar a um endereço público da internet")
        }
        AddressError::UnresolvedHost => LocalizedText::new(
            "name a host that can be found: its name leads nowhere",
            "indicar um host que possa ser encontrado: o nome não leva a lugar nenhum",
        ),
    };

    Problem::BadField { name: "url", requirement: must }
}

fn parse_webhook_status(status: &Value) -> FieldResult<WebhookStatus> {
    match status.as_str() {
        Some("active") => Ok(WebhookStatus::Active),
        Some("paused") => Ok(WebhookStatus::Paused),
        _ => Err(Problem::BadField {
            name: "status",
            requirement: LocalizedText::new("be active or paused", "ser active ou paused"),
        }),
    }
}

fn parse_delivery_state(query: &QueryParams) -> FieldResult<Option<DeliveryState>> {
    let Some(text) = query.single_value("state")? else { return Ok(None) };
    match DeliveryState::from_id(text) {
        Some(state) => Ok(Some(state)),
        None => invalid_param(
            "state",
            LocalizedText::new("be waiting, sending, delivered or dead", "ser waiting, sending, delivered ou dead"),
        ),
    }
}

/// Applies the fields of the request to the existing filter.
fn parse_event_filter(
    app: &App,
    request: &WebhookRequest,
    mut event_filter: EventFilter,
) -> Result<EventFilter, ApiError> {
    if let Some(types) = &request.types {
        event_filter.kinds = parse_event_types(types)?;
    }
    if let Some(filters) = &request.filters {
        let parsed = parse_filters(app, filters)?;
        event_filter = EventFilter { kinds: event_filter.kinds, ..parsed };
    }

    if !event_filter.is_satisfiable() {
        return Err(ApiError(Problem::BadField {
            name: "filters",
            requirement: LocalizedText::new(
                "be such that an event can meet all of them: filing.published has companies and categories, company.updated companies, rate.published series, fx.published pairs, series.revised series and pairs",
                "ser tais que um evento possa atender a todos: filing.published tem companies e categories, company.updated companies, rate.published series, fx.published pairs, series.revised series e pairs",
            ),
        }));
    }
    Ok(event_filter)
}

fn parse_event_types(types: &Value) -> FieldResult<Vec<EventKind>> {
    let kinds = parse_string_list(types)
        .and_then(|texts| texts.into_iter().map(EventKind::from_id).collect::<Option<Vec<_>>>());
    let mut kinds = kinds.ok_or(Problem::BadField {
        name: "types",
        requirement: LocalizedText::new(
            "be a list of types of events: filing.published, company.updated, rate.published, fx.published, series.revised",
            "ser uma lista de tipos de eventos: filing.published, company.updated, rate.published, fx.published, series.revised",
        ),
    })?;

    kinds.sort_unstable();
    kinds.dedup();
    Ok(kinds)
}

fn parse_filters(app: &App, filters: &Value) -> Result<EventFilter, ApiError> {
    let bad_filters = Problem::BadField {
        name: "filters",
        requirement: LocalizedText::new(
            "be an object with lists called companies, categories, series or pairs, and nothing else",
            "ser um objeto com listas chamadas companies, categories, series ou pairs, e nada mais",
        ),
    };
    let filters = filters.as_object().ok_or(bad_filters.clone())?;

    let snapshot = app.current_snapshot()?;
    let mut event_filter = EventFilter::default();
    for (name, values) in filters {
        match name.as_str() {
            "companies" => event_filter.companies = parse_company_filter(&snapshot, values)?,
            "categories" => event_filter.categories = parse_category_filter(app, &snapshot, values)?,
            "series" => event_filter.series = parse_series_filter(values)?,
            "pairs" => event_filter.pairs = parse_pair_filter(values)?,
            _ => return Err(bad_filters.into()),
        }
    }
    Ok(event_filter)
}

fn parse_company_filter(snapshot: &Snapshot, values: &Value) -> Result<Vec<String>, ApiError> {
    let companies = require_loaded(snapshot.companies(), Dataset::Companies)?;
    let canonical = |text: &str| Some(companies.get(companies.resolve(text)?).id.to_string());
    let must = LocalizedText::new(
        "be a list of at most 100 codes or CNPJs of companies that we know: /api/v1/companies/search finds them",
        "ser uma lista de no máximo 100 códigos ou CNPJs de companhias que conhecemos: /api/v1/companies/search as encontra",
    );
    Ok(parse_filter_values("filters.companies", values, canonical, must)?)
}

fn parse_category_filter(app: &App, snapshot: &Snapshot, values: &Value) -> Result<Vec<String>, ApiError> {
    let [categories, _] = require_loaded(snapshot.filings(), Dataset::Filings)?.facet_counts(today(app));
    let canonical = |text: &str| {
        let normalized = normalize_text(text);
        categories.iter().map(|(category, _)| category).find(|category| normalize_text(category) == normalized).cloned()
    };
    let must = LocalizedText::new(
        "be a list of at most 100 categories of filings: /api/v1/filings/facets lists them",
        "ser uma lista de no máximo 100 categorias de documentos: /api/v1/filings/facets as lista",
    );
    Ok(parse_filter_values("filters.categories", values, canonical, must)?)
}

fn parse_series_filter(values: &Value) -> FieldResult<Vec<String>> {
    // Revised exchange rates have the series `fx`. Computed series are not in the list, because nobody publishes them.
    let ids = PUBLISHED_SERIES.iter().map(|series| series.id).chain([Dataset::Fx.id()]);
    let canonical = |text: &str| ids.clone().find(|id| *id == text).map(str::to_owned);
    let must = LocalizedText::new(
        "be a list of series: selic, selic-effective, selic-daily, cdi, cdi-daily, ipca, ipca-12m, fx",
        "ser uma lista de séries: selic, selic-effective, selic-daily, cdi, cdi-daily, ipca, ipca-12m, fx",
    );
    parse_filter_values("filters.series", values, canonical, must)
}

fn parse_pair_filter(values: &Value) -> FieldResult<Vec<String>> {
    let canonical =
        |text: &str| CurrencyPair::parse(text).filter(|pair| !pair.is_derived()).map(|pair| pair.to_string());
    let must = LocalizedText::new(
        "be a list of published pairs, all of them with BRL: USD/BRL, EUR/BRL and so on",
        "ser uma lista de pares publicados, todos com BRL: USD/BRL, EUR/BRL e assim por diante",
    );
    parse_filter_values("filters.pairs", values, canonical, must)
}

/// The values in their canonical spelling, without duplicates.
fn parse_filter_values(
    name: &'static str,
    values: &Value,
    canonical: impl Fn(&str) -> Option<String>,
    must: LocalizedText,
) -> FieldResult<Vec<String>> {
    let parsed =
        parse_string_list(values).and_then(|texts| texts.into_iter().map(canonical).collect::<Option<Vec<String>>>());
    let mut values = parsed.ok_or(Problem::BadField { name, requirement: must })?;
    values.sort_unstable();
    values.dedup();
    Ok(values)
}

fn parse_string_list(values: &Value) -> Option<Vec<&str>> {
    let values = values.as_array().filter(|values| values.len() <= MAX_FILTER_VALUES)?;
    values.iter().map(Value::as_str).collect()
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
