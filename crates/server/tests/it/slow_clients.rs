//! Clients that open connections and do not use them.

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
    let (redis, database) = (DedicatedRedis::start()?, TestDatabase::create_demo(friday()).await?);
    let mut process = ServerProcess::start(vintem_binary(), &database.url(), &redis.url(), &[])?;

    let (silent, half_sent) =
        (open_connections(&process, b"")?, open_connections(&process, b"GET /health HTTP/1.1\r\nHost: a\r\nX-Half")?);
    let opened = QuietClock::start();
    for connection in silent.into_iter().chain(half_sent) {
        assert!(closes_before(connection, opened, MAX_WAIT), "still open after {:?}", opened.elapsed());
    }
    println!("closed_after_seconds: {:.1}", opened.elapsed().as_secs_f64());

    // And with as many open again, the process ends in time all the same.
    let held =
        (open_connections(&process, b"")?, open_connections(&process, b"GET /health HTTP/1.1\r\nHost: a\r\nX-Half")?);
    let terminated = Instant::now();
    process.terminate()?;
    let status = process.wait_timeout(MAX_WAIT)?;
    println!("ended_after_seconds: {:.1}", terminated.elapsed().as_secs_f64());
    drop(held);
    assert!(status.is_some_and(|status| status.success()), "{status:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_half_closes_still_gets_its_response() -> TestResult {
    let database = TestDatabase::create_demo(friday()).await?;
    let replica = TestReplica::start_with_high_limits(&database, friday()).await?;
    let key = replica.create_key(Plan::Gold).await?.1;
    // From memory, by a search in a thread of its own, and by PostgreSQL.
    for path in ["/api/v1/market/selic/current", "/api/v1/filings/search?q=dividendos", "/api/v1/plans/usage"] {
        let mut stream = tokio::net::TcpStream::connect(replica.replica.address).await?;
        stream.write_all(&build_keyed_get(path, &key)).await?;
        stream.shutdown().await?;
        let mut answer = Vec::new();
        tokio::time::timeout(MAX_WAIT, stream.read_to_end(&mut answer)).await??;
        assert!(answer.starts_with(b"HTTP/1.1 200"), "{path}: {}", String::from_utf8_lossy(&answer));
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

/// Whether the other side closes before the clock shows this time. Anything it sends before that is ignored.
fn closes_before(mut stream: TcpStream, clock: QuietClock, at_most: Duration) -> bool {
    let mut answer = [0; 1024];
    loop {
        if stream.set_read_timeout(Some(POLL_INTERVAL)).is_err() {
            return true;
        }
        match stream.read(&mut answer) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                if clock.elapsed() >= at_most {
                    return false;
                }
            }
            Err(_) => return true,
        }
    }
}
