//! Checks a database before a command uses it, and says what is wrong and what to do.
//!
//! The pool would retry a refused connection and report only that it timed out, so this connects once by itself.

use std::borrow::Cow;
use std::time::Duration;

use sqlx::error::DatabaseError;
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{Connection, Error as SqlxError};

use crate::Store;
use crate::hosts::address_of;
use crate::migrations::{SCHEMA_VERSION, oldest_supported_version, schema_version};

/// Why a database cannot be used. Each message ends with the next step.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum DatabaseProblem {
    #[error(
        "PostgreSQL at {address} is unreachable: {cause}. Check that it is running and that VINTEM_DATABASE_URL is right."
    )]
    Unreachable { address: String, cause: String },
    #[error("Database \"{name}\" does not exist. Create it with: {command}")]
    MissingDatabase { name: String, command: String },
    #[error("PostgreSQL refused user \"{user}\": {cause}. Check the user and password in VINTEM_DATABASE_URL.")]
    LoginRefused { user: String, cause: String },
    #[error("PostgreSQL at {address} refused the connection: {cause}. Correct this on the server, then try again.")]
    Refused { address: String, cause: String },
    #[error("The database has no tables yet. Create them with: vintem migrate")]
    NoSchema,
    #[error("The schema is at version {found}; this version of Vintém needs {needed}. Update it with: vintem migrate")]
    OldSchema { found: i64, needed: i64 },
    #[error(
        "The schema is at version {found}, which this version of Vintém (schema {known}) cannot use. Install a newer Vintém."
    )]
    NewSchema { found: i64, known: i64 },
}

/// Error codes of PostgreSQL (its manual, appendix A).
const INVALID_AUTHORIZATION: &str = "28000";
const INVALID_PASSWORD: &str = "28P01";
const UNKNOWN_DATABASE: &str = "3D000";

impl Store {
    /// Checks that the database can be reached and has the schema of this version, or a newer one that supports it.
    pub async fn check_schema(&self) -> Result<(), DatabaseProblem> {
        let mut connection = self.connect_once().await?;
        let found = schema_version(&mut connection).await.map_err(|error| self.diagnose(&error))?;
        if found == 0 {
            return Err(DatabaseProblem::NoSchema);
        }
        if found < SCHEMA_VERSION {
            return Err(DatabaseProblem::OldSchema { found, needed: SCHEMA_VERSION });
        }
        let supported = oldest_supported_version(&mut connection).await.map_err(|error| self.diagnose(&error))?;
        if supported > SCHEMA_VERSION {
            return Err(DatabaseProblem::NewSchema { found, known: SCHEMA_VERSION });
        }
        Ok(())
    }

    async fn connect_once(&self) -> Result<PgConnection, DatabaseProblem> {
        for primary in &self.primaries {
            primary.find_primary().await;
        }
        let options = self.sessions.connect_options();
        let limit = self.timeouts.connection;
        match tokio::time::timeout(limit, PgConnection::connect_with(&options)).await {
            Ok(result) => result.map_err(|error| self.diagnose(&error)),
            Err(_) => Err(DatabaseProblem::Unreachable { address: address_of(&options), cause: no_answer(limit) }),
        }
    }

    fn diagnose(&self, error: &SqlxError) -> DatabaseProblem {
        let options = self.sessions.connect_options();
        let address = address_of(&options);
        let code = error_code(error);
        match (error, code.as_deref()) {
            (SqlxError::Database(_), Some(UNKNOWN_DATABASE)) => {
                DatabaseProblem::MissingDatabase { name: database_of(&options), command: createdb_command(&options) }
            }
            (SqlxError::Database(answer), Some(INVALID_AUTHORIZATION | INVALID_PASSWORD)) => {
                DatabaseProblem::LoginRefused {
                    user: options.get_username().to_owned(),
                    cause: answer.message().to_owned(),
                }
            }
            (SqlxError::Database(answer), _) => {
                DatabaseProblem::Refused { address, cause: answer.message().to_owned() }
            }
            _ => DatabaseProblem::Unreachable { address, cause: cause_of(error) },
        }
    }
}

fn error_code(error: &SqlxError) -> Option<String> {
    error.as_database_error().and_then(DatabaseError::code).map(Cow::into_owned)
}

fn no_answer(limit: Duration) -> String {
    format!("no answer within {} seconds", limit.as_secs_f32())
}

/// The innermost error, in words: the outer ones repeat it.
fn cause_of(error: &SqlxError) -> String {
    if let SqlxError::Io(io_error) = error
        && io_error.kind() == std::io::ErrorKind::ConnectionRefused
    {
        return "connection refused".to_owned();
    }

    let mut cause: &dyn std::error::Error = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

/// PostgreSQL takes the user's name where the URL names no database.
fn database_of(options: &PgConnectOptions) -> String {
    options.get_database().unwrap_or_else(|| options.get_username()).to_owned()
}

/// With the options that `createdb` needs to reach the same server as the same user.
fn createdb_command(options: &PgConnectOptions) -> String {
    let mut words = vec!["createdb".to_owned()];
    match options.get_socket() {
        Some(socket) => words.push(format!("-h {}", socket.display())),
        None => words.push(format!("-h {}", options.get_host())),
    }
    if options.get_port() != 5432 {
        words.push(format!("-p {}", options.get_port()));
    }
    words.push(format!("-U {}", options.get_username()));
    words.push(database_of(options));
    words.join(" ")
}
