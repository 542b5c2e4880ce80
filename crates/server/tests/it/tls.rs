//! Encrypted connections to PostgreSQL and Redis: the right certificate is accepted, any other is refused.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, date_time_ymd};
use sqlx::{Connection, PgConnection};
use vintem_ingest::fetch::UpstreamAddresses;
use vintem_ingest::survey::{SurveyOptions, SurveyProblem, survey};
use vintem_meter::ping_redis;
use vintem_store::diagnosis::DatabaseProblem;
use vintem_store::{Store, Timeouts};
use vintem_testkit::{
    DedicatedPostgres, DedicatedRedis, ServerProcess, TempDirectory, create_key_by_cli, find_free_port,
    http_client_builder, run_vintem, wait_until,
};

use crate::{TestResult, friday, vintem_binary};

/// A certificate authority, and certificates that it signed.
struct Certificates {
    authority: CertifiedIssuer<'static, KeyPair>,
    directory: TempDirectory,
}

/// PEM texts.
struct Certificate {
    certificate: String,
    key: String,
}

impl Certificates {
    fn new() -> anyhow::Result<Self> {
        let mut params = CertificateParams::new(Vec::new())?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
        let directory = TempDirectory::create()?;
        std::fs::write(directory.path().join("ca.pem"), authority.pem())?;
        Ok(Self { authority, directory })
    }

    /// The file that clients trust.
    fn authority_file(&self) -> PathBuf {
        self.directory.path().join("ca.pem")
    }

    fn issue(&self, name: &str, is_expired: bool) -> anyhow::Result<Certificate> {
        let mut params = CertificateParams::new(vec![name.to_owned()])?;
        params.distinguished_name.push(DnType::CommonName, name);
        if is_expired {
            params.not_before = date_time_ymd(2020, 1, 1);
            params.not_after = date_time_ymd(2020, 12, 31);
        }
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.authority)?;
        Ok(Certificate { certificate: certificate.pem(), key: key.serialize_pem() })
    }
}

/// Certificates that a client must refuse.
fn wrong_certificates(trusted: &Certificates) -> anyhow::Result<Vec<(&'static str, Certificate)>> {
    let other_authority = Certificates::new()?;
    Ok(vec![
        ("another CA", other_authority.issue("127.0.0.1", false)?),
        ("another host", trusted.issue("db.example.com", false)?),
        ("expired", trusted.issue("127.0.0.1", true)?),
    ])
}

async fn show_from_postgres(postgres: &DedicatedPostgres, certificate: &Certificate) -> TestResult {
    postgres.write_data_file("server.crt", &certificate.certificate)?;
    postgres.write_data_file("server.key", &certificate.key)?;
    let mut admin = PgConnection::connect(&format!("{}/postgres?sslmode=disable", postgres.url())).await?;
    sqlx::raw_sql("alter system set ssl = on").execute(&mut admin).await?;
    sqlx::raw_sql("select pg_reload_conf()").execute(&mut admin).await?;
    Ok(())
}

fn show_from_redis(redis: &DedicatedRedis, port: u16, directory: &Path, certificate: &Certificate) -> TestResult {
    let file = |name: &str, text: &str| -> anyhow::Result<String> {
        let path = directory.join(name);
        std::fs::write(&path, text)?;
        Ok(path.display().to_string())
    };
    let certificate_file = file("redis.crt", &certificate.certificate)?;
    let key_file = file("redis.key", &certificate.key)?;
    let port = port.to_string();
    let settings = ["tls-cert-file", &certificate_file, "tls-key-file", &key_file, "tls-auth-clients", "no"];
    redis.run_command::<String>(&[&["CONFIG", "SET"], &settings[..], &["tls-port", &port]].concat())?;
    Ok(())
}

/// Checks that the database can be reached. Those of these tests have no tables.
async fn check_connection(store: &Store) -> Result<(), DatabaseProblem> {
    match store.check_schema().await {
        Err(DatabaseProblem::NoSchema) => Ok(()),
        result => result,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn postgres_must_show_the_right_certificate() -> TestResult {
    let trusted = Certificates::new()?;
    let postgres = DedicatedPostgres::start()?;
    let url =
        format!("{}/postgres?sslmode=verify-full&sslrootcert={}", postgres.url(), trusted.authority_file().display());

    let right = trusted.issue("127.0.0.1", false)?;
    for (name, wrong) in wrong_certificates(&trusted)? {
        // The right one in between, so that each refusal is that of a new certificate.
        for (certificate, is_accepted) in [(&right, true), (&wrong, false)] {
            show_from_postgres(&postgres, certificate).await?;
            wait_until(name, Duration::from_secs(20), || async {
                let Ok(store) = Store::open(&url, 1, Timeouts::for_workers()) else { return false };
                check_connection(&store).await.is_ok() == is_accepted
            })
            .await;
        }
        let refusal = check_connection(&Store::open(&url, 1, Timeouts::for_workers())?).await;
        assert!(refusal.as_ref().is_err_and(|error| error.to_string().contains("certificate")), "{name}: {refusal:?}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn postgres_can_ask_for_a_client_certificate() -> TestResult {
    let trusted = Certificates::new()?;
    let postgres = DedicatedPostgres::start()?;
    postgres.write_data_file("root.crt", &trusted.authority.pem())?;
    postgres.write_data_file(
        "pg_hba.conf",
        "hostssl all all 127.0.0.1/32 trust clientcert=verify-full\nhostnossl all all 127.0.0.1/32 trust\n",
    )?;
    let mut admin = PgConnection::connect(&format!("{}/postgres?sslmode=disable", postgres.url())).await?;
    sqlx::raw_sql("alter system set ssl_ca_file = 'root.crt'").execute(&mut admin).await?;
    show_from_postgres(&postgres, &trusted.issue("127.0.0.1", false)?).await?;

    let client = trusted.issue("postgres", false)?;
    let directory = trusted.directory.path();
    std::fs::write(directory.join("client.crt"), client.certificate)?;
    std::fs::write(directory.join("client.key"), client.key)?;
    let url =
        format!("{}/postgres?sslmode=verify-full&sslrootcert={}", postgres.url(), trusted.authority_file().display());
    let with_certificate = format!("{url}&sslcert={0}/client.crt&sslkey={0}/client.key", directory.display());

    wait_until("a connection with the client's certificate", Duration::from_secs(20), || async {
        let Ok(store) = Store::open(&with_certificate, 1, Timeouts::for_workers()) else { return false };
        check_connection(&store).await.is_ok()
    })
    .await;
    assert!(check_connection(&Store::open(&url, 1, Timeouts::for_workers())?).await.is_err());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_must_show_the_right_certificate() -> TestResult {
    vintem_testkit::install_crypto_provider();
    let trusted = Certificates::new()?;
    let authority = std::fs::read(trusted.authority_file())?;
    let redis = DedicatedRedis::start()?;
    let port = find_free_port()?;
    let url = format!("rediss://127.0.0.1:{port}");

    let directory = trusted.directory.path();
    for (name, wrong) in wrong_certificates(&trusted)? {
        show_from_redis(&redis, port, directory, &wrong)?;
        let refusal = ping_redis(&url, Some(&authority)).await;
        assert!(refusal.as_ref().is_err_and(|error| error.to_string().contains("certificate")), "{name}: {refusal:?}");
    }
    show_from_redis(&redis, port, directory, &trusted.issue("127.0.0.1", false)?)?;
    ping_redis(&url, Some(&authority)).await?;

    // A user of its own.
    redis.run_command::<String>(&["ACL", "SETUSER", "vintem", "on", ">secret", "~*", "+@all"])?;
    let as_user = |password: &str| format!("rediss://vintem:{password}@127.0.0.1:{port}");
    assert!(ping_redis(&as_user("secret"), Some(&authority)).await.is_ok());
    assert!(ping_redis(&as_user("wrong"), Some(&authority)).await.is_err());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_serves_limits_and_counts_over_encrypted_connections() -> TestResult {
    let trusted = Certificates::new()?;
    let certificate = trusted.issue("127.0.0.1", false)?;
    let postgres = DedicatedPostgres::start()?;
    show_from_postgres(&postgres, &certificate).await?;
    let redis = DedicatedRedis::start()?;
    let redis_port = find_free_port()?;
    show_from_redis(&redis, redis_port, trusted.directory.path(), &certificate)?;

    let authority = trusted.authority_file().display().to_string();
    let database = format!("{}/postgres?sslmode=verify-full&sslrootcert={authority}", postgres.url());
    for command in [&["migrate"][..], &["demo", "--filings", "1000"]] {
        let (status, _, error) = run_vintem(vintem_binary(), &database, command).await?;
        anyhow::ensure!(status.success(), "{command:?}: {error}");
    }
    let (_, key) = create_key_by_cli(vintem_binary(), &database, "gold").await?;
    let redis_url = format!("rediss://127.0.0.1:{redis_port}");
    let replica = ServerProcess::start(vintem_binary(), &database, &redis_url, &["--redis-ca", &authority])?;

    let http = http_client_builder().build()?;
    for remaining in ["499", "498", "497"] {
        let response = http.get(replica.url("/api/v1/companies?limit=2")).header("X-API-Key", &key).send().await?;
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["x-ratelimit-remaining"], remaining);
    }
    let usage = http.get(replica.url("/api/v1/plans/usage")).header("X-API-Key", &key).send().await?;
    let usage: serde_json::Value = usage.json().await?;
    assert_eq!(usage["total_requests"], 4);
    let health: serde_json::Value = http.get(replica.url("/health")).send().await?.json().await?;
    assert_eq!(health["status"], "ok", "{health}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_survey_names_a_publisher_whose_certificate_is_not_trusted() -> TestResult {
    let redis = DedicatedRedis::start()?;
    let port = find_free_port()?;
    let certificates = Certificates::new()?;
    for (name, certificate) in wrong_certificates(&certificates)? {
        show_from_redis(&redis, port, certificates.directory.path(), &certificate)?;
        let url = format!("https://127.0.0.1:{port}");
        let addresses = UpstreamAddresses { sgs: url.clone(), ptax: url.clone(), cvm: url };
        let options = SurveyOptions {
            contact: String::new(),
            pause: Duration::ZERO,
            max_bytes_per_host: u64::MAX,
            recorder: None,
        };
        for host in survey(&addresses, &options, friday()).await? {
            let problems: Vec<&str> =
                host.findings.iter().flat_map(|finding| &finding.problems).map(SurveyProblem::id).collect();
            assert_eq!(problems, ["certificate"; 2], "{name}: {host:?}");
            assert!(host.skipped > 0, "nothing more is asked of it");
        }
    }
    Ok(())
}
