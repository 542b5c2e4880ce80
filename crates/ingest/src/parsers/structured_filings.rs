//! Parser for the regulator's indexes of structured filings, `{dfp,itr,fre,fca}_cia_aberta_YYYY.csv`: annual and
//! quarterly statements, reference forms and registration forms, which the IPE index leaves out.

use chrono::NaiveDate;
use vintem_domain::CvmDataset;
use vintem_store::load::Filing;

use super::csv::{CsvRow, CsvTable, column_index};
use super::filing_rows::{FilingCollector, parse_company_id, parse_delivery_date, parse_url, parse_version};
use super::{FormatError, ParsedRows};

/// The largest file seen has 5,000 rows and 1 MB.
const MAX_FILE_BYTES: usize = 32 << 20;

const COLUMNS: [&str; 9] =
    ["CNPJ_CIA", "DT_REFER", "VERSAO", "DENOM_CIA", "CD_CVM", "CATEG_DOC", "ID_DOC", "DT_RECEB", "LINK_DOC"];

const REFERENCE_DATE_COLUMN: usize = column_index(&COLUMNS, "DT_REFER");
const VERSION_COLUMN: usize = column_index(&COLUMNS, "VERSAO");
const COMPANY_NAME_COLUMN: usize = column_index(&COLUMNS, "DENOM_CIA");
const COMPANY_CODE_COLUMN: usize = column_index(&COLUMNS, "CD_CVM");
const CATEGORY_COLUMN: usize = column_index(&COLUMNS, "CATEG_DOC");
const DOCUMENT_ID_COLUMN: usize = column_index(&COLUMNS, "ID_DOC");
const DELIVERY_DATE_COLUMN: usize = column_index(&COLUMNS, "DT_RECEB");
const URL_COLUMN: usize = column_index(&COLUMNS, "LINK_DOC");

/// The name of the index in the archive of a dataset and year.
pub fn archive_member_name(set: CvmDataset, year: i32) -> String {
    format!("{}_cia_aberta_{year}.csv", set.id())
}

/// The filings in file order, each id once. The year of a file is the reference year, so its filings may be delivered
/// later.
pub fn parse_filings(set: CvmDataset, bytes: &[u8], today: NaiveDate) -> Result<ParsedRows<Filing>, FormatError> {
    let mut table = CsvTable::open(bytes, &COLUMNS, MAX_FILE_BYTES)?;
    let mut filings = FilingCollector::new(std::mem::take(&mut table.alerts));
    for line in table.lines() {
        filings.add_line(&line, |row| parse_filing(set, row, today))?;
    }
    Ok(filings.finish(table.column_blanks("")))
}

fn parse_filing(set: CvmDataset, row: &CsvRow<'_, { COLUMNS.len() }>, today: NaiveDate) -> Result<Filing, String> {
    Ok(Filing {
        id: format!("{}-{}", set.id(), parse_document_number(row)?),
        cvm_dataset: set,
        company_id: parse_company_id(row, COMPANY_CODE_COLUMN)?,
        company_name: row.required_text(COMPANY_NAME_COLUMN)?,
        category: parse_category(set, row)?,
        delivered_on: parse_delivery_date(row, DELIVERY_DATE_COLUMN, today)?,
        reference_date: row.date(REFERENCE_DATE_COLUMN)?,
        version: parse_version(row, VERSION_COLUMN)?,
        url: parse_url(row, URL_COLUMN)?,
        // Only IPE has the other fields.
        ..Filing::default()
    })
}

/// The dataset's own name: the regulator calls one of them `FRE WEB`, which nobody searches for. A row of another
/// dataset is bad, because it would get a wrong id.
fn parse_category(set: CvmDataset, row: &CsvRow<'_, { COLUMNS.len() }>) -> Result<String, String> {
    let name = set.id().to_uppercase();
    let category = row.trimmed(CATEGORY_COLUMN);
    match category.split(' ').next() {
        Some(first_word) if first_word == name => Ok(name),
        _ => Err(row.invalid_field_reason(CATEGORY_COLUMN, &format!("not of the set {name}"))),
    }
}

fn parse_document_number(row: &CsvRow<'_, { COLUMNS.len() }>) -> Result<u64, String> {
    let digits = row.trimmed(DOCUMENT_ID_COLUMN);
    let is_number = (1..=18).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit());
    let number = is_number.then(|| digits.parse().ok()).flatten();
    number
        .filter(|number| *number > 0)
        .ok_or_else(|| row.invalid_field_reason(DOCUMENT_ID_COLUMN, "not a document number"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TODAY: NaiveDate = NaiveDate::from_ymd_opt(2026, 11, 15).unwrap();

    const DOCUMENT_URL: &str =
        "http://www.rad.cvm.gov.br/ENETCONSULTA/frmDownloadDocumento.aspx?NumeroSequencialDocumento=154715";

    fn row_with(changes: &[(usize, &str)]) -> String {
        let mut fields = [
            "99.912.345/0001-89",
            "2021-12-31",
            "2",
            "CIA ACUCAR",
            "012345",
            "DFP",
            "154715",
            "2024-12-23",
            DOCUMENT_URL,
        ];

        for (column, value) in changes {
            fields[*column] = value;
        }
        fields.join(";")
    }

    fn csv_file(rows: &[String]) -> Vec<u8> {
        format!("{}\r\n{}\r\n", COLUMNS.join(";"), rows.join("\r\n")).into_bytes()
    }

    #[test]
    fn a_row_is_parsed_into_a_filing() {
        let parsed = parse_filings(CvmDataset::Dfp, &csv_file(&[row_with(&[])]), TODAY).unwrap();
        assert_eq!(
            parsed.rows,
            [Filing {
                id: "dfp-154715".to_owned(),
                cvm_dataset: CvmDataset::Dfp,
                company_id: 12345,
                company_name: "CIA ACUCAR".to_owned(),
                category: "DFP".to_owned(),
                delivered_on: "2024-12-23".parse().unwrap(),
                reference_date: "2021-12-31".parse().ok(),
                version: 2,
                url: DOCUMENT_URL.to_owned(),
                ..Filing::default()
            }]
        );
        assert_eq!(archive_member_name(CvmDataset::Itr, 2026), "itr_cia_aberta_2026.csv");
    }

    #[test]
    fn each_set_has_its_own_id_prefix_and_category() {
        for (set, stated, id, category) in [
            (CvmDataset::Itr, "ITR", "itr-154715", "ITR"),
            (CvmDataset::Fre, "FRE WEB", "fre-154715", "FRE"),
            (CvmDataset::Fca, "FCA", "fca-154715", "FCA"),
        ] {
            let parsed = parse_filings(set, &csv_file(&[row_with(&[(5, stated)])]), TODAY).unwrap();
            assert_eq!((parsed.rows[0].id.as_str(), parsed.rows[0].category.as_str()), (id, category));
        }
    }

    #[test]
    fn duplicates_are_merged_and_the_highest_version_stays() {
        let parsed =
            parse_filings(CvmDataset::Dfp, &csv_file(&[row_with(&[]), row_with(&[]), row_with(&[(2, "3")])]), TODAY)
                .unwrap();
        assert_eq!((parsed.total, parsed.rows.len(), parsed.merged, parsed.bad_rows.len()), (3, 1, 1, 1));
        assert_eq!((parsed.rows[0].version, parsed.bad_rows[0].line), (3, 2));
    }

    #[test]
    fn one_bad_row_does_not_affect_the_others() {
        for (column, value, reason) in [
            (5, "ITR", "CATEG_DOC is \"ITR\", which is not of the set DFP"),
            (5, "", "CATEG_DOC is \"\", which is not of the set DFP"),
            (6, "", "ID_DOC is \"\", which is not a document number"),
            (6, "-7", "ID_DOC is \"-7\", which is not a document number"),
            (7, "2026-11-16", "DT_RECEB is \"2026-11-16\", which is in the future"),
            (7, "", "DT_RECEB is empty"),
            (4, "000000", "CD_CVM is \"000000\", which is not a company code"),
            (2, "x", "VERSAO is \"x\", which is not a version"),
            (8, "ftp://example.org", "LINK_DOC is \"ftp://example.org\", which is not a web address"),
        ] {
            let parsed = parse_filings(
                CvmDataset::Dfp,
                &csv_file(&[row_with(&[(6, "1")]), row_with(&[(column, value)])]),
                TODAY,
            )
            .unwrap();
            assert_eq!((parsed.rows.len(), parsed.bad_rows.len()), (1, 1), "{reason}");
            assert_eq!((parsed.bad_rows[0].line, parsed.bad_rows[0].reason.as_str()), (3, reason));
        }
    }

    #[test]
    fn a_renamed_column_rejects_the_file() {
        let renamed = String::from_utf8(csv_file(&[row_with(&[])])).unwrap().replace("DT_RECEB", "DT_ENTREGA");
        assert_eq!(
            parse_filings(CvmDataset::Dfp, renamed.as_bytes(), TODAY),
            Err(FormatError::MissingColumns(vec!["DT_RECEB"]))
        );
    }

    proptest! {
        #[test]
        fn parsing_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = parse_filings(CvmDataset::Dfp, &bytes, TODAY);
            if let Ok(parsed) = parse_filings(CvmDataset::Dfp, &[csv_file(&[row_with(&[])]), bytes].concat(), TODAY) {
                prop_assert_eq!(parsed.total, parsed.rows.len() as u64 + parsed.bad_row_count() + parsed.merged);
            }
        }
    }
}
