//! The regulator's indexes of structured filings, `{dfp,itr,fre,fca}_cia_aberta_YYYY.csv`: annual and quarterly
//! statements, reference forms and registration forms, which the index of documents leaves out.

use chrono::NaiveDate;
use vintem_domain::{Filing, FilingSet};

use super::csv::{Row, Table, column};
use super::filings::{Filings, address, company_id, delivered_on, version};
use super::{Read, Refused};

/// The largest seen has 5,000 rows and 1 MB.
const MOST_BYTES: usize = 32 << 20;

const COLUMNS: [&str; 9] =
    ["CNPJ_CIA", "DT_REFER", "VERSAO", "DENOM_CIA", "CD_CVM", "CATEG_DOC", "ID_DOC", "DT_RECEB", "LINK_DOC"];

const REFERENCE_DATE: usize = column(&COLUMNS, "DT_REFER");
const VERSION: usize = column(&COLUMNS, "VERSAO");
const COMPANY_NAME: usize = column(&COLUMNS, "DENOM_CIA");
const CODE: usize = column(&COLUMNS, "CD_CVM");
const CATEGORY: usize = column(&COLUMNS, "CATEG_DOC");
const DOCUMENT: usize = column(&COLUMNS, "ID_DOC");
const DELIVERED_ON: usize = column(&COLUMNS, "DT_RECEB");
const URL: usize = column(&COLUMNS, "LINK_DOC");

/// The name of the index in the archive of a set and year.
pub fn member_name(set: FilingSet, year: i32) -> String {
    format!("{}_cia_aberta_{year}.csv", set.id())
}

/// The filings of a file, in its order, each id once. Its year is that of reference, so they may be delivered later.
pub fn read(set: FilingSet, bytes: &[u8], today: NaiveDate) -> Result<Read<Filing>, Refused> {
    let mut table = Table::open(bytes, &COLUMNS, MOST_BYTES)?;
    let mut filings = Filings::new(std::mem::take(&mut table.alerts));
    for line in table.lines() {
        filings.take(&line, |row| filing(set, row, today))?;
    }
    Ok(filings.finish())
}

fn filing(set: FilingSet, row: &Row<'_, { COLUMNS.len() }>, today: NaiveDate) -> Result<Filing, String> {
    Ok(Filing {
        id: format!("{}-{}", set.id(), document_number(row)?),
        set,
        company_id: company_id(row, CODE)?,
        company_name: row.required_text(COMPANY_NAME)?,
        category: category(set, row)?,
        doc_type: String::new(),
        kind: String::new(),
        subject: String::new(),
        delivered_on: delivered_on(row, DELIVERED_ON, today)?,
        reference_date: row.day(REFERENCE_DATE)?,
        version: version(row, VERSION)?,
        protocol: String::new(),
        url: address(row, URL)?,
    })
}

/// The set's own name, although the regulator calls one of them `FRE WEB`: nobody looks for that. A row of another set
/// would get a wrong id, so it is none of ours.
fn category(set: FilingSet, row: &Row<'_, { COLUMNS.len() }>) -> Result<String, String> {
    let name = set.id().to_uppercase();
    let stated = row.raw(CATEGORY);
    match stated.split(' ').next() {
        Some(first) if first == name => Ok(name),
        _ => Err(row.complaint(CATEGORY, &format!("not of the set {name}"))),
    }
}

fn document_number(row: &Row<'_, { COLUMNS.len() }>) -> Result<u64, String> {
    let digits = row.raw(DOCUMENT);
    let is_number = (1..=18).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit());
    let number = is_number.then(|| digits.parse().ok()).flatten();
    number.filter(|number| *number > 0).ok_or_else(|| row.complaint(DOCUMENT, "no number of a document"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TODAY: NaiveDate = NaiveDate::from_ymd_opt(2026, 11, 15).unwrap();

    const URL_OF_DOCUMENT: &str =
        "http://www.rad.cvm.gov.br/ENETCONSULTA/frmDownloadDocumento.aspx?NumeroSequencialDocumento=154715";

    fn with(changes: &[(usize, &str)]) -> String {
        let mut fields = [
            "99.912.345/0001-89",
            "2021-12-31",
            "2",
            "CIA ACUCAR",
            "012345",
            "DFP",
            "154715",
            "2024-12-23",
            URL_OF_DOCUMENT,
        ];
        for (at, value) in changes {
            fields[*at] = value;
        }
        fields.join(";")
    }

    fn file(rows: &[String]) -> Vec<u8> {
        format!("{}\r\n{}\r\n", COLUMNS.join(";"), rows.join("\r\n")).into_bytes()
    }

    #[test]
    fn a_row_is_a_filing() {
        let read = read(FilingSet::Dfp, &file(&[with(&[])]), TODAY).unwrap();
        assert_eq!(
            read.rows,
            [Filing {
                id: "dfp-154715".to_owned(),
                set: FilingSet::Dfp,
                company_id: 12345,
                company_name: "CIA ACUCAR".to_owned(),
                category: "DFP".to_owned(),
                doc_type: String::new(),
                kind: String::new(),
                subject: String::new(),
                delivered_on: "2024-12-23".parse().unwrap(),
                reference_date: "2021-12-31".parse().ok(),
                version: 2,
                protocol: String::new(),
                url: URL_OF_DOCUMENT.to_owned(),
            }]
        );
        assert_eq!(member_name(FilingSet::Itr, 2026), "itr_cia_aberta_2026.csv");
    }

    #[test]
    fn every_set_has_ids_and_a_category_of_its_own() {
        for (set, stated, id, category) in [
            (FilingSet::Itr, "ITR", "itr-154715", "ITR"),
            (FilingSet::Fre, "FRE WEB", "fre-154715", "FRE"),
            (FilingSet::Fca, "FCA", "fca-154715", "FCA"),
        ] {
            let read = read(set, &file(&[with(&[(5, stated)])]), TODAY).unwrap();
            assert_eq!((read.rows[0].id.as_str(), read.rows[0].category.as_str()), (id, category));
        }
    }

    #[test]
    fn repetitions_are_one_and_an_id_with_two_contents_keeps_the_first() {
        let read = read(FilingSet::Dfp, &file(&[with(&[]), with(&[]), with(&[(2, "3")])]), TODAY).unwrap();
        assert_eq!((read.total, read.rows.len(), read.merged, read.bad.len()), (3, 1, 1, 1));
        assert_eq!((read.rows[0].version, read.bad[0].line), (2, 4));
    }

    #[test]
    fn one_bad_row_leaves_the_others() {
        for (at, value, reason) in [
            (5, "ITR", "CATEG_DOC is \"ITR\", which is not of the set DFP"),
            (5, "", "CATEG_DOC is \"\", which is not of the set DFP"),
            (6, "", "ID_DOC is \"\", which is no number of a document"),
            (6, "-7", "ID_DOC is \"-7\", which is no number of a document"),
            (7, "2026-11-16", "DT_RECEB is \"2026-11-16\", which is in the future"),
            (7, "", "DT_RECEB is empty"),
            (4, "000000", "CD_CVM is \"000000\", which is no code of a company"),
            (2, "x", "VERSAO is \"x\", which is no version"),
            (8, "ftp://example.org", "LINK_DOC is \"ftp://example.org\", which is no address of the web"),
        ] {
            let read = read(FilingSet::Dfp, &file(&[with(&[(6, "1")]), with(&[(at, value)])]), TODAY).unwrap();
            assert_eq!((read.rows.len(), read.bad.len()), (1, 1), "{reason}");
            assert_eq!((read.bad[0].line, read.bad[0].reason.as_str()), (3, reason));
        }
    }

    #[test]
    fn a_column_that_only_others_claim_is_not_asked_for() {
        let renamed = String::from_utf8(file(&[with(&[])])).unwrap().replace("DT_RECEB", "DT_ENTREGA");
        assert_eq!(read(FilingSet::Dfp, renamed.as_bytes(), TODAY), Err(Refused::ColumnsMissing(vec!["DT_RECEB"])));
    }

    proptest! {
        #[test]
        fn nothing_panics(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = read(FilingSet::Dfp, &bytes, TODAY);
            if let Ok(read) = read(FilingSet::Dfp, &[file(&[with(&[])]), bytes].concat(), TODAY) {
                prop_assert_eq!(read.total, read.rows.len() as u64 + read.bad.len() as u64 + read.merged);
            }
        }
    }
}
