//! The format of generated keys: prefix, random characters, checksum.

use std::collections::HashSet;

use vintem_domain::ApiKey;

const BASE62: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
/// The positions of the random characters.
const RANDOM_PART: std::ops::Range<usize> = 4..41;
/// A chi-square sum with 61 degrees of freedom exceeds this once in a thousand times.
const UNLIKELY_CHI_SQUARE: f64 = 100.888;
/// By chance, more than this many of 37 positions exceed it less than once in ten million runs:
/// C(37, 4) / 1000^4 = 7e-8.
const MAX_UNLIKELY_POSITIONS: usize = 3;
/// One of 37 positions exceeds this by chance less than once in ten million runs (p = 2.7e-9 each).
const MAX_CHI_SQUARE: f64 = 149.0;

/// How much the character frequencies at one position differ from a uniform distribution.
fn chi_square(counts: &[u32; 62]) -> f64 {
    let expected = f64::from(counts.iter().sum::<u32>()) / 62.0;
    counts.iter().map(|count| (f64::from(*count) - expected).powi(2) / expected).sum()
}

fn chi_square_per_position(keys: impl Iterator<Item = ApiKey>) -> Vec<f64> {
    let mut base62_index = [0usize; 256];
    for (index, character) in BASE62.iter().enumerate() {
        base62_index[usize::from(*character)] = index;
    }

    let mut counts = [[0u32; 62]; 37];
    for key in keys {
        for (counts, character) in counts.iter_mut().zip(&key.reveal().as_bytes()[RANDOM_PART]) {
            counts[base62_index[usize::from(*character)]] += 1;
        }
    }
    counts.iter().map(chi_square).collect()
}

fn are_uniform(chi_squares: &[f64]) -> bool {
    let unlikely = chi_squares.iter().filter(|chi| **chi > UNLIKELY_CHI_SQUARE).count();
    unlikely <= MAX_UNLIKELY_POSITIONS && chi_squares.iter().all(|chi| *chi < MAX_CHI_SQUARE)
}

#[test]
fn a_million_keys_are_unique_checksummed_and_uniformly_random() {
    let mut seen = HashSet::with_capacity(1_000_000);
    let chi_squares = chi_square_per_position((0..1_000_000).map(|_| {
        let key = vintem_api::generate_key();
        assert_eq!(ApiKey::parse(key.reveal()), Some(key.clone()), "its checksum holds");
        let random: [u8; 37] = key.reveal().as_bytes()[RANDOM_PART].try_into().expect("37 characters");
        assert!(seen.insert(random), "a key came twice");
        key
    }));

    let largest = chi_squares.iter().copied().fold(0.0, f64::max);
    let unlikely = chi_squares.iter().filter(|chi| **chi > UNLIKELY_CHI_SQUARE).count();

    println!("keys: {}", seen.len());
    println!("largest_chi_square: {largest:.1}");
    println!("positions_beyond_once_in_a_thousand: {unlikely}");
    assert!(are_uniform(&chi_squares), "{chi_squares:?}");
}

/// Tests the test: even a slight bias must fail it.
#[test]
fn a_biased_generator_is_detected() {
    // A whole byte modulo 62: eight characters are a quarter likelier than the rest.
    let uneven = chi_square_per_position((0..20_000).map(|_| ApiKey::generate(|| random_byte() % 62)));
    assert!(!are_uniform(&uneven), "{uneven:?}");

    let even = chi_square_per_position((0..20_000).map(|_| ApiKey::generate(random_byte)));
    assert!(are_uniform(&even), "{even:?}");
}

#[test]
fn random_text_of_the_right_shape_is_not_a_key() {
    // The checksum accepts one random text in 57 billion.
    let mut text = *b"vtm_0000000000000000000000000000000000000000000";
    for _ in 0..1_000_000 {
        for character in &mut text[4..] {
            *character = BASE62[usize::from(random_byte()) % 62];
        }
        assert_eq!(ApiKey::parse(std::str::from_utf8(&text).expect("plain text")), None);
    }
}

fn random_byte() -> u8 {
    rand::random()
}
