//! Whose request it is: the client's address and the key it shows.

use std::net::{IpAddr, SocketAddr};

use http::{HeaderMap, HeaderName, header};
use ipnet::IpNet;
use vintem_domain::ApiKey;

pub const X_API_KEY: HeaderName = HeaderName::from_static("x-api-key");
const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// The other end of the connection, put into the request by who accepted it.
#[derive(Debug, Clone, Copy)]
pub struct PeerAddress(pub IpAddr);

/// What a request says of its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Credential {
    None,
    Key(ApiKey),
    /// Not the form of a key: refused without any look-up.
    Malformed,
    /// Two headers that contradict each other.
    Contradictory,
}

pub fn credential(headers: &HeaderMap) -> Credential {
    let mut shown: Option<&[u8]> = None;
    for value in headers.get_all(X_API_KEY) {
        match shown {
            Some(other) if other != value.as_bytes() => return Credential::Contradictory,
            _ => shown = Some(value.as_bytes()),
        }
    }
    for value in headers.get_all(header::AUTHORIZATION) {
        // Another scheme than Bearer is a malformed key.
        let token = bearer_token(value.as_bytes()).unwrap_or(b"");
        match shown {
            Some(other) if other != token => return Credential::Contradictory,
            _ => shown = Some(token),
        }
    }
    let Some(shown) = shown else { return Credential::None };
    let key = std::str::from_utf8(shown).ok().and_then(ApiKey::parse);
    key.map_or(Credential::Malformed, Credential::Key)
}

fn bearer_token(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| token.trim_ascii())
}

/// The client's address: the peer's, or, behind trusted proxies, the right-most address that is none of theirs.
pub fn client_address(peer: IpAddr, headers: &HeaderMap, trusted: &[IpNet]) -> IpAddr {
    let is_trusted = |address: IpAddr| trusted.iter().any(|network| network.contains(&address));
    let mut client = peer.to_canonical();
    if !is_trusted(client) {
        return client;
    }
    let (name, read): (_, fn(&str) -> Option<IpAddr>) = if headers.contains_key(X_FORWARDED_FOR) {
        (X_FORWARDED_FOR, parse_hop)
    } else {
        (header::FORWARDED, forwarded_for)
    };
    let lines = headers.get_all(name);
    let hops: Vec<&[u8]> = lines.iter().flat_map(|line| line.as_bytes().split(|byte| *byte == b',')).collect();
    // Read from the right: what is further left was written by whoever stands before.
    for hop in hops.into_iter().rev() {
        let hop = std::str::from_utf8(hop).ok().and_then(read);
        // What cannot be read ends the chain: the last one who is known stands for the rest.
        let Some(address) = hop else { return client };
        client = address.to_canonical();
        if !is_trusted(client) {
            return client;
        }
    }
    client
}

/// `for=` of one element of the `Forwarded` header.
fn forwarded_for(element: &str) -> Option<IpAddr> {
    let pair = element
        .split(';')
        .map(str::trim)
        .find(|pair| pair.get(..4).is_some_and(|name| name.eq_ignore_ascii_case("for=")))?;
    parse_hop(pair[4..].trim_matches('"'))
}

/// An address with or without port and brackets.
fn parse_hop(text: &str) -> Option<IpAddr> {
    let text = text.trim();
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    bare.parse().ok().or_else(|| text.parse::<SocketAddr>().ok().map(|socket| socket.ip()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, HeaderValue::from_str(value).unwrap());
        }
        headers
    }

    #[test]
    fn one_key_in_either_header_or_in_both() {
        let key = ApiKey::generate(|| 7);
        let (shown, bearer) = (key.reveal(), format!("Bearer {}", key.reveal()));
        let other = ApiKey::generate(|| 8);
        let table: [(&[(&'static str, &str)], Credential); 12] = [
            (&[], Credential::None),
            (&[("x-api-key", shown)], Credential::Key(key.clone())),
            (&[("authorization", &bearer)], Credential::Key(key.clone())),
            (&[("authorization", &bearer.replace("Bearer", "bearer"))], Credential::Key(key.clone())),
            (&[("x-api-key", shown), ("authorization", &bearer)], Credential::Key(key.clone())),
            (&[("x-api-key", shown), ("x-api-key", shown)], Credential::Key(key.clone())),
            (&[("x-api-key", other.reveal()), ("authorization", &bearer)], Credential::Contradictory),
            (&[("x-api-key", shown), ("x-api-key", "other")], Credential::Contradictory),
            (&[("x-api-key", "")], Credential::Malformed),
            (&[("authorization", "Basic dXNlcjpwYXNz")], Credential::Malformed),
            (&[("authorization", "Bearer")], Credential::Malformed),
            (&[("x-api-key", "hello")], Credential::Malformed),
        ];
        for (pairs, expected) in table {
            assert_eq!(credential(&headers(pairs)), expected, "{pairs:?}");
        }
    }

    #[test]
    fn a_strangers_word_on_its_address_counts_for_nothing() {
        let peer: IpAddr = "203.0.113.7".parse().unwrap();
        let said = headers(&[("x-forwarded-for", "198.51.100.1"), ("forwarded", "for=198.51.100.1")]);
        assert_eq!(client_address(peer, &said, &[]), peer);
    }

    #[test]
    fn behind_trusted_proxies_the_right_most_stranger_is_the_client() {
        let trusted: Vec<IpNet> = vec!["10.0.0.0/8".parse().unwrap(), "2001:db8::/32".parse().unwrap()];
        let table: [(&[(&'static str, &str)], &str); 14] = [
            (&[], "10.0.0.1"),
            (&[("x-forwarded-for", "198.51.100.1")], "198.51.100.1"),
            (&[("x-forwarded-for", "1.1.1.1, 198.51.100.1")], "198.51.100.1"),
            (&[("x-forwarded-for", "198.51.100.1, 10.0.0.2")], "198.51.100.1"),
            (&[("x-forwarded-for", "1.1.1.1"), ("x-forwarded-for", "198.51.100.1")], "198.51.100.1"),
            (&[("x-forwarded-for", "198.51.100.1:4711")], "198.51.100.1"),
            (&[("x-forwarded-for", "[2001:db9::1]:4711")], "2001:db9::1"),
            (&[("x-forwarded-for", "::ffff:198.51.100.1")], "198.51.100.1"),
            (&[("x-forwarded-for", "198.51.100.1, garbage")], "10.0.0.1"),
            (&[("x-forwarded-for", "")], "10.0.0.1"),
            (&[("x-forwarded-for", "10.0.0.3, 10.0.0.2")], "10.0.0.3"),
            (&[("forwarded", "for=1.1.1.1, for=\"[2001:db9::1]\";proto=https")], "2001:db9::1"),
            (&[("forwarded", "for=unknown")], "10.0.0.1"),
            (&[("x-forwarded-for", "é, 203.0.113.5"), ("forwarded", "for=9.9.9.9")], "203.0.113.5"),
        ];
        for (pairs, expected) in table {
            let client = client_address("10.0.0.1".parse().unwrap(), &headers(pairs), &trusted);
            assert_eq!(client, expected.parse::<IpAddr>().unwrap(), "{pairs:?}");
        }
    }
}
