//! The body that creates or changes a webhook, and the checks of its fields.

use std::sync::LazyLock;

use serde::Deserialize;
use serde_json::Value;
use vintem_deliver::webhook::AddressError;
use vintem_domain::event::{EventKind, FilterField};
use vintem_domain::series::published_series;
use vintem_domain::text::normalize_text;
use vintem_domain::webhook::{EventFilter, WebhookStatus};
use vintem_domain::{CurrencyPair, Dataset, LocalizedText, Problem};
use vintem_snapshot::Snapshot;

use crate::api_error::ApiError;
use crate::app::App;
use crate::bodies::require_loaded;
use crate::caller::Caller;
use crate::load::Resource;
use crate::request_body::{RequestBody, deserialize_present};

/// The body that creates or changes a webhook. `null` does not count as a missing field.
#[derive(Deserialize)]
pub struct WebhookRequest {
    #[serde(default, deserialize_with = "deserialize_present")]
    pub url: Option<Value>,
    #[serde(default, deserialize_with = "deserialize_present")]
    pub types: Option<Value>,
    #[serde(default, deserialize_with = "deserialize_present")]
    pub filters: Option<Value>,
    #[serde(default, deserialize_with = "deserialize_present")]
    pub status: Option<Value>,
}

/// Maximum values per filter.
pub const MAX_FILTER_VALUES: usize = 100;

type FieldResult<T> = Result<T, Problem>;

pub async fn read_webhook_request(body: RequestBody) -> FieldResult<WebhookRequest> {
    let expected = LocalizedText::new(
        "The body must be a JSON object with the fields `url`, `types`, `filters` or `status`, each at most once.",
        "O corpo deve ser um objeto JSON com os campos `url`, `types`, `filters` ou `status`, no máximo uma vez cada.",
    );
    body.read_json_object(expected).await
}

pub async fn validate_url(app: &App, caller: &Caller, url: Option<&Value>) -> FieldResult<String> {
    let guard = &app.settings.webhook_guard;
    let text = url.and_then(Value::as_str).unwrap_or_default();
    let url = guard.parse_url(text).map_err(url_problem)?;
    let _permit = url.domain().map(|_| caller.budget.try_acquire(Resource::DnsLookups)).transpose()?;
    guard.check_url(text).await.map_err(url_problem)?;
    Ok(url.into())
}

fn url_problem(error: AddressError) -> Problem {
    let must = match error {
        AddressError::InvalidUrl => LocalizedText::new(
            "must be a URL of the form https://host/path with at most 2000 characters",
            "deve ser uma URL no formato https://host/caminho com no máximo 2000 caracteres",
        ),
        AddressError::HasCredentials => {
            LocalizedText::new("must not contain a user name or password", "não pode conter usuário nem senha")
        }
        AddressError::ForbiddenPort => LocalizedText::new(
            "must use port 443, or port 1024 or higher",
            "deve usar a porta 443 ou uma porta a partir de 1024",
        ),
        AddressError::NotPublic => {
            LocalizedText::new("must resolve to a public address", "deve apontar para um endereço público na internet")
        }
        AddressError::UnresolvedHost => LocalizedText::new(
            "must have a host name that resolves: the DNS lookup failed",
            "deve ter um host que exista: a consulta DNS falhou",
        ),
    };

    Problem::BadField { name: "url", requirement: must }
}

pub fn parse_webhook_status(status: &Value) -> FieldResult<WebhookStatus> {
    match status.as_str() {
        Some("active") => Ok(WebhookStatus::Active),
        Some("paused") => Ok(WebhookStatus::Paused),
        _ => Err(Problem::BadField {
            name: "status",
            requirement: LocalizedText::new("must be `active` or `paused`", "deve ser `active` ou `paused`"),
        }),
    }
}

/// Applies the fields of the request to the existing filter.
pub fn parse_event_filter(
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
        return Err(ApiError(Problem::BadField { name: "filters", requirement: *COMBINABLE_FILTERS }));
    }
    Ok(event_filter)
}

/// The series that a webhook can filter events by. Revised exchange rates have the series `fx`. Computed series are not
/// in the list, because nobody publishes them.
fn filterable_series() -> impl Iterator<Item = &'static str> {
    published_series().map(|series| series.id).chain([Dataset::Fx.id()])
}

static EVENT_TYPE_LIST: LazyLock<LocalizedText> = LazyLock::new(|| {
    let types = EventKind::id_list();
    LocalizedText::leak(
        format!("must be a list of event types: {types}"),
        format!("deve ser uma lista de tipos de evento: {types}"),
    )
});

static FILTER_FIELDS: LazyLock<LocalizedText> = LazyLock::new(|| {
    let fields = FilterField::ALL.map(FilterField::id).join(", ");
    LocalizedText::leak(
        format!("must be an object that has only these fields, each a list: {fields}"),
        format!("deve ser um objeto com apenas estas listas como campos: {fields}"),
    )
});

static COMPANY_LIST: LazyLock<LocalizedText> = LazyLock::new(|| {
    LocalizedText::leak(
        format!(
            "must be a list of at most {MAX_FILTER_VALUES} CVM codes or CNPJs; find them with /api/v1/companies/search"
        ),
        format!(
            "deve ser uma lista de no máximo {MAX_FILTER_VALUES} códigos CVM ou CNPJs; busque em /api/v1/companies/search"
        ),
    )
});

static CATEGORY_LIST: LazyLock<LocalizedText> = LazyLock::new(|| {
    LocalizedText::leak(
        format!("must be a list of at most {MAX_FILTER_VALUES} categories; see /api/v1/filings/facets"),
        format!("deve ser uma lista de no máximo {MAX_FILTER_VALUES} categorias; veja /api/v1/filings/facets"),
    )
});

static SERIES_LIST: LazyLock<LocalizedText> = LazyLock::new(|| {
    let series = filterable_series().collect::<Vec<_>>().join(", ");
    LocalizedText::leak(
        format!("must be a list of series: {series}"),
        format!("deve ser uma lista de séries: {series}"),
    )
});

static COMBINABLE_FILTERS: LazyLock<LocalizedText> = LazyLock::new(|| {
    let filters = |kind: EventKind| kind.filters().iter().map(|field| field.id()).collect::<Vec<_>>().join(", ");
    let list = EventKind::ALL.map(|kind| format!("{} ({})", kind.id(), filters(kind))).join(", ");
    LocalizedText::leak(
        format!(
            "may contain only filters that every type in `types` supports; if `types` is empty, each filter must be supported by at least one type. Filters by type: {list}"
        ),
        format!(
            "deve ter só filtros que valem para todos os `types` ou, se `types` estiver vazio, para ao menos um tipo. Filtros por tipo: {list}"
        ),
    )
});

fn parse_event_types(types: &Value) -> FieldResult<Vec<EventKind>> {
    let kinds = parse_string_list(types)
        .and_then(|texts| texts.into_iter().map(EventKind::from_id).collect::<Option<Vec<_>>>());
    let mut kinds = kinds.ok_or(Problem::BadField { name: "types", requirement: *EVENT_TYPE_LIST })?;

    kinds.sort_unstable();
    kinds.dedup();
    Ok(kinds)
}

fn parse_filters(app: &App, filters: &Value) -> Result<EventFilter, ApiError> {
    let bad_filters = Problem::BadField { name: "filters", requirement: *FILTER_FIELDS };
    let filters = filters.as_object().ok_or(bad_filters.clone())?;

    let snapshot = app.current_snapshot()?;
    let mut event_filter = EventFilter::default();
    for (name, values) in filters {
        match FilterField::ALL.into_iter().find(|field| field.id() == name) {
            Some(FilterField::Companies) => event_filter.companies = parse_company_filter(&snapshot, values)?,
            Some(FilterField::Categories) => event_filter.categories = parse_category_filter(app, &snapshot, values)?,
            Some(FilterField::Series) => event_filter.series = parse_series_filter(values)?,
            Some(FilterField::Pairs) => event_filter.pairs = parse_pair_filter(values)?,
            None => return Err(bad_filters.into()),
        }
    }
    Ok(event_filter)
}

fn parse_company_filter(snapshot: &Snapshot, values: &Value) -> Result<Vec<String>, ApiError> {
    let companies = require_loaded(snapshot.companies(), Dataset::Companies)?;
    let canonical = |text: &str| Some(companies.get(companies.resolve(text)?).id.to_string());
    Ok(parse_filter_values("filters.companies", values, canonical, *COMPANY_LIST)?)
}

fn parse_category_filter(app: &App, snapshot: &Snapshot, values: &Value) -> Result<Vec<String>, ApiError> {
    let [categories, _] = require_loaded(snapshot.filings(), Dataset::Filings)?.facet_counts(app.today());
    let canonical = |text: &str| {
        let normalized = normalize_text(text);
        categories.iter().map(|(category, _)| category).find(|category| normalize_text(category) == normalized).cloned()
    };
    Ok(parse_filter_values("filters.categories", values, canonical, *CATEGORY_LIST)?)
}

fn parse_series_filter(values: &Value) -> FieldResult<Vec<String>> {
    let canonical = |text: &str| filterable_series().find(|id| *id == text).map(str::to_owned);
    parse_filter_values("filters.series", values, canonical, *SERIES_LIST)
}

fn parse_pair_filter(values: &Value) -> FieldResult<Vec<String>> {
    let canonical =
        |text: &str| CurrencyPair::parse(text).filter(|pair| !pair.is_derived()).map(|pair| pair.to_string());
    let must = LocalizedText::new(
        "must be a list of published pairs (all against BRL), such as USD/BRL and EUR/BRL",
        "deve ser uma lista de pares publicados, todos em relação ao BRL, como USD/BRL e EUR/BRL",
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
