//! Room for one more, or the answer that there is none: in the form of every other answer, at the least cost. No engine is
//! asked for anything, and nothing is taken of the caller's quota.
//!
//! How the caller stands with its quota is Redis' to say, and not known here. The headers say what holds until
//! `Retry-After` has passed: this replica admits nothing (`Remaining` 0), and then all may be tried anew (`Reset`).

use std::future::poll_fn;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use axum::extract::Request;
use axum::response::Response;
use vintem_domain::usage::{Outcome, RouteGroup};
use vintem_domain::{Plan, Problem};

use super::{Front, Identity, Reader, RequestId, Standing, is_preflight, language, seconds_up};
use crate::doorway::Doorway;
use crate::identity::{Credential, credential};
use crate::observe::{RouteMetrics, SHED};

/// Never shed: who asks whether we serve must be told.
const HEALTH: &str = "/health";
/// What the last of the requests under way waits for its turn, at most.
const LONGEST_WAIT: Duration = Duration::from_millis(40);
/// Even of large requests so many may be under way: one page in a browser asks for a dozen things at once.
const LEAST_IN_FLIGHT: usize = 32;

pub fn doorway(most_in_flight: usize) -> Doorway {
    Doorway::new(most_in_flight, LEAST_IN_FLIGHT, LONGEST_WAIT)
}

impl Front {
    pub async fn answer_if_there_is_room(&self, request: Request, peer: IpAddr) -> Response {
        let is_health = request.uri().path() == HEALTH;
        let place = if is_health { Some(self.doorway.enter_anyway()) } else { self.doorway.enter() };
        let Some(mut place) = place else { return self.shed(&request) };
        let mut answer = pin!(self.answer(request, peer));
        poll_fn(|context| place.work(|| answer.as_mut().poll(context))).await
    }

    fn shed(&self, request: &Request) -> Response {
        let (started, app, headers) = (Instant::now(), &self.app, request.headers());
        let known = match credential(headers) {
            Credential::Key(key) => app.keyring.known(&key),
            _ => None,
        };
        let plan = known.map_or(Plan::Free, |(_, plan)| plan);
        let identity = Identity { plan, key: known.map(|(id, _)| id), objection: None };
        let now_us = u64::try_from(app.clock.now().timestamp_micros()).unwrap_or(0);
        let (problem, request_id) = (Problem::Overloaded, RequestId::new(now_us, rand::random()));
        let mut response = self.tell(&problem, Reader::of(request).as_ref(), language(headers), &request_id);
        let seconds = problem.retry_after_seconds().unwrap_or(1);
        let standing = Standing { remaining: 0, reset_at_seconds: seconds_up(now_us) + seconds, seconds };
        self.write_headers(response.headers_mut(), &identity, &standing, &request_id);
        // Answered to a valid key, so counted for it; in this process, which no engine is needed for.
        let counted = RouteGroup::of_path(request.uri().path());
        if let (Some(key), Some(group)) = (identity.key, counted)
            && !is_preflight(request.method(), headers)
        {
            app.meter.note_unmetered(key, group, Outcome::of_status(response.status().as_u16()));
        }
        RouteMetrics::of(SHED).note(plan, response.status(), started);
        log_once_a_second(now_us);
        response
    }
}

/// A line for each would cost more than the answer.
fn log_once_a_second(now_us: u64) {
    static LAST_LOGGED: AtomicU64 = AtomicU64::new(0);
    let second = now_us / 1_000_000;
    if LAST_LOGGED.swap(second, Ordering::Relaxed) != second {
        tracing::warn!("requests are shed: more are under way than would be answered in good time");
    }
}
