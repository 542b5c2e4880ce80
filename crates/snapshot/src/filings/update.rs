//! The next generation of filings: what changed becomes a layer of its own, together with small ones before it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::layer::{DocumentKey, FilingLayer, FilingLayerBuilder};
use super::{Filings, HiddenRows, LayerView};
use crate::Result;

/// A layer has at least so many times the rows of all that follow it; where not, they become one.
const MIN_LAYER_SIZE_RATIO: usize = 16;

/// Larger layers are not rebuilt while a load waits to be seen, but aside.
const MAX_INLINE_MERGE_ROWS: usize = 50_000;

/// Layers that are to become one, aside from what is served meanwhile.
#[derive(Debug)]
pub struct CompactionJob {
    /// The place of the first of them.
    first_layer_index: usize,
    source_layers: Vec<LayerView>,
}

/// The one that they became.
#[derive(Debug)]
pub struct CompactedLayer {
    first_layer_index: usize,
    source_layers: Vec<LayerView>,
    layer: Arc<FilingLayer>,
}

impl Filings {
    /// All that there is, as one layer.
    pub fn build_single_layer(builder: FilingLayerBuilder, threads: usize) -> Result<Self> {
        let mut filings = Self::default();
        filings.push_layer(Arc::new(builder.build_and_mark_latest(threads)?));
        Ok(filings)
    }

    /// The same with these rows, new or in place of those with the same ids, and without those of other ids. The first
    /// `kept` layers stay as they are: they are being made one.
    pub fn with_changes(
        &self,
        mut changed: FilingLayerBuilder,
        removed_ids: &[String],
        pinned_layers: usize,
    ) -> Result<Self> {
        let mut next = self.clone();
        let mut documents: HashSet<DocumentKey> = HashSet::new();
        let ids: Vec<u32> =
            changed.ids().chain(removed_ids.iter().map(String::as_str)).filter_map(|id| self.find_by_id(id)).collect();
        let mut hidden: HashMap<usize, Vec<u32>> = HashMap::new();
        for row in ids {
            let at = self.layers.partition_point(|view| view.first_row <= row) - 1;
            let view = &self.layers[at];
            documents.insert(view.layer.document_key(row - view.first_row));
            hidden.entry(at).or_default().push(row - view.first_row);
        }
        for (at, rows) in hidden {
            next.layers[at].hide_rows(rows);
        }
        documents.extend(changed.document_keys());
        let is_small = |view: &LayerView, rows: usize| {
            view.len() < MIN_LAYER_SIZE_RATIO * rows && view.len() + rows <= MAX_INLINE_MERGE_ROWS || view.len() == 0
        };
        while next.layers.len() > pinned_layers
            && let Some(last) = next.layers.pop_if(|last| is_small(last, changed.len()))
        {
            last.append_rows_to(&mut changed);
        }
        if !changed.is_empty() {
            next.push_layer(Arc::new(changed.build(1)?));
        }
        next.update_latest_versions(&documents);
        Ok(next)
    }

    /// The layers that should become one, if it is time and the next load will not do it by itself.
    pub fn plan_compaction(&self) -> Option<CompactionJob> {
        let following = |at: usize| self.layers[at + 1..].iter().map(LayerView::len).sum::<usize>();
        let start = (0..self.layers.len()).find(|at| self.layers[*at].len() < MIN_LAYER_SIZE_RATIO * following(*at))?;
        let layers = self.layers[start..].to_vec();
        let rows: usize = layers.iter().map(LayerView::len).sum();
        (rows > MAX_INLINE_MERGE_ROWS).then_some(CompactionJob { first_layer_index: start, source_layers: layers })
    }

    /// Of whatever layers there are.
    #[cfg(test)]
    pub fn plan_full_compaction(&self) -> CompactionJob {
        CompactionJob { first_layer_index: 0, source_layers: self.layers.clone() }
    }

    /// Whether the layers that it was made of are still there; a rebuild from scratch has others.
    pub fn has_source_layers_of(&self, compacted: &CompactedLayer) -> bool {
        let held =
            self.layers.get(compacted.first_layer_index..compacted.first_layer_index + compacted.source_layers.len());
        let is_same = |(one, other): (&LayerView, &LayerView)| Arc::ptr_eq(&one.layer, &other.layer);
        held.is_some_and(|held| held.iter().zip(&compacted.source_layers).all(is_same))
    }

    /// With the one layer in the place of those that it was made of.
    pub fn with_compacted_layer(&self, compacted: &CompactedLayer) -> Self {
        let CompactedLayer { first_layer_index: start, source_layers: old, layer } = compacted;
        let start = *start;
        let mut next = Self { layers: self.layers[..start].to_vec() };
        next.push_layer(layer.clone());
        let view = &mut next.layers[start];
        let (mut hidden, mut latest) = (Vec::new(), HashMap::new());
        // What happened to the rows meanwhile.
        for (before, now) in old.iter().zip(&self.layers[start..]) {
            let in_new = |row: u32| view.layer.find_by_id(before.layer.get(row).id);
            let newly_hidden = now.hidden.all.iter().filter(|row| !before.hidden.contains(**row));
            hidden.extend(newly_hidden.filter_map(|row| in_new(*row)));
            let changed = now.latest_overrides.iter().filter(|(row, is_latest)| before.is_latest(**row) != **is_latest);
            latest.extend(changed.filter_map(|(row, is_latest)| Some((in_new(*row)?, *is_latest))));
        }
        view.hide_rows(hidden);
        view.latest_overrides = Arc::new(latest);
        for view in &self.layers[start + old.len()..] {
            let first = next.next_row_number();
            next.layers.push(LayerView { first_row: first, ..view.clone() });
        }
        next
    }

    fn next_row_number(&self) -> u32 {
        self.layers.last().map_or(0, |last| last.first_row + last.layer.len() as u32)
    }

    pub(super) fn push_layer(&mut self, layer: Arc<FilingLayer>) {
        let first = self.next_row_number();
        self.layers.push(LayerView {
            layer,
            first_row: first,
            hidden: Arc::default(),
            latest_overrides: Arc::default(),
        });
    }

    /// Of the versions of each document the highest is the latest, the newest of equals.
    fn update_latest_versions(&mut self, documents: &HashSet<DocumentKey>) {
        let mut changes: Vec<HashMap<u32, bool>> = vec![HashMap::new(); self.layers.len()];
        for document in documents {
            let versions: Vec<(usize, u32)> = self
                .layers
                .iter()
                .enumerate()
                .flat_map(|(at, view)| {
                    view.layer
                        .rows_of_document(document)
                        .filter(|row| !view.hidden.contains(*row))
                        .map(move |row| (at, row))
                })
                .collect();
            let latest = versions.iter().copied().max_by_key(|(at, row)| {
                let layer = &self.layers[*at].layer;
                (layer.version(*row), layer.sort_key(*row))
            });
            for version in versions {
                let (at, row) = version;
                let is_latest = Some(version) == latest;
                if self.layers[at].is_latest(row) != is_latest {
                    changes[at].insert(row, is_latest);
                }
            }
        }
        for (view, changes) in self.layers.iter_mut().zip(changes) {
            if !changes.is_empty() {
                Arc::make_mut(&mut view.latest_overrides).extend(changes);
            }
        }
    }
}

impl CompactionJob {
    /// So many of the first layers must stay as they are until it ends.
    pub fn pinned_layer_count(&self) -> usize {
        self.first_layer_index + self.source_layers.len()
    }

    /// Takes long, and one thread of those that serve.
    pub fn run(self) -> Result<CompactedLayer> {
        let mut rows = FilingLayerBuilder::default();
        for view in &self.source_layers {
            view.append_rows_to(&mut rows);
        }
        Ok(CompactedLayer {
            first_layer_index: self.first_layer_index,
            layer: Arc::new(rows.build(1)?),
            source_layers: self.source_layers,
        })
    }
}

impl LayerView {
    fn hide_rows(&mut self, rows: Vec<u32>) {
        let all = self.hidden.all.iter().copied().chain(rows).collect();
        self.hidden = Arc::new(HiddenRows::new(&self.layer, all));
    }

    fn append_rows_to(&self, builder: &mut FilingLayerBuilder) {
        for row in self.visible_rows() {
            builder.push(&self.layer.get(row), self.is_latest(row));
        }
    }
}
