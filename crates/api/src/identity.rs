//! Whose request it is: the client's address and the key it shows.

use std::net::IpAddr;

use http::{HeaderMap, HeaderName, header};
use ipnet::IpNet;
use vintem_domain::ApiKey;

pub const X_API_KEY: HeaderName = HeaderName::from_static("x-api-key");
const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// What a request says of its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Credential {
    None,
    Key(ApiKey),
    /// Not the form of a key: refused without any look-up.
    Malformed,
    /// Two headers that contradict each other.
    Conflicting,
}

pub fn parse_credential(headers: &HeaderMap) -> Credential {
    let mut shown: Option<&[u8]> = None;
    for value in headers.get_all(X_API_KEY) {
        match shown {
            Some(other) if other != value.as_bytes() => return Credential::Conflicting,
            _ => shown = Some(value.as_bytes()),
        }
    }
    for value in headers.get_all(header::AUTHORIZATION) {
        // Another scheme than Bearer is a malformed key.
        let token = bearer_token(value.as_bytes()).unwrap_or(b"");
        match shown {
            Some(other) if other != token => return Credential::Conflicting,
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
    // Read from the right: what is further left was written by whoever stands before.
    for hop in parse_forwarded_hops(headers).into_iter().rev() {
        // What cannot be read ends the chain: the last one who is known stands for the rest.
        let Some(address) = hop else { return client };
        client = address.to_canonical();
        if !is_trusted(client) {
            return client;
        }
    }
    client
}

/// Whom each proxy says that it spoke to, in the order of the lines; none for what cannot be read. Where both headers are
/// there, `X-Forwarded-For` rules: nearly every proxy writes it, so `Forwarded` beside it is likely the client's own.
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

/// The parts between separators, trimmed. A separator within quotes is none: a proxy repeats there what the client said,
/// as in `host=`. None where a quote is left open, as then nobody knows what stands within quotes and what outside.
fn split_outside_quotes(text: &[u8], separator: u8) -> Option<Vec<&[u8]>> {
    let (mut parts, mut begin) = (Vec::new(), 0);
    let (mut is_quoted, mut is_escaped) = (false, false);
    for (at, byte) in text.iter().copied().enumerate() {
        if is_escaped {
            is_escaped = false;
        } else if is_quoted && byte == b'\\' {
            is_escaped = true;
        } else if byte == b'"' {
            is_quoted = !is_quoted;
        } else if !is_quoted && byte == separator {
            parts.push(text[begin..at].trim_ascii());
            begin = at + 1;
        }
    }
    parts.push(text[begin..].trim_ascii());
    (!is_quoted).then_some(parts)
}

/// `for=` of one element of the `Forwarded` header; none where there is not exactly one.
fn parse_forwarded_for(element: &[u8]) -> Option<IpAddr> {
    let is_for = |pair: &&[u8]| pair.get(..4).is_some_and(|name| name.eq_ignore_ascii_case(b"for="));
    let mut found = split_outside_quotes(element, b';')?.into_iter().filter(is_for);
    let (pair, None) = (found.next()?, found.next()) else { return None };
    let value = &pair[4..];
    let bare = value.strip_prefix(b"\"").map_or(Some(value), |rest| rest.strip_suffix(b"\""))?;
    parse_hop_address(bare)
}

/// An address with or without port; IPv6 in brackets where it has one.
fn parse_hop_address(text: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(text).ok()?;
    if let Some((address, port)) = text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        let is_whole = port.is_empty() || port.strip_prefix(':').is_some_and(is_port);
        return is_whole.then(|| address.parse().ok().map(IpAddr::V6)).flatten();
    }
    let with_port = || {
        let (address, port) = text.split_once(':')?;
        is_port(port).then(|| address.parse().ok().map(IpAddr::V4)).flatten()
    };
    text.parse().ok().or_else(with_port)
}

/// A number, or a name that a proxy makes up for one (`_` and what follows).
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
        let (shown, bearer) = (key.reveal(), format!("Bearer {}", key.reveal()));
        let other = ApiKey::generate(|| 8);
        let table: [(&[(&'static str, &str)], Credential); 12] = [
            (&[], Credential::None),
            (&[("x-api-key", shown)], Credential::Key(key.clone())),
            (&[("authorization", &bearer)], Credential::Key(key.clone())),
            (&[("authorization", &bearer.replace("Bearer", "bearer"))], Credential::Key(key.clone())),
            (&[("x-api-key", shown), ("authorization", &bearer)], Credential::Key(key.clone())),
            (&[("x-api-key", shown), ("x-api-key", shown)], Credential::Key(key.clone())),
            (&[("x-api-key", other.reveal()), ("authorization", &bearer)], Credential::Conflicting),
            (&[("x-api-key", shown), ("x-api-key", "other")], Credential::Conflicting),
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
        let said = header_map(&[("x-forwarded-for", "198.51.100.1"), ("forwarded", "for=198.51.100.1")]);
        assert_eq!(client_address(peer, &said, &[]), peer);
    }

    /// What the peer 10.0.0.1, a trusted proxy, says of the client.
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
            // Those who are trusted are passed over, from the right; if there is nobody else, the first of them it is.
            (&[(XFF, "198.51.100.1, 10.0.0.2")], "198.51.100.1"),
            (&[(XFF, "1.1.1.1, 198.51.100.1, 2001:db8::2, 10.0.0.2")], "198.51.100.1"),
            (&[(XFF, "10.0.0.3, 10.0.0.2")], "10.0.0.3"),
            // Several lines are one list.
            (&[(XFF, "1.1.1.1"), (XFF, "198.51.100.1")], "198.51.100.1"),
            (&[(XFF, "1.1.1.1, 198.51.100.1"), (XFF, "10.0.0.2")], "198.51.100.1"),
            // Empty elements say nothing.
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
            // IPv4 in the clothes of IPv6 is IPv4, also where it is a trusted proxy's.
            (&[(XFF, "::ffff:198.51.100.1")], "198.51.100.1"),
            (&[(XFF, "198.51.100.1, ::ffff:10.0.0.2")], "198.51.100.1"),
            // Garbage ends the chain, and what is left of a known client matters to nobody.
            (&[(XFF, "198.51.100.1, garbage")], "10.0.0.1"),
            (&[(XFF, "198.51.100.1, garbage, 10.0.0.2")], "10.0.0.2"),
            (&[(XFF, "198.51.100.1 10.0.0.2")], "10.0.0.1"),
            (&[(XFF, "010.0.0.9")], "10.0.0.1"),
            (&[(XFF, "garbage, é, 203.0.113.5")], "203.0.113.5"),
            // Where both are there the one rules that proxies write.
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
            // Empty elements and pairs say nothing.
            (&["for=198.51.100.1,, ,"], "198.51.100.1"),
            (&[";for=198.51.100.1;"], "198.51.100.1"),
            (&[""], "10.0.0.1"),
            // Who does not want to be known, and what is no address, ends the chain.
            (&["for=unknown"], "10.0.0.1"),
            (&["for=198.51.100.1, for=unknown, for=10.0.0.2"], "10.0.0.2"),
            (&["for=_hidden"], "10.0.0.1"),
            (&["for=\"_gazonk\""], "10.0.0.1"),
            (&["for=198.51.100.1, proto=https"], "10.0.0.1"),
            (&["for = 198.51.100.1"], "10.0.0.1"),
            (&["for=9.9.9.9;for=8.8.8.8"], "10.0.0.1"),
            // What a client said and a proxy repeats within quotes is no element and no pair.
            (&["for=198.51.100.1;host=\"a,for=9.9.9.9\""], "198.51.100.1"),
            (&["host=\"a;for=9.9.9.9\";for=198.51.100.1"], "198.51.100.1"),
            (&["host=\"a\\\";for=9.9.9.9\";for=198.51.100.1"], "198.51.100.1"),
            // A quote that a client left open makes a proxy's word unreadable, never its own word true.
            (&["for=9.9.9.9;host=\", for=\"[2001:db9::1]\""], "10.0.0.1"),
            (&["for=9.9.9.9;host=\"", "for=198.51.100.1"], "198.51.100.1"),
        ];
        for (lines, expected) in table {
            let pairs: Vec<_> = lines.iter().map(|line| ("forwarded", *line)).collect();
            assert_eq!(client_behind_trusted_proxy(&pairs), expected.parse::<IpAddr>().unwrap(), "{lines:?}");
        }
    }
}
