//! Traces, sent to an OpenTelemetry collector over HTTP (OTLP). Off unless `VINTEM_OTLP_URL` is set.
//!
//! A request is traced from its arrival to its response, with a step for each wait for Redis and PostgreSQL, and each
//! attempt to deliver a webhook. Spans have routes and statuses, but no paths, queries, keys, addresses or bodies.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::Context as _;
use async_trait::async_trait;
use opentelemetry::propagation::TextMapPropagator;
use opentelemetry::trace::{TraceContextExt, TracerProvider};
use opentelemetry::{Context, KeyValue};
use opentelemetry_http::{Bytes, HeaderExtractor, HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{Sampler, SdkTracerProvider};
use tokio::runtime::Handle;
use tracing::field::Empty;
use tracing::{Span, Subscriber};
use tracing_opentelemetry::OpenTelemetrySpanExt;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::registry::LookupSpan;
use vintem_api::{RequestTracer, TraceStart};
use vintem_deliver::webhook::{AttemptTrace, AttemptTracer};
use vintem_domain::VERSION;
use vintem_domain::spans::{SPAN_TARGET, start_tracing};

const EXPORT_TIMEOUT: Duration = Duration::from_secs(10);
/// What is not sent within this time at shutdown is lost.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(2);
const TRACES_PATH: &str = "/v1/traces";

/// The traces of this process, like its log.
static EXPORT: OnceLock<TraceExport> = OnceLock::new();

struct TraceExport {
    provider: SdkTracerProvider,
    ratio: f64,
}

impl TraceExport {
    fn is_sampled(&self) -> bool {
        rand::random::<f64>() < self.ratio
    }
}

/// Starts to export, and returns what collects the spans. `url` is that of the collector.
pub fn start_export<S>(url: &str, ratio: f64) -> anyhow::Result<impl Layer<S> + use<S>>
where
    S: Subscriber + for<'s> LookupSpan<'s>,
{
    let endpoint = format!("{}{TRACES_PATH}", url.trim_end_matches('/'));
    let exporter = SpanExporter::builder()
        .with_http()
        .with_http_client(CollectorClient::new()?)
        .with_endpoint(endpoint)
        .build()
        .context("VINTEM_OTLP_URL is not valid. It must look like http://127.0.0.1:4318")?;
    let resource = Resource::builder_empty()
        .with_attributes([KeyValue::new("service.name", "vintem"), KeyValue::new("service.version", VERSION)])
        .build();
    let provider = SdkTracerProvider::builder()
        .with_batch_exporter(exporter)
        .with_resource(resource)
        // Whether a request is traced is decided before its span begins.
        .with_sampler(Sampler::AlwaysOn)
        .build();

    let layer = tracing_opentelemetry::layer()
        .with_tracer(provider.tracer("vintem"))
        .with_location(false)
        .with_threads(false)
        .with_target(false)
        .with_tracked_inactivity(false)
        .with_filter(filter_fn(|metadata| metadata.target() == SPAN_TARGET));
    anyhow::ensure!(EXPORT.set(TraceExport { provider, ratio }).is_ok(), "traces were started twice");
    start_tracing();
    Ok(layer)
}

/// Sends what is left. Must be called before the runtime ends.
pub async fn finish_export() {
    let Some(export) = EXPORT.get() else { return };
    let result = tokio::task::spawn_blocking(move || export.provider.shutdown_with_timeout(SHUTDOWN_TIMEOUT)).await;
    if let Ok(Err(error)) = result {
        tracing::warn!(%error, "cannot send the last traces");
    }
}

/// `None` if no traces are exported.
pub fn request_tracer() -> Option<RequestTracer> {
    let export = EXPORT.get()?;
    Some(Arc::new(move |start: &TraceStart<'_>| {
        let parent = TraceContextPropagator::new().extract(&HeaderExtractor(start.headers));
        if !is_request_sampled(export, &parent, start.is_from_trusted_proxy) {
            return Span::none();
        }
        let span = tracing::info_span!(
            target: SPAN_TARGET,
            "request",
            otel.name = format!("{} {}", start.method, start.route),
            otel.kind = "server",
            http.request.method = start.method.as_str(),
            http.route = start.route,
            http.response.status_code = Empty,
            vintem.request_id = Empty,
            vintem.plan = Empty,
        );
        // Fails only if the span has begun.
        let _ = span.set_parent(parent);
        span
    }))
}

/// A proxy of ours may decide which requests are traced. Of a stranger we take over the id of the trace, but a stranger
/// must not be able to make us trace everything.
fn is_request_sampled(export: &TraceExport, parent: &Context, is_trusted: bool) -> bool {
    let parent = parent.span().span_context().clone();
    if is_trusted && parent.is_valid() { parent.is_sampled() } else { export.is_sampled() }
}

/// `None` if no traces are exported.
pub fn attempt_tracer() -> Option<AttemptTracer> {
    let export = EXPORT.get()?;
    Some(Arc::new(move || {
        if !export.is_sampled() {
            return None;
        }
        let span = tracing::info_span!(
            target: SPAN_TARGET,
            "webhook",
            otel.kind = "producer",
            http.response.status_code = Empty,
        );
        let context = span.context();
        let context = context.span().span_context().clone();
        let traceparent = format!("00-{}-{}-01", context.trace_id(), context.span_id());
        Some(AttemptTrace { span, traceparent })
    }))
}

/// Sends spans with the client that the rest of Vintém uses too. The exporter has a thread of its own, but requests need
/// the runtime.
#[derive(Debug)]
struct CollectorClient {
    http: reqwest::Client,
    runtime: Handle,
}

impl CollectorClient {
    fn new() -> anyhow::Result<Self> {
        // The process has one crypto provider. An error only means that it is installed already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http = reqwest::Client::builder()
            .user_agent(format!("vintem/{VERSION}"))
            .timeout(EXPORT_TIMEOUT)
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .build()?;
        Ok(Self { http, runtime: Handle::current() })
    }
}

#[async_trait]
impl HttpClient for CollectorClient {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let request = reqwest::Request::try_from(request)?;
        let http = self.http.clone();
        let send = async move {
            let response = http.execute(request).await?;
            let mut answer = Response::builder().status(response.status());
            if let Some(headers) = answer.headers_mut() {
                headers.clone_from(response.headers());
            }
            Ok::<_, HttpError>(answer.body(response.bytes().await?)?)
        };
        self.runtime.spawn(send).await?
    }
}
