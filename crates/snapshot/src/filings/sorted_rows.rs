//! Rows of a layer that match a filter. They are sorted, so positions are found by binary search.

use std::ops::Range;

/// Rows of a layer in ascending order.
#[derive(Debug, Clone)]
pub enum SortedRows<'s> {
    Range(Range<u32>),
    Slice(&'s [u32]),
}

impl<'s> SortedRows<'s> {
    pub fn len(&self) -> usize {
        match self {
            Self::Range(range) => range.len(),
            Self::Slice(rows) => rows.len(),
        }
    }

    pub fn get(&self, index: usize) -> u32 {
        match self {
            Self::Range(range) => range.start + index as u32,
            Self::Slice(rows) => rows[index],
        }
    }

    /// Number of rows before this one.
    pub fn count_before(&self, row: u32) -> usize {
        match self {
            Self::Range(range) => row.clamp(range.start, range.end) as usize - range.start as usize,
            Self::Slice(rows) => rows.partition_point(|listed| *listed < row),
        }
    }

    /// The rows within a range.
    pub fn within(&self, range: Range<u32>) -> Self {
        let start = self.count_before(range.start);
        let end = self.count_before(range.end.max(range.start));
        match self {
            Self::Range(rows) => Self::Range(rows.start + start as u32..rows.start + end as u32),
            Self::Slice(rows) => Self::Slice(&rows[start..end]),
        }
    }
}
