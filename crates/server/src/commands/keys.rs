//! `vintem keys create|list|set-plan|set-expiry|revoke|history|erase`: manages API keys.

use anyhow::bail;
use chrono::{DateTime, NaiveTime, SecondsFormat, SubsecRound, Utc};
use clap::{Args, Subcommand};
use serde_json::json;
use vintem_api::generate_key;
use vintem_domain::dates::parse_date;
use vintem_domain::email::is_valid_email;
use vintem_domain::key::is_valid_label;
use vintem_domain::{KeyChange, KeyId, Plan};
use vintem_store::keys::{KeyChangeRow, KeyDetails, KeyOptions, NewKey};

use crate::settings::{DatabaseSettings, PepperSettings};

#[derive(Debug, Args)]
pub struct KeysCommand {
    #[command(subcommand)]
    command: KeysSubcommand,
}

#[derive(Debug, Subcommand)]
enum KeysSubcommand {
    /// Create an API key and show it once
    Create {
        #[command(flatten)]
        database: DatabaseSettings,
        #[command(flatten)]
        pepper: PepperSettings,
        #[command(flatten)]
        args: NewKeyArgs,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// List keys, newest first
    List {
        #[command(flatten)]
        database: DatabaseSettings,
        /// Maximum number of keys
        #[arg(long, default_value_t = 100)]
        limit: i64,
        /// List keys created before the key with this id
        #[arg(long, value_name = "ID")]
        before: Option<KeyId>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Move a key to another plan; takes effect within a second
    SetPlan {
        #[command(flatten)]
        database: DatabaseSettings,
        /// Id of the key, from `vintem keys list`
        id: KeyId,
        /// New plan: free, bronze, gold or platinum
        #[arg(value_parser = parse_plan)]
        plan: Plan,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Set when a key expires; takes effect within a second
    SetExpiry {
        #[command(flatten)]
        database: DatabaseSettings,
        /// Id of the key, from `vintem keys list`
        id: KeyId,
        /// Date (00:00 UTC) or time (2027-01-31T12:00:00Z) when the key expires, or `never`
        #[arg(value_parser = parse_expiry)]
        when: Expiry,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Revoke a key permanently; takes effect within a second
    Revoke {
        #[command(flatten)]
        database: DatabaseSettings,
        /// Id of the key, from `vintem keys list`
        id: KeyId,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show the changes to a key, with time and author
    History {
        #[command(flatten)]
        database: DatabaseSettings,
        /// Id of the key, from `vintem keys list`
        id: KeyId,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Erase a person's data: revoke all keys of an email address and delete the name, address and labels. Usage counts
    /// remain, without personal data
    Erase {
        #[command(flatten)]
        database: DatabaseSettings,
        /// Email address of the person, in upper or lower case
        #[arg(long)]
        email: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

/// The properties of a new key.
#[derive(Debug, Args)]
struct NewKeyArgs {
    /// Plan of the key: free, bronze, gold or platinum
    #[arg(long, value_parser = parse_plan)]
    plan: Plan,
    /// Name of the key's owner
    #[arg(long)]
    name: String,
    /// Email address of the key's owner
    #[arg(long)]
    email: String,
    /// Purpose of the key, up to 100 characters
    #[arg(long, default_value = "")]
    label: String,
    /// Expire the key at 00:00 UTC on this date, or at this time (2027-01-31T12:00:00Z)
    #[arg(long, value_name = "DATE", value_parser = parse_expiry)]
    expires: Option<Expiry>,
}

/// `None` for never.
#[derive(Debug, Clone, Copy)]
struct Expiry(Option<DateTime<Utc>>);

impl KeysCommand {
    pub async fn run(self) -> anyhow::Result<()> {
        match self.command {
            KeysSubcommand::Create { database, pepper, args, json } => {
                create_key(&database, &pepper, &args, json).await
            }
            KeysSubcommand::List { database, limit, before, json } => {
                list_keys(&database, before.unwrap_or(KeyId::MAX), limit, json).await
            }
            KeysSubcommand::SetPlan { database, id, plan, json } => {
                let found = database.open_migrated_store().await?.set_key_plan(id, plan).await?;
                print_key_change(found, id, json, &format!("Key {id} is now on the {} plan.", plan.name()))
            }
            KeysSubcommand::SetExpiry { database, id, when: Expiry(at), json } => {
                let found = database.open_migrated_store().await?.set_key_expiry(id, at).await?;
                let message = at.map_or(format!("Key {id} never expires."), |at| {
                    format!("Key {id} expires at {}.", format_instant(at))
                });
                print_key_change(found, id, json, &message)
            }
            KeysSubcommand::Revoke { database, id, json } => {
                let found = database.open_migrated_store().await?.revoke_key(id).await?;
                print_key_change(found, id, json, &format!("Key {id} is revoked."))
            }
            KeysSubcommand::History { database, id, json } => print_key_history(&database, id, json).await,
            KeysSubcommand::Erase { database, email, json } => erase_keys(&database, &email, json).await,
        }
    }
}

async fn create_key(
    database: &DatabaseSettings,
    pepper: &PepperSettings,
    args: &NewKeyArgs,
    as_json: bool,
) -> anyhow::Result<()> {
    let NewKeyArgs { plan, email, .. } = args;
    let name = args.name.trim();
    let label = args.label.as_str();
    if name.is_empty() {
        bail!("--name must not be empty");
    }
    if !is_valid_email(email) {
        bail!("--email must be an email address");
    }
    if !is_valid_label(label) {
        bail!("--label must have at most 100 characters and no control characters");
    }

    let pepper = pepper.parse_pepper()?;
    let key = generate_key();
    let new_key = NewKey { secret: pepper.new_secret(&key), plan: *plan, name, email };
    let expires_at = args.expires.and_then(|expiry| expiry.0);
    let store = database.open_migrated_store().await?;
    let row =
        store.create_key_with_options(&new_key, &KeyOptions { label, expires_at, ..KeyOptions::default() }).await?;

    if as_json {
        let key = json!({
            "id": row.id,
            "api_key": key.reveal(),
            "plan": plan.id(),
            "name": name,
            "email": email,
            "label": label,
            "expires_at": expires_at.map(format_instant),
        });
        println!("{key}");
    } else {
        println!("Created key {} on the {} plan. It is shown only once:\n{}", row.id, plan.name(), key.reveal());
    }
    Ok(())
}

async fn list_keys(database: &DatabaseSettings, before: KeyId, limit: i64, as_json: bool) -> anyhow::Result<()> {
    let keys = database.open_migrated_store().await?.list_keys(before, limit.max(1)).await?;
    if as_json {
        let keys: Vec<_> = keys.iter().map(key_details_json).collect();
        println!("{}", json!({ "keys": keys }));
        return Ok(());
    }

    println!(
        "{:>16}  {:13}  {:8}  {:10}  {:10}  {:20}  {:7}  name <email> label",
        "id", "key", "plan", "created", "last used", "expires", "state"
    );
    let now = Utc::now();
    for key in keys {
        println!(
            "{:>16}  {:12}…  {:8}  {:10}  {:10}  {:20}  {:7}  {} <{}> {}",
            key.id,
            key.display_prefix,
            key.plan.id(),
            key.created_at.date_naive(),
            key.last_used_on.map(|day| day.to_string()).unwrap_or_default(),
            key.expires_at.map(format_instant).unwrap_or_default(),
            key_state(&key, now),
            key.name,
            key.email,
            key.label
        );
    }
    Ok(())
}

fn key_state(key: &KeyDetails, now: DateTime<Utc>) -> &'static str {
    match key.expires_at {
        _ if key.revoked_at.is_some() => "revoked",
        Some(at) if at <= now => "expired",
        _ => "valid",
    }
}

fn key_details_json(key: &KeyDetails) -> serde_json::Value {
    json!({
        "id": key.id,
        "key": format!("{}…", key.display_prefix),
        "plan": key.plan.id(),
        "name": key.name,
        "email": key.email,
        "label": key.label,
        "created_at": format_instant(key.created_at),
        "last_used_on": key.last_used_on,
        "expires_at": key.expires_at.map(format_instant),
        "revoked_at": key.revoked_at.map(format_instant),
        "previous_key": key.former_secret.as_ref().map(|former| format!("{}…", former.display_prefix)),
        "previous_key_ends_at": key.former_secret.as_ref().map(|former| format_instant(former.ends_at)),
    })
}

async fn print_key_history(database: &DatabaseSettings, id: KeyId, as_json: bool) -> anyhow::Result<()> {
    let store = database.open_migrated_store().await?;
    if store.key_details(id).await?.is_none() {
        bail!("No key has the id {id}. List the keys with: vintem keys list");
    }

    let changes = store.key_history(id).await?;
    if as_json {
        let change = |change: &KeyChangeRow| {
            json!({
                "at": format_instant(change.changed_at),
                "what": change.kind.id(),
                "by": change.actor.id(),
                "was": change.old_value,
                "became": change.new_value,
            })
        };
        println!("{}", json!({ "id": id, "changes": changes.iter().map(change).collect::<Vec<_>>() }));
        return Ok(());
    }

    println!("{:20}  {:12}  what", "at", "by");
    for change in changes {
        println!("{:20}  {:12}  {}", format_instant(change.changed_at), change.actor.id(), describe_change(&change));
    }
    Ok(())
}

fn describe_change(change: &KeyChangeRow) -> String {
    let old_value = change.old_value.as_deref().unwrap_or("never");
    let new_value = change.new_value.as_deref().unwrap_or("never");
    match change.kind {
        KeyChange::Created => format!("created on the {new_value} plan"),
        KeyChange::PlanChanged => format!("plan changed from {old_value} to {new_value}"),
        KeyChange::LabelChanged => "label changed".into(),
        KeyChange::ExpiryChanged => format!("expiry changed from {old_value} to {new_value}"),
        KeyChange::Rotated => format!("rotated; the previous secret expires at {new_value}"),
        KeyChange::Revoked => "revoked".into(),
        KeyChange::Erased => "name, email address and label erased".into(),
    }
}

async fn erase_keys(database: &DatabaseSettings, email: &str, as_json: bool) -> anyhow::Result<()> {
    if !is_valid_email(email) {
        bail!("--email must be an email address");
    }
    let erased = database.open_migrated_store().await?.erase_keys_by_email(email).await?;
    // The output omits the e-mail address, which must not appear anywhere from now on.
    if as_json {
        println!("{}", json!({ "erased": erased.len(), "ids": erased }));
    } else {
        println!("Keys erased: {}", erased.len());
    }
    Ok(())
}

fn print_key_change(found: bool, id: KeyId, as_json: bool, message: &str) -> anyhow::Result<()> {
    if !found {
        bail!("No key has the id {id}. List the keys with: vintem keys list");
    }
    if as_json {
        println!("{}", json!({ "id": id, "message": message }));
    } else {
        println!("{message}");
    }
    Ok(())
}

fn format_instant(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Secs, true)
}

fn parse_plan(id: &str) -> Result<Plan, String> {
    Plan::from_id(id).ok_or_else(|| format!("use one of {}", Plan::ALL.map(Plan::id).join(", ")))
}

fn parse_expiry(text: &str) -> Result<Expiry, String> {
    if text == "never" {
        return Ok(Expiry(None));
    }

    let midnight = parse_date(text).map(|day| day.and_time(NaiveTime::MIN).and_utc());
    let instant = midnight.or_else(|| DateTime::parse_from_rfc3339(text).ok().map(|at| at.to_utc()));
    let at = instant.ok_or("use a date (2027-01-31), a time (2027-01-31T12:00:00Z) or `never`")?;
    if at <= Utc::now() {
        return Err("the time is in the past; use `vintem keys revoke` to revoke a key now".into());
    }

    // Whole seconds, because that is what we show.
    Ok(Expiry(Some(at.trunc_subsecs(0))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expiry_is_a_future_date_or_instant_or_never() {
        let expiry = |text: &str| parse_expiry(text).map(|expiry| expiry.0.map(format_instant));
        assert_eq!(expiry("2199-01-31"), Ok(Some("2199-01-31T00:00:00Z".into())));
        assert_eq!(expiry("2199-01-31T12:00:00.9-03:00"), Ok(Some("2199-01-31T15:00:00Z".into())));
        assert_eq!(expiry("never"), Ok(None));
        for text in ["", "2199-02-30", "tomorrow", "2020-01-01", "2199-01-31T12:00"] {
            assert!(expiry(text).is_err(), "{text}");
        }
    }
}
