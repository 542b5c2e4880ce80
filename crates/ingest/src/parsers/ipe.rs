//! Parser for the regulator's index of documents that companies file as events happen, `ipe_cia_aberta_YYYY.csv`.
//!
//! The delivery protocol cannot identify a document, because whole years have none. The id is the document number in
//! the URL or, without one, a hash of the whole row. Reference dates are typed by hand and may be anything.

use std::fmt::Write as _;

use chrono::NaiveDate;
use sha2::{Digest, Sha256};
use vintem_domain::CvmDataset;
use vintem_store::load::Filing;

use super::csv::{CsvRow, CsvTable, column_index};
use super::filing_rows::{FilingCollector, parse_company_id, parse_delivery_date, parse_url, parse_version};
use super::{FormatError, ParsedRows};

/// A year has about 25 MB; the limit is that of an archive member.
const MAX_FILE_BYTES: usize = 200_000_000;

/// The longest known subject has 1,188 characters.
const MAX_SUBJECT_BYTES: usize = 8 << 10;

const COLUMNS: [&str; 13] = [
    "CNPJ_Companhia",
    "Nome_Companhia",
    "Codigo_CVM",
    "Data_Referencia",
    "Categoria",
    "Tipo",
    "Especie",
    "Assunto",
    "Data_Entrega",
    "Tipo_Apresentacao",
    "Protocolo_Entrega",
    "Versao",
    "Link_Download",
];

const COMPANY_NAME_COLUMN: usize = column_index(&COLUMNS, "Nome_Companhia");
const COMPANY_CODE_COLUMN: usize = column_index(&COLUMNS, "Codigo_CVM");
const REFERENCE_DATE_COLUMN: usize = column_index(&COLUMNS, "Data_Referencia");
const CATEGORY_COLUMN: usize = column_index(&COLUMNS, "Categoria");
const DOC_TYPE_COLUMN: usize = column_index(&COLUMNS, "Tipo");
const KIND_COLUMN: usize = column_index(&COLUMNS, "Especie");
const SUBJECT_COLUMN: usize = column_index(&COLUMNS, "Assunto");
const DELIVERY_DATE_COLUMN: usize = column_index(&COLUMNS, "Data_Entrega");
const PROTOCOL_COLUMN: usize = column_index(&COLUMNS, "Protocolo_Entrega");
const VERSION_COLUMN: usize = column_index(&COLUMNS, "Versao");
const URL_COLUMN: usize = column_index(&COLUMNS, "Link_Download");

/// The name of the member in the archive of a year.
pub fn archive_member_name(year: i32) -> String {
    format!("ipe_cia_aberta_{year}.csv")
}

/// The filings in file order, each document once.
pub fn parse_filings(bytes: &[u8], today: NaiveDate) -> Result<ParsedRows<Filing>, FormatError> {
    let mut table = CsvTable::open(bytes, &COLUMNS, MAX_FILE_BYTES)?;
    let mut filings = FilingCollector::new(std::mem::take(&mut table.alerts));
    for line in table.lines() {
        filings.add_line(&line, |row| parse_filing(row, today))?;
    }
    Ok(filings.finish(table.column_blanks("")))
}

fn parse_filing(row: &CsvRow<'_, { COLUMNS.len() }>, today: NaiveDate) -> Result<Filing, String> {
    let url = parse_url(row, URL_COLUMN)?;
    Ok(Filing {
        id: document_number_from_url(&url).unwrap_or_else(|| row_hash_id(row)),
        cvm_dataset: CvmDataset::Ipe,
        company_id: parse_company_id(row, COMPANY_CODE_COLUMN)?,
        company_name: row.required_text(COMPANY_NAME_COLUMN)?,
        category: row.required_text(CATEGORY_COLUMN)?,
        doc_type: row.text(DOC_TYPE_COLUMN)?,
        kind: row.text(KIND_COLUMN)?,
        subject: row.text_with_limit(SUBJECT_COLUMN, MAX_SUBJECT_BYTES)?,
        delivered_on: parse_delivery_date(row, DELIVERY_DATE_COLUMN, today)?,
        reference_date: row.date(REFERENCE_DATE_COLUMN)?,
        version: parse_version(row, VERSION_COLUMN)?,
        protocol: row.text(PROTOCOL_COLUMN)?,
        url,
    })
}

/// `1497743` from `…?Tela=ext&numProtocolo=1497743&numVersao=1`.
fn document_number_from_url(url: &str) -> Option<String> {
    let (_, query) = url.split_once('?')?;
    let number = query.split('&').find_map(|parameter| parameter.strip_prefix("numProtocolo="))?;
    let is_number = (1..=18).contains(&number.len()) && number.bytes().all(|byte| byte.is_ascii_digit());
    let number: u64 = is_number.then(|| number.parse().ok())??;
    (number > 0).then(|| number.to_string())
}

/// Sixteen hexadecimal digits of the SHA-256 of the line, with its columns in the expected order.
fn row_hash_id(row: &CsvRow<'_, { COLUMNS.len() }>) -> String {
    let hash = Sha256::digest(row.to_line());
    let mut id = "row-".to_owned();
    for byte in &hash[..8] {
        write!(id, "{byte:02x}").expect("a string takes all");
    }
    id
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parsers::FormatAlert;
    use proptest::prelude::*;

    const TODAY: NaiveDate = NaiveDate::from_ymd_opt(2026, 11, 15).unwrap();

    const URL_PREFIX: &str = "https://www.rad.cvm.gov.br/ENET/frmDownloadDocumento.aspx?Tela=ext&numProtocolo=";

    fn sample_fields() -> [String; 13] {
        [
            "99.912.345/0001-89",
            "COMPANHIA  AÇÚCAR S.A.",
            "12345",
            "2026-04-16",
            "Assembleia",
            " AGO/E",
            "Ata",
            "Eleição do \"Conselho\" || Outros assuntos",
            "2026-02-11",
            "AP - Apresentação",
            "012345IPE160420260381550020-83",
            "3",
            &format!("{URL_PREFIX}1497743&numSequencia=1022449&numVersao=3"),
        ]
        .map(str::to_owned)
    }

    fn row_with(changes: &[(usize, &str)]) -> String {
        let mut fields = sample_fields();
        for (column, value) in changes {
            fields[*column] = (*value).to_owned();
        }
        fields.join(";")
    }

    fn csv_file(rows: &[String]) -> Vec<u8> {
        let text = format!("{}\r\n{}\r\n", COLUMNS.join(";"), rows.join("\r\n"));
        text.chars().map(|character| u8::try_from(u32::from(character)).unwrap()).collect()
    }

    fn parse_rows(rows: &[String]) -> ParsedRows<Filing> {
        parse_filings(&csv_file(rows), TODAY).unwrap()
    }

    #[test]
    fn a_row_is_parsed_into_a_filing() {
        let parsed = parse_rows(&[row_with(&[])]);
        assert_eq!(
            parsed.rows,
            [Filing {
                id: "1497743".to_owned(),
                cvm_dataset: CvmDataset::Ipe,
                company_id: 12345,
                company_name: "COMPANHIA AÇÚCAR S.A.".to_owned(),
                category: "Assembleia".to_owned(),
                doc_type: "AGO/E".to_owned(),
                kind: "Ata".to_owned(),
                subject: "Eleição do \"Conselho\" || Outros assuntos".to_owned(),
                delivered_on: "2026-02-11".parse().unwrap(),
                reference_date: "2026-04-16".parse().ok(),
                version: 3,
                protocol: "012345IPE160420260381550020-83".to_owned(),
                url: format!("{URL_PREFIX}1497743&numSequencia=1022449&numVersao=3"),
            }]
        );
    }

    #[test]
    fn optional_fields_may_be_empty() {
        let parsed = parse_rows(&[row_with(&[
            (0, "00.000.000/0000-00"),
            (3, ""),
            (4, "Relatório Proventos"),
            (5, ""),
            (6, ""),
            (7, ""),
            (10, ""),
        ])]);
        let filing = &parsed.rows[0];
        assert_eq!((filing.reference_date, filing.protocol.as_str(), filing.subject.as_str()), (None, "", ""));
        assert!(parsed.bad_rows.is_empty());
    }

    #[test]
    fn implausible_reference_dates_are_accepted() {
        let parsed = parse_rows(&[row_with(&[(3, "3026-04-30")])]);
        assert_eq!(parsed.rows[0].reference_date.unwrap().to_string(), "3026-04-30");
    }

    #[test]
    fn a_row_without_a_document_number_gets_a_hash_id() {
        let id_for_url = |url: &str| parse_rows(&[row_with(&[(12, url)])]).rows[0].id.clone();
        let ids = [
            id_for_url(""),
            id_for_url("https://example.org/x?numProtocolo="),
            id_for_url("https://example.org/x?numprotocolo=1"),
        ];

        for id in &ids {
            assert!(
                id.starts_with("row-") && id.len() == 20 && id[4..].bytes().all(|byte| byte.is_ascii_hexdigit()),
                "{id}"
            );
        }

        assert!(ids[0] != ids[1] && ids[1] != ids[2]);
        assert_eq!(id_for_url(""), ids[0]);
        // Changing this value would change the ids of stored filings.
        assert_eq!(ids[0], "row-c827372b6e311404");
    }

    #[test]
    fn a_hash_id_does_not_depend_on_column_order() {
        let reversed = |line: &str| line.split(';').rev().collect::<Vec<_>>().join(";");
        let row = row_with(&[(12, ""), (1, "ACME"), (7, "x"), (9, "AP")]);
        let ordered = parse_rows(std::slice::from_ref(&row));
        let text = format!("{}\n{}\n", reversed(&COLUMNS.join(";")), reversed(&row));
        let reordered = parse_filings(text.as_bytes(), TODAY).unwrap();
        assert_eq!(reordered.rows, ordered.rows);
        assert_eq!(reordered.alerts, [FormatAlert::ReorderedColumns]);
    }

    #[test]
    fn duplicates_are_merged_and_the_highest_version_stays_whatever_the_order() {
        let rows = [row_with(&[]), row_with(&[]), row_with(&[(11, "4")]), row_with(&[(12, "")]), row_with(&[(12, "")])];
        let parsed = parse_rows(&rows);
        assert_eq!((parsed.total, parsed.rows.len(), parsed.merged, parsed.bad_rows.len()), (5, 2, 2, 1));
        assert_eq!((parsed.rows[0].version, parsed.bad_rows[0].line), (4, 2));
        assert_eq!(parsed.bad_rows[0].reason, "another row of the document 1497743 has its version or a later one");

        let mut reversed = rows;
        reversed.reverse();
        let reversed = parse_rows(&reversed);
        assert_eq!(reversed.rows[1], parsed.rows[0]);
    }

    #[test]
    fn documents_that_share_a_number_are_different_filings_however_many_there_are() {
        let mut rows: Vec<String> = (0..10_000).map(|n| row_with(&[(12, &format!("{URL_PREFIX}{}", n + 1))])).collect();
        for number in 0..60 {
            rows.push(row_with(&[(5, "AGE"), (12, &format!("{URL_PREFIX}{}", number + 1))]));
        }
        // Other texts of the same documents.
        for number in 0..1_500 {
            rows.push(row_with(&[(7, "Z"), (12, &format!("{URL_PREFIX}{}", number + 100))]));
        }
        let parsed = parse_rows(&rows);
        assert_eq!(
            (parsed.rows.len(), parsed.bad_row_count(), parsed.uncollected_bad_rows.values().sum()),
            (10_060, 1_500, 500)
        );
        assert_eq!(crate::validation::validate_bad_row_count(&parsed), Ok(()));
    }

    #[test]
    fn filings_from_before_2015_have_no_version() {
        let other = format!("{URL_PREFIX}7");
        let parsed = parse_rows(&[row_with(&[(11, "0")]), row_with(&[(11, ""), (12, &other)])]);
        assert_eq!(parsed.rows.iter().map(|filing| filing.version).collect::<Vec<_>>(), [0, 0]);
    }

    #[test]
    fn each_version_of_a_document_is_a_separate_filing() {
        let second = format!("{URL_PREFIX}1497744&numVersao=4");
        assert_eq!(parse_rows(&[row_with(&[]), row_with(&[(11, "4"), (12, &second)])]).rows.len(), 2);
    }

    #[test]
    fn one_bad_row_does_not_affect_the_others() {
        let other = format!("{URL_PREFIX}7");
        let long = "x".repeat(8_193);

        for (column, value, reason) in [
            (2, "", "Codigo_CVM is \"\", which is not a company code"),
            (2, "02109-1", "Codigo_CVM is \"02109-1\", which is not a company code"),
            (1, "", "Nome_Companhia is empty"),
            (4, "", "Categoria is empty"),
            (3, "30/04/2026", "Data_Referencia is \"30/04/2026\", which is not a date as yyyy-MM-dd"),
            (7, &long, "Assunto is longer than 8192 bytes"),
            (8, "", "Data_Entrega is empty"),
            (8, "11/02/2026", "Data_Entrega is \"11/02/2026\", which is not a date as yyyy-MM-dd"),
            (8, "2026-11-16", "Data_Entrega is \"2026-11-16\", which is in the future"),
            (8, "1900-01-01", "Data_Entrega is \"1900-01-01\", which is before the regulator took any filing"),
            (11, "-1", "Versao is \"-1\", which is not a version"),
            (11, "+1", "Versao is \"+1\", which is not a version"),
            (11, "32768", "Versao is \"32768\", which is not a version"),
            (12, "javascript:alert(1)", "Link_Download is \"javascript:alert(1)\", which is not a web address"),
            (7, "a;b", "it has 14 fields, but the header has 13"),
        ] {
            let parsed = parse_rows(&[row_with(&[(12, &other)]), row_with(&[(column, value)])]);
            assert_eq!((parsed.rows.len(), parsed.bad_rows.len()), (1, 1), "{reason}");
            assert_eq!((parsed.bad_rows[0].line, parsed.bad_rows[0].reason.as_str()), (3, reason));
        }

        let today = parse_rows(&[row_with(&[(8, "2026-11-15")])]);
        assert_eq!(today.rows.len(), 1);
    }

    #[test]
    fn the_document_number_comes_only_from_its_query_parameter() {
        let number = |query: &str| document_number_from_url(&format!("https://example.org/x?{query}"));
        assert_eq!(number("numProtocolo=0012&x=1").as_deref(), Some("12"));
        assert_eq!(number("x=1&numProtocolo=12").as_deref(), Some("12"));

        for query in [
            "",
            "numProtocolo",
            "numProtocolo=0",
            "numProtocolo=1a",
            "xnumProtocolo=1",
            "numProtocolo=1234567890123456789",
        ] {
            assert_eq!(number(query), None, "{query}");
        }
        assert_eq!(document_number_from_url("https://example.org/numProtocolo=12"), None);
    }

    proptest! {
        #[test]
        fn parsing_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = parse_filings(&bytes, TODAY);
            if let Ok(parsed) = parse_filings(&[csv_file(&[row_with(&[])]), bytes].concat(), TODAY) {
                prop_assert_eq!(parsed.total, parsed.rows.len() as u64 + parsed.bad_row_count() + parsed.merged);
            }
        }

        #[test]
        fn a_corrupt_byte_affects_at_most_one_row(at in any::<proptest::sample::Index>(), byte in 0x20u8..) {
            let other = format!("{URL_PREFIX}7");
            let mut bytes = csv_file(&[row_with(&[]), row_with(&[(12, &other)])]);
            let header = COLUMNS.join(";").len() + 2;
            let at = header + at.index(row_with(&[]).chars().count());
            bytes[at] = byte;

            let parsed = parse_filings(&bytes, TODAY).unwrap();
            prop_assert!(parsed.rows.iter().any(|filing| filing.id == "7"));
            prop_assert_eq!(parsed.total, 2);
        }
    }
}
