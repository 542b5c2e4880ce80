//! Where a webhook may lead: to the public network, never into the one that we run in.
//!
//! An address is looked at when a webhook is made, and again whenever one connects: what a name leads to may have changed
//! since. Then the very addresses that were looked at are connected to.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use url::{Host, Url};

/// What a name leads to is known within that, or not at all.
const RESOLUTION_TIMEOUT: Duration = Duration::from_secs(5);
const LONGEST_URL: usize = 2_000;

/// IPv4 networks that are not public, by IANA's registry of special purposes, and Azure's platform address.
const CLOSED_V4: [Ipv4Net; 19] = [
    v4([0, 0, 0, 0], 8),
    v4([10, 0, 0, 0], 8),
    v4([100, 64, 0, 0], 10),
    v4([127, 0, 0, 0], 8),
    v4([168, 63, 129, 16], 32),
    v4([169, 254, 0, 0], 16),
    v4([172, 16, 0, 0], 12),
    v4([192, 0, 0, 0], 24),
    v4([192, 0, 2, 0], 24),
    v4([192, 31, 196, 0], 24),
    v4([192, 52, 193, 0], 24),
    v4([192, 88, 99, 0], 24),
    v4([192, 168, 0, 0], 16),
    v4([192, 175, 48, 0], 24),
    v4([198, 18, 0, 0], 15),
    v4([198, 51, 100, 0], 24),
    v4([203, 0, 113, 0], 24),
    v4([224, 0, 0, 0], 4),
    v4([240, 0, 0, 0], 4),
];

/// Of IPv6 only this is given out to the public, …
const OPEN_V6: Ipv6Net = v6([0x2000, 0, 0], 3);
/// … but for this: protocols (Teredo among them), documentation, 6to4, and a sink of name servers. All that embeds an
/// IPv4 address elsewhere (mapped, NAT64) is outside of it.
const CLOSED_V6: [Ipv6Net; 5] = [
    v6([0x2001, 0, 0], 23),
    v6([0x2001, 0x0db8, 0], 32),
    v6([0x2002, 0, 0], 16),
    v6([0x2620, 0x004f, 0x8000], 48),
    v6([0x3fff, 0, 0], 20),
];

const fn v4(octets: [u8; 4], prefix: u8) -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::new(octets[0], octets[1], octets[2], octets[3]), prefix)
}

const fn v6(first: [u16; 3], prefix: u8) -> Ipv6Net {
    Ipv6Net::new_assert(Ipv6Addr::new(first[0], first[1], first[2], 0, 0, 0, 0, 0), prefix)
}

/// Why an address is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AddressRefused {
    #[error("is no address of the form https://host/path, or is longer than 2000 characters")]
    NotAnAddress,
    #[error("carries a user or a password")]
    WithCredentials,
    #[error("names a port below 1024 that is not that of https")]
    Port,
    #[error("is not public")]
    NotPublic,
    #[error("leads nowhere")]
    Unknown,
}

/// Says where webhooks may lead.
#[derive(Debug, Clone, Default)]
pub struct AddressGuard {
    /// Let through whatever they are, also without encryption.
    allowed: Vec<IpNet>,
}

impl AddressGuard {
    pub fn new(allowed: Vec<IpNet>) -> Self {
        Self { allowed }
    }

    /// Reads an address as far as it can be judged without asking anybody what a name leads to.
    pub fn read(&self, text: &str) -> Result<Url, AddressRefused> {
        if text.len() > LONGEST_URL || text.chars().any(|character| character.is_control() || character == ' ') {
            return Err(AddressRefused::NotAnAddress);
        }
        let url = Url::parse(text).map_err(|_| AddressRefused::NotAnAddress)?;
        // What is kept, and read again at each sending, is the address as it is written then: that may be longer.
        let is_one = ["https", "http"].contains(&url.scheme()) && url.host().is_some();
        if !is_one || url.as_str().len() > LONGEST_URL {
            return Err(AddressRefused::NotAnAddress);
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(AddressRefused::WithCredentials);
        }
        let port = url.port_or_known_default().ok_or(AddressRefused::NotAnAddress)?;
        match literal(&url) {
            Some(address) if self.is_allowed(address) => return Ok(url),
            Some(address) if !is_public(address) => return Err(AddressRefused::NotPublic),
            // Without encryption only what is allowed by name of its network.
            Some(_) if url.scheme() == "http" => return Err(AddressRefused::NotAnAddress),
            None if url.scheme() == "http" && self.allowed.is_empty() => return Err(AddressRefused::NotAnAddress),
            _ => {}
        }
        let is_usual = port == 443 || port >= 1024 || (url.scheme() == "http" && port == 80);
        if is_usual { Ok(url) } else { Err(AddressRefused::Port) }
    }

    /// Reads an address and looks at all that its name leads to.
    pub async fn check(&self, text: &str) -> Result<Url, AddressRefused> {
        let url = self.read(text)?;
        if let Some(Host::Domain(name)) = url.host() {
            self.resolve(name, url.scheme() == "https").await?;
        }
        Ok(url)
    }

    /// What a name leads to, if all of it may be connected to.
    async fn resolve(&self, name: &str, is_encrypted: bool) -> Result<Vec<SocketAddr>, AddressRefused> {
        let found = tokio::time::timeout(RESOLUTION_TIMEOUT, tokio::net::lookup_host((name, 0))).await;
        let addresses: Vec<SocketAddr> =
            found.map_err(|_| AddressRefused::Unknown)?.map_err(|_| AddressRefused::Unknown)?.collect();
        if addresses.is_empty() {
            return Err(AddressRefused::Unknown);
        }
        // One that is not public spoils all: whoever gave it means us to try it.
        let may = |address: IpAddr| self.is_allowed(address) || (is_encrypted && is_public(address));
        if addresses.iter().all(|address| may(address.ip())) { Ok(addresses) } else { Err(AddressRefused::NotPublic) }
    }

    fn is_allowed(&self, address: IpAddr) -> bool {
        self.allowed.iter().any(|network| network.contains(&address))
    }

    /// The guard as a resolver of names for a client that connects.
    pub fn resolver(self: &Arc<Self>, is_encrypted: bool) -> Arc<GuardedResolver> {
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
        let (guard, is_encrypted) = (self.guard.clone(), self.is_encrypted);
        Box::pin(async move {
            let addresses = guard.resolve(name.as_str(), is_encrypted).await?;
            Ok(Box::new(addresses.into_iter()) as Addrs)
        })
    }
}

/// The address that stands in a URL itself, in whatever spelling: clients do not ask a resolver for those.
fn literal(url: &Url) -> Option<IpAddr> {
    match url.host()? {
        Host::Ipv4(address) => Some(address.into()),
        Host::Ipv6(address) => Some(address.into()),
        Host::Domain(_) => None,
    }
}

fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => !CLOSED_V4.iter().any(|network| network.contains(&address)),
        IpAddr::V6(address) => {
            OPEN_V6.contains(&address) && !CLOSED_V6.iter().any(|network| network.contains(&address))
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn no_spelling_of_a_closed_address_is_taken() {
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
            assert_eq!(guard.read(&format!("https://{host}/")).err(), Some(AddressRefused::NotPublic), "{host}");
        }
        assert!(guard.read("https://[fe80::1%25eth0]/").is_err());
    }

    #[test]
    fn only_addresses_of_https_on_usual_ports_without_credentials_are_taken() {
        let guard = AddressGuard::default();
        for url in ["https://example.com/hook?a=b", "https://8.8.8.8:8443/", "https://[2606:4700::1111]/"] {
            assert!(guard.read(url).is_ok(), "{url}");
        }
        for (url, why) in [
            ("http://example.com/", AddressRefused::NotAnAddress),
            ("http://8.8.8.8/", AddressRefused::NotAnAddress),
            ("ftp://example.com/", AddressRefused::NotAnAddress),
            ("file:///etc/passwd", AddressRefused::NotAnAddress),
            ("gopher://127.0.0.1:6379/_", AddressRefused::NotAnAddress),
            ("example.com", AddressRefused::NotAnAddress),
            ("https://example.com:22/", AddressRefused::Port),
            ("https://a@example.com/", AddressRefused::WithCredentials),
            ("https://a:b@127.0.0.1/", AddressRefused::WithCredentials),
            ("https://example.com/\r\nX: y", AddressRefused::NotAnAddress),
        ] {
            assert_eq!(guard.read(url).err(), Some(why), "{url}");
        }
        let long = |text: &str, times| guard.read(&format!("https://example.com/{}", text.repeat(times)));
        assert!(long("a", LONGEST_URL).is_err());
        // Two bytes become six: what is kept must be readable again.
        assert!(long("ã", LONGEST_URL / 4).is_err());
        let kept = long("ã", LONGEST_URL / 8).expect("short enough");
        assert_eq!(guard.read(kept.as_str()), Ok(kept));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20_000))]
        #[test]
        fn an_address_is_judged_by_itself_whatever_its_spelling(number: u32, v6: u128, is_embedded: bool) {
            let guard = AddressGuard::default();
            let (v4, [a, b, c, d]) = (Ipv4Addr::from(number), number.to_be_bytes());
            for host in [
                format!("{v4}"),
                format!("{number}"),
                format!("{number:#x}"),
                format!("0{number:o}"),
                format!("{a:#x}.0{b:o}.{c}.{d:#x}."),
                format!("{a}.{b}.{}", u16::from_be_bytes([c, d])),
                format!("{a}。{b}．{c}｡{d}"),
            ] {
                let written = format!("https://{host}/");
                prop_assert_eq!(guard.read(&written).is_ok(), is_public(v4.into()), "{}", host);
            }
            let mapped = format!("https://[{}]/", v4.to_ipv6_mapped());
            prop_assert!(guard.read(&mapped).is_err());
            // By chance alone hardly any would be of the networks that embed another address.
            let v6 = if is_embedded { (0x2002 << 112) | (u128::from(number) << 80) | (v6 & 0xffff) } else { v6 };
            let v6 = Ipv6Addr::from(v6);
            let written = format!("https://[{v6}]/");
            prop_assert_eq!(guard.read(&written).is_ok(), is_public(v6.into()));
            prop_assert!(!is_embedded || !is_public(v6.into()));
        }

        #[test]
        fn no_text_is_too_strange_to_be_judged(text: String, host in "[0-9a-fx.:@%\\[\\]\\\\/#?-]{0,40}") {
            for text in [text, format!("https://{host}/"), format!("https:{host}")] {
                if let Ok(url) = AddressGuard::default().read(&text) {
                    prop_assert_eq!(url.scheme(), "https");
                    prop_assert!(literal(&url).is_none_or(is_public));
                }
            }
        }
    }

    #[test]
    fn an_operator_may_let_networks_through() {
        let guard = AddressGuard::new(vec!["127.0.0.0/8".parse().unwrap()]);
        assert!(guard.read("http://127.0.0.1:81/hook").is_ok());
        assert_eq!(guard.read("https://10.0.0.1/").err(), Some(AddressRefused::NotPublic));
        assert_eq!(guard.read("https://[::ffff:127.0.0.1]/").err(), Some(AddressRefused::NotPublic));
        assert_eq!(guard.read("http://8.8.8.8/").err(), Some(AddressRefused::NotAnAddress));
    }

    #[tokio::test]
    async fn a_name_is_judged_by_all_that_it_leads_to() {
        let url = "https://localhost/";
        assert_eq!(AddressGuard::default().check(url).await.err(), Some(AddressRefused::NotPublic));
        let loopback = AddressGuard::new(vec!["127.0.0.0/8".parse().unwrap(), "::1/128".parse().unwrap()]);
        assert!(loopback.check(url).await.is_ok());
        assert!(loopback.check("http://localhost:8080/").await.is_ok());
        let nowhere = AddressGuard::default().check("https://nowhere.invalid/").await;
        assert_eq!(nowhere.err(), Some(AddressRefused::Unknown));
    }
}
