//! Client IP addresses: the buckets of rate limits, and the truncated form for logs.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The bucket that an address counts against: the whole IPv4 address (also IPv4-mapped), or the IPv6 /64, which belongs
/// to one subscriber.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AddressBucket {
    V4(Ipv4Addr),
    V6 { network: Ipv6Addr, prefix_length: u8 },
}

impl AddressBucket {
    pub fn from_ip(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Self::V4(address),
            IpAddr::V6(address) => Self::V6 { network: mask_to_prefix(address, 64), prefix_length: 64 },
        }
    }

    /// A larger network around an IPv6 bucket: a /48 belongs to one site, a /32 to one provider. IPv4 has none.
    pub fn ipv6_network(self, prefix_length: u8) -> Option<Self> {
        match self {
            Self::V4(_) => None,
            Self::V6 { network, .. } => {
                Some(Self::V6 { network: mask_to_prefix(network, prefix_length.into()), prefix_length })
            }
        }
    }
}

impl fmt::Display for AddressBucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::V4(address) => write!(f, "{address}"),
            Self::V6 { network, prefix_length } => write!(f, "{network}/{prefix_length}"),
        }
    }
}

/// Truncates an address to /24 or /48, the most that a log may contain.
pub fn anonymize_for_log(address: IpAddr) -> String {
    match address.to_canonical() {
        IpAddr::V4(address) => {
            let [a, b, c, _] = address.octets();
            format!("{a}.{b}.{c}.0/24")
        }
        IpAddr::V6(address) => format!("{}/48", mask_to_prefix(address, 48)),
    }
}

fn mask_to_prefix(address: Ipv6Addr, prefix_length: u32) -> Ipv6Addr {
    Ipv6Addr::from_bits(address.to_bits() >> (128 - prefix_length) << (128 - prefix_length))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bucket_text(text: &str) -> String {
        AddressBucket::from_ip(text.parse().unwrap()).to_string()
    }

    #[test]
    fn mapped_addresses_share_the_bucket_of_their_ipv4() {
        assert_eq!(bucket_text("::ffff:203.0.113.7"), bucket_text("203.0.113.7"));
    }

    #[test]
    fn an_ipv6_subnet_shares_one_bucket() {
        assert_eq!(bucket_text("2001:db8:1:2::1"), bucket_text("2001:db8:1:2:ffff::9"));
        assert_ne!(bucket_text("2001:db8:1:2::1"), bucket_text("2001:db8:1:3::1"));
        let bucket = AddressBucket::from_ip("2001:db8:1:2::1".parse().unwrap());
        assert_eq!(bucket.ipv6_network(48).unwrap().to_string(), "2001:db8:1::/48");
        assert_eq!(bucket.ipv6_network(32).unwrap().to_string(), "2001:db8::/32");
    }

    #[test]
    fn logged_addresses_are_truncated() {
        assert_eq!(anonymize_for_log("203.0.113.7".parse().unwrap()), "203.0.113.0/24");
        assert_eq!(anonymize_for_log("2001:db8:1:2::1".parse().unwrap()), "2001:db8:1::/48");
    }
}
