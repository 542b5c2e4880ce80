//! Updates filings: changes become a new layer, merged with small layers before it. Large layers are compacted
//! separately.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::filing_columns::DocumentKey;
use super::layer::FilingLayer;
use super::layer_builder::FilingLayerBuilder;
use super::{Filings, HiddenRows, LayerView};
use crate::error::Result;

/// A layer has at least this many times the rows of all layers after it; otherwise they are merged.
const MIN_LAYER_SIZE_RATIO: usize = 16;

/// Larger layers are merged in the background, not while a load waits to become visible.
const MAX_INLINE_MERGE_ROWS: usize = 50_000;

/// Layers to compact in the background while they are still served.
#[derive(Debug)]
pub struct CompactionJob {
    /// Index of the first of them.
    first_layer_index: usize,
    source_layers: Vec<LayerView>,
}

/// The result of a compaction.
#[derive(Debug)]
pub struct CompactedLayer {
    first_layer_index: usize,
    source_layers: Vec<LayerView>,
    layer: Arc<FilingLayer>,
}

impl Filings {
    /// Builds one layer of all filings.
    pub fn build_single_layer(builder: FilingLayerBuilder, threads: usize) -> Result<Self> {
        let mut filings = Self::default();
        filings.push_layer(Arc::new(builder.build_and_mark_latest(threads)?));
        Ok(filings)
    }

    /// Returns the filings with the rows in `changed` added, or replacing those with the same ids, and without the rows
    /// in `removed_ids`. The first `pinned_layers` layers stay unchanged, because they are being compacted.
    pub fn with_changes(
        &self,
        mut changed: FilingLayerBuilder,
        removed_ids: &[String],
        pinned_layers: usize,
    ) -> Result<Self> {
        let mut next = self.clone();
        let mut documents: HashSet<DocumentKey> = HashSet::new();
        let replaced_rows: Vec<u32> =
            changed.ids().chain(removed_ids.iter().map(String::as_str)).filter_map(|id| self.find_by_id(id)).collect();

        let mut hidden: HashMap<usize, Vec<u32>> = HashMap::new();
        for row in replaced_rows {
            let layer_index = self.layers.partition_point(|view| view.first_row <= row) - 1;
            let view = &self.layers[layer_index];
            documents.insert(view.layer.document_key(row - view.first_row));
            hidden.entry(layer_index).or_default().push(row - view.first_row);
        }
        for (layer_index, rows) in hidden {
            next.layers[layer_index].hide_rows(rows);
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

    /// The layers to compact, if it is time and the next load will not merge them anyway.
    pub fn plan_compaction(&self) -> Option<CompactionJob> {
        let rows_after = |index: usize| self.layers[index + 1..].iter().map(LayerView::len).sum::<usize>();
        let is_too_small = |index: &usize| self.layers[*index].len() < MIN_LAYER_SIZE_RATIO * rows_after(*index);
        let first_layer_index = (0..self.layers.len()).find(is_too_small)?;

        let source_layers = self.layers[first_layer_index..].to_vec();
        let rows: usize = source_layers.iter().map(LayerView::len).sum();
        (rows > MAX_INLINE_MERGE_ROWS).then_some(CompactionJob { first_layer_index, source_layers })
    }

    /// Compacts all layers regardless of size.
    #[cfg(test)]
    pub fn plan_full_compaction(&self) -> CompactionJob {
        CompactionJob { first_layer_index: 0, source_layers: self.layers.clone() }
    }

    /// Whether the source layers are still present; a rebuild from scratch replaces them.
    pub fn has_source_layers_of(&self, compacted: &CompactedLayer) -> bool {
        let current =
            self.layers.get(compacted.first_layer_index..compacted.first_layer_index + compacted.source_layers.len());
        let is_same = |(one, other): (&LayerView, &LayerView)| Arc::ptr_eq(&one.layer, &other.layer);
        current.is_some_and(|current| current.iter().zip(&compacted.source_layers).all(is_same))
    }

    /// Returns the filings with the compacted layer in place of its source layers.
    pub fn with_compacted_layer(&self, compacted: &CompactedLayer) -> Self {
        let CompactedLayer { first_layer_index, source_layers, layer } = compacted;
        let start = *first_layer_index;
        let mut next = Self { layers: self.layers[..start].to_vec() };
        next.push_layer(layer.clone());
        let view = &mut next.layers[start];

        // Apply the changes made to the rows during the compaction.
        let mut hidden = Vec::new();
        let mut latest = HashMap::new();
        for (before, now) in source_layers.iter().zip(&self.layers[start..]) {
            let compacted_row = |row: u32| view.layer.find_by_id(before.layer.get(row).id);
            let newly_hidden = now.hidden.all.iter().filter(|row| !before.hidden.contains(**row));
            hidden.extend(newly_hidden.filter_map(|row| compacted_row(*row)));
            let changed = now.latest_overrides.iter().filter(|(row, is_latest)| before.is_latest(**row) != **is_latest);
            latest.extend(changed.filter_map(|(row, is_latest)| Some((compacted_row(*row)?, *is_latest))));
        }
        view.hide_rows(hidden);
        view.latest_overrides = Arc::new(latest);

        for view in &self.layers[start + source_layers.len()..] {
            let first_row = next.next_row_number();
            next.layers.push(LayerView { first_row, ..view.clone() });
        }
        next
    }

    fn next_row_number(&self) -> u32 {
        self.layers.last().map_or(0, |last| last.first_row + last.layer.len() as u32)
    }

    pub(super) fn push_layer(&mut self, layer: Arc<FilingLayer>) {
        let first_row = self.next_row_number();
        self.layers.push(LayerView { layer, first_row, hidden: Arc::default(), latest_overrides: Arc::default() });
    }

    /// Marks the highest version of each document as the latest; of equal versions the newest.
    fn update_latest_versions(&mut self, documents: &HashSet<DocumentKey>) {
        let mut changes: Vec<HashMap<u32, bool>> = vec![HashMap::new(); self.layers.len()];
        for document in documents {
            let versions: Vec<(usize, u32)> = self
                .layers
                .iter()
                .enumerate()
                .flat_map(|(layer_index, view)| {
                    view.layer
                        .rows_of_document(document)
                        .filter(|row| !view.hidden.contains(*row))
                        .map(move |row| (layer_index, row))
                })
                .collect();

            let latest = versions.iter().copied().max_by_key(|(layer_index, row)| {
                let layer = &self.layers[*layer_index].layer;
                (layer.version(*row), layer.sort_key(*row))
            });
            for version in versions {
                let (layer_index, row) = version;
                let is_latest = Some(version) == latest;
                if self.layers[layer_index].is_latest(row) != is_latest {
                    changes[layer_index].insert(row, is_latest);
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
    /// Number of the first layers that must stay unchanged until the compaction ends.
    pub fn pinned_layer_count(&self) -> usize {
        self.first_layer_index + self.source_layers.len()
    }

    /// Takes long, and occupies one of the threads that serve.
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
