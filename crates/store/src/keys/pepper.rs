//! The verifier of the pepper: shows whether keys are hashed with the pepper that all others were hashed with.

use sqlx::PgConnection;

use crate::pool::{query, query_scalar};
use crate::{Result, Store, StoreError, with_timeout};

/// Identifies a pepper without revealing it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PepperMark {
    /// Short, for people.
    pub id: String,
    pub verifier: [u8; 32],
}

impl Store {
    /// Fails if the keys were hashed with another pepper. False if no key has shown yet which pepper it is.
    pub async fn check_pepper(&self, mark: &PepperMark) -> Result<bool> {
        with_timeout(self.timeouts.query, async {
            let mut transaction = self.pool.begin().await?;
            Ok(compare_verifier(&mut transaction, mark).await?.is_some())
        })
        .await
    }

    /// Remembers the pepper of a key that was recognized, unless one is known. Fails if that is another one.
    pub async fn confirm_pepper(&self, mark: &PepperMark) -> Result<()> {
        with_timeout(self.timeouts.query, async {
            let mut transaction = self.pool.begin().await?;
            confirm(&mut transaction, mark).await?;
            transaction.commit().await?;
            Ok(())
        })
        .await
    }
}

pub(super) async fn confirm(connection: &mut PgConnection, mark: &PepperMark) -> Result<()> {
    query("insert into pepper_verifier (verifier) values ($1) on conflict do nothing")
        .bind(mark.verifier.as_slice())
        .execute(&mut *connection)
        .await?;
    compare_verifier(connection, mark).await?;
    Ok(())
}

async fn compare_verifier(connection: &mut PgConnection, mark: &PepperMark) -> Result<Option<()>> {
    let is_same: Option<bool> = query_scalar("select verifier = $1 from pepper_verifier")
        .bind(mark.verifier.as_slice())
        .fetch_optional(connection)
        .await?;
    match is_same {
        Some(false) => Err(StoreError::WrongPepper),
        Some(true) => Ok(Some(())),
        None => Ok(None),
    }
}
