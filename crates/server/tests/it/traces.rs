//! Traces, as a collector gets them.

use std::time::Duration;

use anyhow::Context;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use serde_json::{Value, json};
use vintem_domain::Plan;
use vintem_domain::text::hex_encode;
use vintem_testkit::webhook_receiver::WebhookReceiver;
use vintem_testkit::{
    DedicatedRedis, ServerProcess, TestDatabase, WorkerProcess, create_key, http_client_builder, wait_until,
};

use crate::{TestResult, friday, vintem_binary};

const TRACE_ID: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const CALLER_SPAN_ID: &str = "00f067aa0ba902b7";

/// The spans that the collector has got so far.
fn received_spans(collector: &WebhookReceiver) -> anyhow::Result<Vec<Span>> {
    let mut spans = Vec::new();
    for request in collector.requests_to("/v1/traces") {
        let export = ExportTraceServiceRequest::decode(request.body.clone())?;
        spans.extend(
            export.resource_spans.into_iter().flat_map(|resource| resource.scope_spans).flat_map(|scope| scope.spans),
        );
    }
    Ok(spans)
}

fn find_span<'s>(spans: &'s [Span], name: &str) -> anyhow::Result<&'s Span> {
    spans.iter().find(|span| span.name == name).with_context(|| {
        let names: Vec<_> = spans.iter().map(|span| &span.name).collect();
        format!("{name} is not among {names:?}")
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_is_traced_with_its_waits_and_without_secrets() -> TestResult {
    let database = TestDatabase::create_demo(friday()).await?;
    let collector = WebhookReceiver::start().await?;
    let redis = DedicatedRedis::start()?;
    let flags = [format!("--otlp-url={}", collector.url("")), "--trace-ratio=1".to_owned()];
    let mut replica =
        ServerProcess::start(vintem_binary(), &database.url(), &redis.url(), &flags.each_ref().map(String::as_str))?;
    let (_, key) = create_key(&database.open_store()?, Plan::Gold).await?;
    let http = http_client_builder().build()?;

    let traceparent = format!("00-{TRACE_ID}-{CALLER_SPAN_ID}-00");
    let response = http
        .get(replica.url("/api/v1/plans/usage"))
        .header("User-Agent", "hidden")
        .header("X-API-Key", &key)
        .header("traceparent", traceparent)
        .send()
        .await?;
    assert_eq!(response.status(), 200);
    let request_id = response.headers()["x-request-id"].to_str()?.to_owned();

    // What is left is sent at shutdown.
    replica.terminate()?;
    assert!(replica.wait_timeout(Duration::from_secs(20))?.is_some_and(|status| status.success()));
    let spans = received_spans(&collector)?;
    let request = find_span(&spans, "GET /api/v1/plans/usage")?;
    assert_eq!(
        (hex_encode(&request.trace_id), hex_encode(&request.parent_span_id)),
        (TRACE_ID.into(), CALLER_SPAN_ID.into())
    );
    for step in ["redis", "postgresql"] {
        let step = find_span(&spans, step)?;
        assert_eq!((&step.trace_id, &step.parent_span_id), (&request.trace_id, &request.span_id), "{}", step.name);
    }

    let all = format!("{spans:?}");
    assert!(all.contains(&request_id) && all.contains("http.response.status_code"), "{all}");
    for secret in [key.as_str(), "hidden", "127.0.0.1"] {
        assert!(!all.contains(secret), "{secret} is in {all}");
    }
    assert!(!replica.log().contains("\"span"), "log lines have no spans: {}", replica.log());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn strangers_do_not_decide_what_is_traced_and_a_dead_collector_harms_nobody() -> TestResult {
    let database = TestDatabase::create_demo(friday()).await?;
    let collector = WebhookReceiver::start().await?;
    let redis = DedicatedRedis::start()?;
    let url = format!("--otlp-url={}", collector.url(""));
    let mut replica = ServerProcess::start(vintem_binary(), &database.url(), &redis.url(), &[&url, "--trace-ratio=0"])?;
    let trusting = ["--otlp-url=http://127.0.0.1:9", "--trace-ratio=0", "--trusted-proxies=127.0.0.0/8"];
    let mut without_collector = ServerProcess::start(vintem_binary(), &database.url(), &redis.url(), &trusting)?;

    let http = http_client_builder().build()?;
    for process in [&replica, &without_collector] {
        let request = http.get(process.url("/api/v1/market/selic"));
        let traceparent = format!("00-{TRACE_ID}-{CALLER_SPAN_ID}-01");
        assert_eq!(request.header("traceparent", traceparent).send().await?.status(), 200);
    }
    for process in [&mut replica, &mut without_collector] {
        process.terminate()?;
        assert!(process.wait_timeout(Duration::from_secs(20))?.is_some_and(|status| status.success()));
    }
    assert_eq!(received_spans(&collector)?, []);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn receivers_of_webhooks_can_continue_the_trace() -> TestResult {
    let database = TestDatabase::create_demo(friday()).await?;
    let collector = WebhookReceiver::start().await?;
    let redis = DedicatedRedis::start()?;
    let replica =
        ServerProcess::start(vintem_binary(), &database.url(), &redis.url(), &["--webhook-allow=127.0.0.0/8"])?;
    let (_, key) = create_key(&database.open_store()?, Plan::Platinum).await?;
    let http = http_client_builder().build()?;
    let post = |path: String| http.post(replica.url(&path)).header("X-API-Key", &key);
    let webhook = json!({"url": collector.url("/hook"), "types": ["rate.published"]});
    let created: Value =
        post("/api/v1/webhooks".to_owned()).json(&webhook).send().await?.error_for_status()?.json().await?;
    let id = created["id"].as_str().context("an id")?;
    post(format!("/api/v1/webhooks/{id}/test")).send().await?.error_for_status()?;

    let url = format!("--otlp-url={}", collector.url(""));
    let flags = [&url, "--trace-ratio=1", "--webhook-allow=127.0.0.0/8"];
    let _worker = WorkerProcess::start(vintem_binary(), &database.url(), &flags)?;
    wait_until("the attempt to be traced", Duration::from_secs(60), || async {
        received_spans(&collector).is_ok_and(|spans| find_span(&spans, "webhook").is_ok())
    })
    .await;

    let spans = received_spans(&collector)?;
    let span = find_span(&spans, "webhook")?;
    let traceparent = format!("00-{}-{}-01", hex_encode(&span.trace_id), hex_encode(&span.span_id));
    assert_eq!(collector.single_request_to("/hook")?.header("traceparent"), traceparent);
    Ok(())
}
