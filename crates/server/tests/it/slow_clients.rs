//! Clients that open connections and do not use them.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use vintem_testkit::{OwnRedis, ServedProcess, TestDatabase};

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
