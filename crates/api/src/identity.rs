//! Finds out who sent a request: the client's address and its API key.

use std::net::IpAddr;

use http::{HeaderMap, HeaderName, header};
use ipnet::IpNet;
use vintem_domain::ApiKey;

pub const X_API_KEY: HeaderName = HeaderName::from_static("x-api-key");
const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// The API key in a request's headers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Credential {
    None,
    Key(ApiKey),
    /// Does not have the form of a key, so it is rejected without a lookup.
    Malformed,
    /// Two headers with different keys.
    Conflicting,
}

pub fn parse_credential(headers: &HeaderMap) -> Credential {
    let mut token: Option<&[u8]> = None;
    for value in headers.get_all(X_API_KEY) {
        match token {
            Some(other) if other != value.as_bytes() => return Credential::Conflicting,
            _ => token = Some(value.as_bytes()),
        }
    }
    for value in headers.get_all(header::AUTHORIZATION) {
        // Any scheme other than Bearer counts as a malformed key.
        let bearer = bearer_token(value.as_bytes()).unwrap_or(b"");
        match token {
            Some(other) if other != bearer => return Credential::Conflicting,
            _ => token = Some(bearer),
        }
    }

    let Some(token) = token else { return Credential::None };
    let key = std::str::from_utf8(token).ok().and_then(ApiKey::parse);
    key.map_or(Credential::Malformed, Credential::Key)
}

fn bearer_token(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| token.trim_ascii())
}

pub fn is_trusted_proxy(peer: IpAddr, trusted: &[IpNet]) -> bool {
    trusted.iter().any(|network| network.contains(&peer.to_canonical()))
}

/// The client's address: the peer's, or, behind trusted proxies, the rightmost address that is not a trusted proxy.
pub fn client_address(peer: IpAddr, headers: &HeaderMap, trusted: &[IpNet]) -> IpAddr {
    let is_trusted = |address| is_trusted_proxy(address, trusted);
    let mut client = peer.to_canonical();
    if !is_trusted(client) {
        return client;
    }

    // Read from the right: each proxy appends the address it saw, and anything further left may be forged.
    for hop in parse_forwarded_hops(headers).into_iter().rev() {
        // An unreadable hop ends the chain: the last known address counts as the client.
        let Some(address) = hop else { return client };
        client = address.to_canonical();
        if !is_trusted(client) {
            return client;
        }
    }
    client
}

/// The address that each proxy saw, in header order; `None` for an unreadable one. If both headers are present,
/// `X-Forwarded-For` wins: nearly every proxy writes it, so a `Forwarded` next to it probably comes from the client.
fn parse_forwarded_hops(headers: &HeaderMap) -> Vec<Option<IpAddr>> {
    let mut hops = Vec::new();
    if headers.contains_key(X_FORWARDED_FOR) {
        for line in headers.get_all(X_FORWARDED_FOR) {
            let elements = line.as_bytes().split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
            hops.extend(elements.filter(|element| !element.is_empty()).map(parse_hop_address));
        }
        return hops;
    }

    for line in headers.get_all(header::FORWARDED) {
        match split_outside_quotes(line.as_bytes(), b',') {
            Some(elements) => {
                hops.extend(elements.into_iter().filter(|element| !element.is_empty()).map(parse_forwarded_for));
            }
            None => hops.push(None),
        }
    }
    hops
}

/// Splits at separators and trims the parts. Separators inside quotes are ignored: proxies copy client input there, as
/// in `host=`. `None` if a quote is left open, because then nobody can tell which text is quoted.
fn split_outside_quotes(text: &[u8], separator: u8) -> Option<Vec<&[u8]>> {
    let mut parts = Vec::new();
    let mut start = 0;
    let mut is_quoted = false;
    let mut is_escaped = false;

    for (at, byte) in text.iter().copied().enumerate() {
        if is_escaped {
            is_escaped = false;
        } else if is_quoted && byte == b'\\' {
            is_escaped = true;
        } else if byte == b'"' {
            is_quoted = !is_quoted;
        } else if !is_quoted && byte == separator {
            parts.push(text[start..at].trim_ascii());
            start = at + 1;
        }
    }
    parts.push(text[start..].trim_ascii());

    (!is_quoted).then_some(parts)
}

/// The `for=` of one element of the `Forwarded` header; `None` unless there is exactly one.
fn parse_forwarded_for(element: &[u8]) -> Option<IpAddr> {
    let is_for = |pair: &&[u8]| pair.get(..4).is_some_and(|name| name.eq_ignore_ascii_case(b"for="));
    let mut for_pairs = split_outside_quotes(element, b';')?.into_iter().filter(is_for);
    let pair = for_pairs.next()?;
    if for_pairs.next().is_some() {
        return None;
    }

    let value = &pair[4..];
    let unquoted = value.strip_prefix(b"\"").map_or(Some(value), |rest| rest.strip_suffix(b"\""))?;
    parse_hop_address(unquoted)
}

/// An address with or without a port. An IPv6 address with a port needs brackets.
fn parse_hop_address(text: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(text).ok()?;
    if let Some((address, port)) = text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        let is_valid = port.is_empty() || port.strip_prefix(':').is_some_and(is_port);
        return is_valid.then(|| address.parse().ok().map(IpAddr::V6)).flatten();
    }

    let with_port = || {
        let (address, port) = text.split_once(':')?;
        is_port(port).then(|| address.parse().ok().map(IpAddr::V4)).flatten()
    };
    text.parse().ok().or_else(with_port)
}

/// A port number, or an obfuscated port: `_` and a name that the proxy chose (RFC 7239).
fn is_port(text: &str) -> bool {
    let is_name = |name: &str| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte));
    text.strip_prefix('_').map_or_else(|| text.parse::<u16>().is_ok(), |name| !name.is_empty() && is_name(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn header_map(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, HeaderValue::from_str(value).unwrap());
        }
        headers
    }

    #[test]
    fn key_may_be_in_either_header_but_must_not_conflict() {
        let key = ApiKey::generate(|| 7);
        let token = key.reveal();
        let bearer = format!("Bearer {}", key.reveal());
        let other = ApiKey::generate(|| 8);

        let table: [(&[(&'static str, &str)], Credential); 12] = [
            (&[], Credential::None),
            (&[("x-api-key", token)], Credential::Key(key.clone())),
            (&[("authorization", &bearer)], Credential::Key(key.clone())),
            (&[("authorization", &bearer.replace("Bearer", "bearer"))], Credential::Key(key.clone())),
            (&[("x-api-key", token), ("authorization", &bearer)], Credential::Key(key.clone())),
            (&[("x-api-key", token), ("x-api-key", token)], Credential::Key(key.clone())),
            (&[("x-api-key", other.reveal()), ("authorization", &bearer)], Credential::Conflicting),
            (&[("x-api-key", token), ("x-api-key", "other")], Credential::Conflicting),
            (&[("x-api-key", "")], Credential::Malformed),
            (&[("authorization", "Basic dXNlcjpwYXNz")], Credential::Malformed),
            (&[("authorization", "Bearer")], Credential::Malformed),
            (&[("x-api-key", "hello")], Credential::Malformed),
        ];
        for (pairs, expected) in table {
            assert_eq!(parse_credential(&header_map(pairs)), expected, "{pairs:?}");
        }
    }

    #[test]
    fn untrusted_peers_cannot_set_their_address() {
        let peer: IpAddr = "203.0.113.7".parse().unwrap();
        let headers = header_map(&[("x-forwarded-for", "198.51.100.1"), ("forwarded", "for=198.51.100.1")]);
        assert_eq!(client_address(peer, &headers, &[]), peer);
    }

    /// The client's address if 10.0.0.1, a trusted proxy, sends these headers.
    fn client_behind_trusted_proxy(pairs: &[(&'static str, &str)]) -> IpAddr {
        let trusted: Vec<IpNet> = vec!["10.0.0.0/8".parse().unwrap(), "2001:db8::/32".parse().unwrap()];
        client_address("10.0.0.1".parse().unwrap(), &header_map(pairs), &trusted)
    }

    #[test]
    fn rightmost_untrusted_hop_is_the_client() {
        const XFF: &str = "x-forwarded-for";
        let table: [(&[(&'static str, &str)], &str); 30] = [
            (&[], "10.0.0.1"),
            (&[(XFF, "198.51.100.1")], "198.51.100.1"),
            (&[(XFF, "1.1.1.1, 198.51.100.1")], "198.51.100.1"),
            (&[(XFF, "1.1.1.1,198.51.100.1")], "198.51.100.1"),
            (&[(XFF, " \t1.1.1.1 ,\t198.51.100.1 ")], "198.51.100.1"),
            // Trusted hops are skipped from the right; if all are trusted, the leftmost is the client.
            (&[(XFF, "198.51.100.1, 10.0.0.2")], "198.51.100.1"),
            (&[(XFF, "1.1.1.1, 198.51.100.1, 2001:db8::2, 10.0.0.2")], "198.51.100.1"),
            (&[(XFF, "10.0.0.3, 10.0.0.2")], "10.0.0.3"),
            // Several header lines form one list.
            (&[(XFF, "1.1.1.1"), (XFF, "198.51.100.1")], "198.51.100.1"),
            (&[(XFF, "1.1.1.1, 198.51.100.1"), (XFF, "10.0.0.2")], "198.51.100.1"),
            // Empty elements are ignored.
            (&[(XFF, "")], "10.0.0.1"),
            (&[(XFF, ", ,")], "10.0.0.1"),
            (&[(XFF, "198.51.100.1, ")], "198.51.100.1"),
            (&[(XFF, "198.51.100.1"), (XFF, "")], "198.51.100.1"),
            // Ports and brackets.
            (&[(XFF, "198.51.100.1:4711")], "198.51.100.1"),
            (&[(XFF, "[2001:db9::1]:4711")], "2001:db9::1"),
            (&[(XFF, "[2001:db9::1]")], "2001:db9::1"),
            (&[(XFF, "2001:DB9::1")], "2001:db9::1"),
            (&[(XFF, "198.51.100.1:99999")], "10.0.0.1"),
            (&[(XFF, "[198.51.100.1]")], "10.0.0.1"),
            (&[(XFF, "[2001:db9::1")], "10.0.0.1"),
            // IPv4-mapped IPv6 counts as IPv4, also for trusted proxies.
            (&[(XFF, "::ffff:198.51.100.1")], "198.51.100.1"),
            (&[(XFF, "198.51.100.1, ::ffff:10.0.0.2")], "198.51.100.1"),
            // Garbage ends the chain, but garbage to the left of the client does not matter.
            (&[(XFF, "198.51.100.1, garbage")], "10.0.0.1"),
            (&[(XFF, "198.51.100.1, garbage, 10.0.0.2")], "10.0.0.2"),
            (&[(XFF, "198.51.100.1 10.0.0.2")], "10.0.0.1"),
            (&[(XFF, "010.0.0.9")], "10.0.0.1"),
            (&[(XFF, "garbage, é, 203.0.113.5")], "203.0.113.5"),
            // X-Forwarded-For wins over Forwarded, and no other header counts.
            (&[(XFF, "203.0.113.5"), ("forwarded", "for=9.9.9.9")], "203.0.113.5"),
            (&[("x-real-ip", "9.9.9.9"), ("cf-connecting-ip", "9.9.9.9")], "10.0.0.1"),
        ];
        for (pairs, expected) in table {
            assert_eq!(client_behind_trusted_proxy(pairs), expected.parse::<IpAddr>().unwrap(), "{pairs:?}");
        }
    }

    #[test]
    fn forwarded_header_is_parsed_as_its_rfc_says() {
        let table: [(&[&str], &str); 27] = [
            (&["for=198.51.100.1"], "198.51.100.1"),
            (&["FOR=198.51.100.1"], "198.51.100.1"),
            (&["for=1.1.1.1, for=198.51.100.1"], "198.51.100.1"),
            (&["for=1.1.1.1", "for=198.51.100.1, for=10.0.0.2"], "198.51.100.1"),
            (&["for=198.51.100.1;proto=https;by=203.0.113.43"], "198.51.100.1"),
            (&["proto=https; By=203.0.113.43 ;For=198.51.100.1"], "198.51.100.1"),
            (&["for=\"198.51.100.1\""], "198.51.100.1"),
            (&["for=\"198.51.100.1:4711\""], "198.51.100.1"),
            (&["for=\"198.51.100.1:_port-1\""], "198.51.100.1"),
            (&["for=1.1.1.1, for=\"[2001:db9::1]\";proto=https"], "2001:db9::1"),
            (&["for=\"[2001:DB9::1]:4711\""], "2001:db9::1"),
            (&["for=\"[::ffff:198.51.100.1]\""], "198.51.100.1"),
            // Empty elements and pairs are ignored.
            (&["for=198.51.100.1,, ,"], "198.51.100.1"),
            (&[";for=198.51.100.1;"], "198.51.100.1"),
            (&[""], "10.0.0.1"),
            // Hidden clients and anything that is not an address end the chain.
            (&["for=unknown"], "10.0.0.1"),
            (&["for=198.51.100.1, for=unknown, for=10.0.0.2"], "10.0.0.2"),
            (&["for=_hidden"], "10.0.0.1"),
            (&["for=\"_gazonk\""], "10.0.0.1"),
            (&["for=198.51.100.1, proto=https"], "10.0.0.1"),
            (&["for = 198.51.100.1"], "10.0.0.1"),
            (&["for=9.9.9.9;for=8.8.8.8"], "10.0.0.1"),
            // Quoted client input is neither an element nor a pair.
            (&["for=198.51.100.1;host=\"a,for=9.9.9.9\""], "198.51.100.1"),
            (&["host=\"a;for=9.9.9.9\";for=198.51.100.1"], "198.51.100.1"),
            (&["host=\"a\\\";for=9.9.9.9\";for=198.51.100.1"], "198.51.100.1"),
            // A quote left open by a client can make the proxy's address unreadable, but never makes a forged one
            // valid.
            (&["for=9.9.9.9;host=\", for=\"[2001:db9::1]\""], "10.0.0.1"),
            (&["for=9.9.9.9;host=\"", "for=198.51.100.1"], "198.51.100.1"),
        ];
        for (lines, expected) in table {
            let pairs: Vec<_> = lines.iter().map(|line| ("forwarded", *line)).collect();
            assert_eq!(client_behind_trusted_proxy(&pairs), expected.parse::<IpAddr>().unwrap(), "{lines:?}");
        }
    }
}
