//! API keys in request headers: only well-formed keys are accepted, and they are parsed unchanged.
#![no_main]

use http::{HeaderMap, HeaderValue, header};
use libfuzzer_sys::fuzz_target;
use vintem_api::{Credential, parse_credential};
use vintem_domain::ApiKey;

// Each line is a header; its first byte selects the name.
fuzz_target!(|input: &[u8]| {
    let mut headers = HeaderMap::new();
    for line in input.split(|byte| *byte == b'\n').take(8) {
        let Some((selector, value)) = line.split_first() else { continue };
        let Ok(value) = HeaderValue::from_bytes(value) else { continue };
        let name = if selector % 2 == 0 { "x-api-key".parse().expect("a name") } else { header::AUTHORIZATION };
        headers.append(name, value);
    }

    let credentials = || headers.get_all("x-api-key").iter().chain(headers.get_all(header::AUTHORIZATION));
    match parse_credential(&headers) {
        Credential::None => assert_eq!(credentials().count(), 0),
        Credential::Key(key) => {
            let text = key.reveal();
            assert!(text.len() == 47 && text.starts_with("vtm_"));
            assert_eq!(base62_crc32(&text.as_bytes()[..41]), text.as_bytes()[41..]);
            // Every header contains this very key, and parsing it again gives the same.
            assert!(credentials().all(|value| value.as_bytes().trim_ascii().ends_with(text.as_bytes())));
            assert_eq!(ApiKey::parse(text), Some(key));
        }
        Credential::Malformed => assert!(credentials().count() > 0),
        Credential::Conflicting => assert!(credentials().count() > 1),
    }

    if let Ok(text) = std::str::from_utf8(input) {
        assert_eq!(ApiKey::parse(text).is_some(), is_well_formed_key(text.as_bytes()));
    }
});

/// The published format of keys, implemented a second time.
fn is_well_formed_key(text: &[u8]) -> bool {
    text.len() == 47
        && text.starts_with(b"vtm_")
        && text[4..].iter().all(u8::is_ascii_alphanumeric)
        && base62_crc32(&text[..41]) == text[41..]
}

/// CRC32 bit by bit, in base 62.
fn base62_crc32(text: &[u8]) -> [u8; 6] {
    let mut crc = u32::MAX;
    for byte in text {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 };
        }
    }

    let mut rest = !crc;
    let mut characters = [0; 6];
    for character in characters.iter_mut().rev() {
        *character = match (rest % 62) as u8 {
            digit @ 0..10 => b'0' + digit,
            upper @ 10..36 => b'A' + upper - 10,
            lower => b'a' + lower - 36,
        };
        rest /= 62;
    }
    characters
}
