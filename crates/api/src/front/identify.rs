//! Step 1: identifies the caller.

use std::net::IpAddr;

use http::{HeaderMap, header};
use vintem_domain::{AddressBucket, KeyId, Lang, Plan, Problem};

use crate::app::App;
use crate::identity::{Credential, parse_credential};
use crate::keyring::{KeyVerdict, UnknownKey};
use crate::load::ShedReason;

/// The caller, as identified by the request's key.
pub struct CallerIdentity {
    pub plan: Plan,
    pub key: Option<KeyId>,
    /// Why the request's key was rejected.
    pub key_problem: Option<Problem>,
}

/// A request with an invalid key, or with two keys that conflict, is limited by its address, on the Free plan.
pub async fn identify_caller(app: &App, headers: &HeaderMap, client: IpAddr) -> CallerIdentity {
    let as_address = |key_problem| CallerIdentity { plan: Plan::Free, key: None, key_problem };

    let key = match parse_credential(headers) {
        Credential::None => return as_address(None),
        Credential::Malformed => return as_address(Some(Problem::InvalidKey)),
        Credential::Conflicting => return as_address(Some(Problem::ConflictingKeys)),
        Credential::Key(key) => key,
    };
    let verdict = match app.keyring.verify(&key) {
        Ok(verdict) => verdict,
        // Boxed, because it is rare and large.
        Err(unknown) => Box::pin(look_up_key(app, &unknown, client)).await,
    };
    match verdict {
        KeyVerdict::Valid { id, plan } => CallerIdentity { plan, key: Some(id), key_problem: None },
        KeyVerdict::Invalid => as_address(Some(Problem::InvalidKey)),
        KeyVerdict::LookupFailed => as_address(Some(Problem::DependencyUnavailable)),
    }
}

/// Each address has few lookups, so that nobody can burden PostgreSQL with guessed keys. Keys that were valid until the
/// database was replaced are no guesses.
async fn look_up_key(app: &App, key: &UnknownKey, client: IpAddr) -> KeyVerdict {
    let now_us = u64::try_from(app.clock.now().timestamp_micros()).unwrap_or(0);
    let limit = app.settings.key_lookups_per_minute;
    let has_lookup_left = || app.load.key_lookups.check(AddressBucket::from_ip(client), limit, true, now_us).admitted;
    if key.was_known() || has_lookup_left() {
        app.keyring.look_up(key).await
    } else {
        ShedReason::KeyLookups.count();
        KeyVerdict::LookupFailed
    }
}

pub fn accepted_language(headers: &HeaderMap) -> Lang {
    let accept_language = headers.get(header::ACCEPT_LANGUAGE).and_then(|value| value.to_str().ok());
    accept_language.map_or(Lang::En, Lang::from_accept_language)
}
