//! Request IDs.

/// The time of admission, so that IDs sort by time, then a random number that makes them unique; both in hexadecimal.
pub struct RequestId([u8; 25]);

impl RequestId {
    pub fn new(now_us: u64, random: u64) -> Self {
        const HEX_DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut id = [b'-'; 25];
        let mut write = |range: std::ops::Range<usize>, mut rest: u64| {
            for digit in id[range].iter_mut().rev() {
                *digit = HEX_DIGITS[(rest % 16) as usize];
                rest /= 16;
            }
        };

        write(0..14, now_us);
        write(15..25, random);
        Self(id)
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).expect("hexadecimal digits")
    }
}
