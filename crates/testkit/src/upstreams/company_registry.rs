//! CVM's company registry: parses the served file, or generates a synthetic one in the same layout.

use std::collections::BTreeMap;

use chrono::{Days, NaiveDate};
use vintem_domain::Cnpj;

use super::calendar::ymd;
use super::seeded_random::SeededRandom;
use super::vocabulary::{CITIES, COMPANY_NAME_TEMPLATES, PLACE_ENDINGS, PLACE_QUALIFIERS, PLACE_ROOTS};

pub const CSV_HEADER: &str = concat!(
    "CNPJ_CIA;DENOM_SOCIAL;DENOM_COMERC;DT_REG;DT_CONST;DT_CANCEL;MOTIVO_CANCEL;SIT;DT_INI_SIT;CD_CVM;SETOR_ATIV;",
    "TP_MERC;CATEG_REG;DT_INI_CATEG;SIT_EMISSOR;DT_INI_SIT_EMISSOR;CONTROLE_ACIONARIO;TP_ENDER;LOGRADOURO;COMPL;",
    "BAIRRO;MUN;UF;PAIS;CEP;DDD_TEL;TEL;DDD_FAX;FAX;EMAIL;TP_RESP;RESP;DT_INI_RESP;LOGRADOURO_RESP;COMPL_RESP;",
    "BAIRRO_RESP;MUN_RESP;UF_RESP;PAIS_RESP;CEP_RESP;DDD_TEL_RESP;TEL_RESP;DDD_FAX_RESP;FAX_RESP;EMAIL_RESP;",
    "CNPJ_AUDITOR;AUDITOR"
);

/// The number of distinct company names.
pub const MAX_COMPANIES: usize = PLACE_ROOTS.len() * PLACE_ENDINGS.len() * PLACE_QUALIFIERS.len();

/// A company that files; one per code, however many rows it has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegistryCompany {
    /// With dots, slash and hyphen.
    pub cnpj: String,
    pub name: String,
    pub code: u32,
    pub registered_on: NaiveDate,
    pub cancelled_on: Option<NaiveDate>,
    pub is_on_exchange: bool,
}

impl RegistryCompany {
    pub fn is_registered_on(&self, date: NaiveDate) -> bool {
        self.registered_on <= date && self.cancelled_on.is_none_or(|end| date < end)
    }
}

/// The companies by ascending code. Unreadable rows are skipped.
pub fn parse_companies(registry: &[u8]) -> Vec<RegistryCompany> {
    let text = decode_latin1(registry);
    let mut lines = text.lines();
    let header: Vec<&str> = lines.next().unwrap_or_default().split(';').collect();
    let column_index = |name: &str| header.iter().position(|column| *column == name).unwrap_or(usize::MAX);
    let [cnpj, name, code, registered_on, cancelled_on, market] =
        ["CNPJ_CIA", "DENOM_SOCIAL", "CD_CVM", "DT_REG", "DT_CANCEL", "TP_MERC"].map(column_index);

    let mut companies: BTreeMap<u32, RegistryCompany> = BTreeMap::new();
    for line in lines {
        let fields: Vec<&str> = line.split(';').collect();
        let field = |index: usize| fields.get(index).copied().unwrap_or_default();
        let Ok(code) = field(code).parse() else { continue };
        let Ok(registered_on) = field(registered_on).parse() else { continue };
        let is_on_exchange = field(market) == "BOLSA";
        let company = companies.entry(code).or_insert_with(|| RegistryCompany {
            cnpj: field(cnpj).to_owned(),
            name: field(name).to_owned(),
            code,
            registered_on,
            cancelled_on: field(cancelled_on).parse().ok(),
            is_on_exchange,
        });
        company.is_on_exchange |= is_on_exchange;
    }
    companies.into_values().collect()
}

/// Generates a registry of synthetic companies in CVM's layout, with the oddities of the real one: several rows for a
/// company on several markets, a CNPJ that had another code before, doubled spaces, unescaped quotes, postcodes without
/// leading zeros. No natural person is named.
pub fn generate_registry(count: usize) -> Vec<u8> {
    let mut file = encode_latin1(CSV_HEADER);
    file.extend_from_slice(b"\r\n");

    for number in 0..count.min(MAX_COMPANIES) {
        let mut random = SeededRandom::new(&format!("company {number}"));
        let row = generate_company_row(number, count, &mut random);
        let markets: &[&str] = match (row.contains_key("DT_CANCEL"), number % 25) {
            (true, _) => &[""],
            (false, 3) => &["BOLSA", "BALCÃO ORGANIZADO"],
            (false, 4) => &["BALCÃO NÃO ORGANIZADO"],
            (false, remainder) if remainder % 2 == 0 => &["BOLSA"],
            (false, _) => &["BALCÃO ORGANIZADO"],
        };

        for market in markets {
            let mut row = row.clone();
            row.insert("TP_MERC", (*market).to_owned());
            let fields: Vec<&str> =
                CSV_HEADER.split(';').map(|name| row.get(name).map_or("", String::as_str)).collect();
            file.extend(encode_latin1(&fields.join(";")));
            file.extend_from_slice(b"\r\n");
        }
    }
    file
}

fn generate_company_row(number: usize, count: usize, random: &mut SeededRandom) -> BTreeMap<&'static str, String> {
    let (before, after, sector) = *random.pick(&COMPANY_NAME_TEMPLATES);
    let place = format!(
        "{}{} {}",
        PLACE_ROOTS[number % PLACE_ROOTS.len()],
        PLACE_ENDINGS[number / PLACE_ROOTS.len() % PLACE_ENDINGS.len()],
        PLACE_QUALIFIERS[number / (PLACE_ROOTS.len() * PLACE_ENDINGS.len())]
    );
    let place = place.trim_end();
    // The real file has doubled spaces in some names.
    let gap = if number % 40 == 7 { "  " } else { " " };
    let name = format!("{before} {place}{gap}{after}").trim().to_owned();
    let (city, state) = *random.pick(&CITIES);

    let span = (ymd(2025, 6, 30) - ymd(1970, 1, 2)).num_days();
    let registered_on = ymd(1970, 1, 2) + Days::new((span * number as i64 / count.max(1) as i64).unsigned_abs());
    // The oldest company is never canceled, so that there is always one that files.
    let is_cancelled = number > 0 && number % 5 < 2;
    let street = if number % 30 == 11 { "SBS - QUADRA 1 - BLOCO \"C\"" } else { "Rua das Pitangueiras, 120" };

    let mut row = BTreeMap::from([
        ("CNPJ_CIA", format_cnpj(cnpj_root_and_branch(number))),
        ("DENOM_SOCIAL", name),
        ("DENOM_COMERC", if number % 28 == 9 { String::new() } else { format!("{before} {place}").trim().to_owned() }),
        ("DT_REG", registered_on.to_string()),
        ("DT_CONST", (registered_on - Days::new(700)).to_string()),
        ("SIT", "ATIVO".to_owned()),
        ("DT_INI_SIT", registered_on.to_string()),
        ("CD_CVM", (35 + 11 * number).to_string()),
        ("SETOR_ATIV", sector.to_owned()),
        ("CATEG_REG", if random.chance_per_thousand(680) { "Categoria A" } else { "Categoria B" }.to_owned()),
        ("DT_INI_CATEG", registered_on.max(ymd(2010, 1, 1)).to_string()),
        (
            "SIT_EMISSOR",
            if random.chance_per_thousand(50) { "FASE PRÉ-OPERACIONAL" } else { "FASE OPERACIONAL" }.to_owned(),
        ),
        ("DT_INI_SIT_EMISSOR", registered_on.max(ymd(2010, 1, 1)).to_string()),
        ("CONTROLE_ACIONARIO", (*random.pick(&["PRIVADO", "PRIVADO HOLDING", "ESTRANGEIRO", "ESTATAL"])).to_owned()),
        ("TP_ENDER", "SEDE".to_owned()),
        ("LOGRADOURO", street.to_owned()),
        ("BAIRRO", "Centro".to_owned()),
        ("MUN", city.to_owned()),
        ("UF", state.to_owned()),
        ("PAIS", if number % 250 == 17 { "EGITO" } else { "BRASIL" }.to_owned()),
        ("CEP", random.in_range(1_000_000, 99_999_999).to_string()),
        ("DDD_TEL", "11".to_owned()),
        ("TEL", "40040000".to_owned()),
        ("TP_RESP", "DIRETOR DE RELAÇÕES COM INVESTIDORES".to_owned()),
        ("AUDITOR", "VALMORANTE AUDITORES INDEPENDENTES S/S".to_owned()),
        ("CNPJ_AUDITOR", format_cnpj("999990010001")),
    ]);

    if is_cancelled {
        let cancelled_on = registered_on + Days::new(400 + random.below(4000) as u64);
        row.insert("DT_CANCEL", cancelled_on.to_string());
        row.insert("DT_INI_SIT", cancelled_on.to_string());
        row.insert("MOTIVO_CANCEL", "CANCELAMENTO VOLUNTÁRIO".to_owned());
        row.insert("SIT", "CANCELADA".to_owned());
    } else if number % 90 == 34 {
        row.insert("SIT", "SUSPENSO(A) - DECISÃO ADM".to_owned());
    }
    row
}

/// CNPJ roots from 99.900.000 on are unassigned. Some companies have the CNPJ of their own earlier, canceled
/// registration.
fn cnpj_root_and_branch(number: usize) -> String {
    let is_reregistration = number % 75 == 52;
    let root = if is_reregistration { number - 1 } else { number };
    let branch = if number % 60 == 29 { 652 } else { 1 };
    format!("999{root:05}{branch:04}")
}

/// Formats a root and branch as a CNPJ with its check digits.
pub fn format_cnpj(root_and_branch: impl AsRef<str>) -> String {
    let digits: [u8; 12] = root_and_branch.as_ref().as_bytes().try_into().expect("eight digits and four");
    let cnpj = Cnpj::from_root_and_branch(digits);
    let digits = cnpj.as_str();
    format!("{}.{}.{}/{}-{}", &digits[..2], &digits[2..5], &digits[5..8], &digits[8..12], &digits[12..])
}

/// Encodes in Latin-1, as CVM does; characters outside it become question marks.
pub fn encode_latin1(text: &str) -> Vec<u8> {
    text.chars().map(|character| u8::try_from(u32::from(character)).unwrap_or(b'?')).collect()
}

pub fn decode_latin1(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| char::from(*byte)).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_generated_registry_has_the_real_layout_and_oddities() {
        let file = generate_registry(300);
        let text = decode_latin1(&file);
        assert_eq!(CSV_HEADER.split(';').count(), 47);
        assert!(text.ends_with("\r\n") && text.matches('\n').count() == text.matches("\r\n").count());
        assert!(text.lines().all(|line| line.split(';').count() == 47));
        assert!(!file.iter().any(|byte| (0x80..0xa0).contains(byte)));

        let companies = parse_companies(&file);
        assert_eq!(companies.len(), 300);
        let numbers: BTreeSet<&str> = companies.iter().map(|company| company.cnpj.as_str()).collect();
        assert!(numbers.len() < 300 && text.lines().count() > 301);
        assert!(companies.iter().all(|company| Cnpj::parse(&company.cnpj).is_some()));

        for oddity in ["BLOCO \"C\"", "  S.A.", "CANCELADA", "SUSPENSO(A) - DECISÃO ADM", "/0652-"] {
            assert!(text.contains(oddity), "{oddity}");
        }
        let names: BTreeSet<&str> = companies.iter().map(|company| company.name.as_str()).collect();
        assert_eq!(names.len(), 300);
    }
}
