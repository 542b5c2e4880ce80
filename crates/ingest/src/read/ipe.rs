//! The regulator's index of documents that companies deliver as they happen, `ipe_cia_aberta_YYYY.csv`.
//!
//! The protocol of delivery is no identity: whole years have none. What identifies a document is the number in its
//! address, and where even that is missing, all that its row says. Days of reference are whatever somebody typed.

use std::fmt::Write as _;

use chrono::NaiveDate;
use sha2::{Digest, Sha256};
use vintem_domain::{Filing, FilingSet};

use super::csv::{Row, Table, column};
use super::filings::{Filings, address, company_id, delivered_on, version};
use super::{Read, Refused};

/// A year has some 25 MB; the bound is that of an archive's member.
const MOST_BYTES: usize = 200_000_000;

/// The longest subject known has 1,188 characters.
const MOST_SUBJECT_BYTES: usize = 8 << 10;

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

const COMPANY_NAME: usize = column(&COLUMNS, "Nome_Companhia");
const CODE: usize = column(&COLUMNS, "Codigo_CVM");
const REFERENCE_DATE: usize = column(&COLUMNS, "Data_Referencia");
const CATEGORY: usize = column(&COLUMNS, "Categoria");
const DOC_TYPE: usize = column(&COLUMNS, "Tipo");
const KIND: usize = column(&COLUMNS, "Especie");
const SUBJECT: usize = column(&COLUMNS, "Assunto");
const DELIVERED_ON: usize = column(&COLUMNS, "Data_Entrega");
const PROTOCOL: usize = column(&COLUMNS, "Protocolo_Entrega");
const VERSION: usize = column(&COLUMNS, "Versao");
const URL: usize = column(&COLUMNS, "Link_Download");

/// The name of the member in the archive of a year.
pub fn member_name(year: i32) -> String {
    format!("ipe_cia_aberta_{year}.csv")
}

/// The filings of a file, in its order, each id once.
pub fn read(bytes: &[u8], today: NaiveDate) -> Result<Read<Filing>, Refused> {
    let mut table = Table::open(bytes, &COLUMNS, MOST_BYTES)?;
    let mut filings = Filings::new(std::mem::take(&mut table.alerts));
    for line in table.lines() {
        filings.take(&line, |row| filing(row, today))?;
    }
    Ok(filings.finish())
}

fn filing(row: &Row<'_, { COLUMNS.len() }>, today: NaiveDate) -> Result<Filing, String> {
    let url = address(row, URL)?;
    Ok(Filing {
        id: document_number(&url).unwrap_or_else(|| id_of_row(row)),
        set: FilingSet::Ipe,
        company_id: company_id(row, CODE)?,
        company_name: row.required_text(COMPANY_NAME)?,
        category: row.required_text(CATEGORY)?,
        doc_type: row.text(DOC_TYPE)?,
        kind: row.text(KIND)?,
        subject: row.text_up_to(SUBJECT, MOST_SUBJECT_BYTES)?,
        delivered_on: delivered_on(row, DELIVERED_ON, today)?,
        reference_date: row.day(REFERENCE_DATE)?,
        version: version(row, VERSION)?,
        protocol: row.text(PROTOCOL)?,
        url,
    })
}

/// `1497743` from `…?Tela=ext&numProtocolo=1497743&numVersao=1`.
fn document_number(url: &str) -> Option<String> {
    let (_, query) = url.split_once('?')?;
    let number = query.split('&').find_map(|parameter| parameter.strip_prefix("numProtocolo="))?;
    let is_number = (1..=18).contains(&number.len()) && number.bytes().all(|byte| byte.is_ascii_digit());
    let number: u64 = is_number.then(|| number.parse().ok())??;
    (number > 0).then(|| number.to_string())
}

/// Sixteen hexadecimal digits of the SHA-256 of the line, with its columns in the order that we know.
fn id_of_row(row: &Row<'_, { COLUMNS.len() }>) -> String {
    let hash = Sha256::digest(row.line());
    let mut id = "row-".to_owned();
    for byte in &hash[..8] {
        write!(id, "{byte:02x}").expect("a string takes all");
    }
    id
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::Alert;
    use proptest::prelude::*;

    const TODAY: NaiveDate = NaiveDate::from_ymd_opt(2026, 11, 15).unwrap();

    const URL_START: &str = "https://www.rad.cvm.gov.br/ENET/frmDownloadDocumento.aspx?Tela=ext&numProtocolo=";

    fn fields() -> [String; 13] {
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
            &format!("{URL_START}1497743&numSequencia=1022449&numVersao=3"),
        ]
        .map(str::to_owned)
    }

    fn with(changes: &[(usize, &str)]) -> String {
        let mut fields = fields();
        for (at, value) in changes {
            fields[*at] = (*value).to_owned();
        }
        fields.join(";")
    }

    fn file(rows: &[String]) -> Vec<u8> {
        let text = format!("{}\r\n{}\r\n", COLUMNS.join(";"), rows.join("\r\n"));
        text.chars().map(|character| u8::try_from(u32::from(character)).unwrap()).collect()
    }

    fn read_rows(rows: &[String]) -> Read<Filing> {
        read(&file(rows), TODAY).unwrap()
    }

    #[test]
    fn a_row_is_a_filing() {
        let read = read_rows(&[with(&[])]);
        assert_eq!(
            read.rows,
            [Filing {
                id: "1497743".to_owned(),
                set: FilingSet::Ipe,
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
                url: format!("{URL_START}1497743&numSequencia=1022449&numVersao=3"),
            }]
        );
    }

    #[test]
    fn what_the_regulator_leaves_out_may_be_missing() {
        let read = read_rows(&[with(&[
            (0, "00.000.000/0000-00"),
            (3, ""),
            (4, "Relatório Proventos"),
            (5, ""),
            (6, ""),
            (7, ""),
            (10, ""),
        ])]);
        let filing = &read.rows[0];
        assert_eq!((filing.reference_date, filing.protocol.as_str(), filing.subject.as_str()), (None, "", ""));
        assert!(read.bad.is_empty());
    }

    #[test]
    fn a_day_of_reference_may_be_absurd() {
        let read = read_rows(&[with(&[(3, "3026-04-30")])]);
        assert_eq!(read.rows[0].reference_date.unwrap().to_string(), "3026-04-30");
    }

    #[test]
    fn a_row_without_a_document_number_is_known_by_all_it_says() {
        let without = |link: &str| read_rows(&[with(&[(12, link)])]).rows[0].id.clone();
        let ids = [
            without(""),
            without("https://example.org/x?numProtocolo="),
            without("https://example.org/x?numprotocolo=1"),
        ];
        for id in &ids {
            assert!(
                id.starts_with("row-") && id.len() == 20 && id[4..].bytes().all(|byte| byte.is_ascii_hexdigit()),
                "{id}"
            );
        }
        assert!(ids[0] != ids[1] && ids[1] != ids[2]);
        assert_eq!(without(""), ids[0]);
        // Whoever changes this changes the ids of stored filings.
        assert_eq!(ids[0], "row-c827372b6e311404");
    }

    #[test]
    fn an_id_does_not_hang_on_the_order_of_columns() {
        let reversed = |line: &str| line.split(';').rev().collect::<Vec<_>>().join(";");
        let row = with(&[(12, ""), (1, "ACME"), (7, "x"), (9, "AP")]);
        let straight = read_rows(std::slice::from_ref(&row));
        let text = format!("{}\n{}\n", reversed(&COLUMNS.join(";")), reversed(&row));
        let turned = read(text.as_bytes(), TODAY).unwrap();
        assert_eq!(turned.rows, straight.rows);
        assert_eq!(turned.alerts, [Alert::ReorderedColumns]);
    }

    #[test]
    fn repetitions_are_one_and_an_id_with_two_contents_keeps_the_first() {
        let read =
            read_rows(&[with(&[]), with(&[]), with(&[(7, "Another subject")]), with(&[(12, "")]), with(&[(12, "")])]);
        assert_eq!((read.total, read.rows.len(), read.merged, read.bad.len()), (5, 2, 2, 1));
        assert_eq!(
            (read.bad[0].line, read.bad[0].reason.as_str()),
            (4, "an earlier row of the id 1497743 says other things than this one")
        );
        assert!(read.rows[0].subject.starts_with("Eleição"));
    }

    #[test]
    fn versions_of_a_document_are_filings_of_their_own() {
        let second = format!("{URL_START}1497744&numVersao=4");
        assert_eq!(read_rows(&[with(&[]), with(&[(11, "4"), (12, &second)])]).rows.len(), 2);
    }

    #[test]
    fn one_bad_row_leaves_the_others() {
        let other = format!("{URL_START}7");
        let long = "x".repeat(8_193);
        for (at, value, reason) in [
            (2, "", "Codigo_CVM is \"\", which is no code of a company"),
            (2, "02109-1", "Codigo_CVM is \"02109-1\", which is no code of a company"),
            (1, "", "Nome_Companhia is empty"),
            (4, "", "Categoria is empty"),
            (3, "30/04/2026", "Data_Referencia is \"30/04/2026\", which is no day as yyyy-MM-dd"),
            (7, &long, "Assunto is longer than 8192 bytes"),
            (8, "", "Data_Entrega is empty"),
            (8, "11/02/2026", "Data_Entrega is \"11/02/2026\", which is no day as yyyy-MM-dd"),
            (8, "2026-11-16", "Data_Entrega is \"2026-11-16\", which is in the future"),
            (8, "1900-01-01", "Data_Entrega is \"1900-01-01\", which is before the regulator took any filing"),
            (11, "", "Versao is \"\", which is no version"),
            (11, "0", "Versao is \"0\", which is no version"),
            (11, "+1", "Versao is \"+1\", which is no version"),
            (11, "32768", "Versao is \"32768\", which is no version"),
            (12, "javascript:alert(1)", "Link_Download is \"javascript:alert(1)\", which is no address of the web"),
            (7, "a;b", "it has 14 fields, but the header has 13"),
        ] {
            let read = read_rows(&[with(&[(12, &other)]), with(&[(at, value)])]);
            assert_eq!((read.rows.len(), read.bad.len()), (1, 1), "{reason}");
            assert_eq!((read.bad[0].line, read.bad[0].reason.as_str()), (3, reason));
        }
        let today = read_rows(&[with(&[(8, "2026-11-15")])]);
        assert_eq!(today.rows.len(), 1);
    }

    #[test]
    fn the_number_is_that_of_the_parameter_and_nothing_else() {
        let number = |query: &str| document_number(&format!("https://example.org/x?{query}"));
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
        assert_eq!(document_number("https://example.org/numProtocolo=12"), None);
    }

    proptest! {
        #[test]
        fn nothing_panics(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = read(&bytes, TODAY);
            if let Ok(read) = read(&[file(&[with(&[])]), bytes].concat(), TODAY) {
                prop_assert_eq!(read.total, read.rows.len() as u64 + read.bad.len() as u64 + read.merged);
            }
        }

        #[test]
        fn a_changed_byte_harms_one_row_at_most(at in any::<proptest::sample::Index>(), byte in 0x20u8..) {
            let other = format!("{URL_START}7");
            let mut bytes = file(&[with(&[]), with(&[(12, &other)])]);
            let header = COLUMNS.join(";").len() + 2;
            let at = header + at.index(with(&[]).chars().count());
            bytes[at] = byte;
            let read = read(&bytes, TODAY).unwrap();
            prop_assert!(read.rows.iter().any(|filing| filing.id == "7"));
            prop_assert_eq!(read.total, 2);
        }
    }
}
