//! The client address behind proxies: whatever headers a client sends, the entry that a trusted proxy appends on the right
//! wins.
#![no_main]

use std::net::IpAddr;

use http::{HeaderMap, HeaderValue, header};
use libfuzzer_sys::fuzz_target;
use vintem_api::client_address;

const PROXY_IP: &str = "10.0.0.1";
const CLIENT_IP: &str = "198.51.100.1";

fuzz_target!(|input: &[u8]| {
    let address = |text: &str| text.parse::<IpAddr>().expect("an address");
    let proxy = address(PROXY_IP);
    let client = address(CLIENT_IP);
    let trusted = ["10.0.0.0/8".parse().expect("a network")];
    let lines: Vec<HeaderValue> =
        input.split(|byte| *byte == b'\n').take(8).filter_map(|line| HeaderValue::from_bytes(line).ok()).collect();

    for name in ["x-forwarded-for".parse().expect("a name"), header::FORWARDED] {
        let mut headers = HeaderMap::new();
        for line in &lines {
            headers.append(&name, line.clone());
        }

        // Headers from an untrusted peer are ignored. If the proxy appends nothing, the client controls the whole header,
        // but the result is still a canonical address.
        assert_eq!(client_address(client, &headers, &trusted), client);
        let claimed = client_address(proxy, &headers, &trusted);
        assert_eq!(claimed, claimed.to_canonical());

        let is_forwarded = name == header::FORWARDED;
        let spellings: &[&str] = if is_forwarded {
            &["for=198.51.100.1", "For=\"198.51.100.1:80\";host=\"a,b\"", "for=\"[::ffff:198.51.100.1]\";proto=https"]
        } else {
            &["198.51.100.1", "198.51.100.1:80", "::ffff:198.51.100.1"]
        };
        for spelling in spellings {
            // Some proxies append a header line of their own. Earlier lines cannot affect it.
            let mut own_line = headers.clone();
            own_line.append(&name, HeaderValue::from_static(spelling));
            assert_eq!(client_address(proxy, &own_line, &trusted), client);

            // In the same line, an open quote may make the entry unreadable. Then the result is the proxy itself, never a
            // third address.
            let mut same_line = headers.clone();
            let last = lines.last().map(HeaderValue::as_bytes).unwrap_or_default();
            let joined = [last, b", ", spelling.as_bytes()].concat();
            let Ok(joined) = HeaderValue::from_bytes(&joined) else { continue };
            same_line.append(&name, joined);
            let found = client_address(proxy, &same_line, &trusted);
            assert!(found == client || (is_forwarded && found == proxy), "{found}");
        }
    }
});
