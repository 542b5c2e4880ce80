//! Compares layered filings with a model without layers: a plain list that is scanned from end to end.

use std::collections::BTreeMap;
use std::fs;

use chrono::{Datelike, Days, NaiveDate};
use proptest::prelude::*;
use vintem_domain::text::normalize_text;
use vintem_domain::{CvmDataset, DateRange};
use vintem_store::reader::{FilingRow, RowProvenance};

use super::update::CompactedLayer;
use super::{FilingFilter, FilingLayerBuilder, Filings};
use crate::test_directory::TestDirectory;
use crate::{RowPage, SearchOptions, SearchResults, ValueCounts};

const NAMES: [&str; 3] = ["CERÂMICA SERRA S.A.", "BANCO VALE", "SERRA AZUL S/A"];
const CATEGORIES: [&str; 3] = ["Fato Relevante", "FATO RELEVANTE", "Assembleia"];
const SUBJECTS: [&str; 3] = ["Pagamento de dividendos", "Reunião do conselho", "Dividendos e reuniões"];

#[derive(Debug, Clone, PartialEq)]
struct ModelFiling {
    id: String,
    set: CvmDataset,
    company: u32,
    name: usize,
    category: usize,
    subject: usize,
    day: u64,
    reference: Option<u64>,
    version: u16,
}

fn day(number: u64) -> NaiveDate {
    NaiveDate::from_ymd_opt(2025, 12, 29).unwrap() + Days::new(number)
}

impl ModelFiling {
    fn filing_row(&self) -> FilingRow<'_> {
        FilingRow {
            id: &self.id,
            cvm_dataset: self.set,
            company_id: self.company,
            company_name: NAMES[self.name],
            category: CATEGORIES[self.category],
            doc_type: self.doc_type(),
            subject: SUBJECTS[self.subject],
            delivered_on: day(self.day),
            reference_date: self.reference.map(day),
            version: self.version,
            provenance: RowProvenance { known_at_seconds: self.known_at(), fetch_id: u32::from(self.version) },
            ..FilingRow::default()
        }
    }

    fn doc_type(&self) -> &'static str {
        if self.company.is_multiple_of(2) { "Ata" } else { "Edital de Convocação" }
    }

    /// Any time that differs between some of the rows.
    fn known_at(&self) -> u32 {
        100 * u32::from(self.version) + self.company
    }

    /// Identifies the document that this filing is a version of.
    fn document_key(&self) -> impl PartialEq + use<> {
        let subject = (self.set == CvmDataset::Ipe).then_some(self.subject);
        (self.set, self.company, self.category, self.reference, subject)
    }
}

/// A load of new or changed rows and removed ids, possibly with a compaction.
#[derive(Debug, Clone)]
struct LoadStep {
    changed: Vec<ModelFiling>,
    removed_ids: Vec<String>,
    compaction: CompactionTiming,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum CompactionTiming {
    Never,
    AfterLoad,
    /// Starts before this load and ends after it.
    DuringLoad,
}

fn any_model_filing() -> impl Strategy<Value = ModelFiling> {
    let set = prop_oneof![3 => Just(CvmDataset::Ipe), 1 => Just(CvmDataset::Dfp)];
    (0u32..60, set, 1u32..4, 0usize..3, 0usize..3, 0usize..3, 0u64..8, proptest::option::of(0u64..2), 1u16..4).prop_map(
        |(id, set, company, name, category, subject, day, reference, version)| ModelFiling {
            // Ids of different lengths, some equal in their first eight bytes.
            id: if id % 3 == 0 { format!("long-common-beginning-{id}") } else { id.to_string() },
            set,
            company,
            name,
            category,
            subject,
            day,
            reference,
            version,
        },
    )
}

fn any_load_step() -> impl Strategy<Value = LoadStep> {
    let changed = proptest::collection::vec(any_model_filing(), 0..12);
    let removed = proptest::collection::vec(0u32..60, 0..4);
    let compaction = prop_oneof![
        3 => Just(CompactionTiming::Never),
        1 => Just(CompactionTiming::AfterLoad),
        1 => Just(CompactionTiming::DuringLoad),
    ];
    (changed, removed, compaction).prop_map(|(changed, removed, compaction)| LoadStep {
        changed,
        removed_ids: removed.iter().map(u32::to_string).collect(),
        compaction,
    })
}

fn layer_builder_of<'m>(rows: impl Iterator<Item = &'m ModelFiling>) -> FilingLayerBuilder {
    let mut builder = FilingLayerBuilder::default();
    for row in rows {
        builder.push(&row.filing_row(), false);
    }
    builder
}

/// Compacts all layers into one, if there are several.
fn compact_all_layers(filings: &Filings) -> Option<CompactedLayer> {
    (filings.layers.len() > 1).then(|| filings.plan_full_compaction().run().unwrap())
}

fn apply_load_step(
    filings: &Filings,
    expected_filings: &mut BTreeMap<String, ModelFiling>,
    step: &LoadStep,
) -> Filings {
    let compaction = if step.compaction == CompactionTiming::DuringLoad { compact_all_layers(filings) } else { None };

    // Of two rows with the same id the later one counts. A row that is both changed and removed exists.
    let changed: BTreeMap<&str, &ModelFiling> = step.changed.iter().map(|row| (row.id.as_str(), row)).collect();
    let removed_ids: Vec<String> =
        step.removed_ids.iter().filter(|id| !changed.contains_key(id.as_str())).cloned().collect();
    let pinned_layers = compaction.as_ref().map_or(0, |_| filings.layers.len());

    // Pins all layers, so that there are many although they are small.
    let mut next = filings
        .with_changes(
            layer_builder_of(changed.values().copied()),
            &removed_ids,
            pinned_layers.max(filings.layers.len()),
        )
        .unwrap();
    expected_filings.retain(|id, _| !removed_ids.contains(id));
    expected_filings.extend(changed.into_iter().map(|(id, row)| (id.to_owned(), row.clone())));

    if let Some(compacted) = compaction {
        assert!(next.has_source_layers_of(&compacted));
        next = next.with_compacted_layer(&compacted);
    }
    match step.compaction {
        CompactionTiming::AfterLoad => {
            compact_all_layers(&next).map_or(next.clone(), |compacted| next.with_compacted_layer(&compacted))
        }
        _ => next,
    }
}

/// The filings that match a filter, in list order.
fn expected_list<'m>(
    expected_filings: &'m BTreeMap<String, ModelFiling>,
    filter: &FilingFilter,
) -> Vec<&'m ModelFiling> {
    let category = filter.category.as_deref().map(normalize_text);
    let doc_type = filter.doc_type.as_deref().map(normalize_text);
    let mut rows: Vec<&ModelFiling> = expected_filings
        .values()
        .filter(|row| category.as_ref().is_none_or(|category| normalize_text(CATEGORIES[row.category]) == *category))
        .filter(|row| doc_type.as_ref().is_none_or(|doc_type| normalize_text(row.doc_type()) == *doc_type))
        .filter(|row| filter.company.is_none_or(|company| row.company == company))
        .filter(|row| (filter.days.from..=filter.days.to).contains(&day(row.day)))
        .filter(|row| filter.known_since.is_none_or(|second| row.known_at() >= second))
        .collect();

    rows.sort_by(|one, other| (other.day, &other.id).cmp(&(one.day, &one.id)));
    rows
}

fn page_ids<'f>(filings: &'f Filings, page: &RowPage) -> Vec<&'f str> {
    page.rows.iter().map(|row| filings.get(*row).filing.id).collect()
}

/// Counts by category and by year, regardless of order and spelling.
fn fold_facet_values(facets: &[ValueCounts; 2]) -> [BTreeMap<String, usize>; 2] {
    facets.each_ref().map(|counts| counts.iter().map(|(value, count)| (normalize_text(value), *count)).collect())
}

fn expected_facet_counts<'m>(rows: impl Iterator<Item = &'m ModelFiling>) -> [BTreeMap<String, usize>; 2] {
    let mut counts: [BTreeMap<String, usize>; 2] = Default::default();
    for row in rows {
        *counts[0].entry(normalize_text(CATEGORIES[row.category])).or_default() += 1;
        *counts[1].entry(day(row.day).year().to_string()).or_default() += 1;
    }
    counts
}

fn all_filters() -> Vec<FilingFilter> {
    let mut filters = Vec::new();
    for category in [None, Some("fato relevante"), Some("ASSEMBLÉIA"), Some("nenhuma")] {
        for company in [None, Some(1), Some(2), Some(99)] {
            for (from, to) in [(0, 8), (2, 5), (3, 3), (7, 100)] {
                let days = DateRange { from: day(from), to: day(to) };
                for (doc_type, known_since) in
                    [(None, None), (None, Some(102)), (None, Some(201)), (Some("edital de convocacao"), None)]
                {
                    let category = category.map(str::to_owned);
                    let doc_type = doc_type.map(str::to_owned);
                    filters.push(FilingFilter { category, doc_type, company, days, known_since });
                }
            }
        }
    }
    filters
}

/// Compares every filter and page, every row, searches, facets and issuer names.
fn assert_matches_model(filings: &Filings, expected_filings: &BTreeMap<String, ModelFiling>) {
    assert_eq!(filings.len(), expected_filings.len());
    for filter in all_filters() {
        let expected = expected_list(expected_filings, &filter);
        for (offset, limit) in [(0, 100), (0, 1), (1, 3), (expected.len() / 2, 4), (expected.len(), 5), (1_000, 5)] {
            let found = filings.list(&filter, offset, limit);
            let page: Vec<&str> = expected.iter().skip(offset).take(limit).map(|row| row.id.as_str()).collect();
            assert_eq!((found.total, page_ids(filings, &found)), (expected.len(), page), "{filter:?} {offset} {limit}");
        }
    }

    for filter in all_filters() {
        // Subjects 1 and 2 contain the word, and every filing contains its id.
        let expected = expected_list(expected_filings, &filter);
        for (text, is_expected) in [
            ("reunioes", (|row| [1, 2].contains(&row.subject)) as fn(&ModelFiling) -> bool),
            ("long-common-beginning-3", |row| row.id == "long-common-beginning-3"),
        ] {
            let ids: Vec<&str> = expected.iter().filter(|row| is_expected(row)).map(|row| row.id.as_str()).collect();
            let found = filings.list_containing(text, &filter, 1, 3).unwrap();
            let page: Vec<&str> = ids.iter().skip(1).take(3).copied().collect();
            assert_eq!((found.total, page_ids(filings, &found)), (ids.len(), page), "{text} {filter:?}");
        }
    }

    for number in 0..60u32 {
        for id in [number.to_string(), format!("long-common-beginning-{number}")] {
            let found = filings.find_by_id(&id).map(|row| filings.get(row));
            let row = expected_filings.get(&id);
            assert_eq!(found.map(|view| view.filing), row.map(ModelFiling::filing_row), "{id}");
            let is_latest = row.map(|row| {
                let others = expected_filings.values().filter(|other| other.document_key() == row.document_key());
                others.map(|other| (other.version, other.day, &other.id)).max() == Some((row.version, row.day, &row.id))
            });
            assert_eq!(found.map(|view| view.is_latest), is_latest, "{id}");
        }
    }

    for (query, subjects) in [("dividendos", &[0, 2][..]), ("reuniao", &[1, 2]), ("dividendos reuniões", &[2])] {
        let expected = expected_filings.values().filter(|row| subjects.contains(&row.subject) && row.day <= 5).count();
        let search =
            |offset, limit| filings.search(query, day(5), SearchOptions { offset, limit, count_facets: true }).unwrap();
        let SearchResults { page: found, facet_counts, .. } = search(0, 100);
        assert_eq!((found.total, found.rows.len()), (expected, expected), "{query}");
        let pages: Vec<u32> = (0..60).step_by(7).flat_map(|offset| search(offset, 7).page.rows).collect();
        assert_eq!(pages, found.rows, "{query}");
        let rows = expected_filings.values().filter(|row| subjects.contains(&row.subject) && row.day <= 5);
        assert_eq!(fold_facet_values(&facet_counts), expected_facet_counts(rows), "{query}");
    }
    assert_eq!(
        fold_facet_values(&filings.facet_counts(day(5))),
        expected_facet_counts(expected_filings.values().filter(|row| row.day <= 5))
    );

    let issuers: Vec<(u32, &str)> =
        filings.issuer_names(day(1_000)).into_iter().map(|(id, (name, _))| (id, name)).collect();
    let mut newest: BTreeMap<u32, &ModelFiling> = BTreeMap::new();
    for row in expected_filings.values() {
        let newest_row = newest.entry(row.company).or_insert(row);
        if (row.day, &row.id) > (newest_row.day, &newest_row.id) {
            *newest_row = row;
        }
    }
    assert_eq!(issuers, newest.into_iter().map(|(company, row)| (company, NAMES[row.name])).collect::<Vec<_>>());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn layered_filings_read_like_a_single_list(
        first in proptest::collection::vec(any_model_filing(), 0..60),
        steps in proptest::collection::vec(any_load_step(), 0..6),
    ) {
        let mut expected: BTreeMap<String, ModelFiling> = first.into_iter().map(|row| (row.id.clone(), row)).collect();
        let mut filings = Filings::build_single_layer(layer_builder_of(expected.values()), 1).unwrap();
        assert_matches_model(&filings, &expected);

        for step in &steps {
            filings = apply_load_step(&filings, &mut expected, step);
            assert_matches_model(&filings, &expected);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn filings_loaded_from_disk_equal_those_saved(
        first in proptest::collection::vec(any_model_filing(), 0..40),
        steps in proptest::collection::vec(any_load_step(), 0..4),
    ) {
        let directory = TestDirectory::new();
        let mut expected: BTreeMap<String, ModelFiling> = first.into_iter().map(|row| (row.id.clone(), row)).collect();
        let mut filings = Filings::build_single_layer(layer_builder_of(expected.values()), 1).unwrap();
        filings.save(&directory.0).unwrap();

        for step in &steps {
            filings = apply_load_step(&filings, &mut expected, step);
            let files = filings.save(&directory.0).unwrap();
            assert_eq!(files.len(), filings.layers.len() + 1);

            let loaded = Filings::load(&directory.0, &files).unwrap();
            assert_matches_model(&loaded, &expected);

            // Loaded filings accept further loads as well.
            let next_step = LoadStep {
                changed: vec![simple_filing(7, 9)],
                removed_ids: vec!["8".to_owned()],
                compaction: CompactionTiming::AfterLoad,
            };
            let mut expected = expected.clone();
            let next = apply_load_step(&loaded, &mut expected, &next_step);
            assert_matches_model(&next, &expected);
        }
    }
}

#[test]
fn a_layer_file_is_written_only_once() {
    let directory = TestDirectory::new();
    let filings =
        Filings::build_single_layer(layer_builder_of([simple_filing(1, 1), simple_filing(2, 1)].iter()), 1).unwrap();
    let before = filings.save(&directory.0).unwrap();
    fs::remove_file(directory.0.join(&before[1])).unwrap();

    let next = filings.with_changes(layer_builder_of([simple_filing(3, 1)].iter()), &[], 1).unwrap();
    let after = next.save(&directory.0).unwrap();
    assert_eq!((before.len(), after.len()), (2, 3));
    assert_eq!(after[1], before[1]);
    assert!(!directory.read_files().contains_key(&before[1]));
}

#[test]
fn a_damaged_file_is_rejected_wherever_the_damage_is() {
    let directory = TestDirectory::new();
    let filings =
        Filings::build_single_layer(layer_builder_of([simple_filing(1, 1), simple_filing(2, 1)].iter()), 1).unwrap();
    let files = filings.save(&directory.0).unwrap();

    for (name, content) in directory.read_files() {
        let path = directory.0.join(&name);
        for position in (0..content.len()).step_by(content.len().div_ceil(200)).chain([content.len() - 1]) {
            let mut damaged = content.clone();
            damaged[position] ^= 0x40;
            fs::write(&path, &damaged).unwrap();
            assert!(Filings::load(&directory.0, &files).is_err(), "byte {position} of {name}");
            fs::write(&path, &content[..position]).unwrap();
            assert!(Filings::load(&directory.0, &files).is_err(), "{name} cut at {position}");
        }
        fs::remove_file(&path).unwrap();
        assert!(Filings::load(&directory.0, &files).is_err(), "without {name}");
        fs::write(&path, &content).unwrap();
    }
    assert!(Filings::load(&directory.0, &files).is_ok());
}

fn simple_filing(id: u32, version: u16) -> ModelFiling {
    ModelFiling {
        id: id.to_string(),
        set: CvmDataset::Ipe,
        company: 1,
        name: 0,
        category: 0,
        subject: 0,
        day: 0,
        reference: None,
        version,
    }
}

#[test]
fn small_loads_are_merged_into_one_layer_beside_a_large_one() {
    let rows: Vec<ModelFiling> = (0..2_000).map(|id| simple_filing(id, 1)).collect();
    let mut filings = Filings::build_single_layer(layer_builder_of(rows.iter()), 1).unwrap();
    for id in 2_000..2_050 {
        filings = filings.with_changes(layer_builder_of([simple_filing(id, 1)].iter()), &[], 0).unwrap();
    }

    assert_eq!(filings.len(), 2_050);
    assert!(filings.layers.len() <= 3, "{} layers", filings.layers.len());
    assert!(filings.plan_compaction().is_none());
}

#[test]
fn the_latest_version_follows_newer_layers_and_removals() {
    let filings = Filings::build_single_layer(layer_builder_of([simple_filing(1, 1)].iter()), 1).unwrap();
    let is_latest = |filings: &Filings, id| filings.find_by_id(id).map(|row| filings.get(row).is_latest);
    assert_eq!(is_latest(&filings, "1"), Some(true));

    let next = filings.with_changes(layer_builder_of([simple_filing(2, 2)].iter()), &[], 1).unwrap();
    assert_eq!((is_latest(&next, "1"), is_latest(&next, "2")), (Some(false), Some(true)));

    let after_removal = next.with_changes(FilingLayerBuilder::default(), &["2".to_owned()], 2).unwrap();
    assert_eq!((is_latest(&after_removal, "1"), is_latest(&after_removal, "2")), (Some(true), None));
}
