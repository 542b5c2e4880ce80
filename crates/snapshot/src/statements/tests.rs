use std::fs;
use std::sync::Arc;

use chrono::NaiveDate;
use vintem_domain::StatementSet;
use vintem_domain::statement::StatementTableSet;
use vintem_store::reader::{RowProvenance, StatementRow};

use super::*;
use crate::test_directory::TestDirectory;

/// A form of a document, and the text of its body.
#[derive(Debug, Clone)]
struct Form {
    company_id: CompanyId,
    set: StatementSet,
    date: NaiveDate,
    version: u16,
    known_at_seconds: u32,
    body: String,
}

fn form(company_id: CompanyId, date: &str, version: u16, known_at_seconds: u32) -> Form {
    let body = format!("{company_id} {date} {version} {known_at_seconds} {}", "x".repeat(company_id as usize));
    Form { company_id, set: StatementSet::Dfp, date: date.parse().unwrap(), version, known_at_seconds, body }
}

fn push_all(mut update: StatementsUpdate, forms: &[Form]) -> Statements {
    for form in forms {
        let compressed = zstd::bulk::compress(form.body.as_bytes(), 3).unwrap();
        update.push(&StatementRow {
            set: form.set,
            company_id: form.company_id,
            reference_date: form.date,
            version: form.version,
            tables: StatementTableSet::from_names(["DRE_con"]),
            row_count: 7,
            compressed: &compressed,
            provenance: RowProvenance { known_at_seconds: form.known_at_seconds, fetch_id: 1 },
        });
    }
    let statements = update.finish().unwrap();
    statements.replace(None);
    statements
}

fn bodies_of(statements: &Statements, company_id: CompanyId) -> Vec<String> {
    statements.of_company(company_id).iter().map(|form| statements.read_body(form).unwrap()).collect()
}

#[test]
fn forms_are_in_order_and_have_their_bodies() {
    let forms = [
        form(5410, "2024-12-31", 2, 20),
        form(9512, "2024-12-31", 1, 10),
        form(5410, "2024-12-31", 1, 10),
        form(5410, "2023-12-31", 1, 10),
        form(5410, "2024-12-31", 1, 30),
    ];
    let directory = TestDirectory::new();
    let statements = push_all(StatementsUpdate::start(BodyFileLocation::Cache(&directory.0)).unwrap(), &forms);
    let expected = [3, 2, 4, 0].map(|index: usize| forms[index].body.clone());
    assert_eq!(bodies_of(&statements, 5410), expected);
    assert_eq!(bodies_of(&statements, 9512), [forms[1].body.clone()]);
    assert!(statements.of_company(1).is_empty() && statements.of_company(99_999).is_empty());
    assert_eq!(statements.document_count(), 4);
}

#[test]
fn an_update_adds_to_the_same_file_and_leaves_what_is_served() {
    let directory = TestDirectory::new();
    let first = [form(5410, "2024-12-31", 1, 10), form(9512, "2024-12-31", 1, 10)];
    let served = Arc::new(push_all(StatementsUpdate::start(BodyFileLocation::Cache(&directory.0)).unwrap(), &first));
    let later = form(5410, "2024-12-31", 2, 20);
    let abandoned = push_all(StatementsUpdate::of(served.clone()), &[form(1, "2020-12-31", 1, 20)]);
    drop(abandoned);
    let next = push_all(StatementsUpdate::of(served.clone()), std::slice::from_ref(&later));

    assert_eq!(directory.read_files().len(), 1);
    assert_eq!(bodies_of(&served, 5410), [first[0].body.clone()]);
    assert_eq!(bodies_of(&next, 5410), [first[0].body.clone(), later.body]);
    assert!(next.of_company(1).is_empty());
}

#[test]
fn statements_loaded_from_disk_equal_those_saved() {
    let directory = TestDirectory::new();
    let mut forms: Vec<Form> = (1..40).map(|company| form(company, "2024-12-31", 1, 10)).collect();
    forms[3].set = StatementSet::Itr;
    let saved = push_all(StatementsUpdate::start(BodyFileLocation::Cache(&directory.0)).unwrap(), &forms);
    let [index, body_file] = &saved.save(&directory.0).unwrap()[..] else { panic!("two files") };

    // A later update that was never saved is overwritten.
    let saved = Arc::new(saved);
    push_all(StatementsUpdate::of(saved.clone()), &[form(99, "2025-12-31", 1, 20)]);
    let loaded = Arc::new(Statements::load(&directory.0, index, body_file).unwrap());
    assert_eq!(loaded.forms, saved.forms);
    let next = push_all(StatementsUpdate::of(loaded), &[form(50, "2025-12-31", 1, 30)]);
    for form in &forms {
        assert_eq!(bodies_of(&next, form.company_id), std::slice::from_ref(&form.body));
    }
    assert_eq!(next.document_count(), 40);
}

#[test]
fn damage_is_noticed_and_never_served() {
    let directory = TestDirectory::new();
    let forms = [form(5410, "2024-12-31", 1, 10), form(9512, "2024-12-31", 1, 10)];
    let statements = push_all(StatementsUpdate::start(BodyFileLocation::Cache(&directory.0)).unwrap(), &forms);
    let [index, body_file] = &statements.save(&directory.0).unwrap()[..] else { panic!("two files") };
    let path = directory.0.join(body_file);
    let bodies = fs::read(&path).unwrap();

    let mut damaged = bodies.clone();
    damaged[3] ^= 0x40;
    fs::write(&path, &damaged).unwrap();
    let loaded = Statements::load(&directory.0, index, body_file).unwrap();
    assert!(loaded.read_body(&loaded.of_company(5410)[0]).is_err());
    assert_eq!(bodies_of(&loaded, 9512), [forms[1].body.clone()]);

    fs::write(&path, &bodies[..bodies.len() - 1]).unwrap();
    assert!(Statements::load(&directory.0, index, body_file).is_err());
    fs::remove_file(&path).unwrap();
    assert!(Statements::load(&directory.0, index, body_file).is_err());
    assert!(Statements::load(&directory.0, index, index).is_err());
}

#[test]
fn a_superseded_file_is_removed_when_nobody_reads_it() {
    let directory = TestDirectory::new();
    let one = push_all(
        StatementsUpdate::start(BodyFileLocation::Cache(&directory.0)).unwrap(),
        &[form(1, "2024-12-31", 1, 10)],
    );
    let other = push_all(
        StatementsUpdate::start(BodyFileLocation::Cache(&directory.0)).unwrap(),
        &[form(2, "2024-12-31", 1, 10)],
    );
    other.replace(Some(&one));
    assert_eq!(directory.read_files().len(), 2);
    drop(one);
    assert_eq!(directory.read_files().into_keys().collect::<Vec<_>>(), [other.body_file()]);

    let left_over = directory.0.join(format!("{}0", other.body_file()));
    fs::write(&left_over, "").unwrap();
    remove_other_body_files(&directory.0, Some(other.body_file())).unwrap();
    assert!(!left_over.exists() && directory.read_files().len() == 1);
    drop(other);
    assert_eq!(directory.read_files().len(), 1);
}

#[test]
fn a_file_that_was_never_served_is_removed() {
    let directory = TestDirectory::new();
    let location = BodyFileLocation::Cache(&directory.0);
    let mut unfinished = StatementsUpdate::start(location).unwrap();
    unfinished.error = Some(DiskCacheError::Damaged("the disk is full"));
    assert_eq!(directory.read_files().len(), 1);
    assert!(unfinished.finish().is_err());
    assert!(directory.read_files().is_empty());

    let unserved = StatementsUpdate::start(location).unwrap().finish().unwrap();
    assert_eq!(directory.read_files().len(), 1);
    drop(unserved);
    assert!(directory.read_files().is_empty());
}

#[test]
fn an_unnamed_file_is_in_the_first_directory_that_can_be_written() {
    let directory = TestDirectory::new();
    let no_directory = PathBuf::from("/dev/null/none");
    let directories = [no_directory.clone(), directory.0.clone()];
    let statements = StatementsUpdate::start(BodyFileLocation::Unnamed(&directories)).unwrap().finish().unwrap();
    assert!(directory.read_files().is_empty());
    assert_eq!(statements.document_count(), 0);
    assert!(StatementsUpdate::start(BodyFileLocation::Unnamed(&[no_directory])).is_err());
    assert!(StatementsUpdate::start(BodyFileLocation::Unnamed(&[])).is_err());
}
