//! Webhook URLs: any accepted URL is https and does not point to a private address.
#![no_main]

use std::net::IpAddr;

use libfuzzer_sys::fuzz_target;
use vintem_deliver::webhook::AddressGuard;

fuzz_target!(|input: &[u8]| {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let Ok(url) = AddressGuard::default().parse_url(text) else { return };

    assert_eq!(url.scheme(), "https");
    assert!(url.username().is_empty() && url.password().is_none());
    let host = url.host_str().expect("a host").trim_start_matches('[').trim_end_matches(']');
    if let Ok(address) = host.parse::<IpAddr>() {
        let is_private = match address {
            IpAddr::V4(v4) => v4.is_loopback() || v4.is_private() || v4.is_link_local() || v4.is_unspecified(),
            IpAddr::V6(v6) => v6.segments()[0] & 0xe000 != 0x2000,
        };
        assert!(!is_private, "{url}");
    }

    // Parsing the accepted URL again gives the same URL.
    assert_eq!(AddressGuard::default().parse_url(url.as_str()).expect("taken before"), url);
});
