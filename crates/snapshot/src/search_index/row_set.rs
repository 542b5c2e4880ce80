//! Sets of rows with one bit for each row, so that operations on many rows cost next to nothing per row.

/// Rows of an index part, by their number within it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RowSet(Vec<u64>);

const BLOCK_BITS: u32 = u64::BITS;

impl RowSet {
    pub fn empty(row_count: u32) -> Self {
        Self(vec![0; row_count.div_ceil(BLOCK_BITS) as usize])
    }

    pub fn insert_all(&mut self, rows: &[u32]) {
        for row in rows {
            self.0[(row / BLOCK_BITS) as usize] |= Self::bit(*row);
        }
    }

    pub fn remove(&mut self, row: u32) {
        if let Some(block) = self.0.get_mut((row / BLOCK_BITS) as usize) {
            *block &= !Self::bit(row);
        }
    }

    pub fn remove_before(&mut self, row: u32) {
        let full_blocks = ((row / BLOCK_BITS) as usize).min(self.0.len());
        self.0[..full_blocks].fill(0);
        if let Some(block) = self.0.get_mut(full_blocks) {
            *block &= u64::MAX << (row % BLOCK_BITS);
        }
    }

    pub fn union_with(&mut self, other: &Self) {
        self.0.iter_mut().zip(&other.0).for_each(|(block, other)| *block |= other);
    }

    pub fn intersect_with(&mut self, other: &Self) {
        self.0.iter_mut().zip(&other.0).for_each(|(block, other)| *block &= other);
    }

    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|block| *block == 0)
    }

    pub fn count(&self) -> usize {
        self.0.iter().map(|block| block.count_ones() as usize).sum()
    }

    /// The rows, in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = u32> {
        self.non_empty_blocks().flat_map(|(block_index, bits)| rows_in_block(block_index, bits))
    }

    /// The non-empty blocks, each with its index and the bits of its rows.
    pub fn non_empty_blocks(&self) -> impl Iterator<Item = (usize, u64)> {
        self.0.iter().copied().enumerate().filter(|(_, bits)| *bits != 0)
    }

    pub fn block_count(&self) -> usize {
        self.0.len()
    }

    /// The bits of the rows in a block.
    pub fn block_bits(&self, block_index: usize) -> u64 {
        self.0[block_index]
    }

    pub fn set_block_bits(&mut self, block_index: usize, bits: u64) {
        self.0[block_index] = bits;
    }

    /// The bit of a row in its block.
    pub const fn bit(row: u32) -> u64 {
        1 << (row % BLOCK_BITS)
    }

    /// The bits of all rows before this one in its block.
    pub const fn lower_bits(row: u32) -> u64 {
        Self::bit(row) - 1
    }
}

/// The row numbers of a block, in ascending order.
pub fn rows_in_block(block_index: usize, mut block_bits: u64) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        let lowest = (block_bits != 0).then(|| block_bits.trailing_zeros())?;
        block_bits &= block_bits - 1;
        Some(block_index as u32 * BLOCK_BITS + lowest)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn collect_rows(set: &RowSet) -> Vec<u32> {
        set.iter().collect()
    }

    #[test]
    fn row_sets_support_union_intersection_and_removal() {
        let mut set = RowSet::empty(200);
        set.insert_all(&[0, 5, 63, 64, 130, 199]);
        assert_eq!((set.count(), collect_rows(&set)), (6, vec![0, 5, 63, 64, 130, 199]));

        let mut other = RowSet::empty(200);
        other.insert_all(&[5, 64, 100]);
        let mut intersection = set.clone();
        intersection.intersect_with(&other);
        let mut union = set.clone();
        union.union_with(&other);
        assert_eq!((collect_rows(&intersection), union.count()), (vec![5, 64], 7));

        set.remove(63);
        set.remove(1_000);
        assert_eq!(collect_rows(&set), [0, 5, 64, 130, 199]);

        for (from, expected_count) in [(0, 5), (5, 4), (6, 3), (64, 3), (65, 2), (131, 1), (200, 0), (5_000, 0)] {
            let mut remaining = set.clone();
            remaining.remove_before(from);
            assert_eq!(remaining.count(), expected_count, "{from}");
        }
    }
}
