//! Layers are held to a model that has none: a plain list that is searched from end to end.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use chrono::{Datelike, Days, NaiveDate};
use proptest::prelude::*;
use vintem_domain::text::fold;
use vintem_domain::{DateRange, FilingSet, Origin};
use vintem_store::read::{DatasetState, FilingRow, Known};

use super::next::Compacted;
use super::{FilingFilter, Filings, LayerBuilder};
use crate::{Counts, Found, Searched, Wanted};

const NAMES: [&str; 3] = ["CERÂMICA SERRA S.A.", "BANCO VALE", "SERRA AZUL S/A"];
const CATEGORIES: [&str; 3] = ["Fato Relevante", "FATO RELEVANTE", "Assembleia"];
const SUBJECTS: [&str; 3] = ["Pagamento de dividendos", "Reunião do conselho", "Dividendos e reuniões"];

#[derive(Debug, Clone, PartialEq)]
struct Model {
    id: String,
    set: FilingSet,
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

impl Model {
    fn row(&self) -> FilingRow<'_> {
        FilingRow {
            id: &self.id,
            set: self.set,
            company_id: self.company,
            company_name: NAMES[self.name],
            category: CATEGORIES[self.category],
            doc_type: "",
            kind: "",
            subject: SUBJECTS[self.subject],
            delivered_on: day(self.day),
            reference_date: self.reference.map(day),
            version: self.version,
            protocol: "",
            url: "",
            known: Known { at: self.known_at(), fetch: u32::from(self.version) },
        }
    }

    /// Any second that not all have.
    fn known_at(&self) -> u32 {
        100 * u32::from(self.version) + self.company
    }

    /// What it is a version of.
    fn document(&self) -> impl PartialEq + use<> {
        let subject = (self.set == FilingSet::Ipe).then_some(self.subject);
        (self.set, self.company, self.category, self.reference, subject)
    }
}

/// A load: rows that are new or changed, and the ids of some that are gone; then perhaps layers become one.
#[derive(Debug, Clone)]
struct Step {
    changed: Vec<Model>,
    gone: Vec<String>,
    compacts: Compacts,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Compacts {
    Not,
    AtOnce,
    /// Begun before this load and ended after it.
    Meanwhile,
}

fn model() -> impl Strategy<Value = Model> {
    let set = prop_oneof![3 => Just(FilingSet::Ipe), 1 => Just(FilingSet::Dfp)];
    (0u32..60, set, 1u32..4, 0usize..3, 0usize..3, 0usize..3, 0u64..8, proptest::option::of(0u64..2), 1u16..4).prop_map(
        |(id, set, company, name, category, subject, day, reference, version)| Model {
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

fn step() -> impl Strategy<Value = Step> {
    let compacts = prop_oneof![3 => Just(Compacts::Not), 1 => Just(Compacts::AtOnce), 1 => Just(Compacts::Meanwhile)];
    (proptest::collection::vec(model(), 0..12), proptest::collection::vec(0u32..60, 0..4), compacts).prop_map(
        |(changed, gone, compacts)| Step { changed, gone: gone.iter().map(u32::to_string).collect(), compacts },
    )
}

fn layer_of<'m>(rows: impl Iterator<Item = &'m Model>) -> LayerBuilder {
    let mut builder = LayerBuilder::default();
    for row in rows {
        builder.push(&row.row(), false);
    }
    builder
}

/// Each layer by itself, then all of them made one.
fn compacted(filings: &Filings) -> Option<Compacted> {
    (filings.layers.len() > 1).then(|| filings.compaction_of_all().run().unwrap())
}

fn apply(filings: &Filings, held: &mut BTreeMap<String, Model>, step: &Step) -> Filings {
    let compaction = if step.compacts == Compacts::Meanwhile { compacted(filings) } else { None };
    // Of two rows with one id the later counts, and a row that is both is there.
    let changed: BTreeMap<&str, &Model> = step.changed.iter().map(|row| (row.id.as_str(), row)).collect();
    let gone: Vec<String> = step.gone.iter().filter(|id| !changed.contains_key(id.as_str())).cloned().collect();
    let kept = compaction.as_ref().map_or(0, |_| filings.layers.len());
    // Layers of their own, so that there are many although they are small.
    let mut next = filings.next(layer_of(changed.values().copied()), &gone, kept.max(filings.layers.len())).unwrap();
    held.retain(|id, _| !gone.contains(id));
    held.extend(changed.into_iter().map(|(id, row)| (id.to_owned(), row.clone())));
    if let Some(compacted) = compaction {
        assert!(next.holds_all_of(&compacted));
        next = next.compacted(&compacted);
    }
    match step.compacts {
        Compacts::AtOnce => compacted(&next).map_or(next.clone(), |compacted| next.compacted(&compacted)),
        _ => next,
    }
}

/// The list that a filter leaves, from end to end.
fn expected<'m>(held: &'m BTreeMap<String, Model>, filter: &FilingFilter) -> Vec<&'m Model> {
    let category = filter.category.as_deref().map(fold);
    let mut rows: Vec<&Model> = held
        .values()
        .filter(|row| category.as_ref().is_none_or(|category| fold(CATEGORIES[row.category]) == *category))
        .filter(|row| filter.company.is_none_or(|company| row.company == company))
        .filter(|row| (filter.days.from..=filter.days.to).contains(&day(row.day)))
        .filter(|row| filter.known_since.is_none_or(|second| row.known_at() >= second))
        .collect();
    rows.sort_by(|one, other| (other.day, &other.id).cmp(&(one.day, &one.id)));
    rows
}

fn ids<'f>(filings: &'f Filings, found: &Found) -> Vec<&'f str> {
    found.rows.iter().map(|row| filings.get(*row).filing.id).collect()
}

/// By category and by year, whatever their order and spelling.
fn folded(facets: &[Counts; 2]) -> [BTreeMap<String, usize>; 2] {
    facets.each_ref().map(|counts| counts.iter().map(|(value, count)| (fold(value), *count)).collect())
}

fn counted<'m>(rows: impl Iterator<Item = &'m Model>) -> [BTreeMap<String, usize>; 2] {
    let mut counts: [BTreeMap<String, usize>; 2] = Default::default();
    for row in rows {
        *counts[0].entry(fold(CATEGORIES[row.category])).or_default() += 1;
        *counts[1].entry(day(row.day).year().to_string()).or_default() += 1;
    }
    counts
}

fn filters() -> Vec<FilingFilter> {
    let mut filters = Vec::new();
    for category in [None, Some("fato relevante"), Some("ASSEMBLÉIA"), Some("nenhuma")] {
        for company in [None, Some(1), Some(2), Some(99)] {
            for (from, to) in [(0, 8), (2, 5), (3, 3), (7, 100)] {
                let days = DateRange { from: day(from), to: day(to) };
                for known_since in [None, Some(102), Some(201)] {
                    let category = category.map(str::to_owned);
                    filters.push(FilingFilter { category, company, days, known_since });
                }
            }
        }
    }
    filters
}

/// Every list, filter and page, every row, and who is who.
fn assert_same(filings: &Filings, held: &BTreeMap<String, Model>) {
    assert_eq!(filings.len(), held.len());
    for filter in filters() {
        let expected = expected(held, &filter);
        for (offset, limit) in [(0, 100), (0, 1), (1, 3), (expected.len() / 2, 4), (expected.len(), 5), (1_000, 5)] {
            let found = filings.list(&filter, offset, limit);
            let page: Vec<&str> = expected.iter().skip(offset).take(limit).map(|row| row.id.as_str()).collect();
            assert_eq!((found.total, ids(filings, &found)), (expected.len(), page), "{filter:?} {offset} {limit}");
        }
    }
    for number in 0..60u32 {
        for id in [number.to_string(), format!("long-common-beginning-{number}")] {
            let found = filings.by_id(&id).map(|row| filings.get(row));
            let row = held.get(&id);
            assert_eq!(found.map(|view| view.filing), row.map(Model::row), "{id}");
            let is_latest = row.map(|row| {
                let others = held.values().filter(|other| other.document() == row.document());
                others.map(|other| (other.version, other.day, &other.id)).max() == Some((row.version, row.day, &row.id))
            });
            assert_eq!(found.map(|view| view.is_latest), is_latest, "{id}");
        }
    }
    for (query, subjects) in [("dividendos", &[0, 2][..]), ("reuniao", &[1, 2]), ("dividendos reuniões", &[2])] {
        let expected = held.values().filter(|row| subjects.contains(&row.subject) && row.day <= 5).count();
        let search = |offset, limit| filings.search(query, day(5), Wanted { offset, limit, facets: true }).unwrap();
        let Searched { found, facets, .. } = search(0, 100);
        assert_eq!((found.total, found.rows.len()), (expected, expected), "{query}");
        let pages: Vec<u32> = (0..60).step_by(7).flat_map(|offset| search(offset, 7).found.rows).collect();
        assert_eq!(pages, found.rows, "{query}");
        let rows = held.values().filter(|row| subjects.contains(&row.subject) && row.day <= 5);
        assert_eq!(folded(&facets), counted(rows), "{query}");
    }
    assert_eq!(folded(&filings.facets(day(5))), counted(held.values().filter(|row| row.day <= 5)));
    let issuers: Vec<(u32, &str)> = filings.issuers(day(1_000)).into_iter().map(|(id, (name, _))| (id, name)).collect();
    let mut newest: BTreeMap<u32, &Model> = BTreeMap::new();
    for row in held.values() {
        let holder = newest.entry(row.company).or_insert(row);
        if (row.day, &row.id) > (holder.day, &holder.id) {
            *holder = row;
        }
    }
    assert_eq!(issuers, newest.into_iter().map(|(company, row)| (company, NAMES[row.name])).collect::<Vec<_>>());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn layers_are_as_one_list(
        first in proptest::collection::vec(model(), 0..60),
        steps in proptest::collection::vec(step(), 0..6),
    ) {
        let mut held: BTreeMap<String, Model> = first.into_iter().map(|row| (row.id.clone(), row)).collect();
        let mut filings = Filings::first(layer_of(held.values()), 1).unwrap();
        assert_same(&filings, &held);
        for step in &steps {
            filings = apply(&filings, &mut held, step);
            assert_same(&filings, &held);
        }
    }
}

/// A directory that is gone afterwards.
struct Directory(PathBuf);

impl Directory {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!("vintem-copy-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    /// By name.
    fn files(&self) -> BTreeMap<String, Vec<u8>> {
        let entries = fs::read_dir(&self.0).unwrap().map(Result::unwrap);
        entries.map(|entry| (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap())).collect()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}

fn state(generation: i64) -> DatasetState {
    DatasetState {
        lineage: "0b5c9f0e/16384".to_owned(),
        generation,
        loaded_at: "2026-01-05T12:00:00.123456Z".parse().unwrap(),
        origin: Origin::Real,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn a_copy_reads_as_what_was_saved(
        first in proptest::collection::vec(model(), 0..40),
        steps in proptest::collection::vec(step(), 0..4),
    ) {
        let directory = Directory::new();
        let mut held: BTreeMap<String, Model> = first.into_iter().map(|row| (row.id.clone(), row)).collect();
        let mut filings = Filings::first(layer_of(held.values()), 1).unwrap();
        filings.save(&state(1), &directory.0).unwrap();
        for (step, generation) in steps.iter().zip(2..) {
            filings = apply(&filings, &mut held, step);
            filings.save(&state(generation), &directory.0).unwrap();
            let (loaded_state, loaded) = Filings::load(&directory.0).unwrap();
            assert_eq!(loaded_state, state(generation));
            assert_same(&loaded, &held);
            // What it goes on to is the same too.
            let next = Step { changed: vec![plain(7, 9)], gone: vec!["8".to_owned()], compacts: Compacts::AtOnce };
            let mut held = held.clone();
            let next = apply(&loaded, &mut held, &next);
            assert_same(&next, &held);
        }
        // Layers and the file that names them; nothing else stays.
        assert_eq!(directory.files().len(), filings.layers.len() + 1);
    }
}

#[test]
fn a_layer_is_written_once() {
    let directory = Directory::new();
    let filings = Filings::first(layer_of([plain(1, 1), plain(2, 1)].iter()), 1).unwrap();
    filings.save(&state(1), &directory.0).unwrap();
    let before = directory.files();
    let next = filings.next(layer_of([plain(3, 1)].iter()), &[], 1).unwrap();
    next.save(&state(2), &directory.0).unwrap();
    let after = directory.files();
    let layers = |files: &BTreeMap<String, Vec<u8>>| -> Vec<String> {
        files.keys().filter(|name| name.starts_with("filings-")).cloned().collect()
    };
    assert_eq!((layers(&before).len(), layers(&after).len()), (1, 2));
    assert!(layers(&after).contains(&layers(&before)[0]));
}

#[test]
fn a_damaged_copy_is_refused_wherever_the_damage_is() {
    let directory = Directory::new();
    let filings = Filings::first(layer_of([plain(1, 1), plain(2, 1)].iter()), 1).unwrap();
    filings.save(&state(1), &directory.0).unwrap();
    for (name, content) in directory.files() {
        let path = directory.0.join(&name);
        for at in (0..content.len()).step_by(content.len().div_ceil(200)).chain([content.len() - 1]) {
            let mut damaged = content.clone();
            damaged[at] ^= 0x40;
            fs::write(&path, &damaged).unwrap();
            assert!(Filings::load(&directory.0).is_err(), "byte {at} of {name}");
            fs::write(&path, &content[..at]).unwrap();
            assert!(Filings::load(&directory.0).is_err(), "{name} cut at {at}");
        }
        fs::remove_file(&path).unwrap();
        assert!(Filings::load(&directory.0).is_err(), "without {name}");
        fs::write(&path, &content).unwrap();
    }
    assert!(Filings::load(&directory.0).is_ok());
}

fn plain(id: u32, version: u16) -> Model {
    Model {
        id: id.to_string(),
        set: FilingSet::Ipe,
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
fn small_loads_become_one_layer_and_a_large_one_stays() {
    let rows: Vec<Model> = (0..2_000).map(|id| plain(id, 1)).collect();
    let mut filings = Filings::first(layer_of(rows.iter()), 1).unwrap();
    for id in 2_000..2_050 {
        filings = filings.next(layer_of([plain(id, 1)].iter()), &[], 0).unwrap();
    }
    assert_eq!(filings.len(), 2_050);
    assert!(filings.layers.len() <= 3, "{} layers", filings.layers.len());
    assert!(filings.compaction().is_none());
}

#[test]
fn the_latest_version_moves_to_a_later_layer_and_back() {
    let filings = Filings::first(layer_of([plain(1, 1)].iter()), 1).unwrap();
    let is_latest = |filings: &Filings, id| filings.by_id(id).map(|row| filings.get(row).is_latest);
    assert_eq!(is_latest(&filings, "1"), Some(true));
    let next = filings.next(layer_of([plain(2, 2)].iter()), &[], 1).unwrap();
    assert_eq!((is_latest(&next, "1"), is_latest(&next, "2")), (Some(false), Some(true)));
    let without = next.next(LayerBuilder::default(), &["2".to_owned()], 2).unwrap();
    assert_eq!((is_latest(&without, "1"), is_latest(&without, "2")), (Some(true), None));
}
