//! `vintem keys create|list|set-plan|set-expiry|revoke|history|erase`

use anyhow::bail;
use chrono::{DateTime, NaiveTime, SecondsFormat, SubsecRound, Utc};
use clap::{Args, Subcommand};
use serde_json::json;
use vintem_api::new_key;
use vintem_domain::dates::parse_day;
use vintem_domain::email::is_address;
use vintem_domain::key::is_label;
use vintem_domain::{KeyChange, KeyId, Plan};
use vintem_store::keys::{KeyChangeRow, KeyDetails, NewKey, Terms};

use crate::settings::{DatabaseSettings, PepperSettings};

#[derive(Debug, Args)]
pub struct KeysCommand {
    #[command(subcommand)]
    command: Keys,
}

#[derive(Debug, Subcommand)]
enum Keys {
    /// Create a key on any plan; it is shown once
    Create {
        #[command(flatten)]
        database: DatabaseSettings,
        #[command(flatten)]
        pepper: PepperSettings,
        #[command(flatten)]
        wanted: Wanted,
        #[arg(long)]
        json: bool,
    },
    /// List keys, the newest first
    List {
        #[command(flatten)]
        database: DatabaseSettings,
        /// How many at most
        #[arg(long, default_value_t = 100)]
        limit: i64,
        /// Only keys older than the one with this id
        #[arg(long, default_value_t = KeyId::MAX)]
        before: KeyId,
        #[arg(long)]
        json: bool,
    },
    /// Move a key to another plan, in force everywhere within a second
    SetPlan {
        #[command(flatten)]
        database: DatabaseSettings,
        /// The key's id, as `keys list` shows it
        id: KeyId,
        #[arg(value_parser = parse_plan)]
        plan: Plan,
        #[arg(long)]
        json: bool,
    },
    /// Say when a key expires, in force everywhere within a second
    SetExpiry {
        #[command(flatten)]
        database: DatabaseSettings,
        /// The key's id, as `keys list` shows it
        id: KeyId,
        /// A date (from its midnight UTC on the key is refused), an instant as 2027-01-31T12:00:00Z, or `never`
        #[arg(value_parser = parse_expiry)]
        when: Expiry,
        #[arg(long)]
        json: bool,
    },
    /// Revoke a key for good, in force everywhere within a second
    Revoke {
        #[command(flatten)]
        database: DatabaseSettings,
        /// The key's id, as `keys list` shows it
        id: KeyId,
        #[arg(long)]
        json: bool,
    },
    /// Show what happened to a key, when and by whom
    History {
        #[command(flatten)]
        database: DatabaseSettings,
        /// The key's id, as `keys list` shows it
        id: KeyId,
        #[arg(long)]
        json: bool,
    },
    /// Forget a person: revoke all keys of an e-mail address, and remove name, address and label. What was used stays,
    /// under the keys' ids
    Erase {
        #[command(flatten)]
        database: DatabaseSettings,
        /// In upper or lower case
        #[arg(long)]
        email: String,
        #[arg(long)]
        json: bool,
    },
}

/// What a new key is to be.
#[derive(Debug, Args)]
struct Wanted {
    #[arg(long, value_parser = parse_plan)]
    plan: Plan,
    /// Whose key it is
    #[arg(long)]
    name: String,
    #[arg(long)]
    email: String,
    /// What the key is for, up to 100 characters
    #[arg(long, default_value = "")]
    label: String,
    /// A date (from its midnight UTC on the key is refused) or an instant as 2027-01-31T12:00:00Z
    #[arg(long, value_parser = parse_expiry)]
    expires: Option<Expiry>,
}

/// `None` for never.
#[derive(Debug, Clone, Copy)]
struct Expiry(Option<DateTime<Utc>>);

impl KeysCommand {
    pub async fn run(self) -> anyhow::Result<()> {
        match self.command {
            Keys::Create { database, pepper, wanted, json } => create(&database, &pepper, &wanted, json).await,
            Keys::List { database, limit, before, json } => list(&database, before, limit, json).await,
            Keys::SetPlan { database, id, plan, json } => {
                let found = database.open()?.set_key_plan(id, plan).await?;
                say_changed(found, id, json, &format!("Key {id} is on the {} plan.", plan.name()))
            }
            Keys::SetExpiry { database, id, when: Expiry(at), json } => {
                let found = database.open()?.set_key_expiry(id, at).await?;
                let said =
                    at.map_or(format!("Key {id} never expires."), |at| format!("Key {id} expires at {}.", instant(at)));
                say_changed(found, id, json, &said)
            }
            Keys::Revoke { database, id, json } => {
                let found = database.open()?.revoke_key(id).await?;
                say_changed(found, id, json, &format!("Key {id} is revoked."))
            }
            Keys::History { database, id, json } => history(&database, id, json).await,
            Keys::Erase { database, email, json } => erase(&database, &email, json).await,
        }
    }
}

async fn create(
    database: &DatabaseSettings,
    pepper: &PepperSettings,
    wanted: &Wanted,
    as_json: bool,
) -> anyhow::Result<()> {
    let Wanted { plan, email, .. } = wanted;
    let (name, label) = (wanted.name.trim(), wanted.label.as_str());
    if name.is_empty() {
        bail!("--name must not be empty");
    }
    if !is_address(email) {
        bail!("--email must be an e-mail address");
    }
    if !is_label(label) {
        bail!("--label must have at most 100 characters, none of them a control character");
    }
    let (pepper, key) = (pepper.pepper()?, new_key());
    let new = NewKey {
        hmac: pepper.hmac(key.reveal()),
        pepper_id: &pepper.id(),
        shown: key.shown(),
        plan: *plan,
        name,
        email,
    };
    let expires_at = wanted.expires.and_then(|expiry| expiry.0);
    let row = database.open()?.create_key_with(&new, &Terms { label, expires_at, ..Terms::default() }).await?;
    if as_json {
        let key = json!({
            "id": row.id,
            "api_key": key.reveal(),
            "plan": plan.id(),
            "name": name,
            "email": email,
            "label": label,
            "expires_at": expires_at.map(instant),
        });
        println!("{key}");
    } else {
        println!("Key {} on the {} plan, shown only now:\n{}", row.id, plan.name(), key.reveal());
    }
    Ok(())
}

async fn list(database: &DatabaseSettings, before: KeyId, limit: i64, as_json: bool) -> anyhow::Result<()> {
    let keys = database.open()?.list_keys(before, limit.max(1)).await?;
    if as_json {
        let keys: Vec<_> = keys.iter().map(details).collect();
        println!("{}", json!({ "keys": keys }));
        return Ok(());
    }
    println!(
        "{:>8}  {:13}  {:8}  {:10}  {:10}  {:20}  {:7}  name <e-mail> label",
        "id", "key", "plan", "created", "last used", "expires", "state"
    );
    let now = Utc::now();
    for key in keys {
        println!(
            "{:>8}  {:12}…  {:8}  {:10}  {:10}  {:20}  {:7}  {} <{}> {}",
            key.id,
            key.shown,
            key.plan.id(),
            key.created_at.date_naive(),
            key.last_used_on.map(|day| day.to_string()).unwrap_or_default(),
            key.expires_at.map(instant).unwrap_or_default(),
            state(&key, now),
            key.name,
            key.email,
            key.label
        );
    }
    Ok(())
}

fn state(key: &KeyDetails, now: DateTime<Utc>) -> &'static str {
    match key.expires_at {
        _ if key.revoked_at.is_some() => "revoked",
        Some(at) if at <= now => "expired",
        _ => "valid",
    }
}

fn details(key: &KeyDetails) -> serde_json::Value {
    json!({
        "id": key.id,
        "key": format!("{}…", key.shown),
        "plan": key.plan.id(),
        "name": key.name,
        "email": key.email,
        "label": key.label,
        "created_at": instant(key.created_at),
        "last_used_on": key.last_used_on,
        "expires_at": key.expires_at.map(instant),
        "revoked_at": key.revoked_at.map(instant),
        "previous_key": key.former.as_ref().map(|former| format!("{}…", former.shown)),
        "previous_key_ends_at": key.former.as_ref().map(|former| instant(former.ends_at)),
    })
}

async fn history(database: &DatabaseSettings, id: KeyId, as_json: bool) -> anyhow::Result<()> {
    let store = database.open()?;
    if store.key_details(id).await?.is_none() {
        bail!("no key has the id {id}");
    }
    let changes = store.key_history(id).await?;
    if as_json {
        let change = |change: &KeyChangeRow| {
            json!({
                "at": instant(change.at),
                "what": change.what.id(),
                "by": change.by.id(),
                "was": change.was,
                "became": change.became,
            })
        };
        println!("{}", json!({ "id": id, "changes": changes.iter().map(change).collect::<Vec<_>>() }));
        return Ok(());
    }
    println!("{:20}  {:12}  what", "at", "by");
    for change in changes {
        println!("{:20}  {:12}  {}", instant(change.at), change.by.id(), sentence(&change));
    }
    Ok(())
}

fn sentence(change: &KeyChangeRow) -> String {
    let (was, became) = (change.was.as_deref().unwrap_or("never"), change.became.as_deref().unwrap_or("never"));
    match change.what {
        KeyChange::Created => format!("created on the plan {became}"),
        KeyChange::Plan => format!("moved from the plan {was} to {became}"),
        KeyChange::Label => "given another label".into(),
        KeyChange::Expiry => format!("expires {became}, before {was}"),
        KeyChange::Rotated => format!("rotated; the secret before it ends {became}"),
        KeyChange::Revoked => "revoked".into(),
        KeyChange::Erased => "name, address and label erased".into(),
    }
}

async fn erase(database: &DatabaseSettings, email: &str, as_json: bool) -> anyhow::Result<()> {
    if !is_address(email) {
        bail!("--email must be an e-mail address");
    }
    let erased = database.open()?.erase_keys(email).await?;
    // Without the address, which is to be found nowhere from now on.
    if as_json {
        println!("{}", json!({ "erased": erased.len(), "ids": erased }));
    } else {
        println!("Keys erased: {}", erased.len());
    }
    Ok(())
}

fn say_changed(found: bool, id: KeyId, as_json: bool, said: &str) -> anyhow::Result<()> {
    if !found {
        bail!("no key has the id {id}");
    }
    if as_json {
        println!("{}", json!({ "id": id, "message": said }));
    } else {
        println!("{said}");
    }
    Ok(())
}

fn instant(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Secs, true)
}

fn parse_plan(id: &str) -> Result<Plan, String> {
    Plan::from_id(id).ok_or_else(|| format!("one of {}", Plan::ALL.map(Plan::id).join(", ")))
}

fn parse_expiry(text: &str) -> Result<Expiry, String> {
    if text == "never" {
        return Ok(Expiry(None));
    }
    let of_day = parse_day(text).map(|day| day.and_time(NaiveTime::MIN).and_utc());
    let given = of_day.or_else(|| DateTime::parse_from_rfc3339(text).ok().map(|at| at.to_utc()));
    let at = given.ok_or("a date as 2027-01-31, an instant as 2027-01-31T12:00:00Z, or never")?;
    if at <= Utc::now() {
        return Err("must lie ahead; `vintem keys revoke` ends a key at once".into());
    }
    // Whole seconds, as it is shown.
    Ok(Expiry(Some(at.trunc_subsecs(0))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expiry_is_a_date_an_instant_or_never_and_lies_ahead() {
        let expiry = |text: &str| parse_expiry(text).map(|expiry| expiry.0.map(instant));
        assert_eq!(expiry("2199-01-31"), Ok(Some("2199-01-31T00:00:00Z".into())));
        assert_eq!(expiry("2199-01-31T12:00:00.9-03:00"), Ok(Some("2199-01-31T15:00:00Z".into())));
        assert_eq!(expiry("never"), Ok(None));
        for text in ["", "2199-02-30", "tomorrow", "2020-01-01", "2199-01-31T12:00"] {
            assert!(expiry(text).is_err(), "{text}");
        }
    }
}
