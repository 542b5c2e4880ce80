//! Pages of a list that lies in several layers: each layer's rows are a run, and a page is found without walking there.

use std::cmp::Reverse;

use super::layer::{Key, Layer, Rows};
use crate::Found;

/// The rows of one layer that a filter leaves, in the order of the list.
#[derive(Debug)]
pub struct Run<'s> {
    layer: &'s Layer,
    /// The number of the layer's first row.
    first: u32,
    rows: Rows<'s>,
    /// Those among `rows` that are no more, sorted.
    hidden: &'s [u32],
}

impl<'s> Run<'s> {
    /// `hidden` may hold rows around `rows` too.
    pub fn new(layer: &'s Layer, first: u32, rows: Rows<'s>, hidden: &'s [u32]) -> Self {
        let hidden = match rows.len() {
            0 => &[],
            count => {
                let start = hidden.partition_point(|row| *row < rows.get(0));
                let end = hidden.partition_point(|row| *row <= rows.get(count - 1));
                &hidden[start..end]
            }
        };
        Self { layer, first, rows, hidden }
    }

    pub fn len(&self) -> usize {
        self.rows.len() - self.hidden.len()
    }

    /// The row at a place among those that are not hidden.
    fn row(&self, place: usize) -> u32 {
        // As many hidden ones come before it as leave fewer others before them.
        let (mut low, mut high) = (0, self.hidden.len());
        while low < high {
            let middle = low + (high - low) / 2;
            if self.rows.before(self.hidden[middle]) - middle <= place {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        self.rows.get(place + low)
    }

    /// Those that we know since this second or later, in order.
    pub fn known_since(&self, second: u32) -> impl Iterator<Item = (Key<'s>, u32)> {
        let rows = (0..self.rows.len()).map(|at| self.rows.get(at));
        let is_known = move |row: &u32| self.layer.known_at(*row) >= second && self.hidden.binary_search(row).is_err();
        rows.filter(is_known).map(|row| (self.layer.key(row), self.first + row))
    }

    fn key(&self, place: usize) -> Key<'s> {
        self.layer.key(self.row(place))
    }

    /// How many of its rows come before a key in the list.
    fn before(&self, key: Key<'_>) -> usize {
        first_where(self.len(), |place| self.key(place) <= key)
    }
}

/// The first place at which a condition holds that then holds on.
fn first_where(len: usize, holds: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut high) = (0, len);
    while low < high {
        let middle = low + (high - low) / 2;
        if holds(middle) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    low
}

pub fn page(runs: &[Run<'_>], offset: usize, limit: usize) -> Found {
    let runs: Vec<&Run<'_>> = runs.iter().filter(|run| run.len() > 0).collect();
    let total = runs.iter().map(|run| run.len()).sum();
    if offset >= total {
        return Found { total, rows: Vec::new() };
    }
    let mut places: Vec<usize> = (0..runs.len()).map(|at| before_offset(&runs, at, offset)).collect();
    let count = limit.min(total - offset);
    let mut rows = Vec::with_capacity(count);
    if let [run] = runs[..] {
        rows.extend((offset..offset + count).map(|place| run.first + run.row(place)));
        return Found { total, rows };
    }
    while rows.len() < count {
        let heads = (0..runs.len()).filter(|at| places[*at] < runs[*at].len());
        let Some(at) = heads.min_by_key(|at| Reverse(runs[*at].key(places[*at]))) else { break };
        rows.push(runs[at].first + runs[at].row(places[at]));
        places[at] += 1;
    }
    Found { total, rows }
}

/// The same of those rows alone that we know since a second or later. Every row is looked at.
pub fn page_known_since(runs: &[Run<'_>], second: u32, offset: usize, limit: usize) -> Found {
    let mut known: Vec<(Key<'_>, u32)> = runs.iter().flat_map(|run| run.known_since(second)).collect();
    if runs.len() > 1 {
        known.sort_unstable_by_key(|(key, _)| Reverse(*key));
    }
    Found { total: known.len(), rows: known.into_iter().skip(offset).take(limit).map(|(_, row)| row).collect() }
}

/// How many rows of a run are among the first `offset` of all runs together.
fn before_offset(runs: &[&Run<'_>], at: usize, offset: usize) -> usize {
    if runs.len() == 1 || offset == 0 {
        return offset;
    }
    let run = runs[at];
    let others = || runs.iter().enumerate().filter(move |(other, _)| *other != at);
    // No more than `offset` of it, and all but what the others can fill up.
    let filled: usize = others().map(|(_, other)| other.len()).sum();
    let least = offset.saturating_sub(filled).min(run.len());
    let most = offset.min(run.len());
    least
        + first_where(most - least, |place| {
            let key = run.key(least + place);
            let rank = least + place + others().map(|(_, other)| other.before(key)).sum::<usize>();
            rank >= offset
        })
}
