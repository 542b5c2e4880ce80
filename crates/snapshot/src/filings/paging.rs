//! Pages of a list that lies in several layers: each layer's rows are a run, and a page is found without walking there.

use std::cmp::Reverse;

use super::layer::{FilingLayer, ListSortKey, SortedRows};
use crate::RowPage;

/// The rows of one layer that a filter leaves, in the order of the list.
#[derive(Debug)]
pub struct FilteredLayer<'s> {
    layer: &'s FilingLayer,
    /// The number of the layer's first row.
    first_row: u32,
    rows: SortedRows<'s>,
    /// Those among `rows` that are no more, sorted.
    hidden: &'s [u32],
}

impl<'s> FilteredLayer<'s> {
    /// `hidden` may hold rows around `rows` too.
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

    /// The row at a place among those that are not hidden.
    fn row_at(&self, position: usize) -> u32 {
        // As many hidden ones come before it as leave fewer others before them.
        let (mut low, mut high) = (0, self.hidden.len());
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

    /// Those that we know since this second or later, in order.
    pub fn rows_known_since(&self, second: u32) -> impl Iterator<Item = (ListSortKey<'s>, u32)> {
        let rows = (0..self.rows.len()).map(|at| self.rows.get(at));
        let is_known = move |row: &u32| self.layer.known_at(*row) >= second && self.hidden.binary_search(row).is_err();
        rows.filter(is_known).map(|row| (self.layer.sort_key(row), self.first_row + row))
    }

    fn sort_key_at(&self, position: usize) -> ListSortKey<'s> {
        self.layer.sort_key(self.row_at(position))
    }

    /// How many of its rows come before a key in the list.
    fn count_before(&self, key: ListSortKey<'_>) -> usize {
        partition_point(self.len(), |place| self.sort_key_at(place) <= key)
    }
}

/// The first place at which a condition holds that then holds on.
fn partition_point(len: usize, predicate: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut high) = (0, len);
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
    let mut places: Vec<usize> = (0..layers.len()).map(|at| count_before_offset(&layers, at, offset)).collect();
    let count = limit.min(total - offset);
    let mut rows = Vec::with_capacity(count);
    if let [layer] = layers[..] {
        rows.extend((offset..offset + count).map(|place| layer.first_row + layer.row_at(place)));
        return RowPage { total, rows };
    }
    while rows.len() < count {
        let heads = (0..layers.len()).filter(|at| places[*at] < layers[*at].len());
        let Some(at) = heads.min_by_key(|at| Reverse(layers[*at].sort_key_at(places[*at]))) else { break };
        rows.push(layers[at].first_row + layers[at].row_at(places[at]));
        places[at] += 1;
    }
    RowPage { total, rows }
}

/// The same of those rows alone that we know since a second or later. Every row is looked at.
pub fn merge_page_known_since(layers: &[FilteredLayer<'_>], second: u32, offset: usize, limit: usize) -> RowPage {
    let mut known: Vec<(ListSortKey<'_>, u32)> =
        layers.iter().flat_map(|layer| layer.rows_known_since(second)).collect();
    if layers.len() > 1 {
        known.sort_unstable_by_key(|(key, _)| Reverse(*key));
    }
    RowPage { total: known.len(), rows: known.into_iter().skip(offset).take(limit).map(|(_, row)| row).collect() }
}

/// How many rows of a run are among the first `offset` of all runs together.
fn count_before_offset(layers: &[&FilteredLayer<'_>], at: usize, offset: usize) -> usize {
    if layers.len() == 1 || offset == 0 {
        return offset;
    }
    let layer = layers[at];
    let others = || layers.iter().enumerate().filter(move |(other, _)| *other != at);
    // No more than `offset` of it, and all but what the others can fill up.
    let filled: usize = others().map(|(_, other)| other.len()).sum();
    let min_count = offset.saturating_sub(filled).min(layer.len());
    let max_count = offset.min(layer.len());
    min_count
        + partition_point(max_count - min_count, |place| {
            let key = layer.sort_key_at(min_count + place);
            let rank = min_count + place + others().map(|(_, other)| other.count_before(key)).sum::<usize>();
            rank >= offset
        })
}
