//! What a newcomer meets: `vintem init`, `.env`, the line that says the service is ready, and a message for everything
//! that can be wrong with the settings, the database and the engines.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use vintem_testkit::upstreams::{FakeUpstreamOptions, FakeUpstreams, Fault};
use vintem_testkit::{TempDirectory, TestDatabase, find_free_port, redis_url};

use crate::{TestResult, friday, vintem_binary};

const SECRET: &str = "0123456789abcdef0123456789abcdef";

/// The binary in an empty environment, in a directory of its own.
fn vintem(directory: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(vintem_binary());
    command.args(arguments).current_dir(directory).env_clear().stdin(Stdio::null());
    command
}

/// With all required settings.
fn configured(directory: &Path, database_url: &str, arguments: &[&str]) -> Command {
    let mut command = vintem(directory, arguments);
    command.env("VINTEM_DATABASE_URL", database_url).env("VINTEM_REDIS_URL", redis_url());
    command.env("VINTEM_KEY_PEPPER", SECRET).env("VINTEM_SECRET_KEY", SECRET);
    command.env("VINTEM_LISTEN", "127.0.0.1:0").env("VINTEM_ADMIN_LISTEN", "127.0.0.1:0");
    command
}

fn error_of(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).trim_end().to_owned()
}

fn stdout_of(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn each_missing_setting_is_named_by_its_variable() -> TestResult {
    let directory = TempDirectory::create()?;
    let remedy = "in the environment or in a .env file; `vintem init` writes one.";
    let cases: [(&[&str], &str); 4] = [
        (&["migrate"], "VINTEM_DATABASE_URL is not set. Set it"),
        (&["work"], "VINTEM_DATABASE_URL and VINTEM_SECRET_KEY are not set. Set them"),
        (&["keys", "list"], "VINTEM_DATABASE_URL is not set. Set it"),
        (&["serve"], "VINTEM_DATABASE_URL, VINTEM_KEY_PEPPER and VINTEM_SECRET_KEY are not set. Set them"),
    ];
    for (arguments, expected) in cases {
        let output = vintem(directory.path(), arguments).output()?;
        assert_eq!(error_of(&output), format!("error: {expected} {remedy}"));
        assert_eq!(output.status.code(), Some(2));
    }

    let output =
        vintem(directory.path(), &["keys", "create", "--name", "Ana", "--email", "ana@example.com"]).output()?;
    let expected = format!(
        "error: Missing options: --plan <PLAN>.\nVINTEM_DATABASE_URL and VINTEM_KEY_PEPPER are not set. Set them {remedy}"
    );
    assert_eq!(error_of(&output), expected);

    Ok(())
}

#[test]
fn each_wrong_setting_is_named_with_its_cause() -> TestResult {
    let directory = TempDirectory::create()?;
    let database_url = "postgres://127.0.0.1:1/none";
    let number = |default: &str| format!("invalid digit found in string. The default is {default}.");
    let cases = [
        ("VINTEM_LISTEN", "here", "invalid socket address syntax. The default is 127.0.0.1:8080.".to_owned()),
        ("VINTEM_ADMIN_LISTEN", "9080", "invalid socket address syntax. The default is 127.0.0.1:9080.".to_owned()),
        ("VINTEM_TRUSTED_PROXIES", "10.0.0.0/99", "invalid IP address syntax.".to_owned()),
        ("VINTEM_WEBHOOK_ALLOW", "all", "invalid IP address syntax.".to_owned()),
        (
            "VINTEM_DISABLED_SERIES",
            "igp-m, selic",
            "`selic` cannot be disabled, or is not in the catalog (`/api/v1/market/series`).".to_owned(),
        ),
        ("VINTEM_POSTGRES_BUDGET_MS", "5", "5 is not in 10..=10000. The default is 500.".to_owned()),
        ("VINTEM_REDIS_BUDGET_MS", "fast", number("25")),
        ("VINTEM_REPLICAS", "0", "0 is not in 1..=1000. The default is 1.".to_owned()),
        ("VINTEM_LIMIT_WINDOW_SECONDS", "4000", "4000 is not in 1..=3600. The default is 60.".to_owned()),
        ("VINTEM_LIMIT_FREE", "many", number("30")),
        ("VINTEM_LIMIT_BRONZE", "-1", "-1 is not in 1..=4294967295. The default is 100.".to_owned()),
        ("VINTEM_LIMIT_GOLD", "1.5", number("500")),
        ("VINTEM_LIMIT_PLATINUM", "x", number("2000")),
        ("VINTEM_REGISTER_PER_DAY", "x", number("20")),
        ("VINTEM_MAX_IN_FLIGHT", "x", number("512")),
    ];
    for (variable, value, cause) in cases {
        let output = configured(directory.path(), database_url, &["serve"]).env(variable, value).output()?;
        assert_eq!(error_of(&output), format!("error: {variable}: \"{value}\" is not valid: {cause}"));
        assert_eq!(output.status.code(), Some(2));
    }

    // These are read after the command line, so that no message contains a secret.
    let cases = [
        ("VINTEM_KEY_PEPPER", "short", "VINTEM_KEY_PEPPER must have at least 32 characters"),
        ("VINTEM_SECRET_KEY", "short", "VINTEM_SECRET_KEY must have at least 32 characters"),
        (
            "VINTEM_DATABASE_URL",
            "mysql:short",
            "VINTEM_DATABASE_URL is not valid. It must look like postgres://user:password@host:5432/database",
        ),
        (
            "VINTEM_REDIS_URL",
            "short",
            "VINTEM_REDIS_URL is not valid. It must look like redis://:password@host:6379; separate URLs with commas",
        ),
        ("VINTEM_LOG", "=short=", "VINTEM_LOG is not a valid log filter"),
    ];
    for (variable, value, expected) in cases {
        let output = configured(directory.path(), database_url, &["serve"]).env(variable, value).output()?;
        assert!(error_of(&output).starts_with(&format!("error: {expected}")), "{}", error_of(&output));
        assert_eq!(output.status.code(), Some(1));
    }

    Ok(())
}

#[tokio::test]
async fn each_problem_of_the_database_is_named_with_its_remedy() -> TestResult {
    let directory = TempDirectory::create()?;
    let empty = TestDatabase::create_without_schema().await?;
    let url = empty.url();
    let (server, name) = url.rsplit_once('/').expect("a URL with a database");
    let missing = format!("{server}/vintem_no_such_database");
    let port = find_free_port()?;
    let silent = TcpListener::bind("127.0.0.1:0")?;
    let silent_port = silent.local_addr()?.port();
    let (_, address) = server.split_once('@').expect("a URL with a user");
    let (host, server_port) = address.split_once(':').expect("a URL with a port");

    let cases = [
        (
            format!("postgres://postgres@127.0.0.1:{port}/vintem"),
            format!(
                "PostgreSQL at 127.0.0.1:{port} is unreachable: connection refused. Check that it is running and that \
                 VINTEM_DATABASE_URL is right."
            ),
        ),
        (
            format!("postgres://postgres@127.0.0.1:{silent_port}/vintem"),
            format!(
                "PostgreSQL at 127.0.0.1:{silent_port} is unreachable: no answer within 5 seconds. Check that it is \
                 running and that VINTEM_DATABASE_URL is right."
            ),
        ),
        (
            missing,
            format!(
                "Database \"vintem_no_such_database\" does not exist. Create it with: createdb -h {host} -p {server_port} \
                 -U postgres vintem_no_such_database"
            ),
        ),
        (
            format!("postgres://nobody_here@{address}/{name}"),
            "PostgreSQL refused user \"nobody_here\": role \"nobody_here\" does not exist. Check the user and password \
             in VINTEM_DATABASE_URL."
                .to_owned(),
        ),
        (url.clone(), "The database has no tables yet. Create them with: vintem migrate".to_owned()),
    ];
    for (database_url, expected) in &cases {
        let output = configured(directory.path(), database_url, &["keys", "list"]).output()?;
        assert_eq!(error_of(&output), format!("error: {expected}"));
        assert_eq!(output.status.code(), Some(1));
    }

    let migrate = || configured(directory.path(), &url, &["migrate"]).output();
    assert!(stdout_of(&migrate()?).starts_with("Created the tables (schema version "));
    assert!(stdout_of(&migrate()?).starts_with("The schema is up to date (version "));

    // A newer version has migrated the database. It says whether this version may still use it.
    let mut connection = empty.connect().await?;
    sqlx::query(
        "insert into _sqlx_migrations (version, description, success, checksum, execution_time)
         values (9999, 'of a newer version', true, '', 0)",
    )
    .execute(&mut connection)
    .await?;
    let list_keys = || configured(directory.path(), &url, &["keys", "list"]).output();
    assert!(list_keys()?.status.success());
    assert!(stdout_of(&migrate()?).starts_with("The schema is newer than this version of Vintém and supports it "));

    sqlx::query("update schema_support set oldest_supported = 9999").execute(&mut connection).await?;
    for output in [list_keys()?, migrate()?] {
        assert!(error_of(&output).starts_with("error: The schema is at version 9999, which this version of Vintém "));
        assert!(error_of(&output).ends_with("Install a newer Vintém."));
    }

    // Replicas and workers also start without PostgreSQL, so they notice it later.
    for arguments in [&["serve", "--listen=127.0.0.1:0", "--admin-listen=127.0.0.1:0"][..], &["work"]] {
        let output = configured(directory.path(), &url, arguments).output()?;
        let log = String::from_utf8(output.stderr)?;
        let last = log.lines().last().unwrap_or_default();
        assert!(last.starts_with("error: The schema is at version 9999, which this version of Vintém "), "{log}");
        assert_eq!(output.status.code(), Some(1));
    }

    sqlx::query("delete from _sqlx_migrations where version > 2").execute(&mut connection).await?;
    let output = list_keys()?;
    assert!(error_of(&output).starts_with("error: The schema is at version 2; this version of Vintém needs "));
    assert!(error_of(&output).ends_with("Update it with: vintem migrate"));

    Ok(())
}

#[tokio::test]
async fn ingestion_refuses_a_demo_database_before_it_fetches_anything() -> TestResult {
    let directory = TempDirectory::create()?;
    let database = TestDatabase::create_demo(friday()).await?;
    let upstream = format!("http://127.0.0.1:{}", find_free_port()?);
    let mut command = configured(directory.path(), &database.url(), &["ingest"]);
    for variable in ["VINTEM_SGS_URL", "VINTEM_PTAX_URL", "VINTEM_CVM_URL"] {
        command.env(variable, &upstream);
    }

    let output = command.output()?;
    let expected = "error: The database contains demo data, which cannot be mixed with real data. Use another database, \
                    or remove the demo data with: vintem demo --remove";
    assert_eq!(error_of(&output), expected);
    assert_eq!(stdout_of(&output), "");

    Ok(())
}

/// CVM refuses connections, and a window of a series is refused.
#[tokio::test]
async fn ingestion_says_what_is_to_come_what_fails_and_what_is_left() -> TestResult {
    let directory = TempDirectory::create()?;
    let database = TestDatabase::create_empty().await?;
    let today = vintem_domain::dates::sao_paulo_date(chrono::Utc::now());
    let upstreams = FakeUpstreams::start(FakeUpstreamOptions { today, ..FakeUpstreamOptions::default() })?;
    upstreams.set_fault("bcdata.sgs.4389/dados?formato=json&dataInicial=22/11/2009", Some(Fault::Status(400)));
    let cvm_url = format!("http://127.0.0.1:{}", find_free_port()?);
    let mut command = configured(directory.path(), &database.url(), &["ingest", "cdi", "ipca", "companies", "ipe"]);
    command.env("VINTEM_SGS_URL", upstreams.sgs_url()).env("VINTEM_PTAX_URL", upstreams.ptax_url());
    command.env("VINTEM_CVM_URL", &cvm_url);

    let output = command.output()?;
    let stdout = stdout_of(&output);
    let lines: Vec<&str> = stdout.lines().collect();
    let position = |prefix: &str| {
        lines.iter().position(|line| line.starts_with(prefix)).unwrap_or_else(|| panic!("{prefix:?} in\n{stdout}"))
    };

    // The total comes first, and as many parts are reported.
    let announced =
        lines[position("BCB SGS: ")].strip_prefix("BCB SGS: ").and_then(|rest| rest.strip_suffix(" parts to fetch"));
    let reported = |line: &&&str| line.contains("cdi ") || line.contains("ipca ");
    assert_eq!(announced, Some(lines.iter().filter(reported).count().to_string().as_str()), "{stdout}");
    assert!(position("BCB SGS: ") < position("cdi 20"), "{stdout}");

    // A failure stands where it happened, among the parts that succeeded.
    assert!((position("cdi 2013: ")..position("cdi 2007: ")).contains(&position("FAIL  cdi 2010: ")), "{stdout}");
    assert!(lines[position("cdi 2013: ")].contains(" new or changed"), "{stdout}");

    // One line for the host that is down, whatever it has.
    let about_cvm: Vec<&&str> = lines.iter().filter(|line| line.contains(&cvm_url)).collect();
    assert_eq!(about_cvm.len(), 1, "{stdout}");
    assert!(about_cvm[0].starts_with("FAIL  CVM does not answer; "), "{stdout}");

    let error = error_of(&output);
    assert!(error.starts_with("error: 3 parts failed, and "), "{error}");
    assert!(error.contains(" were not tried because their host does not answer. What is stored of them is unchanged."));
    assert!(error.ends_with("go on as soon as it answers; or run this command again."), "{error}");
    assert!(!output.status.success());

    Ok(())
}

#[tokio::test]
async fn the_doctor_reports_every_problem_and_ends() -> TestResult {
    let directory = TempDirectory::create()?;

    let output = vintem(directory.path(), &["doctor"]).env("VINTEM_LISTEN", "here").output()?;
    let report = stdout_of(&output);
    for line in [
        "FAIL  VINTEM_DATABASE_URL: not set. `vintem init` writes a .env file with all required settings",
        "FAIL  VINTEM_KEY_PEPPER: not set. `vintem init` writes a .env file with all required settings",
        "FAIL  VINTEM_SECRET_KEY: not set. `vintem init` writes a .env file with all required settings",
        "FAIL  VINTEM_LISTEN: \"here\" is not valid: invalid socket address syntax. The default is 127.0.0.1:8080",
    ] {
        assert!(report.lines().any(|printed| printed == line), "{line} is missing in\n{report}");
    }
    assert!(!output.status.success());

    // A wrong database URL is reported as such, and not as a problem of the publishers.
    let port = find_free_port()?;
    let upstream = format!("http://127.0.0.1:{}", find_free_port()?);
    let mut command = configured(directory.path(), &format!("postgres://127.0.0.1:{port}/none"), &["doctor"]);
    command.env("VINTEM_REDIS_URL", format!("redis://127.0.0.1:{port}")).env("VINTEM_PUBLIC_URL", "example.com");
    for variable in ["VINTEM_SGS_URL", "VINTEM_PTAX_URL", "VINTEM_CVM_URL"] {
        command.env(variable, &upstream);
    }
    let report = stdout_of(&command.output()?);
    let line_of = |variable: &str| report.lines().find(|line| line.contains(variable)).unwrap_or_default();
    assert!(line_of("VINTEM_DATABASE_URL").contains("connection refused"), "{report}");
    assert!(line_of("VINTEM_REDIS_URL").contains("refused"), "{report}");
    assert!(line_of("VINTEM_PUBLIC_URL").contains("must start with https:// or http://"), "{report}");
    for variable in ["VINTEM_SGS_URL", "VINTEM_PTAX_URL", "VINTEM_CVM_URL"] {
        assert!(line_of(variable).starts_with("FAIL") && !line_of(variable).contains("postgres"), "{report}");
    }

    let database = TestDatabase::create_demo(friday()).await?;
    let output = configured(directory.path(), &database.url(), &["doctor"]).output()?;
    let report = stdout_of(&output);
    assert!(output.status.success() && report.contains("ok    data: demo data"), "{report}");

    Ok(())
}

#[test]
fn init_writes_a_private_file_once() -> TestResult {
    let directory = TempDirectory::create()?;
    let output = vintem(directory.path(), &["init"]).output()?;
    assert!(output.status.success(), "{}", error_of(&output));
    assert!(stdout_of(&output).starts_with("Wrote .env with new secrets."));

    let file = directory.path().join(".env");
    let written = std::fs::read_to_string(&file)?;
    assert_eq!(std::fs::metadata(&file)?.permissions().mode() & 0o777, 0o600);
    let secrets: Vec<&str> = written
        .lines()
        .filter(|line| line.starts_with("VINTEM_KEY_PEPPER=") || line.starts_with("VINTEM_SECRET_KEY="))
        .collect();
    let [pepper, secret_key] = secrets[..] else { panic!("{secrets:?}") };
    assert_eq!(
        (pepper.len(), secret_key.len()),
        ("VINTEM_KEY_PEPPER=''".len() + 64, "VINTEM_SECRET_KEY=''".len() + 64)
    );
    assert_ne!(pepper.split_once('='), secret_key.split_once('='));

    let output = vintem(directory.path(), &["init"]).output()?;
    assert!(error_of(&output).starts_with("error: .env already exists and was not changed."));
    assert_eq!(std::fs::read_to_string(&file)?, written);

    Ok(())
}

#[tokio::test]
async fn settings_come_from_the_file_unless_the_environment_has_them() -> TestResult {
    let directory = TempDirectory::create()?;
    let database = TestDatabase::create_empty().await?;
    let file = directory.path().join(".env");
    let list_keys = || vintem(directory.path(), &["keys", "list"]);

    std::fs::write(&file, format!("# A comment\nVINTEM_DATABASE_URL='{}'\n", database.url()))?;
    let output = list_keys().output()?;
    assert!(output.status.success(), "{}", error_of(&output));

    let wrong = format!("postgres://postgres@127.0.0.1:{}/none", find_free_port()?);
    assert!(error_of(&list_keys().env("VINTEM_DATABASE_URL", wrong).output()?).contains("connection refused"));

    std::fs::write(&file, "VINTEM_LOG=info\nVINTEM_KEY_PEPPER='secret\n")?;
    let output = list_keys().output()?;
    let expected = "error: .env, line 2: expected NAME=value. Put values with spaces or # in single quotes.";
    assert_eq!(error_of(&output), expected);

    std::fs::write(&file, b"VINTEM_LOG=\xff\n")?;
    assert_eq!(error_of(&list_keys().output()?), "error: .env is not UTF-8 text. Save it as UTF-8.");

    std::fs::remove_file(&file)?;
    std::fs::create_dir(&file)?;
    let error = error_of(&list_keys().output()?);
    assert!(error.starts_with("error: .env cannot be read: ") && error.contains("directory"), "{error}");

    let help = vintem(directory.path(), &["keys", "--help"]).output()?;
    assert!(help.status.success(), "help needs no settings");

    Ok(())
}

#[tokio::test]
async fn up_loads_a_demo_and_says_when_it_is_ready() -> TestResult {
    let directory = TempDirectory::create()?;
    let database = TestDatabase::create_without_schema().await?;
    let mut process = configured(directory.path(), &database.url(), &["up", "--demo"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;

    let lines: Vec<String> =
        BufReader::new(process.stdout.take().expect("piped")).lines().take(2).collect::<Result<_, _>>()?;
    process.kill()?;
    process.wait()?;
    assert!(lines[0].starts_with("Loaded demo data up to "), "{lines:?}");
    assert!(lines[1].starts_with("Vintém is ready at http://127.0.0.1:"), "{lines:?}");
    assert!(lines[1].ends_with(" (demo data)"), "{lines:?}");

    Ok(())
}

#[tokio::test]
async fn the_service_stays_up_when_nobody_reads_its_output() -> TestResult {
    let directory = TempDirectory::create()?;
    let database = TestDatabase::create_demo(friday()).await?;
    let mut process = configured(directory.path(), &database.url(), &["serve"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    drop(process.stdout.take());

    // It logs that it is ready after it has tried to print it.
    let log = BufReader::new(process.stderr.take().expect("piped")).lines().map_while(Result::ok);
    let mut entries = log.map_while(|line| serde_json::from_str::<serde_json::Value>(&line).ok());
    let ready = entries.find(|entry| entry["message"] == "ready").expect("it ended before it was ready");
    let url = ready["url"].as_str().unwrap_or_default();

    let http = vintem_testkit::http_client_builder().build()?;
    assert_eq!(http.get(format!("{url}/health")).send().await?.status(), 200);
    assert!(process.try_wait()?.is_none(), "it is still running");
    process.kill()?;
    process.wait()?;

    Ok(())
}

#[test]
fn help_explains_every_option_and_has_no_magic_numbers() -> TestResult {
    let directory = TempDirectory::create()?;
    let commands: [&[&str]; 16] = [
        &[],
        &["init"],
        &["up"],
        &["serve"],
        &["work"],
        &["migrate"],
        &["ingest"],
        &["demo"],
        &["doctor"],
        &["completions"],
        &["keys"],
        &["keys", "create"],
        &["keys", "list"],
        &["keys", "set-plan"],
        &["keys", "set-expiry"],
        &["keys", "history"],
    ];
    for command in commands {
        let output = vintem(directory.path(), &[command, &["--help"]].concat()).output()?;
        let help = stdout_of(&output);
        assert!(output.status.success() && !help.contains("9223372036854775807"), "{command:?}");

        // Clap puts a long explanation on the next line.
        let lines: Vec<&str> = help.lines().collect();
        for (index, line) in lines.iter().enumerate() {
            let option = line.trim_start();
            if !option.starts_with('-') || !line.starts_with("  ") {
                continue;
            }
            let has_text_beside = option.split_once("  ").is_some_and(|(_, text)| !text.trim().is_empty());
            let has_text_below = lines.get(index + 1).is_some_and(|next| next.starts_with("          "));
            assert!(has_text_beside || has_text_below, "{command:?}: {option} is not explained");
        }
    }

    for shell in ["bash", "zsh", "fish"] {
        let script = stdout_of(&vintem(directory.path(), &["completions", shell]).output()?);
        assert!(script.contains("vintem") && script.contains("set-plan"), "{shell}");
    }

    Ok(())
}
