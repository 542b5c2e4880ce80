//! Parser for the securities in companies' registration forms, `fca_cia_aberta_valor_mobiliario_YYYY.csv`: the only
//! public source that says which ticker belongs to which company.
//!
//! The ticker is free text with errors (`ADR`, `0000`), and most securities have none. A row without a plausible ticker
//! is skipped; it is not bad. The other tables of these forms contain personal data and are not parsed.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use chrono::NaiveDate;
use vintem_domain::Cnpj;
use vintem_store::load::ListedSecurity;

use super::csv::{CsvRow, CsvTable, column_index};
use super::filing_rows::parse_version;
use super::{BadRow, BadRowKind, FormatError, ParsedRows, RowError};

/// A year has about 2 MB.
const MAX_FILE_BYTES: usize = 32 << 20;

const COLUMNS: [&str; 18] = [
    "CNPJ_Companhia",
    "Data_Referencia",
    "Versao",
    "ID_Documento",
    "Nome_Empresarial",
    "Valor_Mobiliario",
    "Sigla_Classe_Acao_Preferencial",
    "Classe_Acao_Preferencial",
    "Codigo_Negociacao",
    "Composicao_BDR_Unit",
    "Mercado",
    "Sigla_Entidade_Administradora",
    "Entidade_Administradora",
    "Data_Inicio_Negociacao",
    "Data_Fim_Negociacao",
    "Segmento",
    "Data_Inicio_Listagem",
    "Data_Fim_Listagem",
];

const CNPJ_COLUMN: usize = column_index(&COLUMNS, "CNPJ_Companhia");
const REFERENCE_DATE_COLUMN: usize = column_index(&COLUMNS, "Data_Referencia");
const VERSION_COLUMN: usize = column_index(&COLUMNS, "Versao");
const DOCUMENT_ID_COLUMN: usize = column_index(&COLUMNS, "ID_Documento");
const TICKER_COLUMN: usize = column_index(&COLUMNS, "Codigo_Negociacao");
const MARKET_COLUMN: usize = column_index(&COLUMNS, "Mercado");
const TRADED_FROM_COLUMN: usize = column_index(&COLUMNS, "Data_Inicio_Negociacao");
const TRADED_UNTIL_COLUMN: usize = column_index(&COLUMNS, "Data_Fim_Negociacao");
const SEGMENT_COLUMN: usize = column_index(&COLUMNS, "Segmento");

/// The name of the member in the archive of a year.
pub fn archive_member_name(year: i32) -> String {
    format!("fca_cia_aberta_valor_mobiliario_{year}.csv")
}

/// The securities with a ticker, in file order. A form may list a security several times, for example for a second
/// market or an earlier segment. The row that is still traded wins, or else the one that was traded last.
pub fn parse_securities(bytes: &[u8]) -> Result<ParsedRows<ListedSecurity>, FormatError> {
    let mut table = CsvTable::open(bytes, &COLUMNS, MAX_FILE_BYTES)?;
    let mut parsed = ParsedRows::new(std::mem::take(&mut table.alerts));
    let mut index_by_form: HashMap<(u64, String), usize> = HashMap::new();

    for line in table.lines() {
        parsed.total += 1;
        let security = match line.row.and_then(|row| parse_security(&row)) {
            Ok(Some(security)) => security,
            Ok(None) => {
                parsed.skipped += 1;
                continue;
            }
            Err(reason) => {
                parsed.push_bad_row(BadRow::from_line(line.number, line.bytes, reason))?;
                continue;
            }
        };

        let existing = match index_by_form.entry((security.document_id, security.ticker.clone())) {
            Entry::Vacant(entry) => {
                entry.insert(parsed.rows.len());
                parsed.rows.push(security);
                continue;
            }
            Entry::Occupied(entry) => *entry.get(),
        };

        if form_identity(&security) != form_identity(&parsed.rows[existing]) {
            let reason = format!("an earlier row of the form {} says other things of it", security.document_id);
            let error = RowError { kind: BadRowKind::Contradiction, reason };
            parsed.push_bad_row(BadRow::from_line(line.number, line.bytes, error))?;
            continue;
        }

        parsed.merged += 1;
        if merge_priority(&security) > merge_priority(&parsed.rows[existing]) {
            parsed.rows[existing] = security;
        }
    }
    parsed.blanks = table.column_blanks("securities.");
    Ok(parsed)
}

/// The fields that all rows of one form must agree on.
fn form_identity(security: &ListedSecurity) -> (Cnpj, NaiveDate, u16) {
    (security.cnpj, security.reference_date, security.version)
}

/// The row with the greatest priority wins if a ticker has several.
fn merge_priority(security: &ListedSecurity) -> (bool, Option<NaiveDate>, Option<NaiveDate>) {
    (security.traded_until.is_none(), security.traded_until, security.traded_from)
}

fn parse_security(row: &CsvRow<'_, { COLUMNS.len() }>) -> Result<Option<ListedSecurity>, String> {
    let ticker = row.trimmed(TICKER_COLUMN).to_ascii_uppercase();
    if !is_ticker(&ticker) {
        return Ok(None);
    }

    let digits = row.trimmed(DOCUMENT_ID_COLUMN);
    let is_number = (1..=18).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit());
    let document_id = is_number.then(|| digits.parse().ok()).flatten();

    Ok(Some(ListedSecurity {
        cnpj: Cnpj::parse(&row.trimmed(CNPJ_COLUMN))
            .ok_or_else(|| row.invalid_field_reason(CNPJ_COLUMN, "not a valid CNPJ"))?,
        ticker,
        document_id: document_id
            .ok_or_else(|| row.invalid_field_reason(DOCUMENT_ID_COLUMN, "not a document number"))?,
        version: parse_version(row, VERSION_COLUMN)?,
        reference_date: row.required_date(REFERENCE_DATE_COLUMN)?,
        market: row.text(MARKET_COLUMN)?,
        segment: row.text(SEGMENT_COLUMN)?,
        traded_from: row.date(TRADED_FROM_COLUMN)?,
        traded_until: row.date(TRADED_UNTIL_COLUMN)?,
    }))
}

/// A letter, three letters or digits, then one or two digits: `PETR4`, `B3SA3`, `TAEE11`.
fn is_ticker(text: &str) -> bool {
    let bytes = text.as_bytes();
    (5..=6).contains(&bytes.len())
        && bytes[0].is_ascii_uppercase()
        && bytes[1..4].iter().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit())
        && bytes[4..].iter().all(u8::is_ascii_digit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn row_with(changes: &[(usize, &str)]) -> String {
        let mut fields = [
            "99.912.345/0001-89",
            "2026-01-01",
            "3",
            "160576",
            "CIA ACUCAR",
            "A\u{e7}\u{f5}es Ordin\u{e1}rias",
            "",
            "",
            "ACUC3",
            "",
            "Bolsa",
            "B3",
            "B3 S.A.",
            "2006-05-31",
            "",
            "Novo Mercado",
            "1977-07-20",
            "",
        ];

        for (column, value) in changes {
            fields[*column] = value;
        }
        fields.join(";")
    }

    fn csv_file(rows: &[String]) -> Vec<u8> {
        let text = format!("{}\r\n{}\r\n", COLUMNS.join(";"), rows.join("\r\n"));
        text.chars().map(|character| u8::try_from(u32::from(character)).unwrap()).collect()
    }

    #[test]
    fn a_row_with_a_ticker_is_parsed_into_a_security() {
        let parsed = parse_securities(&csv_file(&[row_with(&[])])).unwrap();
        assert_eq!(
            parsed.rows,
            [ListedSecurity {
                cnpj: Cnpj::parse("99912345000189").unwrap(),
                ticker: "ACUC3".to_owned(),
                document_id: 160_576,
                version: 3,
                reference_date: "2026-01-01".parse().unwrap(),
                market: "Bolsa".to_owned(),
                segment: "Novo Mercado".to_owned(),
                traded_from: "2006-05-31".parse().ok(),
                traded_until: None,
            }]
        );
    }

    #[test]
    fn tickers_are_trimmed_and_uppercased() {
        for (written, ticker) in [(" acuc4 ", "ACUC4"), ("B3SA3", "B3SA3"), ("TAEE11", "TAEE11"), ("A1234", "A1234")] {
            let parsed = parse_securities(&csv_file(&[row_with(&[(8, written)])])).unwrap();
            assert_eq!(parsed.rows[0].ticker, ticker);
        }
    }

    #[test]
    fn rows_without_a_valid_ticker_are_skipped() {
        let codes = ["", "ADR", "0000", "00000", "ACUC", "ACUC333", "ACU3", "3CUC3", "ACUC-3", "A\u{c7}UC3", "N/A"];
        let rows: Vec<String> = codes.iter().map(|code| row_with(&[(8, code), (0, "?")])).collect();
        let parsed = parse_securities(&csv_file(&rows)).unwrap();
        assert_eq!((parsed.total, parsed.skipped), (11, 11));
        assert!(parsed.rows.is_empty() && parsed.bad_rows.is_empty());
    }

    #[test]
    fn each_version_of_a_form_is_a_separate_row() {
        let parsed = parse_securities(&csv_file(&[row_with(&[]), row_with(&[(2, "4"), (3, "160577")])])).unwrap();
        assert_eq!((parsed.rows.len(), parsed.merged, parsed.total), (2, 0, 2));
    }

    #[test]
    fn the_row_still_traded_wins_among_duplicates() {
        let ended = row_with(&[(13, "2001-01-02"), (14, "2006-05-30"), (15, "Nível 1")]);
        let earlier = row_with(&[(13, "1990-01-02"), (14, "2000-12-29"), (15, "Básico")]);
        for rows in [
            [row_with(&[]), ended.clone(), earlier.clone()],
            [earlier.clone(), row_with(&[]), ended.clone()],
            [ended.clone(), earlier.clone(), row_with(&[])],
        ] {
            let parsed = parse_securities(&csv_file(&rows)).unwrap();
            assert_eq!((parsed.rows.len(), parsed.merged, parsed.bad_rows.len()), (1, 2, 0));
            assert_eq!((parsed.rows[0].traded_until, parsed.rows[0].segment.as_str()), (None, "Novo Mercado"));
        }
        let past = parse_securities(&csv_file(&[earlier, ended])).unwrap();
        assert_eq!(past.rows[0].segment, "Nível 1");
    }

    #[test]
    fn a_form_belongs_to_one_company() {
        let other = Cnpj::from_root_and_branch(*b"999000010001").to_string();
        let parsed = parse_securities(&csv_file(&[row_with(&[]), row_with(&[(0, &other)])])).unwrap();
        assert_eq!((parsed.rows.len(), parsed.merged), (1, 0));
        assert_eq!(parsed.bad_rows[0].reason, "an earlier row of the form 160576 says other things of it");
    }

    #[test]
    fn one_bad_row_does_not_affect_the_others() {
        for (column, value, reason) in [
            (0, "99.912.345/0001-88", "CNPJ_Companhia is \"99.912.345/0001-88\", which is not a valid CNPJ"),
            (1, "", "Data_Referencia is empty"),
            (2, "-1", "Versao is \"-1\", which is not a version"),
            (3, "x", "ID_Documento is \"x\", which is not a document number"),
            (14, "31/12/2025", "Data_Fim_Negociacao is \"31/12/2025\", which is not a date as yyyy-MM-dd"),
            (4, "A;B", "it has 19 fields, but the header has 18"),
        ] {
            let parsed = parse_securities(&csv_file(&[row_with(&[]), row_with(&[(column, value)])])).unwrap();
            assert_eq!((parsed.rows.len(), parsed.bad_rows.len()), (1, 1), "{reason}");
            assert_eq!((parsed.bad_rows[0].line, parsed.bad_rows[0].reason.as_str()), (3, reason));
        }
    }

    proptest! {
        #[test]
        fn parsing_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = parse_securities(&bytes);
            if let Ok(parsed) = parse_securities(&[csv_file(&[row_with(&[])]), bytes].concat()) {
                let counted = parsed.rows.len() as u64 + parsed.bad_rows.len() as u64 + parsed.merged + parsed.skipped;
                prop_assert_eq!(parsed.total, counted);
            }
        }

        #[test]
        fn tickers_match_the_documented_pattern(text in "[A-Z0-9a-]{3,8}") {
            let bytes = text.as_bytes();
            let expected = (5..=6).contains(&text.len())
                && bytes.iter().enumerate().all(|(at, byte)| match at {
                    0 => byte.is_ascii_uppercase(),
                    1..4 => byte.is_ascii_uppercase() || byte.is_ascii_digit(),
                    _ => byte.is_ascii_digit(),
                });
            prop_assert_eq!(is_ticker(&text), expected);
        }
    }
}
