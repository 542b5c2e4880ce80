//! SSRF protection: a webhook may point to the public internet, never into the network that we run in.
//!
//! A URL is checked when its webhook is created and again on every connection, because DNS may have changed in between.
//! The client then connects to exactly the addresses that were checked.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use url::{Host, Url};

/// A host that takes longer to resolve counts as unresolved.
const DNS_TIMEOUT: Duration = Duration::from_secs(5);
pub const MAX_URL_LENGTH: usize = 2_000;

/// IPv4 networks that are not public: IANA's special-purpose registry, and Azure's platform address.
const NON_PUBLIC_V4_NETWORKS: [Ipv4Net; 19] = [
    v4_network([0, 0, 0, 0], 8),
    v4_network([10, 0, 0, 0], 8),
    v4_network([100, 64, 0, 0], 10),
    v4_network([127, 0, 0, 0], 8),
    v4_network([168, 63, 129, 16], 32),
    v4_network([169, 254, 0, 0], 16),
    v4_network([172, 16, 0, 0], 12),
    v4_network([192, 0, 0, 0], 24),
    v4_network([192, 0, 2, 0], 24),
    v4_network([192, 31, 196, 0], 24),
    v4_network([192, 52, 193, 0], 24),
    v4_network([192, 88, 99, 0], 24),
    v4_network([192, 168, 0, 0], 16),
    v4_network([192, 175, 48, 0], 24),
    v4_network([198, 18, 0, 0], 15),
    v4_network([198, 51, 100, 0], 24),
    v4_network([203, 0, 113, 0], 24),
    v4_network([224, 0, 0, 0], 4),
    v4_network([240, 0, 0, 0], 4),
];

/// Public IPv6 addresses are allocated from this network only, …
const PUBLIC_V6_NETWORK: Ipv6Net = v6_network([0x2000, 0, 0], 3);
/// … except for protocol assignments (Teredo among them), documentation, 6to4, and the AS112 sink for DNS queries. The
/// other networks that embed an IPv4 address (mapped, NAT64) are outside [`PUBLIC_V6_NETWORK`].
const NON_PUBLIC_V6_NETWORKS: [Ipv6Net; 5] = [
    v6_network([0x2001, 0, 0], 23),
    v6_network([0x2001, 0x0db8, 0], 32),
    v6_network([0x2002, 0, 0], 16),
    v6_network([0x2620, 0x004f, 0x8000], 48),
    v6_network([0x3fff, 0, 0], 20),
];

const fn v4_network(octets: [u8; 4], prefix: u8) -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::new(octets[0], octets[1], octets[2], octets[3]), prefix)
}

const fn v6_network(first_segments: [u16; 3], prefix: u8) -> Ipv6Net {
    Ipv6Net::new_assert(Ipv6Addr::new(first_segments[0], first_segments[1], first_segments[2], 0, 0, 0, 0, 0), prefix)
}

/// Why a webhook URL is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    #[error("is not a URL of the form https://host/path, or is longer than 2000 characters")]
    InvalidUrl,
    #[error("contains a user name or password")]
    HasCredentials,
    #[error("uses a port below 1024 other than 443")]
    ForbiddenPort,
    #[error("is not a public address")]
    NotPublic,
    #[error("does not resolve")]
    UnresolvedHost,
}

/// Decides which addresses webhooks may connect to.
#[derive(Debug, Clone, Default)]
pub struct AddressGuard {
    /// Allowed by the operator even if not public, also without encryption.
    allowed_networks: Vec<IpNet>,
}

impl AddressGuard {
    pub fn new(allowed_networks: Vec<IpNet>) -> Self {
        Self { allowed_networks }
    }

    /// Parses a URL and checks everything that needs no DNS lookup.
    pub fn parse_url(&self, text: &str) -> Result<Url, AddressError> {
        if text.len() > MAX_URL_LENGTH || text.chars().any(|character| character.is_control() || character == ' ') {
            return Err(AddressError::InvalidUrl);
        }

        let url = Url::parse(text).map_err(|_| AddressError::InvalidUrl)?;
        let is_http_url = ["https", "http"].contains(&url.scheme()) && url.host().is_some();
        // The normalized URL is what we store and parse again for each attempt. It may be longer than the input.
        if !is_http_url || url.as_str().len() > MAX_URL_LENGTH {
            return Err(AddressError::InvalidUrl);
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(AddressError::HasCredentials);
        }

        let port = url.port_or_known_default().ok_or(AddressError::InvalidUrl)?;
        match literal_ip(&url) {
            Some(address) if self.is_allowed(address) => return Ok(url),
            Some(address) if !is_public(address) => return Err(AddressError::NotPublic),
            // Plain HTTP is only for networks that the operator allows.
            Some(_) if url.scheme() == "http" => return Err(AddressError::InvalidUrl),
            None if url.scheme() == "http" && self.allowed_networks.is_empty() => return Err(AddressError::InvalidUrl),
            _ => {}
        }

        let is_allowed_port = port == 443 || port >= 1024 || (url.scheme() == "http" && port == 80);
        if is_allowed_port { Ok(url) } else { Err(AddressError::ForbiddenPort) }
    }

    /// Parses a URL and checks every address that its host resolves to.
    pub async fn check_url(&self, text: &str) -> Result<Url, AddressError> {
        let url = self.parse_url(text)?;
        if let Some(Host::Domain(name)) = url.host() {
            self.resolve_host(name, url.scheme() == "https").await?;
        }
        Ok(url)
    }

    /// Resolves a host. Fails unless webhooks may connect to all of its addresses.
    async fn resolve_host(&self, host: &str, is_encrypted: bool) -> Result<Vec<SocketAddr>, AddressError> {
        let lookup = tokio::time::timeout(DNS_TIMEOUT, tokio::net::lookup_host((host, 0))).await;
        let addresses: Vec<SocketAddr> =
            lookup.map_err(|_| AddressError::UnresolvedHost)?.map_err(|_| AddressError::UnresolvedHost)?.collect();
        if addresses.is_empty() {
            return Err(AddressError::UnresolvedHost);
        }

        // A single address that is not public rejects the host: it was put there for us to try.
        let may_connect = |address: IpAddr| self.is_allowed(address) || (is_encrypted && is_public(address));
        if addresses.iter().all(|address| may_connect(address.ip())) {
            Ok(addresses)
        } else {
            Err(AddressError::NotPublic)
        }
    }

    fn is_allowed(&self, address: IpAddr) -> bool {
        self.allowed_networks.iter().any(|network| network.contains(&address))
    }

    /// A DNS resolver for HTTP clients that returns only addresses that webhooks may connect to.
    pub fn dns_resolver(self: &Arc<Self>, is_encrypted: bool) -> Arc<GuardedResolver> {
        Arc::new(GuardedResolver { guard: self.clone(), is_encrypted })
    }
}

#[derive(Debug)]
pub struct GuardedResolver {
    guard: Arc<AddressGuard>,
    is_encrypted: bool,
}

impl Resolve for GuardedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let guard = self.guard.clone();
        let is_encrypted = self.is_encrypted;
        Box::pin(async move {
            let addresses = guard.resolve_host(name.as_str(), is_encrypted).await?;
            Ok(Box::new(addresses.into_iter()) as Addrs)
        })
    }
}

/// The IP address written in the URL, in any spelling. HTTP clients never pass these to a resolver.
fn literal_ip(url: &Url) -> Option<IpAddr> {
    match url.host()? {
        Host::Ipv4(address) => Some(address.into()),
        Host::Ipv6(address) => Some(address.into()),
        Host::Domain(_) => None,
    }
}

fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => !NON_PUBLIC_V4_NETWORKS.iter().any(|network| network.contains(&address)),
        IpAddr::V6(address) => {
            PUBLIC_V6_NETWORK.contains(&address)
                && !NON_PUBLIC_V6_NETWORKS.iter().any(|network| network.contains(&address))
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn non_public_addresses_are_rejected_in_every_spelling() {
        let guard = AddressGuard::default();
        for host in [
            "127.0.0.1",
            "127.1",
            "2130706433",
            "0x7f000001",
            "0177.0.0.1",
            "0x7f.1",
            "127.0.0.1.",
            "0",
            "0.0.0.0",
            "10.0.0.1",
            "100.64.0.1",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.1.1",
            "192.0.0.1",
            "192.0.2.1",
            "192.88.99.1",
            "198.18.0.1",
            "198.51.100.1",
            "203.0.113.1",
            "224.0.0.1",
            "240.0.0.1",
            "255.255.255.255",
            "168.63.129.16",
            "100.100.100.200",
            "127。0。0。1",
            "①②⑦.⓪.⓪.①",
            "%31%32%37.0.0.1",
            "[::]",
            "[::1]",
            "[::ffff:127.0.0.1]",
            "[::ffff:7f00:1]",
            "[::ffff:10.0.0.1]",
            "[::127.0.0.1]",
            "[64:ff9b::7f00:1]",
            "[64:ff9b:1::1]",
            "[2002:7f00:1::1]",
            "[2001::1]",
            "[2001:0:7f00:1::]",
            "[2001:db8::1]",
            "[2001:10::1]",
            "[fc00::1]",
            "[fd00:ec2::254]",
            "[fe80::1]",
            "[fec0::1]",
            "[ff02::1]",
            "[100::1]",
            "[3fff::1]",
            "[5f00::1]",
            "[4000::1]",
            "[2620:4f:8000::1]",
        ] {
            assert_eq!(guard.parse_url(&format!("https://{host}/")).err(), Some(AddressError::NotPublic), "{host}");
        }
        assert!(guard.parse_url("https://[fe80::1%25eth0]/").is_err());
    }

    #[test]
    fn only_https_urls_on_usual_ports_without_credentials_are_accepted() {
        let guard = AddressGuard::default();
        for url in ["https://example.com/hook?a=b", "https://8.8.8.8:8443/", "https://[2606:4700::1111]/"] {
            assert!(guard.parse_url(url).is_ok(), "{url}");
        }
        for (url, expected) in [
            ("http://example.com/", AddressError::InvalidUrl),
            ("http://8.8.8.8/", AddressError::InvalidUrl),
            ("ftp://example.com/", AddressError::InvalidUrl),
            ("file:///etc/passwd", AddressError::InvalidUrl),
            ("gopher://127.0.0.1:6379/_", AddressError::InvalidUrl),
            ("example.com", AddressError::InvalidUrl),
            ("https://example.com:22/", AddressError::ForbiddenPort),
            ("https://a@example.com/", AddressError::HasCredentials),
            ("https://a:b@127.0.0.1/", AddressError::HasCredentials),
            ("https://example.com/\r\nX: y", AddressError::InvalidUrl),
        ] {
            assert_eq!(guard.parse_url(url).err(), Some(expected), "{url}");
        }

        let parse_long = |text: &str, times| guard.parse_url(&format!("https://example.com/{}", text.repeat(times)));
        assert!(parse_long("a", MAX_URL_LENGTH).is_err());
        // Percent-encoding turns two bytes into six, and the stored URL must still parse.
        assert!(parse_long("ã", MAX_URL_LENGTH / 4).is_err());
        let stored = parse_long("ã", MAX_URL_LENGTH / 8).expect("short enough");
        assert_eq!(guard.parse_url(stored.as_str()), Ok(stored));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20_000))]
        #[test]
        fn every_spelling_of_an_address_is_judged_the_same(number: u32, v6: u128, is_embedded: bool) {
            let guard = AddressGuard::default();
            let v4 = Ipv4Addr::from(number);
            let [a, b, c, d] = number.to_be_bytes();
            for host in [
                format!("{v4}"),
                format!("{number}"),
                format!("{number:#x}"),
                format!("0{number:o}"),
                format!("{a:#x}.0{b:o}.{c}.{d:#x}."),
                format!("{a}.{b}.{}", u16::from_be_bytes([c, d])),
                format!("{a}。{b}．{c}｡{d}"),
            ] {
                let url = format!("https://{host}/");
                prop_assert_eq!(guard.parse_url(&url).is_ok(), is_public(v4.into()), "{}", host);
            }

            let mapped = format!("https://[{}]/", v4.to_ipv6_mapped());
            prop_assert!(guard.parse_url(&mapped).is_err());

            // Random addresses would hardly ever fall into the networks that embed an IPv4 address.
            let v6 = if is_embedded { (0x2002 << 112) | (u128::from(number) << 80) | (v6 & 0xffff) } else { v6 };
            let v6 = Ipv6Addr::from(v6);
            let url = format!("https://[{v6}]/");
            prop_assert_eq!(guard.parse_url(&url).is_ok(), is_public(v6.into()));
            prop_assert!(!is_embedded || !is_public(v6.into()));
        }

        #[test]
        fn arbitrary_text_never_parses_to_a_non_public_url(text: String, host in "[0-9a-fx.:@%\\[\\]\\\\/#?-]{0,40}") {
            for text in [text, format!("https://{host}/"), format!("https:{host}")] {
                if let Ok(url) = AddressGuard::default().parse_url(&text) {
                    prop_assert_eq!(url.scheme(), "https");
                    prop_assert!(literal_ip(&url).is_none_or(is_public));
                }
            }
        }
    }

    #[test]
    fn operators_can_allow_networks() {
        let guard = AddressGuard::new(vec!["127.0.0.0/8".parse().unwrap()]);
        assert!(guard.parse_url("http://127.0.0.1:81/hook").is_ok());
        assert_eq!(guard.parse_url("https://10.0.0.1/").err(), Some(AddressError::NotPublic));
        assert_eq!(guard.parse_url("https://[::ffff:127.0.0.1]/").err(), Some(AddressError::NotPublic));
        assert_eq!(guard.parse_url("http://8.8.8.8/").err(), Some(AddressError::InvalidUrl));
    }

    #[tokio::test]
    async fn a_host_is_rejected_if_any_of_its_addresses_is_not_public() {
        let url = "https://localhost/";
        assert_eq!(AddressGuard::default().check_url(url).await.err(), Some(AddressError::NotPublic));

        let loopback = AddressGuard::new(vec!["127.0.0.0/8".parse().unwrap(), "::1/128".parse().unwrap()]);
        assert!(loopback.check_url(url).await.is_ok());
        assert!(loopback.check_url("http://localhost:8080/").await.is_ok());

        let unresolved = AddressGuard::default().check_url("https://nowhere.invalid/").await;
        assert_eq!(unresolved.err(), Some(AddressError::UnresolvedHost));
    }
}
