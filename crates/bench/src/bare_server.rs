//! The baseline: the smallest server that sends the same responses, a plain axum router with one route.

use std::collections::HashMap;
use std::future::ready;
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use crate::closed_loop::KeepAliveResponse;
use anyhow::{Context, bail};
use axum::Router;
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::serve::ListenerExt;
use bytes::Bytes;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri};
use tokio::net::{TcpListener, TcpStream};

/// The start of the first line on standard output.
const LISTENING_PREFIX: &str = "listening: ";

/// The response to each target, which is a path with its query.
type ResponsesByTarget = [(String, KeepAliveResponse)];

/// A separate process that sends these responses; dropping this kills it.
#[derive(Debug)]
pub struct BareServerProcess {
    child: Child,
    pub address: SocketAddr,
}

impl BareServerProcess {
    pub fn start(responses: &ResponsesByTarget) -> anyhow::Result<Self> {
        let mut child =
            Command::new(std::env::current_exe()?).arg("bare").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut input = child.stdin.take().context("its input is piped")?;
        for (target, response) in responses {
            writeln!(input, "{target} {} {}", response.head.len(), response.body.len())?;
            input.write_all(response.head.as_bytes())?;
            input.write_all(&response.body)?;
        }
        drop(input);

        let mut line = String::new();
        BufReader::new(child.stdout.take().context("its output is piped")?).read_line(&mut line)?;
        let address = line.strip_prefix(LISTENING_PREFIX).context("the bare server did not start")?.trim().parse()?;
        Ok(Self { child, address })
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for BareServerProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Serves the responses read from standard input, with as many worker threads as the service has.
pub fn serve_responses_from_stdin() -> anyhow::Result<()> {
    let router = build_router(&read_responses(std::io::stdin().lock())?)?;

    tokio::runtime::Runtime::new()?.block_on(async {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        println!("{LISTENING_PREFIX}{}", listener.local_addr()?);
        axum::serve(listener.tap_io(set_nodelay), router).await?;
        Ok(())
    })
}

fn read_responses(mut input: impl BufRead) -> anyhow::Result<Vec<(String, KeepAliveResponse)>> {
    let mut responses = Vec::new();
    let mut line = String::new();
    while input.read_line(&mut line)? > 0 {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [target, head_length, body_length] = fields[..] else { bail!("not a target with two lengths: {line}") };
        let mut head = vec![0; head_length.parse()?];
        input.read_exact(&mut head)?;
        let mut body = vec![0; body_length.parse()?];
        input.read_exact(&mut body)?;
        responses.push((target.to_owned(), KeepAliveResponse { head: String::from_utf8(head)?, body }));
        line.clear();
    }
    Ok(responses)
}

/// Headers and body as they are cloned into each response.
type PreparedResponse = (HeaderMap, Bytes);

fn prepare_response(template: &KeepAliveResponse) -> anyhow::Result<PreparedResponse> {
    let mut headers = HeaderMap::new();
    // hyper writes the date, here as in the service.
    for (name, value) in template.headers().filter(|(name, _)| !name.eq_ignore_ascii_case("date")) {
        // Static, so that cloning it costs nothing.
        let value: &'static str = value.to_owned().leak();
        headers.insert(HeaderName::from_bytes(name.as_bytes())?, HeaderValue::from_static(value));
    }
    Ok((headers, Bytes::from_static(template.body.clone().leak())))
}

fn to_response((headers, body): &PreparedResponse) -> Response {
    let mut response = Response::new(Body::from(body.clone()));
    *response.headers_mut() = headers.clone();
    response
}

/// A single response needs no lookup; several are found by their target.
fn build_router(responses: &ResponsesByTarget) -> anyhow::Result<Router> {
    let (first_target, first_response) = responses.first().context("no response on standard input")?;
    let path = first_target.split('?').next().unwrap_or_default();
    if responses.len() == 1 {
        let prepared = prepare_response(first_response)?;
        return Ok(Router::new().route(path, get(move || ready(to_response(&prepared)))));
    }

    let mut by_target = HashMap::new();
    for (target, response) in responses {
        by_target.insert(target.clone(), prepare_response(response)?);
    }
    let by_target = Arc::new(by_target);
    let handler = move |uri: Uri| {
        let target = uri.path_and_query().map_or("", PathAndQuery::as_str);
        ready(by_target.get(target).map_or_else(|| StatusCode::NOT_FOUND.into_response(), to_response))
    };
    Ok(Router::new().route(path, get(handler)))
}

/// As in the service, because responses are small and complete.
fn set_nodelay(stream: &mut TcpStream) {
    // This fails only if the client is already gone.
    let _ = stream.set_nodelay(true);
}
