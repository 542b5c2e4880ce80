//! Clients that open connections and do not use them.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use vintem_domain::Plan;
use vintem_testkit::load::keyed_get;
use vintem_testkit::{OwnRedis, ServedProcess, TestDatabase, TestReplica};

use crate::{Outcome, binary, friday};

const EACH: usize = 200;
const AT_MOST: Duration = Duration::from_secs(10);

#[tokio::test(flavor = "multi_thread")]
async fn half_sent_and_silent_connections_are_closed_and_sigterm_ends_the_process_in_ten_seconds() -> Outcome {
    let (redis, database) = (OwnRedis::start()?, TestDatabase::demo(friday()).await?);
    let mut process = ServedProcess::start(binary(), &database.url(), &redis.url(), &[])?;

    let (silent, half_sent) = (open(&process, b"")?, open(&process, b"GET /health HTTP/1.1\r\nHost: a\r\nX-Half")?);
    let opened = Instant::now();
    for connection in silent.into_iter().chain(half_sent) {
        let left = AT_MOST.saturating_sub(opened.elapsed());
        assert!(is_closed(connection, left), "still open after {:?}", opened.elapsed());
    }
    println!("closed_after_seconds: {:.1}", opened.elapsed().as_secs_f64());

    // And with as many open again, the process ends in time all the same.
    let held = (open(&process, b"")?, open(&process, b"GET /health HTTP/1.1\r\nHost: a\r\nX-Half")?);
    let terminated = Instant::now();
    process.terminate()?;
    let status = process.wait(AT_MOST)?;
    println!("ended_after_seconds: {:.1}", terminated.elapsed().as_secs_f64());
    drop(held);
    assert!(status.is_some_and(|status| status.success()), "{status:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn who_closes_its_side_after_the_request_is_answered_all_the_same() -> Outcome {
    let database = TestDatabase::demo(friday()).await?;
    let replica = TestReplica::start_roomy(&database, friday()).await?;
    let key = replica.create_key(Plan::Gold).await?.1;
    // From memory, by a search in a thread of its own, and by PostgreSQL.
    for path in ["/api/v1/market/selic/current", "/api/v1/filings/search?q=dividendos", "/api/v1/plans/usage"] {
        let mut stream = tokio::net::TcpStream::connect(replica.replica.address).await?;
        stream.write_all(&keyed_get(path, &key)).await?;
        stream.shutdown().await?;
        let mut answer = Vec::new();
        tokio::time::timeout(AT_MOST, stream.read_to_end(&mut answer)).await??;
        assert!(answer.starts_with(b"HTTP/1.1 200"), "{path}: {}", String::from_utf8_lossy(&answer));
    }
    Ok(())
}

fn open(process: &ServedProcess, sent: &[u8]) -> anyhow::Result<Vec<TcpStream>> {
    let connect = || -> anyhow::Result<TcpStream> {
        let mut stream = TcpStream::connect(&process.address)?;
        stream.write_all(sent)?;
        Ok(stream)
    };
    (0..EACH).map(|_| connect()).collect()
}

/// Whether the other side closes within this time; what it says before does not matter.
fn is_closed(mut stream: TcpStream, within: Duration) -> bool {
    let began = Instant::now();
    let mut answer = [0; 1024];
    loop {
        let left = within.saturating_sub(began.elapsed()).max(Duration::from_millis(1));
        if stream.set_read_timeout(Some(left)).is_err() {
            return true;
        }
        match stream.read(&mut answer) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => {
                return !matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut);
            }
        }
    }
}
