//! The next generation of filings: what changed becomes a layer of its own, together with small ones before it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::layer::{Document, Layer, LayerBuilder};
use super::{Filings, Hidden, Laid};
use crate::Result;

/// A layer has at least so many times the rows of all that follow it; where not, they become one.
const LEAST_RATIO: usize = 16;

/// Larger layers are not rebuilt while a load waits to be seen, but aside.
const MOST_ROWS_AT_ONCE: usize = 50_000;

/// Layers that are to become one, aside from what is served meanwhile.
#[derive(Debug)]
pub struct Compaction {
    /// The place of the first of them.
    start: usize,
    layers: Vec<Laid>,
}

/// The one that they became.
#[derive(Debug)]
pub struct Compacted {
    start: usize,
    layers: Vec<Laid>,
    layer: Arc<Layer>,
}

impl Filings {
    /// All that there is, as one layer.
    pub fn first(rows: LayerBuilder, threads: usize) -> Result<Self> {
        let mut filings = Self::default();
        filings.lay(Arc::new(rows.build_first(threads)?));
        Ok(filings)
    }

    /// The same with these rows, new or in place of those with the same ids, and without those of other ids. The first
    /// `kept` layers stay as they are: they are being made one.
    pub fn next(&self, mut changed: LayerBuilder, gone: &[String], kept: usize) -> Result<Self> {
        let mut next = self.clone();
        let mut documents: HashSet<Document> = HashSet::new();
        let ids: Vec<u32> =
            changed.ids().chain(gone.iter().map(String::as_str)).filter_map(|id| self.by_id(id)).collect();
        let mut hidden: HashMap<usize, Vec<u32>> = HashMap::new();
        for row in ids {
            let at = self.layers.partition_point(|laid| laid.first <= row) - 1;
            let laid = &self.layers[at];
            documents.insert(laid.layer.document(row - laid.first));
            hidden.entry(at).or_default().push(row - laid.first);
        }
        for (at, rows) in hidden {
            next.layers[at].hide(rows);
        }
        documents.extend(changed.documents());
        let is_small = |laid: &Laid, rows: usize| {
            laid.len() < LEAST_RATIO * rows && laid.len() + rows <= MOST_ROWS_AT_ONCE || laid.len() == 0
        };
        while next.layers.len() > kept
            && let Some(last) = next.layers.pop_if(|last| is_small(last, changed.len()))
        {
            last.push_to(&mut changed);
        }
        if !changed.is_empty() {
            next.lay(Arc::new(changed.build(1)?));
        }
        next.settle_latest(&documents);
        Ok(next)
    }

    /// The layers that should become one, if it is time and the next load will not do it by itself.
    pub fn compaction(&self) -> Option<Compaction> {
        let following = |at: usize| self.layers[at + 1..].iter().map(Laid::len).sum::<usize>();
        let start = (0..self.layers.len()).find(|at| self.layers[*at].len() < LEAST_RATIO * following(*at))?;
        let layers = self.layers[start..].to_vec();
        let rows: usize = layers.iter().map(Laid::len).sum();
        (rows > MOST_ROWS_AT_ONCE).then_some(Compaction { start, layers })
    }

    /// Of whatever layers there are.
    #[cfg(test)]
    pub fn compaction_of_all(&self) -> Compaction {
        Compaction { start: 0, layers: self.layers.clone() }
    }

    /// Whether the layers that it was made of are still there; a rebuild from scratch has others.
    pub fn holds_all_of(&self, compacted: &Compacted) -> bool {
        let held = self.layers.get(compacted.start..compacted.start + compacted.layers.len());
        let is_same = |(one, other): (&Laid, &Laid)| Arc::ptr_eq(&one.layer, &other.layer);
        held.is_some_and(|held| held.iter().zip(&compacted.layers).all(is_same))
    }

    /// With the one layer in the place of those that it was made of.
    pub fn compacted(&self, compacted: &Compacted) -> Self {
        let Compacted { start, layers: old, layer } = compacted;
        let start = *start;
        let mut next = Self { layers: self.layers[..start].to_vec() };
        next.lay(layer.clone());
        let laid = &mut next.layers[start];
        let (mut hidden, mut latest) = (Vec::new(), HashMap::new());
        // What happened to the rows meanwhile.
        for (before, now) in old.iter().zip(&self.layers[start..]) {
            let in_new = |row: u32| laid.layer.by_id(before.layer.get(row).id);
            let newly_hidden = now.hidden.all.iter().filter(|row| !before.hidden.holds(**row));
            hidden.extend(newly_hidden.filter_map(|row| in_new(*row)));
            let changed = now.latest.iter().filter(|(row, is_latest)| before.is_latest(**row) != **is_latest);
            latest.extend(changed.filter_map(|(row, is_latest)| Some((in_new(*row)?, *is_latest))));
        }
        laid.hide(hidden);
        laid.latest = Arc::new(latest);
        for laid in &self.layers[start + old.len()..] {
            let first = next.end();
            next.layers.push(Laid { first, ..laid.clone() });
        }
        next
    }

    fn end(&self) -> u32 {
        self.layers.last().map_or(0, |last| last.first + last.layer.len() as u32)
    }

    pub(super) fn lay(&mut self, layer: Arc<Layer>) {
        let first = self.end();
        self.layers.push(Laid { layer, first, hidden: Arc::default(), latest: Arc::default() });
    }

    /// Of the versions of each document the highest is the latest, the newest of equals.
    fn settle_latest(&mut self, documents: &HashSet<Document>) {
        let mut changes: Vec<HashMap<u32, bool>> = vec![HashMap::new(); self.layers.len()];
        for document in documents {
            let versions: Vec<(usize, u32)> = self
                .layers
                .iter()
                .enumerate()
                .flat_map(|(at, laid)| {
                    laid.layer.versions(document).filter(|row| !laid.hidden.holds(*row)).map(move |row| (at, row))
                })
                .collect();
            let latest = versions.iter().copied().max_by_key(|(at, row)| {
                let layer = &self.layers[*at].layer;
                (layer.version(*row), layer.key(*row))
            });
            for version in versions {
                let (at, row) = version;
                let is_latest = Some(version) == latest;
                if self.layers[at].is_latest(row) != is_latest {
                    changes[at].insert(row, is_latest);
                }
            }
        }
        for (laid, changes) in self.layers.iter_mut().zip(changes) {
            if !changes.is_empty() {
                Arc::make_mut(&mut laid.latest).extend(changes);
            }
        }
    }
}

impl Compaction {
    /// So many of the first layers must stay as they are until it ends.
    pub fn end(&self) -> usize {
        self.start + self.layers.len()
    }

    /// Takes long, and one thread of those that serve.
    pub fn run(self) -> Result<Compacted> {
        let mut rows = LayerBuilder::default();
        for laid in &self.layers {
            laid.push_to(&mut rows);
        }
        Ok(Compacted { start: self.start, layer: Arc::new(rows.build(1)?), layers: self.layers })
    }
}

impl Laid {
    fn hide(&mut self, rows: Vec<u32>) {
        let all = self.hidden.all.iter().copied().chain(rows).collect();
        self.hidden = Arc::new(Hidden::new(&self.layer, all));
    }

    fn push_to(&self, rows: &mut LayerBuilder) {
        for row in self.live_rows() {
            rows.push(&self.layer.get(row), self.is_latest(row));
        }
    }
}
