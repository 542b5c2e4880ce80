//! The identity of a caller without a key: the peer address of its connection, or the address given by a trusted proxy.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use vintem_testkit::timed_requests::run_concurrently;
use vintem_testkit::{
    DedicatedRedis, ServerProcess, TestDatabase, TestReplica, TestReplicaOptions, http_client_builder, parse_env_var,
};

use crate::{TestResult, friday, vintem_binary};

const SELIC_PATH: &str = "/api/v1/market/selic/current";
/// Longer than any test runs, so that the counts are exact.
const LONG_WINDOW_FLAG: &str = "--limit-window-seconds=3600";

fn random_address() -> IpAddr {
    if rand::random() { Ipv4Addr::from_bits(rand::random()).into() } else { Ipv6Addr::from_bits(rand::random()).into() }
}

/// Adds some of the headers by which a client may pretend to have another address.
fn with_forged_address_headers(mut request: reqwest::RequestBuilder) -> reqwest::RequestBuilder {
    let address = random_address();
    let bracketed = if address.is_ipv6() { format!("\"[{address}]:4711\"") } else { address.to_string() };

    let headers = [
        ("X-Forwarded-For", format!("{address}, {}", random_address())),
        ("X-Forwarded-For", address.to_string()),
        ("Forwarded", format!("for={bracketed};proto=https")),
        ("X-Real-IP", address.to_string()),
        ("CF-Connecting-IP", address.to_string()),
        ("True-Client-IP", address.to_string()),
    ];
    for (name, value) in headers {
        if rand::random() {
            request = request.header(name, value);
        }
    }

    request
}

async fn count_admitted(count: usize, request: impl Fn(usize) -> reqwest::RequestBuilder) -> anyhow::Result<usize> {
    let statuses = run_concurrently(count, 16, |index| {
        let request = request(index);
        async move { Ok(request.send().await?.status().as_u16()) }
    })
    .await?;

    let unexpected = statuses.iter().find(|status| ![200, 429].contains(*status));
    anyhow::ensure!(unexpected.is_none(), "one was answered by {unexpected:?}");
    Ok(statuses.iter().filter(|status| **status == 200).count())
}

#[tokio::test(flavor = "multi_thread")]
async fn forged_address_headers_do_not_make_another_caller() -> TestResult {
    let count = parse_env_var("VINTEM_FORGED").unwrap_or(3_000);
    let database = TestDatabase::create_demo(friday()).await?;
    let options = TestReplicaOptions { flags: &[LONG_WINDOW_FLAG], redis_prefix: None };
    let replica = TestReplica::start_with_options(&database, friday(), options).await?;

    let admitted =
        count_admitted(count, |_| with_forged_address_headers(replica.http.get(replica.url(SELIC_PATH)))).await?;

    println!("forged: {count}");
    println!("admitted: {admitted}");
    assert_eq!(admitted, 30);

    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn all_addresses_of_an_ipv6_subscriber_network_are_one_caller() -> TestResult {
    let database = TestDatabase::create_demo(friday()).await?;
    let options =
        TestReplicaOptions { flags: &[LONG_WINDOW_FLAG, "--trusted-proxies=127.0.0.0/8"], redis_prefix: None };
    let replica = TestReplica::start_with_options(&database, friday(), options).await?;

    let network = 0x2001_0db8_0001_0002_u128 << 64;
    let requests_from = |network: u128| {
        let replica = &replica;
        move |_| {
            let address = Ipv6Addr::from_bits(network | u128::from(rand::random::<u64>()));
            // In every spelling that proxies use.
            let (name, value) = match rand::random_range(0..4) {
                0 => ("X-Forwarded-For", format!("{}, {address}", random_address())),
                1 => ("X-Forwarded-For", format!("[{address}]:{}", rand::random::<u16>())),
                2 => ("Forwarded", format!("for=\"[{address}]\"")),
                _ => ("Forwarded", format!("for={};by=unknown, For=\"[{address}]:4711\"", Ipv4Addr::LOCALHOST)),
            };
            replica.http.get(replica.url(SELIC_PATH)).header(name, value)
        }
    };

    assert_eq!(count_admitted(1_000, requests_from(network)).await?, 30);
    assert_eq!(count_admitted(40, requests_from(network + (1 << 64))).await?, 30, "the neighbour is another caller");

    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ipv4_address_is_one_caller_in_every_spelling() -> TestResult {
    let database = TestDatabase::create_demo(friday()).await?;
    let options =
        TestReplicaOptions { flags: &[LONG_WINDOW_FLAG, "--trusted-proxies=127.0.0.0/8"], redis_prefix: None };
    let replica = TestReplica::start_with_options(&database, friday(), options).await?;

    let spellings = [
        ("X-Forwarded-For", "1.2.3.4"),
        ("X-Forwarded-For", "::ffff:1.2.3.4"),
        ("X-Forwarded-For", "::FFFF:102:304"),
        ("X-Forwarded-For", "[::ffff:1.2.3.4]:80"),
        ("Forwarded", "for=1.2.3.4"),
        ("Forwarded", "for=\"[::ffff:1.2.3.4]\""),
    ];
    let request = |index: usize| {
        let (name, value) = spellings[index % spellings.len()];
        replica.http.get(replica.url(SELIC_PATH)).header(name, value)
    };

    assert_eq!(count_admitted(60, request).await?, 30);

    Ok(())
}

/// A dual-stack socket reports an IPv4 client by an IPv6 address.
#[tokio::test(flavor = "multi_thread")]
async fn an_ipv4_peer_is_one_caller_on_ipv4_and_dual_stack_sockets() -> TestResult {
    let redis = DedicatedRedis::start()?;
    let database = TestDatabase::create_demo(friday()).await?;

    let start = |listen| {
        ServerProcess::start(vintem_binary(), &database.url(), &redis.url(), &["--listen", listen, LONG_WINDOW_FLAG])
    };

    let dual_stack = start("[::]:0")?;
    let ipv4 = start("127.0.0.1:0")?;
    let port = dual_stack.address.rsplit(':').next().unwrap_or_default();
    let urls = [format!("http://127.0.0.1:{port}{SELIC_PATH}"), ipv4.url(SELIC_PATH)];

    for last_octet in [1, 2] {
        let http = http_client_builder().local_address(IpAddr::from([127, 0, 0, last_octet])).build()?;
        for index in 0..6 {
            let response = http.get(&urls[index % 2]).send().await?;
            let remaining = response.headers()["x-ratelimit-remaining"].to_str()?.to_owned();
            assert_eq!(remaining, (29 - index).to_string(), "127.0.0.{last_octet}, turn {index}");
        }
    }

    // Over IPv6 it is another caller.
    let response = http_client_builder().build()?.get(format!("http://[::1]:{port}{SELIC_PATH}")).send().await?;
    assert_eq!(response.headers()["x-ratelimit-remaining"], "29");

    Ok(())
}
