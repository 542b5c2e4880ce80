//! `vintem keys create|list|set-plan|revoke`

use anyhow::bail;
use chrono::SecondsFormat;
use clap::{Args, Subcommand};
use serde_json::json;
use vintem_api::new_key;
use vintem_domain::email::is_address;
use vintem_domain::{KeyId, Plan};
use vintem_store::keys::{KeyDetails, NewKey};

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
        #[arg(long, value_parser = parse_plan)]
        plan: Plan,
        /// Whose key it is
        #[arg(long)]
        name: String,
        #[arg(long)]
        email: String,
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
    /// Revoke a key for good, in force everywhere within a second
    Revoke {
        #[command(flatten)]
        database: DatabaseSettings,
        /// The key's id, as `keys list` shows it
        id: KeyId,
        #[arg(long)]
        json: bool,
    },
}

impl KeysCommand {
    pub async fn run(self) -> anyhow::Result<()> {
        match self.command {
            Keys::Create { database, pepper, plan, name, email, json } => {
                create(&database, &pepper, plan, name.trim(), &email, json).await
            }
            Keys::List { database, limit, before, json } => list(&database, before, limit, json).await,
            Keys::SetPlan { database, id, plan, json } => {
                let found = database.open()?.set_key_plan(id, plan).await?;
                say_changed(found, id, json, &format!("Key {id} is on the {} plan.", plan.name()))
            }
            Keys::Revoke { database, id, json } => {
                let found = database.open()?.revoke_key(id).await?;
                say_changed(found, id, json, &format!("Key {id} is revoked."))
            }
        }
    }
}

async fn create(
    database: &DatabaseSettings,
    pepper: &PepperSettings,
    plan: Plan,
    name: &str,
    email: &str,
    as_json: bool,
) -> anyhow::Result<()> {
    if name.is_empty() {
        bail!("--name must not be empty");
    }
    if !is_address(email) {
        bail!("--email must be an e-mail address");
    }
    let (pepper, key) = (pepper.pepper()?, new_key());
    let row = database
        .open()?
        .create_key(&NewKey {
            hmac: pepper.hmac(key.reveal()),
            pepper_id: &pepper.id(),
            shown: key.shown(),
            plan,
            name,
            email,
        })
        .await?;
    if as_json {
        println!("{}", json!({"id": row.id, "api_key": key.reveal(), "plan": plan.id(), "name": name, "email": email}));
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
        "{:>8}  {:13}  {:8}  {:10}  {:10}  {:7}  name <e-mail>",
        "id", "key", "plan", "created", "last used", "state"
    );
    for key in keys {
        println!(
            "{:>8}  {:12}…  {:8}  {:10}  {:10}  {:7}  {} <{}>",
            key.id,
            key.shown,
            key.plan.id(),
            key.created_at.date_naive(),
            key.last_used_on.map(|day| day.to_string()).unwrap_or_default(),
            if key.revoked_at.is_some() { "revoked" } else { "valid" },
            key.name,
            key.email
        );
    }
    Ok(())
}

fn details(key: &KeyDetails) -> serde_json::Value {
    let instant = |at: chrono::DateTime<chrono::Utc>| at.to_rfc3339_opts(SecondsFormat::Secs, true);
    json!({
        "id": key.id,
        "key": format!("{}…", key.shown),
        "plan": key.plan.id(),
        "name": key.name,
        "email": key.email,
        "created_at": instant(key.created_at),
        "last_used_on": key.last_used_on,
        "revoked_at": key.revoked_at.map(instant),
    })
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

fn parse_plan(id: &str) -> Result<Plan, String> {
    Plan::from_id(id).ok_or_else(|| format!("one of {}", Plan::ALL.map(Plan::id).join(", ")))
}
