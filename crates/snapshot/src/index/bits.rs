//! Sets of rows, a bit each: what is asked of many rows at once costs next to nothing a row.

/// Rows of a part, by their number within it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Bits(Vec<u64>);

const WIDTH: u32 = u64::BITS;

impl Bits {
    pub fn none(rows: u32) -> Self {
        Self(vec![0; rows.div_ceil(WIDTH) as usize])
    }

    pub fn insert_all(&mut self, rows: &[u32]) {
        for row in rows {
            self.0[(row / WIDTH) as usize] |= 1 << (row % WIDTH);
        }
    }

    pub fn remove(&mut self, row: u32) {
        if let Some(block) = self.0.get_mut((row / WIDTH) as usize) {
            *block &= !(1 << (row % WIDTH));
        }
    }

    pub fn remove_before(&mut self, row: u32) {
        let whole = ((row / WIDTH) as usize).min(self.0.len());
        self.0[..whole].fill(0);
        if let Some(block) = self.0.get_mut(whole) {
            *block &= u64::MAX << (row % WIDTH);
        }
    }

    pub fn add(&mut self, other: &Self) {
        self.0.iter_mut().zip(&other.0).for_each(|(block, other)| *block |= other);
    }

    pub fn keep(&mut self, other: &Self) {
        self.0.iter_mut().zip(&other.0).for_each(|(block, other)| *block &= other);
    }

    pub fn count(&self) -> usize {
        self.0.iter().map(|block| block.count_ones() as usize).sum()
    }

    /// The blocks that hold any row: the place of each, and its rows.
    pub fn blocks(&self) -> impl Iterator<Item = (usize, u64)> {
        self.0.iter().copied().enumerate().filter(|(_, rows)| *rows != 0)
    }

    /// The rows at this place.
    pub fn block(&self, at: usize) -> u64 {
        self.0[at]
    }
}

/// The numbers of the rows of a block, in order.
pub fn rows_of(at: usize, mut rows: u64) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        let lowest = (rows != 0).then(|| rows.trailing_zeros())?;
        rows &= rows - 1;
        Some(at as u32 * WIDTH + lowest)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(bits: &Bits) -> Vec<u32> {
        bits.blocks().flat_map(|(at, rows)| rows_of(at, rows)).collect()
    }

    #[test]
    fn sets_of_rows_are_sets() {
        let mut bits = Bits::none(200);
        bits.insert_all(&[0, 5, 63, 64, 130, 199]);
        assert_eq!((bits.count(), rows(&bits)), (6, vec![0, 5, 63, 64, 130, 199]));
        let mut other = Bits::none(200);
        other.insert_all(&[5, 64, 100]);
        let (mut both, mut either) = (bits.clone(), bits.clone());
        both.keep(&other);
        either.add(&other);
        assert_eq!((rows(&both), either.count()), (vec![5, 64], 7));
        bits.remove(63);
        bits.remove(1_000);
        assert_eq!(rows(&bits), [0, 5, 64, 130, 199]);
        for (from, left) in [(0, 5), (5, 4), (6, 3), (64, 3), (65, 2), (131, 1), (200, 0), (5_000, 0)] {
            let mut later = bits.clone();
            later.remove_before(from);
            assert_eq!(later.count(), left, "{from}");
        }
    }
}
