//! The regulator's registry of companies, `cad_cia_aberta.csv`.
//!
//! It has one row for each company and market, so a company is what the rows of its code say together. What it says
//! about natural persons is never read, never quoted in a bad row, and taken out by [`without_persons`] before the
//! file is kept.

use std::collections::BTreeMap;

use vintem_domain::company::parse_id;
use vintem_domain::{Cnpj, Company, CompanyId};

use super::csv::{Line, Row, Table, column};
use super::text::decode;
use super::{BadRow, Read, Refused};

/// A dozen times what it has today.
const MOST_BYTES: usize = 16 << 20;

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

const CNPJ: usize = column(&COLUMNS, "CNPJ_CIA");
const NAME: usize = column(&COLUMNS, "DENOM_SOCIAL");
const TRADE_NAME: usize = column(&COLUMNS, "DENOM_COMERC");
const REGISTERED_ON: usize = column(&COLUMNS, "DT_REG");
const CANCELLED_ON: usize = column(&COLUMNS, "DT_CANCEL");
const STATUS: usize = column(&COLUMNS, "SIT");
const STATUS_SINCE: usize = column(&COLUMNS, "DT_INI_SIT");
const CODE: usize = column(&COLUMNS, "CD_CVM");
const SECTOR: usize = column(&COLUMNS, "SETOR_ATIV");
const MARKET: usize = column(&COLUMNS, "TP_MERC");
const CATEGORY: usize = column(&COLUMNS, "CATEG_REG");
const SITUATION: usize = column(&COLUMNS, "SIT_EMISSOR");
const CONTROL: usize = column(&COLUMNS, "CONTROLE_ACIONARIO");
const CITY: usize = column(&COLUMNS, "MUN");
const STATE: usize = column(&COLUMNS, "UF");
const AUDITOR: usize = column(&COLUMNS, "AUDITOR");

/// The companies, by rising code.
pub fn read(bytes: &[u8]) -> Result<Read<Company>, Refused> {
    let mut table = Table::open(bytes, &COLUMNS, MOST_BYTES)?;
    let mut read = Read::new(std::mem::take(&mut table.alerts));
    let mut companies: BTreeMap<CompanyId, Company> = BTreeMap::new();
    for line in table.lines() {
        read.total += 1;
        match take_line(&line, &mut companies) {
            Ok(Taken::NewCompany) => {}
            Ok(Taken::FurtherRow) => read.merged += 1,
            Err(reason) => {
                let mut shown = Vec::with_capacity(line.bytes.len());
                write_without_persons(line.bytes, table.places(), &mut shown);
                read.set_aside(BadRow::of_line(line.number, &shown, reason))?;
            }
        }
    }
    read.rows = companies.into_values().collect();
    Ok(read)
}

/// The file as it may be kept: every field about a natural person blank, every other byte as it was. Columns that we
/// do not know are blank too, and of a line whose fields cannot be told apart only the CNPJ stays. Of what is not the
/// registry nothing stays, because nothing says where in it persons stand.
pub fn without_persons(bytes: &[u8]) -> Vec<u8> {
    let Ok(table) = Table::open(bytes, &COLUMNS, MOST_BYTES) else {
        return Vec::new();
    };
    let mut kept = Vec::with_capacity(bytes.len());
    kept.extend_from_slice(table.header());
    for line in table.body().split_inclusive(|byte| *byte == b'\n') {
        let end = match line {
            [.., b'\r', b'\n'] => 2,
            [.., b'\n'] => 1,
            _ => 0,
        };
        let (fields, end) = line.split_at(line.len() - end);
        write_without_persons(fields, table.places(), &mut kept);
        kept.extend_from_slice(end);
    }
    kept
}

enum Taken {
    NewCompany,
    FurtherRow,
}

fn take_line(
    line: &Line<'_, { COLUMNS.len() }>,
    companies: &mut BTreeMap<CompanyId, Company>,
) -> Result<Taken, String> {
    // The registry comes bare, without the checksum of an archive: what its last line lacks could not be noticed.
    if !line.is_ended {
        return Err("the file ends within it".to_owned());
    }
    let mut company = company(line.row.as_ref().map_err(String::clone)?)?;
    let Some(known) = companies.get_mut(&company.id) else {
        companies.insert(company.id, company);
        return Ok(Taken::NewCompany);
    };
    let markets = std::mem::take(&mut company.markets);
    company.markets.clone_from(&known.markets);
    if company != *known {
        return Err(format!("an earlier row of the code {} says other things than this one", known.id));
    }
    known.markets.extend(markets);
    known.markets.sort();
    known.markets.dedup();
    Ok(Taken::FurtherRow)
}

fn company(row: &Row<'_, { COLUMNS.len() }>) -> Result<Company, String> {
    let id = parse_id(&row.raw(CODE)).ok_or_else(|| row.complaint(CODE, "no code of a company"))?;
    let cnpj = Cnpj::parse(&row.raw(CNPJ)).ok_or_else(|| row.complaint(CNPJ, "no CNPJ with right check digits"))?;
    let market = row.text(MARKET)?;
    Ok(Company {
        id,
        cnpj: Some(cnpj),
        name: row.required_text(NAME)?,
        // A status that vanished from the file must not vanish from what we serve.
        status: row.required_text(STATUS)?,
        sector: row.text(SECTOR)?,
        trade_name: row.text(TRADE_NAME)?,
        former_names: Vec::new(),
        former_trade_names: Vec::new(),
        tickers: Vec::new(),
        markets: if market.is_empty() { Vec::new() } else { vec![market] },
        registered_on: row.day(REGISTERED_ON)?,
        cancelled_on: row.day(CANCELLED_ON)?,
        status_since: row.day(STATUS_SINCE)?,
        category: row.text(CATEGORY)?,
        situation: row.text(SITUATION)?,
        control: row.text(CONTROL)?,
        city: row.text(CITY)?,
        state: row.text(STATE)?,
        auditor: row.text(AUDITOR)?,
        registered: true,
    })
}

fn write_without_persons(line: &[u8], places: &[Option<usize>], out: &mut Vec<u8>) {
    let is_kept = |place: &Option<usize>| place.is_some_and(|column| !is_about_a_person(COLUMNS[column]));
    let fields = || line.split(|byte| *byte == b';');
    if fields().count() != places.len() {
        // It may be a piece of a row, from anywhere in it, as where a line break got into a field. Nothing but a CNPJ
        // is sure to be no person.
        let first = fields().next().unwrap_or_default();
        if places.first() == Some(&Some(CNPJ)) && Cnpj::parse(&decode(first)).is_some() {
            out.extend_from_slice(first);
        }
        return;
    }
    for (at, (field, place)) in fields().zip(places).enumerate() {
        if at > 0 {
            out.push(b';');
        }
        if is_kept(place) {
            out.extend_from_slice(field);
        }
    }
}

/// All about who answers for the company, and the company's own mail address, which often is somebody's name.
fn is_about_a_person(column: &str) -> bool {
    column == "RESP" || column.ends_with("_RESP") || column == "EMAIL"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::Alert;
    use proptest::prelude::*;

    /// A row by the columns that matter; the others say what column they are.
    fn row(fields: &[(&str, &str)]) -> String {
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

    fn acme(market: &'static str) -> Vec<(&'static str, &'static str)> {
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

    fn with(mut fields: Vec<(&'static str, &'static str)>, name: &'static str, value: &'static str) -> String {
        fields.retain(|(known, _)| *known != name);
        fields.push((name, value));
        row(&fields)
    }

    fn file(rows: &[String]) -> Vec<u8> {
        let text = format!("{}\r\n{}\r\n", COLUMNS.join(";"), rows.join("\r\n"));
        latin_1(&text)
    }

    fn latin_1(text: &str) -> Vec<u8> {
        text.chars().map(|character| u8::try_from(u32::from(character)).unwrap()).collect()
    }

    #[test]
    fn the_fixture_has_a_valid_cnpj() {
        assert_eq!(Cnpj::from_root(*b"999123450001").to_string(), "99.912.345/0001-89");
    }

    #[test]
    fn a_company_is_what_the_rows_of_its_code_say_together() {
        let markets = ["BOLSA", "BALCÃO ORGANIZADO", "", "BOLSA"];
        let rows: Vec<String> = markets.iter().map(|market| row(&acme(market))).collect();
        let read = read(&file(&rows)).unwrap();
        assert_eq!((read.total, read.merged, read.bad.len()), (4, 3, 0));
        let company = &read.rows[0];
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
                registered: true,
            }
        );
    }

    #[test]
    fn rows_that_differ_in_more_than_the_market_are_not_merged() {
        let read = read(&file(&[row(&acme("BOLSA")), with(acme("OTHER"), "DENOM_SOCIAL", "ANOTHER S.A.")])).unwrap();
        assert_eq!((read.rows.len(), read.merged), (1, 0));
        assert_eq!(
            (read.rows[0].name.as_str(), &read.rows[0].markets[..]),
            ("COMPANHIA AÇÚCAR S.A.", &["BOLSA".to_owned()][..])
        );
        assert_eq!(read.bad[0].line, 3);
        assert_eq!(read.bad[0].reason, "an earlier row of the code 12345 says other things than this one");
    }

    #[test]
    fn a_cnpj_may_own_several_codes() {
        let read = read(&file(&[with(acme(""), "CD_CVM", "24600"), with(acme(""), "CD_CVM", "1716")])).unwrap();
        assert_eq!(read.rows.iter().map(|company| company.id).collect::<Vec<_>>(), [1716, 24600]);
    }

    #[test]
    fn alphanumeric_cnpjs_and_unknown_statuses_are_taken() {
        let mut fields = acme("");
        fields.retain(|(name, _)| *name != "CNPJ_CIA" && *name != "SIT");
        fields.extend([("CNPJ_CIA", "12.ABC.345/01DE-35"), ("SIT", "EM ANÁLISE")]);
        let read = read(&file(&[row(&fields)])).unwrap();
        assert_eq!(read.rows[0].cnpj.unwrap().as_str(), "12ABC34501DE35");
        assert_eq!(read.rows[0].status, "EM ANÁLISE");
    }

    #[test]
    fn one_bad_row_leaves_the_others() {
        let good = with(acme(""), "CD_CVM", "35");
        let long: &'static str = Box::leak("X".repeat(1_001).into_boxed_str());
        for (column, value, reason) in [
            (
                "CNPJ_CIA",
                "99.912.345/0001-88",
                "CNPJ_CIA is \"99.912.345/0001-88\", which is no CNPJ with right check digits",
            ),
            (
                "CNPJ_CIA",
                "00.000.000/0000-00",
                "CNPJ_CIA is \"00.000.000/0000-00\", which is no CNPJ with right check digits",
            ),
            ("CD_CVM", "", "CD_CVM is \"\", which is no code of a company"),
            ("CD_CVM", "02109-1", "CD_CVM is \"02109-1\", which is no code of a company"),
            ("DENOM_SOCIAL", " ", "DENOM_SOCIAL is empty"),
            ("SIT", "", "SIT is empty"),
            ("DT_REG", "21/07/1998", "DT_REG is \"21/07/1998\", which is no day as yyyy-MM-dd"),
            ("DT_CANCEL", "1998-02-30", "DT_CANCEL is \"1998-02-30\", which is no day as yyyy-MM-dd"),
            ("AUDITOR", long, "AUDITOR is longer than 1000 bytes"),
            ("DENOM_COMERC", "A;B", "it has 48 fields, but the header has 47"),
        ] {
            let read = read(&file(&[good.clone(), with(acme(""), column, value)])).unwrap();
            assert_eq!((read.rows.len(), read.bad.len()), (1, 1), "{column}");
            assert_eq!((read.bad[0].line, read.bad[0].reason.as_str()), (3, reason));
            assert!(!read.bad[0].text.contains("FULANO"), "{}", read.bad[0].text);
        }
    }

    #[test]
    fn a_file_that_is_cut_off_loses_only_its_last_row() {
        let whole = file(&[row(&acme("")), with(acme(""), "CD_CVM", "35")]);
        let read = read(&whole[..whole.len() - 4]).unwrap();
        assert_eq!(read.rows.len(), 1);
        assert_eq!(read.bad[0].reason, "the file ends within it");
    }

    #[test]
    fn a_missing_column_refuses_the_file_and_another_order_does_not() {
        let renamed = String::from_utf8(file(&[])).unwrap().replace(";SIT;", ";SITUACAO;");
        assert_eq!(read(renamed.as_bytes()), Err(Refused::ColumnsMissing(vec!["SIT"])));
        let reversed = |line: &str| line.split(';').rev().collect::<Vec<_>>().join(";");
        let text = format!("{}\r\n{}\r\n", reversed(&COLUMNS.join(";")), reversed(&row(&acme("BOLSA"))));
        let read = read(&latin_1(&text)).unwrap();
        assert_eq!(read.alerts, [Alert::ReorderedColumns]);
        assert_eq!(read.rows[0].name, "COMPANHIA AÇÚCAR S.A.");
    }

    #[test]
    fn persons_are_taken_out_and_every_other_byte_stays() {
        let persons: Vec<&str> = COLUMNS.iter().copied().filter(|name| is_about_a_person(name)).collect();
        assert_eq!(persons.len(), 16);
        let original = file(&[row(&acme("BOLSA")), row(&acme(""))]);
        let blanked: Vec<(&str, &str)> = persons.iter().map(|name| (*name, "")).collect();
        let mut expected_rows = Vec::new();
        for market in ["BOLSA", ""] {
            let mut fields = blanked.clone();
            fields.extend(acme(market));
            expected_rows.push(row(&fields));
        }
        let kept = without_persons(&original);
        assert_eq!(kept, file(&expected_rows));
        assert_eq!(without_persons(&kept), kept);
        assert_eq!(read(&kept).unwrap().rows, read(&original).unwrap().rows);
    }

    #[test]
    fn what_cannot_be_told_apart_is_not_kept() {
        assert_eq!(without_persons(b"<html>FULANO DE TAL</html>"), b"");
        assert_eq!(without_persons(&latin_1(&format!("{}\r\n", COLUMNS.join(",")))), b"");
        let further = format!("{};NOME_DIRETOR\n{};FULANO\n", COLUMNS.join(";"), row(&acme("")));
        assert!(!String::from_utf8_lossy(&without_persons(&latin_1(&further))).contains("FULANO"));
        let broken = file(&[with(acme(""), "DENOM_COMERC", "A;B")]);
        let kept = without_persons(&broken);
        assert!(!String::from_utf8_lossy(&kept).contains("FULANO"));
        assert_eq!(kept, file(&["99.912.345/0001-89".to_owned()]));
        let torn = file(&[with(acme(""), "COMPL", "SALA 1\r\nSALA 2")]);
        assert_eq!(without_persons(&torn), file(&["99.912.345/0001-89".to_owned(), String::new()]));
        assert_eq!(
            read(&torn).unwrap().bad.iter().map(|bad| bad.text.as_str()).collect::<Vec<_>>(),
            ["99.912.345/0001-89", ""]
        );
    }

    proptest! {
        #[test]
        fn nothing_panics(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let table = [file(&[row(&acme(""))]), bytes.clone()].concat();
            let _ = (read(&bytes), without_persons(&bytes));
            if let Ok(read) = read(&table) {
                prop_assert_eq!(read.total, read.rows.len() as u64 + read.bad.len() as u64 + read.merged);
            }
            let _ = without_persons(&table);
        }

        #[test]
        fn a_changed_byte_does_not_bring_a_person_back(at in any::<proptest::sample::Index>(), byte in any::<u8>()) {
            let mut bytes = file(&[row(&acme("BOLSA"))]);
            let at = at.index(bytes.len());
            bytes[at] = byte;
            let kept = without_persons(&bytes);
            prop_assert!(!kept.windows(6).any(|window| window == b"FULANO"));
            let shown = read(&bytes).map(|read| read.bad).unwrap_or_default();
            prop_assert!(shown.iter().all(|bad| !bad.text.contains("FULANO")));
        }
    }
}
