//! Clients that leave connections idle, send half a request, or close their side early.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use vintem_domain::Plan;
use vintem_testkit::build_keyed_get;
use vintem_testkit::{DedicatedRedis, QuietClock, ServerProcess, TestDatabase, TestReplica};

use crate::{TestResult, friday, vintem_binary};

const CONNECTIONS_PER_KIND: usize = 200;
const MAX_WAIT: Duration = Duration::from_secs(10);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

#[tokio::test(flavor = "multi_thread")]
async fn idle_connections_are_closed_and_sigterm_ends_the_process_within_ten_seconds() -> TestResult {
    let redis = DedicatedRedis::start()?;
    let database = TestDatabase::create_demo(friday()).await?;
    let mut process = ServerProcess::start(vintem_binary(), &database.url(), &redis.url(), &[])?;

    let silent = open_connections(&process, b"")?;
    let half_sent = open_connections(&process, b"GET /health HTTP/1.1\r\nHost: a\r\nX-Half")?;
    let clock = QuietClock::start();
    for connection in silent.into_iter().chain(half_sent) {
        assert!(closes_before(connection, clock, MAX_WAIT), "still open after {:?}", clock.elapsed());
    }
    println!("closed_after_seconds: {:.1}", clock.elapsed().as_secs_f64());

    // Open connections don't delay the shutdown beyond its limit.
    let silent = open_connections(&process, b"")?;
    let half_sent = open_connections(&process, b"GET /health HTTP/1.1\r\nHost: a\r\nX-Half")?;
    let terminated_at = Instant::now();
    process.terminate()?;
    let status = process.wait_timeout(MAX_WAIT)?;
    println!("ended_after_seconds: {:.1}", terminated_at.elapsed().as_secs_f64());
    drop((silent, half_sent));
    assert!(status.is_some_and(|status| status.success()), "{status:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_half_closes_still_gets_its_response() -> TestResult {
    let database = TestDatabase::create_demo(friday()).await?;
    let replica = TestReplica::start_with_high_limits(&database, friday()).await?;
    let key = replica.create_key(Plan::Gold).await?.1;

    // One response from memory, one from a search on the blocking pool, and one from PostgreSQL.
    for path in ["/api/v1/market/selic/current", "/api/v1/filings/search?q=dividendos", "/api/v1/plans/usage"] {
        let mut stream = tokio::net::TcpStream::connect(replica.replica.address).await?;
        stream.write_all(&build_keyed_get(path, &key)).await?;
        stream.shutdown().await?;

        let mut response = Vec::new();
        tokio::time::timeout(MAX_WAIT, stream.read_to_end(&mut response)).await??;
        assert!(response.starts_with(b"HTTP/1.1 200"), "{path}: {}", String::from_utf8_lossy(&response));
    }
    Ok(())
}

/// Closing alone would leave what the client did not read in the system's memory, for as long as the client likes.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_does_not_read_is_reset() -> TestResult {
    let database = TestDatabase::create_demo(friday()).await?;
    let replica = TestReplica::start_with_high_limits(&database, friday()).await?;
    let key = replica.create_key(Plan::Gold).await?.1;
    let socket = tokio::net::TcpSocket::new_v4()?;
    socket.set_recv_buffer_size(4096)?;
    let mut stream = socket.connect(replica.replica.address).await?;
    let path = "/api/v1/market/compare?ids=selic,cdi,ipca,selic-effective,selic-daily,usd-brl,eur-brl&limit=20000";
    stream.write_all(&build_keyed_get(path, &key)).await?;

    let clock = QuietClock::start();
    while stream.take_error()?.is_none() {
        assert!(clock.elapsed() < 2 * MAX_WAIT, "not reset after {:?}", clock.elapsed());
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    Ok(())
}

fn open_connections(process: &ServerProcess, sent: &[u8]) -> anyhow::Result<Vec<TcpStream>> {
    let connect = || -> anyhow::Result<TcpStream> {
        let mut stream = TcpStream::connect(&process.address)?;
        stream.write_all(sent)?;
        Ok(stream)
    };
    (0..CONNECTIONS_PER_KIND).map(|_| connect()).collect()
}

/// Whether the server closes the connection before the clock shows `max_elapsed`; data that it sends is ignored.
fn closes_before(mut stream: TcpStream, clock: QuietClock, max_elapsed: Duration) -> bool {
    let mut buffer = [0; 1024];
    loop {
        if stream.set_read_timeout(Some(POLL_INTERVAL)).is_err() {
            return true;
        }
        match stream.read(&mut buffer) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                if clock.elapsed() >= max_elapsed {
                    return false;
                }
            }
            Err(_) => return true,
        }
    }
}
