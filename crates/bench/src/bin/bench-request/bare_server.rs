//! The baseline: the smallest server that sends the same response, a plain axum router with one route.

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

use anyhow::Context;
use axum::Router;
use axum::body::Body;
use axum::response::Response;
use axum::routing::get;
use axum::serve::ListenerExt;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use tokio::net::{TcpListener, TcpStream};
use vintem_bench::closed_loop::KeepAliveResponse;

/// The start of the first line on standard output.
const LISTENING_PREFIX: &str = "listening: ";

/// A separate process that sends the same response to every request; dropping this kills it.
#[derive(Debug)]
pub struct BareServerProcess {
    child: Child,
    pub address: SocketAddr,
}

impl BareServerProcess {
    pub fn start(path: &str, response: &KeepAliveResponse) -> anyhow::Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["bare", path])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut input = child.stdin.take().context("its input is piped")?;
        input.write_all(response.head.as_bytes())?;
        input.write_all(b"\r\n\r\n")?;
        input.write_all(&response.body)?;
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

/// Serves the response read from standard input, with as many worker threads as the service has.
pub fn serve_response_from_stdin(path: &str) -> anyhow::Result<()> {
    let input = std::io::read_to_string(std::io::stdin())?;
    let (head, body) = input.split_once("\r\n\r\n").context("no answer on standard input")?;
    let response = KeepAliveResponse { head: head.to_owned(), body: body.as_bytes().to_vec() };
    let router = build_router(path, &response)?;

    tokio::runtime::Runtime::new()?.block_on(async {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        println!("{LISTENING_PREFIX}{}", listener.local_addr()?);
        axum::serve(listener.tap_io(set_nodelay), router).await?;
        Ok(())
    })
}

fn build_router(path: &str, template: &KeepAliveResponse) -> anyhow::Result<Router> {
    let mut headers = HeaderMap::new();
    // hyper writes the date, here as in the service.
    for (name, value) in template.headers().filter(|(name, _)| !name.eq_ignore_ascii_case("date")) {
        // Static, so that cloning it costs nothing.
        let value: &'static str = value.to_owned().leak();
        headers.insert(HeaderName::from_bytes(name.as_bytes())?, HeaderValue::from_static(value));
    }
    let body = Bytes::from_static(template.body.clone().leak());

    let handler = move || {
        let mut response = Response::new(Body::from(body.clone()));
        *response.headers_mut() = headers.clone();
        async move { response }
    };
    Ok(Router::new().route(path, get(handler)))
}

/// As in the service, because responses are small and complete.
fn set_nodelay(stream: &mut TcpStream) {
    // This fails only if the client is already gone.
    let _ = stream.set_nodelay(true);
}
