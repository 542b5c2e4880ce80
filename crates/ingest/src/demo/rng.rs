//! A pseudorandom number generator that gives the same numbers on every machine and in every release.
//!
//! It is our own code, because a library may change its algorithm between versions, and the demo data must not change.

/// SplitMix64: small, fast, and uniform enough for made-up rows.
#[derive(Debug, Clone)]
pub struct DemoRng {
    state: u64,
}

impl DemoRng {
    /// Each label has its own stream, so that the draws of one generator never shift those of another.
    pub fn new(label: &str) -> Self {
        let fnv = label.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        Self { state: fnv }
    }

    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix_bits(self.state)
    }

    /// From 0 to `bound` − 1.
    pub fn below(&mut self, bound: u64) -> u64 {
        scale_to_bound(self.next_u64(), bound)
    }

    /// Also from 0 to `bound` − 1, but small numbers are far more frequent: the first tenth gets more than half of all
    /// draws.
    pub fn below_skewed(&mut self, bound: u64) -> u64 {
        let first = self.next_u64();
        let second = self.next_u64();
        let third = self.next_u64();
        scale_to_bound(scale_to_bound(first, scale_to_bound(second, third)), bound)
    }

    /// From `low` to `high`, inclusive.
    pub fn between(&mut self, low: i64, high: i64) -> i64 {
        low + self.below(high.abs_diff(low) + 1).cast_signed()
    }

    pub fn chance_per_thousand(&mut self, per_thousand: u64) -> bool {
        self.below(1000) < per_thousand
    }

    pub fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        let index = self.below(items.len() as u64);
        items[index as usize]
    }

    /// Picks one of `items` with a probability proportional to its weight.
    pub fn pick_weighted<'a, T>(&mut self, items: &'a [T], weight: impl Fn(&T) -> u64) -> &'a T {
        let mut remaining = self.below(items.iter().map(&weight).sum());
        for item in items {
            if remaining < weight(item) {
                return item;
            }
            remaining -= weight(item);
        }
        unreachable!("the draw lies below the sum of the weights")
    }
}

/// The position of `index` in a shuffle of `0..domain`. Each index has a different position, and no list is needed.
///
/// A Feistel network over the next power of four, applied until the result is inside the domain.
pub fn shuffled_index(index: u64, domain: u64, key: u64) -> u64 {
    debug_assert!(index < domain);
    let half_bits = (64 - domain.leading_zeros()).div_ceil(2);
    let mask = (1 << half_bits) - 1;

    let mut position = index;
    loop {
        let mut left = position >> half_bits;
        let mut right = position & mask;
        for round in 0..4 {
            let mixed = left ^ (mix_bits(right ^ mix_bits(key.wrapping_add(round))) & mask);
            left = right;
            right = mixed;
        }

        position = left << half_bits | right;
        if position < domain {
            return position;
        }
    }
}

fn mix_bits(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

/// `bound` × `number` / 2⁶⁴.
fn scale_to_bound(number: u64, bound: u64) -> u64 {
    ((u128::from(number) * u128::from(bound)) >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_always_gives_the_same_stream() {
        let mut rng = DemoRng::new("a");
        let first = [rng.next_u64(), rng.next_u64()];
        let mut again = DemoRng::new("a");
        assert_eq!(first, [again.next_u64(), again.next_u64()]);
        assert_ne!(first[0], DemoRng::new("b").next_u64());
        // The published first output of SplitMix64 from the state 0.
        assert_eq!(DemoRng { state: 0 }.next_u64(), 0xe220_a839_7b1d_cdaf);
    }

    #[test]
    fn drawn_numbers_stay_within_bounds() {
        let mut rng = DemoRng::new("bounds");
        let mut seen = [false; 7];
        for _ in 0..1_000 {
            let number = rng.between(-3, 3);
            seen[usize::try_from(number + 3).unwrap()] = true;
            assert!(rng.below_skewed(10) < 10);
        }
        assert_eq!(seen, [true; 7]);
    }

    #[test]
    fn weighted_picks_follow_their_weights() {
        let mut rng = DemoRng::new("weights");
        let heavy = (0..1_000).filter(|_| *rng.pick_weighted(&[1, 9], |weight| *weight) == 9).count();
        assert!((850..950).contains(&heavy), "{heavy}");
    }

    #[test]
    fn a_shuffle_is_a_permutation() {
        for domain in [1, 2, 3, 100, 1_000] {
            let mut positions: Vec<u64> = (0..domain).map(|index| shuffled_index(index, domain, 7)).collect();
            positions.sort_unstable();
            assert!(positions.into_iter().eq(0..domain));
        }
    }
}
