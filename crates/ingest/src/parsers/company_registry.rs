//! Parser for the regulator's company registry, `cad_cia_aberta.csv`.
//!
//! The registry has one row per company and market, so rows with the same code are merged into one company. Personal
//! data is never parsed, never quoted in a bad row, and removed by [`redact_personal_data`] before the file is
//! archived.

use std::collections::BTreeMap;

use vintem_domain::company::parse_company_id;
use vintem_domain::{Cnpj, Company, CompanyId};

use super::csv::{CsvLine, CsvRow, CsvTable, column_index};
use super::text::decode_latin1;
use super::{BadRow, BadRowKind, FormatError, ParsedRows, RowError};

/// A dozen times its current size.
const MAX_FILE_BYTES: usize = 16 << 20;

const COLUMNS: [&str; 47] = [
    "CNPJ_CIA",
    "DENOM_SOCIAL",
    "DENOM_COMERC",
    "DT_REG",
    "DT_CONST",
    "DT_CANCEL",
    "MOTIVO_CANCEL",
    "SIT",
    "DT_INI_SIT",
    "CD_CVM",
    "SETOR_ATIV",
    "TP_MERC",
    "CATEG_REG",
    "DT_INI_CATEG",
    "SIT_EMISSOR",
    "DT_INI_SIT_EMISSOR",
    "CONTROLE_ACIONARIO",
    "TP_ENDER",
    "LOGRADOURO",
    "COMPL",
    "BAIRRO",
    "MUN",
    "UF",
    "PAIS",
    "CEP",
    "DDD_TEL",
    "TEL",
    "DDD_FAX",
    "FAX",
    "EMAIL",
    "TP_RESP",
    "RESP",
    "DT_INI_RESP",
    "LOGRADOURO_RESP",
    "COMPL_RESP",
    "BAIRRO_RESP",
    "MUN_RESP",
    "UF_RESP",
    "PAIS_RESP",
    "CEP_RESP",
    "DDD_TEL_RESP",
    "TEL_RESP",
    "DDD_FAX_RESP",
    "FAX_RESP",
    "EMAIL_RESP",
    "CNPJ_AUDITOR",
    "AUDITOR",
];

const CNPJ_COLUMN: usize = column_index(&COLUMNS, "CNPJ_CIA");
const NAME_COLUMN: usize = column_index(&COLUMNS, "DENOM_SOCIAL");
const TRADE_NAME_COLUMN: usize = column_index(&COLUMNS, "DENOM_COMERC");
const REGISTRATION_DATE_COLUMN: usize = column_index(&COLUMNS, "DT_REG");
const CANCELLATION_DATE_COLUMN: usize = column_index(&COLUMNS, "DT_CANCEL");
const STATUS_COLUMN: usize = column_index(&COLUMNS, "SIT");
const STATUS_SINCE_COLUMN: usize = column_index(&COLUMNS, "DT_INI_SIT");
const COMPANY_CODE_COLUMN: usize = column_index(&COLUMNS, "CD_CVM");
const SECTOR_COLUMN: usize = column_index(&COLUMNS, "SETOR_ATIV");
const MARKET_COLUMN: usize = column_index(&COLUMNS, "TP_MERC");
const CATEGORY_COLUMN: usize = column_index(&COLUMNS, "CATEG_REG");
const SITUATION_COLUMN: usize = column_index(&COLUMNS, "SIT_EMISSOR");
const CONTROL_COLUMN: usize = column_index(&COLUMNS, "CONTROLE_ACIONARIO");
const CITY_COLUMN: usize = column_index(&COLUMNS, "MUN");
const STATE_COLUMN: usize = column_index(&COLUMNS, "UF");
const AUDITOR_COLUMN: usize = column_index(&COLUMNS, "AUDITOR");

/// The companies, sorted by code.
pub fn parse_companies(bytes: &[u8]) -> Result<ParsedRows<Company>, FormatError> {
    let mut table = CsvTable::open(bytes, &COLUMNS, MAX_FILE_BYTES)?;
    let mut parsed = ParsedRows::new(std::mem::take(&mut table.alerts));
    let mut companies: BTreeMap<CompanyId, Company> = BTreeMap::new();

    for line in table.lines() {
        parsed.total += 1;
        match merge_line(&line, &mut companies) {
            Ok(MergeOutcome::NewCompany) => {}
            Ok(MergeOutcome::MergedRow) => parsed.merged += 1,
            Err(error) => {
                let mut redacted = Vec::with_capacity(line.bytes.len());
                write_redacted_line(line.bytes, table.header_columns(), &mut redacted);
                parsed.push_bad_row(BadRow::from_line(line.number, &redacted, error))?;
            }
        }
    }

    parsed.rows = companies.into_values().collect();
    parsed.blanks = table.column_blanks("");
    Ok(parsed)
}

/// The copy of the file that may be archived: fields with personal data are blank, and every other byte is unchanged.
/// Unknown columns are blank too, and a line with the wrong number of fields keeps only its CNPJ. Nothing is kept of a
/// file that is not the registry, because its personal data cannot be located.
pub fn redact_personal_data(bytes: &[u8]) -> Vec<u8> {
    let Ok(table) = CsvTable::open(bytes, &COLUMNS, MAX_FILE_BYTES) else {
        return Vec::new();
    };

    let mut redacted = Vec::with_capacity(bytes.len());
    redacted.extend_from_slice(table.header());
    for line in table.body().split_inclusive(|byte| *byte == b'\n') {
        let line_end_bytes = match line {
            [.., b'\r', b'\n'] => 2,
            [.., b'\n'] => 1,
            _ => 0,
        };
        let (fields, line_end) = line.split_at(line.len() - line_end_bytes);
        write_redacted_line(fields, table.header_columns(), &mut redacted);
        redacted.extend_from_slice(line_end);
    }
    redacted
}

enum MergeOutcome {
    NewCompany,
    MergedRow,
}

fn merge_line(
    line: &CsvLine<'_, { COLUMNS.len() }>,
    companies: &mut BTreeMap<CompanyId, Company>,
) -> Result<MergeOutcome, RowError> {
    // The registry is not in an archive with a checksum, so a truncated last line would otherwise go unnoticed.
    if !line.has_line_end {
        return Err("the file ends within it".to_owned().into());
    }

    let mut company = parse_company(line.row.as_ref().map_err(String::clone)?)?;
    let Some(existing) = companies.get_mut(&company.id) else {
        companies.insert(company.id, company);
        return Ok(MergeOutcome::NewCompany);
    };

    let markets = std::mem::take(&mut company.markets);
    company.markets.clone_from(&existing.markets);
    if company != *existing {
        let reason = format!("an earlier row of the code {} differs from this one", existing.id);
        return Err(RowError { kind: BadRowKind::Contradiction, reason });
    }

    existing.markets.extend(markets);
    existing.markets.sort();
    existing.markets.dedup();
    Ok(MergeOutcome::MergedRow)
}

fn parse_company(row: &CsvRow<'_, { COLUMNS.len() }>) -> Result<Company, String> {
    let id = parse_company_id(&row.trimmed(COMPANY_CODE_COLUMN))
        .ok_or_else(|| row.invalid_field_reason(COMPANY_CODE_COLUMN, "not a company code"))?;
    let cnpj = Cnpj::parse(&row.trimmed(CNPJ_COLUMN))
        .ok_or_else(|| row.invalid_field_reason(CNPJ_COLUMN, "not a valid CNPJ"))?;
    let market = row.text(MARKET_COLUMN)?;

    Ok(Company {
        id,
        cnpj: Some(cnpj),
        name: row.required_text(NAME_COLUMN)?,
        // A missing status must not replace the one that we serve.
        status: row.required_text(STATUS_COLUMN)?,
        sector: row.text(SECTOR_COLUMN)?,
        trade_name: row.text(TRADE_NAME_COLUMN)?,
        former_names: Vec::new(),
        former_trade_names: Vec::new(),
        tickers: Vec::new(),
        markets: if market.is_empty() { Vec::new() } else { vec![market] },
        registered_on: row.date(REGISTRATION_DATE_COLUMN)?,
        cancelled_on: row.date(CANCELLATION_DATE_COLUMN)?,
        status_since: row.date(STATUS_SINCE_COLUMN)?,
        category: row.text(CATEGORY_COLUMN)?,
        situation: row.text(SITUATION_COLUMN)?,
        control: row.text(CONTROL_COLUMN)?,
        city: row.text(CITY_COLUMN)?,
        state: row.text(STATE_COLUMN)?,
        auditor: row.text(AUDITOR_COLUMN)?,
        is_registered: true,
    })
}

fn write_redacted_line(line: &[u8], header_columns: &[Option<usize>], out: &mut Vec<u8>) {
    let is_kept = |column: &Option<usize>| column.is_some_and(|index| !is_personal_data_column(COLUMNS[index]));
    let fields = || line.split(|byte| *byte == b';');

    if fields().count() != header_columns.len() {
        // The line may be a fragment of a row, for example if a field contains a line break. Only a CNPJ is certain not
        // to be personal data.
        let first = fields().next().unwrap_or_default();
        if header_columns.first() == Some(&Some(CNPJ_COLUMN)) && Cnpj::parse(&decode_latin1(first)).is_some() {
            out.extend_from_slice(first);
        }
        return;
    }

    for (position, (field, column)) in fields().zip(header_columns).enumerate() {
        if position > 0 {
            out.push(b';');
        }
        if is_kept(column) {
            out.extend_from_slice(field);
        }
    }
}

/// Everything about the company's representative, and the company's e-mail address, which often is a person's name.
fn is_personal_data_column(column: &str) -> bool {
    column == "RESP" || column.ends_with("_RESP") || column == "EMAIL"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parsers::FormatAlert;
    use proptest::prelude::*;

    /// A row with these fields. Dates and the market are empty by default; other columns contain their own name.
    fn csv_row(fields: &[(&str, &str)]) -> String {
        let fields: Vec<&str> = COLUMNS
            .iter()
            .map(|column| match fields.iter().find(|(name, _)| name == column) {
                Some((_, value)) => *value,
                None if column.starts_with("DT_") || *column == "TP_MERC" => "",
                None => column,
            })
            .collect();
        fields.join(";")
    }

    fn acme_fields(market: &'static str) -> Vec<(&'static str, &'static str)> {
        vec![
            ("CNPJ_CIA", "99.912.345/0001-89"),
            ("DENOM_SOCIAL", "COMPANHIA  AÇÚCAR S.A. "),
            ("CD_CVM", "12345"),
            ("SIT", "ATIVO"),
            ("TP_MERC", market),
            ("DT_REG", "1998-07-21"),
            ("DT_INI_SIT", "1998-07-21"),
            ("SETOR_ATIV", "Alimentos"),
            ("MUN", "SÃO PAULO"),
            ("UF", "SP"),
            ("RESP", "FULANO DE TAL"),
        ]
    }

    fn row_with(mut fields: Vec<(&'static str, &'static str)>, name: &'static str, value: &'static str) -> String {
        fields.retain(|(column, _)| *column != name);
        fields.push((name, value));
        csv_row(&fields)
    }

    fn csv_file(rows: &[String]) -> Vec<u8> {
        let text = format!("{}\r\n{}\r\n", COLUMNS.join(";"), rows.join("\r\n"));
        encode_latin1(&text)
    }

    fn encode_latin1(text: &str) -> Vec<u8> {
        text.chars().map(|character| u8::try_from(u32::from(character)).unwrap()).collect()
    }

    #[test]
    fn the_fixture_has_a_valid_cnpj() {
        assert_eq!(Cnpj::from_root_and_branch(*b"999123450001").to_string(), "99.912.345/0001-89");
    }

    #[test]
    fn rows_with_the_same_code_are_merged_into_one_company() {
        let markets = ["BOLSA", "BALCÃO ORGANIZADO", "", "BOLSA"];
        let rows: Vec<String> = markets.iter().map(|market| csv_row(&acme_fields(market))).collect();
        let parsed = parse_companies(&csv_file(&rows)).unwrap();
        assert_eq!((parsed.total, parsed.merged, parsed.bad_rows.len()), (4, 3, 0));

        let company = &parsed.rows[0];
        assert_eq!(
            *company,
            Company {
                id: 12345,
                name: "COMPANHIA AÇÚCAR S.A.".to_owned(),
                cnpj: Cnpj::parse("99912345000189"),
                status: "ATIVO".to_owned(),
                sector: "Alimentos".to_owned(),
                trade_name: "DENOM_COMERC".to_owned(),
                former_names: Vec::new(),
                former_trade_names: Vec::new(),
                tickers: Vec::new(),
                markets: vec!["BALCÃO ORGANIZADO".to_owned(), "BOLSA".to_owned()],
                registered_on: "1998-07-21".parse().ok(),
                cancelled_on: None,
                status_since: "1998-07-21".parse().ok(),
                category: "CATEG_REG".to_owned(),
                situation: "SIT_EMISSOR".to_owned(),
                control: "CONTROLE_ACIONARIO".to_owned(),
                city: "SÃO PAULO".to_owned(),
                state: "SP".to_owned(),
                auditor: "AUDITOR".to_owned(),
                is_registered: true,
            }
        );
    }

    #[test]
    fn rows_that_differ_in_more_than_the_market_are_not_merged() {
        let parsed = parse_companies(&csv_file(&[
            csv_row(&acme_fields("BOLSA")),
            row_with(acme_fields("OTHER"), "DENOM_SOCIAL", "ANOTHER S.A."),
        ]))
        .unwrap();
        assert_eq!((parsed.rows.len(), parsed.merged), (1, 0));
        assert_eq!(
            (parsed.rows[0].name.as_str(), &parsed.rows[0].markets[..]),
            ("COMPANHIA AÇÚCAR S.A.", &["BOLSA".to_owned()][..])
        );
        assert_eq!(parsed.bad_rows[0].line, 3);
        assert_eq!(parsed.bad_rows[0].reason, "an earlier row of the code 12345 differs from this one");
    }

    #[test]
    fn one_cnpj_may_have_several_codes() {
        let parsed = parse_companies(&csv_file(&[
            row_with(acme_fields(""), "CD_CVM", "24600"),
            row_with(acme_fields(""), "CD_CVM", "1716"),
        ]))
        .unwrap();
        assert_eq!(parsed.rows.iter().map(|company| company.id).collect::<Vec<_>>(), [1716, 24600]);
    }

    #[test]
    fn alphanumeric_cnpjs_and_unknown_statuses_are_accepted() {
        let mut fields = acme_fields("");
        fields.retain(|(name, _)| *name != "CNPJ_CIA" && *name != "SIT");
        fields.extend([("CNPJ_CIA", "12.ABC.345/01DE-35"), ("SIT", "EM ANÁLISE")]);
        let parsed = parse_companies(&csv_file(&[csv_row(&fields)])).unwrap();
        assert_eq!(parsed.rows[0].cnpj.unwrap().as_str(), "12ABC34501DE35");
        assert_eq!(parsed.rows[0].status, "EM ANÁLISE");
    }

    #[test]
    fn one_bad_row_does_not_affect_the_others() {
        let good = row_with(acme_fields(""), "CD_CVM", "35");
        let long: &'static str = Box::leak("X".repeat(1_001).into_boxed_str());

        for (column, value, reason) in [
            ("CNPJ_CIA", "99.912.345/0001-88", "CNPJ_CIA is \"99.912.345/0001-88\", which is not a valid CNPJ"),
            ("CNPJ_CIA", "00.000.000/0000-00", "CNPJ_CIA is \"00.000.000/0000-00\", which is not a valid CNPJ"),
            ("CD_CVM", "", "CD_CVM is \"\", which is not a company code"),
            ("CD_CVM", "02109-1", "CD_CVM is \"02109-1\", which is not a company code"),
            ("DENOM_SOCIAL", " ", "DENOM_SOCIAL is empty"),
            ("SIT", "", "SIT is empty"),
            ("DT_REG", "21/07/1998", "DT_REG is \"21/07/1998\", which is not a date as yyyy-MM-dd"),
            ("DT_CANCEL", "1998-02-30", "DT_CANCEL is \"1998-02-30\", which is not a date as yyyy-MM-dd"),
            ("AUDITOR", long, "AUDITOR is longer than 1000 bytes"),
            ("DENOM_COMERC", "A;B", "it has 48 fields, but the header has 47"),
        ] {
            let parsed = parse_companies(&csv_file(&[good.clone(), row_with(acme_fields(""), column, value)])).unwrap();
            assert_eq!((parsed.rows.len(), parsed.bad_rows.len()), (1, 1), "{column}");
            assert_eq!((parsed.bad_rows[0].line, parsed.bad_rows[0].reason.as_str()), (3, reason));
            assert!(!parsed.bad_rows[0].text.contains("FULANO"), "{}", parsed.bad_rows[0].text);
        }
    }

    #[test]
    fn a_truncated_file_loses_only_its_last_row() {
        let whole = csv_file(&[csv_row(&acme_fields("")), row_with(acme_fields(""), "CD_CVM", "35")]);
        let parsed = parse_companies(&whole[..whole.len() - 4]).unwrap();
        assert_eq!(parsed.rows.len(), 1);
        assert_eq!(parsed.bad_rows[0].reason, "the file ends within it");
    }

    #[test]
    fn a_missing_column_rejects_the_file_and_reordered_columns_do_not() {
        let renamed = String::from_utf8(csv_file(&[])).unwrap().replace(";SIT;", ";SITUACAO;");
        assert_eq!(parse_companies(renamed.as_bytes()), Err(FormatError::MissingColumns(vec!["SIT"])));
        let reversed = |line: &str| line.split(';').rev().collect::<Vec<_>>().join(";");
        let text = format!("{}\r\n{}\r\n", reversed(&COLUMNS.join(";")), reversed(&csv_row(&acme_fields("BOLSA"))));
        let parsed = parse_companies(&encode_latin1(&text)).unwrap();
        assert_eq!(parsed.alerts, [FormatAlert::ReorderedColumns]);
        assert_eq!(parsed.rows[0].name, "COMPANHIA AÇÚCAR S.A.");
    }

    #[test]
    fn personal_data_is_removed_and_every_other_byte_stays() {
        let personal_columns: Vec<&str> =
            COLUMNS.iter().copied().filter(|name| is_personal_data_column(name)).collect();
        assert_eq!(personal_columns.len(), 16);

        let original = csv_file(&[csv_row(&acme_fields("BOLSA")), csv_row(&acme_fields(""))]);
        let blanked: Vec<(&str, &str)> = personal_columns.iter().map(|name| (*name, "")).collect();
        let mut expected_rows = Vec::new();
        for market in ["BOLSA", ""] {
            let mut fields = blanked.clone();
            fields.extend(acme_fields(market));
            expected_rows.push(csv_row(&fields));
        }

        let redacted = redact_personal_data(&original);
        assert_eq!(redacted, csv_file(&expected_rows));
        assert_eq!(redact_personal_data(&redacted), redacted);
        assert_eq!(parse_companies(&redacted).unwrap().rows, parse_companies(&original).unwrap().rows);
    }

    #[test]
    fn unparsable_content_is_redacted() {
        assert_eq!(redact_personal_data(b"<html>FULANO DE TAL</html>"), b"");
        assert_eq!(redact_personal_data(&encode_latin1(&format!("{}\r\n", COLUMNS.join(",")))), b"");

        let extra_column = format!("{};NOME_DIRETOR\n{};FULANO\n", COLUMNS.join(";"), csv_row(&acme_fields("")));
        assert!(!String::from_utf8_lossy(&redact_personal_data(&encode_latin1(&extra_column))).contains("FULANO"));

        let extra_field = csv_file(&[row_with(acme_fields(""), "DENOM_COMERC", "A;B")]);
        let redacted = redact_personal_data(&extra_field);
        assert!(!String::from_utf8_lossy(&redacted).contains("FULANO"));
        assert_eq!(redacted, csv_file(&["99.912.345/0001-89".to_owned()]));

        let line_break = csv_file(&[row_with(acme_fields(""), "COMPL", "SALA 1\r\nSALA 2")]);
        assert_eq!(redact_personal_data(&line_break), csv_file(&["99.912.345/0001-89".to_owned(), String::new()]));
        assert_eq!(
            parse_companies(&line_break).unwrap().bad_rows.iter().map(|bad| bad.text.as_str()).collect::<Vec<_>>(),
            ["99.912.345/0001-89", ""]
        );
    }

    proptest! {
        #[test]
        fn parsing_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let table = [csv_file(&[csv_row(&acme_fields(""))]), bytes.clone()].concat();
            let _ = (parse_companies(&bytes), redact_personal_data(&bytes));
            if let Ok(parsed) = parse_companies(&table) {
                prop_assert_eq!(parsed.total, parsed.rows.len() as u64 + parsed.bad_rows.len() as u64 + parsed.merged);
            }
            let _ = redact_personal_data(&table);
        }

        #[test]
        fn a_corrupt_byte_never_reveals_personal_data(at in any::<proptest::sample::Index>(), byte in any::<u8>()) {
            let mut bytes = csv_file(&[csv_row(&acme_fields("BOLSA"))]);
            let at = at.index(bytes.len());
            bytes[at] = byte;
            let redacted = redact_personal_data(&bytes);
            prop_assert!(!redacted.windows(6).any(|window| window == b"FULANO"));
            let bad_rows = parse_companies(&bytes).map(|parsed| parsed.bad_rows).unwrap_or_default();
            prop_assert!(bad_rows.iter().all(|bad| !bad.text.contains("FULANO")));
        }
    }
}
