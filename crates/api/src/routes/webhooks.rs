//! Webhooks: what a key wants to be told of and where, and what became of each telling.

use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, patch, post};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use vintem_deliver::webhook::{AddressRefused, WebhookSecret};
use vintem_domain::event::{EventKind, WEBHOOK_TEST};
use vintem_domain::series::SERIES;
use vintem_domain::text::fold;
use vintem_domain::webhook::{DeliveryState, Interest, WebhookStatus};
use vintem_domain::{Dataset, KeyId, Pair, Problem, Text};
use vintem_snapshot::Snapshot;
use vintem_store::webhooks::{DeliveryRow, NewWebhook, TestEvent, Tested, WebhookChange, WebhookRow};

use super::keys::{RotateBody, given};
use super::status::instant;
use super::{AppState, Handlers, loaded, today};
use crate::App;
use crate::answer::{self, with_links};
use crate::body::read_object;
use crate::caller::Caller;
use crate::events::test_body;
use crate::few::name_lookup;
use crate::params::{MOST_ROWS, Query, refuse};
use crate::problem::Refusal;

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
    /// Only when it is made.
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
struct RotatedBody {
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

/// What is sent to make or change a webhook. `null` is told from a field that is not there.
#[derive(Deserialize)]
struct SentBody {
    #[serde(default, deserialize_with = "given")]
    url: Option<Value>,
    #[serde(default, deserialize_with = "given")]
    types: Option<Value>,
    #[serde(default, deserialize_with = "given")]
    filters: Option<Value>,
    #[serde(default, deserialize_with = "given")]
    status: Option<Value>,
}

/// Of one filter.
const MOST_VALUES: usize = 100;
const ID_BEGINNING: &str = "whk_";

type Id = Result<Path<String>, PathRejection>;
type Read<T> = Result<T, Problem>;

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
) -> Result<Response, Refusal> {
    let key = caller.required_key()?;
    let sent = read_body(&headers, body).await?;
    let interest = read_interest(&app, &sent, Interest::default())?;
    let url = read_url(&app, key, sent.url.as_ref()).await?;
    let id = new_id(ID_BEGINNING);
    let secret = WebhookSecret::random();
    let sealed = app.settings.webhook_secrets.seal(&id, &secret);
    let webhook = NewWebhook { id: &id, url: &url, interest: &interest, secret: &sealed, now: app.clock.now() };
    let row = app.store.create_webhook(key, &webhook).await?.ok_or(Problem::TooManyWebhooks)?;
    let body = WebhookBody { secret: Some(secret.reveal()), ..row.into() };
    Ok(answer::uncached(StatusCode::CREATED, &body))
}

async fn list_webhooks(caller: Caller, State(app): AppState) -> Result<Response, Refusal> {
    let rows = app.store.webhooks(caller.required_key()?).await?;
    let data: Vec<WebhookBody> = rows.into_iter().map(Into::into).collect();
    Ok(answer::uncached(StatusCode::OK, &WebhooksBody { total: data.len(), data }))
}

async fn get_webhook(caller: Caller, State(app): AppState, id: Id) -> Result<Response, Refusal> {
    let (key, id) = (caller.required_key()?, read_id(id)?);
    let row = app.store.webhook(key, &id).await?.ok_or(Problem::NoSuchWebhook)?;
    Ok(answer::uncached(StatusCode::OK, &WebhookBody::from(row)))
}

async fn update_webhook(
    caller: Caller,
    State(app): AppState,
    id: Id,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Refusal> {
    let (key, id) = (caller.required_key()?, read_id(id)?);
    let sent = read_body(&headers, body).await?;
    let held = app.store.webhook(key, &id).await?.ok_or(Problem::NoSuchWebhook)?;
    let changes_interest = sent.types.is_some() || sent.filters.is_some();
    let interest = read_interest(&app, &sent, held.interest)?;
    let status = sent.status.as_ref().map(read_status).transpose()?;
    let url = match &sent.url {
        Some(url) => Some(read_url(&app, key, Some(url)).await?),
        None => None,
    };
    let interest = changes_interest.then_some(&interest);
    let change = WebhookChange { url: url.as_deref(), interest, status };
    let row = app.store.change_webhook(key, &id, &change).await?.ok_or(Problem::NoSuchWebhook)?;
    Ok(answer::uncached(StatusCode::OK, &WebhookBody::from(row)))
}

async fn delete_webhook(caller: Caller, State(app): AppState, id: Id) -> Result<Response, Refusal> {
    let (key, id) = (caller.required_key()?, read_id(id)?);
    if !app.store.delete_webhook(key, &id).await? {
        return Err(Problem::NoSuchWebhook.into());
    }
    let no_store = [(header::CACHE_CONTROL, HeaderValue::from_static("no-store"))];
    Ok((StatusCode::NO_CONTENT, no_store).into_response())
}

async fn test_webhook(caller: Caller, State(app): AppState, id: Id) -> Result<Response, Refusal> {
    let (key, id, now) = (caller.required_key()?, read_id(id)?, app.clock.now());
    let event = new_id("evt_");
    let body = test_body(&event, &id, now);
    let event = TestEvent { id: &event, kind: WEBHOOK_TEST, body: &body };
    match app.store.test_webhook(key, &id, &event, now).await? {
        Tested::Noted(row) => Ok(answer::uncached(StatusCode::ACCEPTED, &DeliveryBody::from(row))),
        Tested::NoSuchWebhook => Err(Problem::NoSuchWebhook.into()),
        Tested::NotActive => Err(Problem::WebhookNotActive.into()),
    }
}

async fn rotate_webhook(
    caller: Caller,
    State(app): AppState,
    id: Id,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Refusal> {
    let (key, id) = (caller.required_key()?, read_id(id)?);
    let ends_at = app.clock.now() + RotateBody::read(&headers, body).await?;
    let secret = WebhookSecret::random();
    let sealed = app.settings.webhook_secrets.seal(&id, &secret);
    if !app.store.rotate_webhook(key, &id, &sealed, ends_at).await? {
        return Err(Problem::NoSuchWebhook.into());
    }
    let message = Text::new(
        "Your webhook has a new secret. It is shown only now: keep it safe.",
        "Seu webhook tem um novo segredo. Ele só é mostrado agora: guarde-o bem.",
    );
    let body = RotatedBody {
        message: message.in_lang(caller.lang),
        secret: secret.reveal(),
        previous_secret_ends_at: instant(ends_at),
    };
    Ok(answer::uncached(StatusCode::OK, &body))
}

async fn list_deliveries(caller: Caller, State(app): AppState, id: Id, query: Query) -> Result<Response, Refusal> {
    let key = caller.required_key()?;
    let (state, page) = (read_state(&query)?, query.page(MOST_ROWS)?);
    let id = read_id(id)?;
    let (offset, limit) = (i64::try_from(page.offset).unwrap_or(i64::MAX), page.limit as i64);
    let found = app.store.deliveries(key, &id, state, offset, limit).await?;
    let (rows, total) = found.ok_or(Problem::NoSuchWebhook)?;
    let data = rows.into_iter().map(Into::into).collect();
    let body = DeliveriesBody { data, total, limit: page.limit, offset: page.offset };
    let response = answer::uncached(StatusCode::OK, &body);
    Ok(with_links(response, &caller, &app, page, usize::try_from(total).unwrap_or(usize::MAX)))
}

async fn replay_delivery(
    caller: Caller,
    State(app): AppState,
    ids: Result<Path<(String, String)>, PathRejection>,
) -> Result<Response, Refusal> {
    let key = caller.required_key()?;
    let Path((id, delivery)) = ids.map_err(|_| Problem::NoSuchDelivery)?;
    let id = read_id(Ok(Path(id)))?;
    let delivery = delivery.parse().map_err(|_| Problem::NoSuchDelivery)?;
    let row = app.store.replay_delivery(key, &id, delivery, app.clock.now()).await?;
    let row = row.ok_or(Problem::NoSuchDelivery)?;
    Ok(answer::uncached(StatusCode::ACCEPTED, &DeliveryBody::from(row)))
}

fn new_id(beginning: &str) -> String {
    format!("{beginning}{:032x}", rand::random::<u128>())
}

/// What no id of ours looks like names none.
fn read_id(id: Id) -> Read<String> {
    let Path(id) = id.map_err(|_| Problem::NoSuchWebhook)?;
    let digits = id.strip_prefix(ID_BEGINNING).unwrap_or_default();
    let is_one = digits.len() == 32 && digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    if is_one { Ok(id) } else { Err(Problem::NoSuchWebhook) }
}

async fn read_body(headers: &HeaderMap, body: Body) -> Read<SentBody> {
    let expected = Text::new(
        "The body must be one JSON object with the fields url, types, filters or status, each at most once.",
        "O corpo deve ser um objeto JSON com os campos url, types, filters ou status, cada um no máximo uma vez.",
    );
    read_object(headers, body, expected).await
}

async fn read_url(app: &App, key: KeyId, url: Option<&Value>) -> Read<String> {
    let (guard, text) = (&app.settings.webhook_guard, url.and_then(Value::as_str).unwrap_or_default());
    let url = guard.read(text).map_err(bad_url)?;
    let _place = url.domain().map(|_| name_lookup(key)).transpose()?;
    guard.check(text).await.map_err(bad_url)?;
    Ok(url.into())
}

fn bad_url(refused: AddressRefused) -> Problem {
    let must = match refused {
        AddressRefused::NotAnAddress => Text::new(
            "be an address of the form https://host/path of at most 2000 characters",
            "ser um endereço da forma https://host/caminho com no máximo 2000 caracteres",
        ),
        AddressRefused::WithCredentials => Text::new("carry neither user nor password", "não conter usuário nem senha"),
        AddressRefused::Port => {
            Text::new("name port 443, or one from 1024 on", "indicar a porta 443, ou uma a partir de 1024")
        }
        AddressRefused::NotPublic => {
            Text::new("lead to a public address of the internet", "levar a um endereço público da internet")
        }
        AddressRefused::Unknown => Text::new(
            "name a host that can be found: its name leads nowhere",
            "indicar um host que possa ser encontrado: o nome não leva a lugar nenhum",
        ),
    };
    Problem::BadField { name: "url", must }
}

fn read_status(status: &Value) -> Read<WebhookStatus> {
    match status.as_str() {
        Some("active") => Ok(WebhookStatus::Active),
        Some("paused") => Ok(WebhookStatus::Paused),
        _ => Err(Problem::BadField { name: "status", must: Text::new("be active or paused", "ser active ou paused") }),
    }
}

fn read_state(query: &Query) -> Read<Option<DeliveryState>> {
    let Some(text) = query.value("state")? else { return Ok(None) };
    match DeliveryState::from_id(text) {
        Some(state) => Ok(Some(state)),
        None => refuse(
            "state",
            Text::new("be waiting, sending, delivered or dead", "ser waiting, sending, delivered ou dead"),
        ),
    }
}

/// What is sent of it, on top of what there was.
fn read_interest(app: &App, sent: &SentBody, mut interest: Interest) -> Result<Interest, Refusal> {
    if let Some(types) = &sent.types {
        interest.kinds = read_types(types)?;
    }
    if let Some(filters) = &sent.filters {
        let read = read_filters(app, filters)?;
        interest = Interest { kinds: interest.kinds, ..read };
    }
    if !interest.can_be_met() {
        return Err(Refusal(Problem::BadField {
            name: "filters",
            must: Text::new(
                "be such that an event can meet all of them: filing.published has companies and categories, company.updated companies, rate.published series, fx.published pairs, series.revised series and pairs",
                "ser tais que um evento possa atender a todos: filing.published tem companies e categories, company.updated companies, rate.published series, fx.published pairs, series.revised series e pairs",
            ),
        }));
    }
    Ok(interest)
}

fn read_types(types: &Value) -> Read<Vec<EventKind>> {
    let kinds = texts(types).and_then(|texts| texts.into_iter().map(EventKind::from_id).collect::<Option<Vec<_>>>());
    let mut kinds = kinds.ok_or(Problem::BadField {
        name: "types",
        must: Text::new(
            "be a list of types of events: filing.published, company.updated, rate.published, fx.published, series.revised",
            "ser uma lista de tipos de eventos: filing.published, company.updated, rate.published, fx.published, series.revised",
        ),
    })?;
    kinds.sort_unstable();
    kinds.dedup();
    Ok(kinds)
}

fn read_filters(app: &App, filters: &Value) -> Result<Interest, Refusal> {
    let bad_filters = Problem::BadField {
        name: "filters",
        must: Text::new(
            "be an object with lists called companies, categories, series or pairs, and nothing else",
            "ser um objeto com listas chamadas companies, categories, series ou pairs, e nada mais",
        ),
    };
    let filters = filters.as_object().ok_or(bad_filters.clone())?;
    let (snapshot, mut interest) = (app.snapshot()?, Interest::default());
    for (name, values) in filters {
        match name.as_str() {
            "companies" => interest.companies = read_companies(&snapshot, values)?,
            "categories" => interest.categories = read_categories(app, &snapshot, values)?,
            "series" => interest.series = read_series(values)?,
            "pairs" => interest.pairs = read_pairs(values)?,
            _ => return Err(bad_filters.into()),
        }
    }
    Ok(interest)
}

fn read_companies(snapshot: &Snapshot, values: &Value) -> Result<Vec<String>, Refusal> {
    let companies = loaded(snapshot.companies(), Dataset::Companies)?;
    let canonical = |text: &str| Some(companies.get(companies.resolve(text)?).id.to_string());
    let must = Text::new(
        "be a list of at most 100 codes or CNPJs of companies that we know: /api/v1/companies/search finds them",
        "ser uma lista de no máximo 100 códigos ou CNPJs de companhias que conhecemos: /api/v1/companies/search as encontra",
    );
    Ok(each("filters.companies", values, canonical, must)?)
}

fn read_categories(app: &App, snapshot: &Snapshot, values: &Value) -> Result<Vec<String>, Refusal> {
    let [categories, _] = loaded(snapshot.filings(), Dataset::Filings)?.facets(today(app));
    let canonical = |text: &str| {
        let folded = fold(text);
        categories.iter().map(|(category, _)| category).find(|category| fold(category) == folded).cloned()
    };
    let must = Text::new(
        "be a list of at most 100 categories of filings: /api/v1/filings/facets lists them",
        "ser uma lista de no máximo 100 categorias de documentos: /api/v1/filings/facets as lista",
    );
    Ok(each("filters.categories", values, canonical, must)?)
}

fn read_series(values: &Value) -> Read<Vec<String>> {
    // Exchange rates that are revised are of the series `fx`. Series that we compute are not published by anybody.
    let ids = SERIES.iter().map(|series| series.id).chain([Dataset::Fx.id()]);
    let canonical = |text: &str| ids.clone().find(|id| *id == text).map(str::to_owned);
    let must = Text::new(
        "be a list of series: selic, selic-effective, selic-daily, cdi, cdi-daily, ipca, ipca-12m, fx",
        "ser uma lista de séries: selic, selic-effective, selic-daily, cdi, cdi-daily, ipca, ipca-12m, fx",
    );
    each("filters.series", values, canonical, must)
}

fn read_pairs(values: &Value) -> Read<Vec<String>> {
    let canonical = |text: &str| Pair::parse(text).filter(|pair| !pair.is_derived()).map(|pair| pair.to_string());
    let must = Text::new(
        "be a list of published pairs, all of them with BRL: USD/BRL, EUR/BRL and so on",
        "ser uma lista de pares publicados, todos com BRL: USD/BRL, EUR/BRL e assim por diante",
    );
    each("filters.pairs", values, canonical, must)
}

/// Each value in its canonical spelling, once.
fn each(
    name: &'static str,
    values: &Value,
    canonical: impl Fn(&str) -> Option<String>,
    must: Text,
) -> Read<Vec<String>> {
    let read = texts(values).and_then(|texts| texts.into_iter().map(canonical).collect::<Option<Vec<String>>>());
    let mut values = read.ok_or(Problem::BadField { name, must })?;
    values.sort_unstable();
    values.dedup();
    Ok(values)
}

fn texts(values: &Value) -> Option<Vec<&str>> {
    let values = values.as_array().filter(|values| values.len() <= MOST_VALUES)?;
    values.iter().map(Value::as_str).collect()
}

impl From<WebhookRow> for WebhookBody {
    fn from(row: WebhookRow) -> Self {
        let Interest { kinds, companies, categories, series, pairs } = row.interest;
        Self {
            id: row.id,
            url: row.url,
            types: kinds.into_iter().map(EventKind::id).collect(),
            filters: FiltersBody { companies, categories, series, pairs },
            status: row.status.id(),
            disabled_reason: row.status.reason(),
            created_at: instant(row.created_at),
            last_success_at: row.last_success_at.map(instant),
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
            created_at: instant(row.created_at),
            next_attempt_at: row.next_attempt_at.map(instant),
            delivered_at: row.delivered_at.map(instant),
            attempts: RawValue::from_string(row.attempts).unwrap_or_default(),
        }
    }
}
