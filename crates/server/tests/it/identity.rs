//! Who a caller without a key is: the other end of its connection, or whom a trusted proxy names.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use vintem_testkit::pace::together;
use vintem_testkit::{OwnRedis, ServedProcess, TestDatabase, TestReplica, TestReplicaOptions, asked_for, http_client};

use crate::{Outcome, binary, friday};

const SELIC: &str = "/api/v1/market/selic/current";
/// So long that none ends while a test runs: the counts are exact.
const LONG_WINDOW: &str = "--limit-window-seconds=3600";

fn random_address() -> IpAddr {
    if rand::random() { Ipv4Addr::from_bits(rand::random()).into() } else { Ipv6Addr::from_bits(rand::random()).into() }
}

/// What a client may put into a request to pass for somebody else.
fn forged(mut request: reqwest::RequestBuilder) -> reqwest::RequestBuilder {
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

async fn admitted(count: usize, request: impl Fn(usize) -> reqwest::RequestBuilder) -> anyhow::Result<usize> {
    let statuses = together(count, 16, |turn| {
        let request = request(turn);
        async move { Ok(request.send().await?.status().as_u16()) }
    })
    .await?;
    let other = statuses.iter().find(|status| ![200, 429].contains(*status));
    anyhow::ensure!(other.is_none(), "one was answered by {other:?}");
    Ok(statuses.iter().filter(|status| **status == 200).count())
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_a_stranger_says_of_its_address_it_is_one_caller() -> Outcome {
    let count = asked_for("VINTEM_FORGED").unwrap_or(3_000);
    let database = TestDatabase::demo(friday()).await?;
    let options = TestReplicaOptions { flags: &[LONG_WINDOW], redis_prefix: None };
    let replica = TestReplica::start_with(&database, friday(), options).await?;
    let admitted = admitted(count, |_| forged(replica.http.get(replica.url(SELIC)))).await?;
    println!("forged: {count}");
    println!("admitted: {admitted}");
    assert_eq!(admitted, 30);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_addresses_of_one_subscribers_network_are_one_caller() -> Outcome {
    let database = TestDatabase::demo(friday()).await?;
    let options = TestReplicaOptions { flags: &[LONG_WINDOW, "--trusted-proxies=127.0.0.0/8"], redis_prefix: None };
    let replica = TestReplica::start_with(&database, friday(), options).await?;
    let network = 0x2001_0db8_0001_0002_u128 << 64;
    let of = |network: u128| {
        let replica = &replica;
        move |_| {
            let address = Ipv6Addr::from_bits(network | u128::from(rand::random::<u64>()));
            // In every spelling that proxies have for it.
            let (name, value) = match rand::random_range(0..4) {
                0 => ("X-Forwarded-For", format!("{}, {address}", random_address())),
                1 => ("X-Forwarded-For", format!("[{address}]:{}", rand::random::<u16>())),
                2 => ("Forwarded", format!("for=\"[{address}]\"")),
                _ => ("Forwarded", format!("for={};by=unknown, For=\"[{address}]:4711\"", Ipv4Addr::LOCALHOST)),
            };
            replica.http.get(replica.url(SELIC)).header(name, value)
        }
    };
    assert_eq!(admitted(1_000, of(network)).await?, 30);
    assert_eq!(admitted(40, of(network + (1 << 64))).await?, 30, "the neighbour is another caller");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ipv4_address_is_one_caller_in_every_spelling() -> Outcome {
    let database = TestDatabase::demo(friday()).await?;
    let options = TestReplicaOptions { flags: &[LONG_WINDOW, "--trusted-proxies=127.0.0.0/8"], redis_prefix: None };
    let replica = TestReplica::start_with(&database, friday(), options).await?;
    let spellings = [
        ("X-Forwarded-For", "1.2.3.4"),
        ("X-Forwarded-For", "::ffff:1.2.3.4"),
        ("X-Forwarded-For", "::FFFF:102:304"),
        ("X-Forwarded-For", "[::ffff:1.2.3.4]:80"),
        ("Forwarded", "for=1.2.3.4"),
        ("Forwarded", "for=\"[::ffff:1.2.3.4]\""),
    ];
    let request = |turn: usize| {
        let (name, value) = spellings[turn % spellings.len()];
        replica.http.get(replica.url(SELIC)).header(name, value)
    };
    assert_eq!(admitted(60, request).await?, 30);
    Ok(())
}

/// A socket for both families names an IPv4 client by an IPv6 address.
#[tokio::test(flavor = "multi_thread")]
async fn a_peer_is_the_same_caller_whichever_family_the_socket_has_and_its_neighbour_another() -> Outcome {
    let (redis, database) = (OwnRedis::start()?, TestDatabase::demo(friday()).await?);
    let start =
        |listen| ServedProcess::start(binary(), &database.url(), &redis.url(), &["--listen", listen, LONG_WINDOW]);
    let (both, ipv4) = (start("[::]:0")?, start("127.0.0.1:0")?);
    let port = both.address.rsplit(':').next().unwrap_or_default();
    let urls = [format!("http://127.0.0.1:{port}{SELIC}"), ipv4.url(SELIC)];
    for last_octet in [1, 2] {
        let http = http_client().local_address(IpAddr::from([127, 0, 0, last_octet])).build()?;
        for turn in 0..6 {
            let answer = http.get(&urls[turn % 2]).send().await?;
            let remaining = answer.headers()["x-ratelimit-remaining"].to_str()?.to_owned();
            assert_eq!(remaining, (29 - turn).to_string(), "127.0.0.{last_octet}, turn {turn}");
        }
    }
    // And over IPv6 itself it is nobody of these.
    let answer = http_client().build()?.get(format!("http://[::1]:{port}{SELIC}")).send().await?;
    assert_eq!(answer.headers()["x-ratelimit-remaining"], "29");
    Ok(())
}
