//! Events: an ordered feed with a resumable cursor and optional long polling.

use std::convert::Infallible;
use std::sync::{Arc, LazyLock};
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
use vintem_domain::event::{self, EventKind};
use vintem_domain::{LocalizedText, Problem};
use vintem_store::events::PublishedEvent;

use crate::api_error::ApiError;
use crate::app::{App, AppState, Handlers};
use crate::caller::Caller;
use crate::event_feed::FeedState;
use crate::load::{OwnerPermit, Resource};
use crate::params::{MAX_EVENTS, QueryParams, invalid_param};
use crate::responses;

#[derive(Serialize)]
struct EventsBody {
    data: Vec<Box<RawValue>>,
    /// Where the next request should continue.
    cursor: String,
    /// Whether more events are available now.
    has_more: bool,
}

pub fn handlers() -> Handlers {
    vec![("list_events", get(list_events))]
}

struct EventListParams {
    after_position: i64,
    kinds: Option<Vec<&'static str>>,
    limit: usize,
}

async fn list_events(caller: Caller, State(app): AppState, query: QueryParams) -> Result<Response, ApiError> {
    let after = query.single_value("after")?;
    let kinds = parse_event_kinds(&query)?;
    let limit = query.limit(MAX_EVENTS)?;
    let wait = query.wait_seconds()?;
    let cursor = after.filter(|after| *after != "latest").map(parse_cursor).transpose()?;

    let mut feed_state = *app.event_feed.subscribe().borrow();
    // Another replica may have served events that this one has not read yet.
    if feed_state.last_position.is_none_or(|last| cursor.is_some_and(|cursor| cursor > last)) {
        app.event_feed.refresh(&app.store).await?;
        feed_state = *app.event_feed.subscribe().borrow();
    }
    let last_position = feed_state.last_position.ok_or(Problem::DependencyUnavailable)?;

    // A restored database may have lost the last events, but cursors of the future were never returned.
    let max_position = last_position.max(event::last_position_at(app.clock.now()));
    if cursor.is_some_and(|cursor| cursor > max_position) {
        return Ok(invalid_cursor()?);
    }
    let after_position = cursor.unwrap_or(if after.is_some() { last_position } else { feed_state.deleted_through });
    if after_position < feed_state.deleted_through {
        return Err(ApiError(Problem::CursorExpired));
    }

    let params = EventListParams { after_position, kinds, limit };
    let body = load_events_page(&app, &params, feed_state).await?;
    let may_wait = caller.key.is_some() && body.data.is_empty() && wait > 0;
    let permit = may_wait.then(|| caller.budget.try_acquire(Resource::LongPolls));
    match permit {
        None | Some(Err(_)) => Ok(responses::uncached_json(StatusCode::OK, &body)),
        Some(Ok(permit)) => Ok(long_poll_response(app, params, Duration::from_secs(wait), permit)),
    }
}

fn parse_event_kinds(query: &QueryParams) -> Result<Option<Vec<&'static str>>, Problem> {
    let Some(text) = query.single_value("types")? else { return Ok(None) };
    let kind = |id: &str| EventKind::from_id(id.trim()).map(EventKind::id);
    match text.split(',').map(kind).collect() {
        Some(kinds) => Ok(Some(kinds)),
        None => invalid_param("types", *EVENT_TYPES_REQUIREMENT),
    }
}

static EVENT_TYPES_REQUIREMENT: LazyLock<LocalizedText> = LazyLock::new(|| {
    let types = EventKind::id_list();
    LocalizedText::leak(
        format!("must be a comma-separated list of event types: {types}"),
        format!("deve ser uma lista de tipos de evento separados por vírgula: {types}"),
    )
});

/// Cursors are positions of the feed.
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
        LocalizedText::new(
            "must be a cursor returned by this endpoint, or `latest`",
            "deve ser um cursor retornado por este endpoint ou `latest`",
        ),
    )
}

/// The events available now: from memory, or from Postgres for callers that are far behind.
async fn load_events_page(app: &App, params: &EventListParams, feed_state: FeedState) -> Result<EventsBody, ApiError> {
    let kinds = params.kinds.as_deref();
    // One more than requested shows whether there are more.
    let limit = params.limit + 1;
    let events = match app.event_feed.buffered_events(params.after_position, kinds, limit) {
        Some(events) => events,
        None => {
            let events = app.store.published_events(params.after_position, kinds, limit as i64).await?;
            events.into_iter().map(Arc::new).collect()
        }
    };

    Ok(events_body(events, params, feed_state))
}

fn events_body(mut events: Vec<Arc<PublishedEvent>>, params: &EventListParams, feed_state: FeedState) -> EventsBody {
    let has_more = events.len() > params.limit;
    events.truncate(params.limit);

    let read_until = match events.last() {
        Some(last) if has_more => last.position,
        // No other matching event exists up to the end of the feed, so the cursor can skip there.
        last => last
            .map_or(0, |last| last.position)
            .max(feed_state.last_position.unwrap_or_default())
            .max(params.after_position),
    };
    let data = events.iter().filter_map(|event| RawValue::from_string(event.body.clone()).ok()).collect();
    EventsBody { data, cursor: read_until.to_string(), has_more }
}

/// Sends the headers at once, and the body as soon as there are events or the wait is over. While it waits, the request
/// does not count against the load limiter.
fn long_poll_response(app: Arc<App>, params: EventListParams, wait: Duration, permit: OwnerPermit) -> Response {
    let deadline = Instant::now() + wait;
    let body = stream::once(async move {
        let _permit = permit;
        let mut receiver = app.event_feed.subscribe();
        loop {
            let feed_state = *receiver.borrow_and_update();
            let events = app
                .event_feed
                .buffered_events(params.after_position, params.kinds.as_deref(), params.limit + 1)
                .unwrap_or_default();
            let must_answer = feed_state.is_shutting_down || Instant::now() >= deadline;
            if !events.is_empty() || must_answer {
                let body = serde_json::to_vec(&events_body(events, &params, feed_state)).unwrap_or_default();
                return Ok::<_, Infallible>(Bytes::from(body));
            }
            // The loop itself checks whether the feed changed or the time is up.
            let _ = timeout_at(deadline, receiver.changed()).await;
        }
    });

    let mut response = Response::new(Body::from_stream(body));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
