//! Client addresses, as they are counted and as they are logged.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// What an address is counted as: IPv4 whole (IPv4-mapped too), IPv6 by its /64, which is one subscriber's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AddressBucket {
    V4(Ipv4Addr),
    V6 { network: Ipv6Addr, prefix: u8 },
}

impl AddressBucket {
    pub fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Self::V4(address),
            IpAddr::V6(address) => Self::V6 { network: network(address, 64), prefix: 64 },
        }
    }

    /// The /48 around an IPv6 bucket: one site's. IPv4 has none.
    pub fn site(self) -> Option<Self> {
        match self {
            Self::V4(_) => None,
            Self::V6 { network: address, .. } => Some(Self::V6 { network: network(address, 48), prefix: 48 }),
        }
    }
}

impl fmt::Display for AddressBucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::V4(address) => write!(f, "{address}"),
            Self::V6 { network, prefix } => write!(f, "{network}/{prefix}"),
        }
    }
}

/// An address cut to /24 or /48, the most of it that a log may hold.
pub fn for_log(address: IpAddr) -> String {
    match address.to_canonical() {
        IpAddr::V4(address) => {
            let [a, b, c, _] = address.octets();
            format!("{a}.{b}.{c}.0/24")
        }
        IpAddr::V6(address) => format!("{}/48", network(address, 48)),
    }
}

fn network(address: Ipv6Addr, prefix: u32) -> Ipv6Addr {
    Ipv6Addr::from_bits(address.to_bits() >> (128 - prefix) << (128 - prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bucket(text: &str) -> String {
        AddressBucket::of(text.parse().unwrap()).to_string()
    }

    #[test]
    fn mapped_addresses_share_the_bucket_of_their_ipv4() {
        assert_eq!(bucket("::ffff:203.0.113.7"), bucket("203.0.113.7"));
    }

    #[test]
    fn a_subnet_of_ipv6_is_one_bucket() {
        assert_eq!(bucket("2001:db8:1:2::1"), bucket("2001:db8:1:2:ffff::9"));
        assert_ne!(bucket("2001:db8:1:2::1"), bucket("2001:db8:1:3::1"));
        let site = AddressBucket::of("2001:db8:1:2::1".parse().unwrap()).site().unwrap();
        assert_eq!(site.to_string(), "2001:db8:1::/48");
    }

    #[test]
    fn logs_hold_no_whole_address() {
        assert_eq!(for_log("203.0.113.7".parse().unwrap()), "203.0.113.0/24");
        assert_eq!(for_log("2001:db8:1:2::1".parse().unwrap()), "2001:db8:1::/48");
    }
}
