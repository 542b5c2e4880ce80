//! What each role tells its operator on the admin port.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures_util::future::join_all;
use vintem_server::operator::metrics::{METRICS, MetricKind};
use vintem_testkit::upstreams::{FakeUpstreamOptions, FakeUpstreams};
use vintem_testkit::{
    DedicatedRedis, ServerProcess, TempDirectory, TestDatabase, WorkerProcess, find_free_port, http_client_builder,
    wait_until,
};

use crate::{TestResult, friday, vintem_binary};

const TOKEN: &str = "a-token-for-the-metrics";

/// Reads the admin port of a process.
struct AdminClient {
    http: reqwest::Client,
    address: String,
}

impl AdminClient {
    async fn get(&self, path: &str) -> reqwest::Result<reqwest::Response> {
        self.http.get(format!("http://{}{path}", self.address)).send().await
    }

    async fn metrics(&self) -> anyhow::Result<String> {
        Ok(self.get("/metrics").await?.error_for_status()?.text().await?)
    }
}

/// The type of each metric, by its `# TYPE` line. Fails if a sample lacks one, or a metric its help.
fn parse_types(text: &str) -> anyhow::Result<BTreeMap<&str, &str>> {
    let comments = |kind| text.lines().filter_map(move |line| line.strip_prefix(kind)?.split_once(' '));
    let types: BTreeMap<&str, &str> = comments("# TYPE ").collect();
    let helped: BTreeSet<&str> = comments("# HELP ").map(|(name, _)| name).collect();
    for sample in text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
        let name = sample.split(['{', ' ']).next().unwrap_or_default();
        let family = ["_bucket", "_sum", "_count"].iter().find_map(|suffix| name.strip_suffix(suffix)).unwrap_or(name);
        anyhow::ensure!(types.contains_key(family) && helped.contains(family), "{sample}");
    }
    Ok(types)
}

#[tokio::test(flavor = "multi_thread")]
async fn every_role_shows_its_metrics_with_help_and_type() -> TestResult {
    let database = TestDatabase::create_demo(friday()).await?;
    let http = http_client_builder().build()?;
    let redis = DedicatedRedis::start()?;
    let replica = ServerProcess::start(vintem_binary(), &database.url(), &redis.url(), &[])?;
    for _ in 0..2 {
        assert_eq!(http.get(replica.url("/api/v1/market/selic")).send().await?.status(), 200);
    }

    let directory = TempDirectory::create()?;
    let exports = format!("--export-dir={}", directory.path().display());
    let work_address = format!("127.0.0.1:{}", find_free_port()?);
    let work_flags = [format!("--admin-listen={work_address}"), exports];
    let _worker = WorkerProcess::start(vintem_binary(), &database.url(), &work_flags.each_ref().map(String::as_str))?;

    let empty = TestDatabase::create_empty().await?;
    let upstreams =
        FakeUpstreams::start(FakeUpstreamOptions { ipe_rows_per_year: 20, ..FakeUpstreamOptions::default() })?;
    let ingest_address = format!("127.0.0.1:{}", find_free_port()?);
    let ingest_flags = [
        format!("--admin-listen={ingest_address}"),
        format!("--sgs-url={}", upstreams.sgs_url()),
        format!("--ptax-url={}", upstreams.ptax_url()),
        format!("--cvm-url={}", upstreams.cvm_url()),
    ];
    let ingest_flags = ingest_flags.each_ref().map(String::as_str);
    let _ingest = WorkerProcess::start_ingest(vintem_binary(), &empty.url(), &ingest_flags)?;

    let roles = [("serve", &replica.admin_address), ("work", &work_address), ("ingest", &ingest_address)]
        .map(|(role, address)| (role, AdminClient { http: http.clone(), address: address.clone() }));
    for (role, admin) in &roles {
        // Workers read the data first.
        wait_until(&format!("{role} is ready"), Duration::from_secs(60), || async {
            admin.get("/readyz").await.is_ok_and(|response| response.status() == 200)
        })
        .await;
        assert_eq!(admin.get("/livez").await?.status(), 200);
    }

    for metric in METRICS {
        // Some appear with the first request, fetch or look at a backend.
        wait_until(&format!("a role shows {}", metric.name), Duration::from_secs(120), || async {
            let texts = join_all(roles.iter().map(|(_, admin)| admin.metrics())).await;
            texts.into_iter().flatten().any(|text| text.contains(&format!("# TYPE {} ", metric.name)))
        })
        .await;
    }
    for (role, admin) in &roles {
        let text = admin.metrics().await?;
        assert!(text.contains(&format!("role=\"{role}\"")), "{text}");
        for (name, kind) in parse_types(&text)? {
            let metric = METRICS.iter().find(|metric| metric.name == name);
            assert_eq!(metric.map(|metric| metric.kind.id()), Some(kind), "{name}");
        }
    }
    Ok(())
}

#[test]
fn metrics_are_named_as_prometheus_advises() {
    let mut names = BTreeSet::new();
    for metric in METRICS {
        assert!(names.insert(metric.name), "{} is there twice", metric.name);
        assert_eq!(metric.kind == MetricKind::Counter, metric.name.ends_with("_total"), "{}", metric.name);
        assert!(!metric.help.is_empty() && !metric.help.ends_with('.'), "{}", metric.name);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_ask_for_the_token_and_probes_do_not() -> TestResult {
    let database = TestDatabase::create_demo(friday()).await?;
    let token = format!("--admin-token={TOKEN}");
    let redis = DedicatedRedis::start()?;
    let replica = ServerProcess::start(vintem_binary(), &database.url(), &redis.url(), &[&token])?;
    let http = http_client_builder().build()?;
    let admin = AdminClient { http: http.clone(), address: replica.admin_address.clone() };

    for path in ["/livez", "/readyz"] {
        assert_eq!(admin.get(path).await?.status(), 200, "{path}");
    }
    let refused = admin.get("/metrics").await?;
    assert_eq!((refused.status().as_u16(), &refused.headers()["www-authenticate"]), (401, &"Bearer".parse()?));
    let ask = |token: String| http.get(format!("http://{}/metrics", admin.address)).bearer_auth(token).send();
    for wrong in ["", "a-token-for-the-metricz", "a-token-for-the-metrics-", "a"] {
        assert_eq!(ask(wrong.to_owned()).await?.status(), 401, "{wrong}");
    }
    let accepted = ask(TOKEN.to_owned()).await?;
    assert_eq!(accepted.status(), 200);
    assert!(!accepted.text().await?.contains(TOKEN) && !replica.log().contains(TOKEN));
    Ok(())
}
