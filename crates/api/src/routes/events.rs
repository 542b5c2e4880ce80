//! What is new, in the order in which it was published: to be read on from where one was.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::response::Response;
use axum::routing::get;
use futures_util::stream;
use http::{HeaderValue, StatusCode, header};
use serde::Serialize;
use serde_json::value::RawValue;
use tokio::time::{Instant, timeout_at};
use vintem_domain::event::EventKind;
use vintem_domain::{LocalizedText, Problem};
use vintem_store::events::PublishedEvent;

use super::{AppState, Handlers};
use crate::App;
use crate::api_error::ApiError;
use crate::caller::Caller;
use crate::event_feed::FeedState;
use crate::params::{MAX_EVENTS, QueryParams, invalid_param};
use crate::per_key_limit::{KeyPermit, try_acquire_long_poll};
use crate::responses;

#[derive(Serialize)]
struct EventsBody {
    data: Vec<Box<RawValue>>,
    /// From where to read on.
    cursor: String,
    /// Whether there are further ones already.
    has_more: bool,
}

pub fn handlers() -> Handlers {
    vec![("list_events", get(list_events))]
}

/// What is asked for, after which position.
struct EventListParams {
    after_position: i64,
    kinds: Option<Vec<&'static str>>,
    limit: usize,
}

async fn list_events(caller: Caller, State(app): AppState, query: QueryParams) -> Result<Response, ApiError> {
    let (after, kinds) = (query.single_value("after")?, parse_event_kinds(&query)?);
    let (limit, wait) = (query.limit(MAX_EVENTS)?, query.wait_seconds()?);
    let cursor = after.filter(|after| *after != "latest").map(parse_cursor).transpose()?;
    let mut reach = *app.event_feed.subscribe().borrow();
    // Another replica may have told of more than this one has heard of.
    if reach.last_position.is_none_or(|last| cursor.is_some_and(|cursor| cursor > last)) {
        app.event_feed.refresh(&app.store).await?;
        reach = *app.event_feed.subscribe().borrow();
    }
    let last = reach.last_position.ok_or(Problem::DependencyUnavailable)?;
    if cursor.is_some_and(|cursor| cursor > last) {
        return Ok(invalid_cursor()?);
    }
    let after = cursor.unwrap_or(if after.is_some() { last } else { reach.deleted_through });
    if after < reach.deleted_through {
        return Err(ApiError(Problem::CursorExpired));
    }
    let asked = EventListParams { after_position: after, kinds, limit };
    let body = load_events_page(&app, &asked, reach).await?;
    let place = if body.data.is_empty() && wait > 0 { caller.key.and_then(try_acquire_long_poll) } else { None };
    match place {
        None => Ok(responses::uncached_json(StatusCode::OK, &body)),
        Some(place) => Ok(long_poll_response(app, asked, Duration::from_secs(wait), place)),
    }
}

fn parse_event_kinds(query: &QueryParams) -> Result<Option<Vec<&'static str>>, Problem> {
    let Some(text) = query.single_value("types")? else { return Ok(None) };
    let kind = |id: &str| EventKind::from_id(id.trim()).map(EventKind::id);
    match text.split(',').map(kind).collect() {
        Some(kinds) => Ok(Some(kinds)),
        None => invalid_param(
            "types",
            LocalizedText::new(
                "be types of events with commas between them: filing.published, company.updated, rate.published, fx.published, series.revised",
                "ser tipos de eventos separados por vírgulas: filing.published, company.updated, rate.published, fx.published, series.revised",
            ),
        ),
    }
}

/// A cursor is a position that we gave.
fn parse_cursor(text: &str) -> Result<i64, Problem> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match text.parse() {
        Ok(position) if is_number => Ok(position),
        _ => invalid_cursor(),
    }
}

fn invalid_cursor<T>() -> Result<T, Problem> {
    invalid_param(
        "after",
        LocalizedText::new("be a cursor that we gave, or `latest`", "ser um cursor dado por nós, ou `latest`"),
    )
}

/// What there is now: from memory, or for who is far behind from Postgres.
async fn load_events_page(app: &App, asked: &EventListParams, reach: FeedState) -> Result<EventsBody, ApiError> {
    // One more than asked for tells whether there are more.
    let (kinds, limit) = (asked.kinds.as_deref(), asked.limit + 1);
    let events = match app.event_feed.buffered_events(asked.after_position, kinds, limit) {
        Some(events) => events,
        None => {
            let events = app.store.published_events(asked.after_position, kinds, limit as i64).await?;
            events.into_iter().map(Arc::new).collect()
        }
    };
    Ok(events_body(events, asked, reach))
}

fn events_body(mut events: Vec<Arc<PublishedEvent>>, asked: &EventListParams, reach: FeedState) -> EventsBody {
    let has_more = events.len() > asked.limit;
    events.truncate(asked.limit);
    let read_until = match events.last() {
        Some(last) if has_more => last.position,
        // Nothing else that is wanted was published until there.
        last => {
            last.map_or(0, |last| last.position).max(reach.last_position.unwrap_or_default()).max(asked.after_position)
        }
    };
    let data = events.iter().filter_map(|event| RawValue::from_string(event.body.clone()).ok()).collect();
    EventsBody { data, cursor: read_until.to_string(), has_more }
}

/// Answers at once, and says what there is as soon as there is something, or when the time is up. So it holds no place
/// among the requests that are under way.
fn long_poll_response(app: Arc<App>, asked: EventListParams, wait: Duration, place: KeyPermit) -> Response {
    let until = Instant::now() + wait;
    let waited = stream::once(async move {
        let _place = place;
        let mut watch = app.event_feed.subscribe();
        loop {
            let reach = *watch.borrow_and_update();
            let held = app
                .event_feed
                .buffered_events(asked.after_position, asked.kinds.as_deref(), asked.limit + 1)
                .unwrap_or_default();
            let is_time = reach.is_shutting_down || Instant::now() >= until;
            if !held.is_empty() || is_time {
                let body = serde_json::to_vec(&events_body(held, &asked, reach)).unwrap_or_default();
                return Ok::<_, Infallible>(Bytes::from(body));
            }
            // Whether it changed or the time is up is seen above.
            let _ = timeout_at(until, watch.changed()).await;
        }
    });
    let mut response = Response::new(Body::from_stream(waited));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
