//! Pages of a list that spans several layers. Each layer's rows are sorted, and a page at any depth is found without
//! walking there.

use std::cmp::Reverse;

use super::layer::{FilingLayer, FilingSortKey};
use super::sorted_rows::SortedRows;
use crate::results::RowPage;

/// The rows of one layer that match a filter, in list order.
#[derive(Debug)]
pub struct FilteredLayer<'s> {
    pub layer: &'s FilingLayer,
    /// Number of the layer's first row.
    first_row: u32,
    rows: SortedRows<'s>,
    /// Those of `rows` that no longer exist, sorted.
    hidden: &'s [u32],
}

impl<'s> FilteredLayer<'s> {
    /// `hidden` may also contain rows before and after `rows`.
    pub fn new(layer: &'s FilingLayer, first_row: u32, rows: SortedRows<'s>, hidden: &'s [u32]) -> Self {
        let hidden = match rows.len() {
            0 => &[],
            count => {
                let start = hidden.partition_point(|row| *row < rows.get(0));
                let end = hidden.partition_point(|row| *row <= rows.get(count - 1));
                &hidden[start..end]
            }
        };
        Self { layer, first_row, rows, hidden }
    }

    pub fn len(&self) -> usize {
        self.rows.len() - self.hidden.len()
    }

    /// The row at a position among the visible rows.
    fn row_at(&self, position: usize) -> u32 {
        // Binary search for the number of hidden rows that come before this position.
        let mut low = 0;
        let mut high = self.hidden.len();
        while low < high {
            let middle = low + (high - low) / 2;
            if self.rows.count_before(self.hidden[middle]) - middle <= position {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        self.rows.get(position + low)
    }

    /// The rows that still exist, in order.
    pub fn visible_rows(&self) -> impl Iterator<Item = u32> {
        (0..self.rows.len()).map(|index| self.rows.get(index)).filter(|row| self.hidden.binary_search(row).is_err())
    }

    /// Whether a row matches the filter and still exists.
    pub fn contains(&self, row: u32) -> bool {
        let index = self.rows.count_before(row);
        index < self.rows.len() && self.rows.get(index) == row && self.hidden.binary_search(&row).is_err()
    }

    fn sort_key_at(&self, position: usize) -> FilingSortKey<'s> {
        self.layer.sort_key(self.row_at(position))
    }

    /// Number of its rows that come before a key in the list.
    fn count_before(&self, key: FilingSortKey<'_>) -> usize {
        partition_point(self.len(), |position| self.sort_key_at(position) <= key)
    }
}

/// The first position at which the predicate holds; it must hold for all later ones too.
fn partition_point(len: usize, predicate: impl Fn(usize) -> bool) -> usize {
    let mut low = 0;
    let mut high = len;
    while low < high {
        let middle = low + (high - low) / 2;
        if predicate(middle) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    low
}

pub fn merge_page(layers: &[FilteredLayer<'_>], offset: usize, limit: usize) -> RowPage {
    let layers: Vec<&FilteredLayer<'_>> = layers.iter().filter(|layer| layer.len() > 0).collect();
    let total = layers.iter().map(|layer| layer.len()).sum();
    if offset >= total {
        return RowPage { total, rows: Vec::new() };
    }

    let mut positions: Vec<usize> =
        (0..layers.len()).map(|index| count_before_offset(&layers, index, offset)).collect();
    let count = limit.min(total - offset);
    let mut rows = Vec::with_capacity(count);
    if let [layer] = layers[..] {
        rows.extend((offset..offset + count).map(|position| layer.first_row + layer.row_at(position)));
        return RowPage { total, rows };
    }

    while rows.len() < count {
        let unfinished = (0..layers.len()).filter(|index| positions[*index] < layers[*index].len());
        let next = unfinished.min_by_key(|index| Reverse(layers[*index].sort_key_at(positions[*index])));
        let Some(index) = next else { break };
        rows.push(layers[index].first_row + layers[index].row_at(positions[index]));
        positions[index] += 1;
    }

    RowPage { total, rows }
}

/// Like `merge_page`, but for some rows of each layer, in list order.
pub fn page_of_rows(layers: Vec<(FilteredLayer<'_>, Vec<u32>)>, offset: usize, limit: usize) -> RowPage {
    let is_merged = layers.len() > 1;
    let mut keyed: Vec<(FilingSortKey<'_>, u32)> = Vec::new();
    for (FilteredLayer { layer, first_row, .. }, rows) in layers {
        keyed.extend(rows.into_iter().map(|row| (layer.sort_key(row), first_row + row)));
    }
    if is_merged {
        keyed.sort_unstable_by_key(|(key, _)| Reverse(*key));
    }
    RowPage { total: keyed.len(), rows: keyed.into_iter().skip(offset).take(limit).map(|(_, row)| row).collect() }
}

/// Number of rows of one layer among the first `offset` rows of all layers together.
fn count_before_offset(layers: &[&FilteredLayer<'_>], layer_index: usize, offset: usize) -> usize {
    if layers.len() == 1 || offset == 0 {
        return offset;
    }

    let layer = layers[layer_index];
    let others = || layers.iter().enumerate().filter(move |(other, _)| *other != layer_index);
    // At most `offset` of its rows, and at least those that the other layers cannot fill up.
    let other_rows: usize = others().map(|(_, other)| other.len()).sum();
    let min_count = offset.saturating_sub(other_rows).min(layer.len());
    let max_count = offset.min(layer.len());

    min_count
        + partition_point(max_count - min_count, |position| {
            let key = layer.sort_key_at(min_count + position);
            let rank = min_count + position + others().map(|(_, other)| other.count_before(key)).sum::<usize>();
            rank >= offset
        })
}
