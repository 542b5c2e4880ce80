//! Step 3: identifies the caller.

use http::{HeaderMap, header};
use vintem_domain::{KeyId, Lang, Plan, Problem};

use crate::app::App;
use crate::identity::{Credential, parse_credential};
use crate::keyring::KeyVerdict;

/// The caller, as identified by the request's key.
pub struct CallerIdentity {
    pub plan: Plan,
    pub key: Option<KeyId>,
    /// Why the request's key was rejected.
    pub key_problem: Option<Problem>,
}

/// A request with an invalid key, or with two keys that conflict, is limited by its address, on the Free plan.
pub async fn identify_caller(app: &App, headers: &HeaderMap) -> CallerIdentity {
    let as_address = |key_problem| CallerIdentity { plan: Plan::Free, key: None, key_problem };

    match parse_credential(headers) {
        Credential::None => as_address(None),
        Credential::Malformed => as_address(Some(Problem::InvalidKey)),
        Credential::Conflicting => as_address(Some(Problem::ConflictingKeys)),
        Credential::Key(key) => match app.keyring.verify(&key).await {
            KeyVerdict::Valid { id, plan } => CallerIdentity { plan, key: Some(id), key_problem: None },
            KeyVerdict::Invalid => as_address(Some(Problem::InvalidKey)),
            KeyVerdict::LookupFailed => as_address(Some(Problem::DependencyUnavailable)),
        },
    }
}

/// The caller as far as memory knows, without PostgreSQL.
pub fn identify_from_memory(app: &App, headers: &HeaderMap) -> CallerIdentity {
    let cached_key = match parse_credential(headers) {
        Credential::Key(key) => app.keyring.verify_cached(&key),
        _ => None,
    };
    let plan = cached_key.map_or(Plan::Free, |(_, plan)| plan);
    CallerIdentity { plan, key: cached_key.map(|(id, _)| id), key_problem: None }
}

pub fn accepted_language(headers: &HeaderMap) -> Lang {
    let accept_language = headers.get(header::ACCEPT_LANGUAGE).and_then(|value| value.to_str().ok());
    accept_language.map_or(Lang::En, Lang::from_accept_language)
}
