//! Synthetic indexes of structured filings (DFP, ITR, FRE, FCA) for the companies of a registry. Where real index files
//! exist, those are served instead.

use std::collections::BTreeSet;

use chrono::{Days, NaiveDate};

use super::calendar::{business_day_on_or_after, ymd};
use super::company_registry::{RegistryCompany, encode_latin1};
use super::seeded_random::SeededRandom;
use super::zip_archive::ZipMember;

pub const INDEX_HEADER: &str = "CNPJ_CIA;DT_REFER;VERSAO;DENOM_CIA;CD_CVM;CATEG_DOC;ID_DOC;DT_RECEB;LINK_DOC";

const SECURITIES_HEADER: &str = concat!(
    "CNPJ_Companhia;Data_Referencia;Versao;ID_Documento;Nome_Empresarial;Valor_Mobiliario;",
    "Sigla_Classe_Acao_Preferencial;Classe_Acao_Preferencial;Codigo_Negociacao;Composicao_BDR_Unit;Mercado;",
    "Sigla_Entidade_Administradora;Entidade_Administradora;Data_Inicio_Negociacao;Data_Fim_Negociacao;Segmento;",
    "Data_Inicio_Listagem;Data_Fim_Listagem"
);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum StructuredSet {
    Dfp,
    Itr,
    Fre,
    Fca,
}

/// One line of an index.
#[derive(Debug, Clone)]
pub struct IndexedDocument<'a> {
    pub company: &'a RegistryCompany,
    pub reference_date: NaiveDate,
    pub version: u32,
    pub id: usize,
    pub received_on: NaiveDate,
}

impl StructuredSet {
    pub const ALL: [Self; 4] = [Self::Dfp, Self::Itr, Self::Fre, Self::Fca];

    /// `dfp`
    pub const fn id(self) -> &'static str {
        match self {
            Self::Dfp => "dfp",
            Self::Itr => "itr",
            Self::Fre => "fre",
            Self::Fca => "fca",
        }
    }

    pub const fn first_year(self) -> i32 {
        if matches!(self, Self::Itr) { 2011 } else { 2010 }
    }

    /// Archive members other than the index; readers of the index don't need them.
    fn other_member_names(self) -> Vec<String> {
        match self {
            // Their tables are in `statements.rs`.
            Self::Dfp | Self::Itr => vec!["parecer".to_owned()],
            Self::Fre => ["auditor", "capital_social", "posicao_acionaria", "remuneracao_total_orgao", "responsavel"]
                .map(str::to_owned)
                .into(),
            Self::Fca => [
                "auditor",
                "canal_divulgacao",
                "departamento_acionistas",
                "dri",
                "endereco",
                "escriturador",
                "geral",
                "pais_estrangeiro_negociacao",
            ]
            .map(str::to_owned)
            .into(),
        }
    }

    /// The reference dates of a year's documents.
    fn reference_dates(self, year: i32, random: &mut SeededRandom) -> Vec<NaiveDate> {
        match self {
            Self::Itr => vec![ymd(year, 3, 31), ymd(year, 6, 30), ymd(year, 9, 30)],
            Self::Fre | Self::Fca => vec![ymd(year, 1, 1)],
            // Some companies have another fiscal year end.
            Self::Dfp if random.chance_per_thousand(15) => vec![*random.pick(&[ymd(year, 3, 31), ymd(year, 6, 30)])],
            Self::Dfp => vec![ymd(year, 12, 31)],
        }
    }

    /// The share of documents that are resubmitted.
    const fn resubmitted_per_thousand(self) -> usize {
        if matches!(self, Self::Itr) { 60 } else { 150 }
    }

    /// Days from the reference date to delivery, within the legal deadlines; some are late.
    fn days_until_received(self, random: &mut SeededRandom) -> i64 {
        let (first, last) = match self {
            Self::Dfp => (40, 95),
            Self::Itr => (25, 46),
            Self::Fre => (125, 155),
            Self::Fca => (120, 152),
        };
        if random.chance_per_thousand(20) { random.in_range(last, last + 300) } else { random.in_range(first, last) }
    }
}

/// All documents of a year that were received by `until`, sorted by CNPJ as in the real files.
pub fn generate_documents(
    set: StructuredSet,
    year: i32,
    companies: &[RegistryCompany],
    until: NaiveDate,
) -> Vec<IndexedDocument<'_>> {
    let mut random = SeededRandom::new(&format!("{} of {year}", set.id()));
    let set_index = StructuredSet::ALL.iter().position(|other| *other == set).unwrap_or(0);
    // Ids above all real ones, with a separate range for each set and year.
    let mut id = 200_000 + 100_000 * set_index + 5_000 * usize::try_from(year - 2010).unwrap_or(0);

    let mut documents = Vec::new();
    for company in companies {
        for reference_date in set.reference_dates(year, &mut random) {
            let delay = Days::new(set.days_until_received(&mut random).unsigned_abs());
            let mut received_on = business_day_on_or_after(reference_date + delay);
            let is_exempt = !company.is_registered_on(reference_date) || random.chance_per_thousand(20);
            let mut version = 1;
            loop {
                id += 1;
                if !is_exempt && received_on <= until {
                    documents.push(IndexedDocument { company, reference_date, version, id, received_on });
                }
                if version == 5 || !random.chance_per_thousand(set.resubmitted_per_thousand()) {
                    break;
                }
                version += 1;
                received_on = business_day_on_or_after(received_on + Days::new(1 + random.below(200) as u64));
            }
        }
    }

    documents.sort_by(|a, b| {
        (&a.company.cnpj, a.reference_date, a.version).cmp(&(&b.company.cnpj, b.reference_date, b.version))
    });
    documents
}

pub fn render_index(set: StructuredSet, documents: &[IndexedDocument]) -> Vec<u8> {
    let mut file = format!("{INDEX_HEADER}\r\n");
    for IndexedDocument { company, reference_date, version, id, received_on } in documents {
        // Unlike in the registry, some names are abbreviated and codes are zero-padded.
        let name = company.name.replace("BANCO ", "BCO ").replace("COMPANHIA ", "CIA ");
        let link = format!(
            "http://www.rad.cvm.gov.br/ENETCONSULTA/frmDownloadDocumento.aspx?CodigoInstituicao=1\
             &NumeroSequencialDocumento={id}"
        );
        let cnpj = &company.cnpj;
        let code = company.code;
        let category = set.id().to_uppercase();
        file += &format!("{cnpj};{reference_date};{version};{name};{code:06};{category};{id};{received_on};{link}\r\n");
    }
    encode_latin1(&file)
}

/// The archive's other members, without the tables of statements: stubs, and for FCA the securities, the only file with
/// tickers.
pub fn build_other_members(set: StructuredSet, year: i32, documents: &[IndexedDocument]) -> Vec<ZipMember> {
    let name = |part: &str| format!("{}_cia_aberta_{part}_{year}.csv", set.id());
    let stub = "CNPJ_CIA;DT_REFER;VERSAO;DENOM_CIA;CD_CVM\r\n";
    let mut members: Vec<ZipMember> =
        set.other_member_names().iter().map(|part| ZipMember::new(name(part), stub.as_bytes())).collect();
    if let Some(opinions) = members.iter_mut().find(|member| member.name.contains("parecer")) {
        opinions.content.extend_from_slice(b"00.000.000/0000-00;;;PARECER SINTETICO;\r\n");
    }
    if set == StructuredSet::Fca {
        members.push(ZipMember::new(name("valor_mobiliario"), render_securities(documents)));
    }
    members
}

/// Tickers are derived from company names; a few rows have the junk that people type into that field.
fn render_securities(documents: &[IndexedDocument]) -> Vec<u8> {
    let mut file = format!("{SECURITIES_HEADER}\r\n");
    let mut taken = BTreeSet::new();
    for document in documents.iter().filter(|document| document.company.is_on_exchange) {
        let IndexedDocument { company, reference_date, version, id, .. } = document;
        let mut random = SeededRandom::new(&format!("ticker {}", company.code));
        let letters = ticker_letters(&company.name, company.code, &taken);
        let cnpj = &company.cnpj;
        let name = &company.name;
        let since = company.registered_on;

        let shares = [("Ações Ordinárias", "3"), ("Ações Preferenciais", "4")];
        for (share, class) in shares.iter().take(if random.chance_per_thousand(300) { 2 } else { 1 }) {
            let code = match random.below(100) {
                0 => "ADR".to_owned(),
                1 => "0000".to_owned(),
                2 | 3 => String::new(),
                _ => format!("{letters}{class}"),
            };
            file += &format!("{cnpj};{reference_date};{version};{id};{name};{share};;;{code};;");
            file += &format!("Bolsa;BVMF;B3;{since};;Novo Mercado;{since};\r\n");
        }
        taken.insert((letters, company.code));
    }
    encode_latin1(&file)
}

/// The first four letters of a name. If another company has them, the last letter advances, then the third.
fn ticker_letters(name: &str, code: u32, taken: &BTreeSet<(String, u32)>) -> String {
    let candidates = name.chars().filter(char::is_ascii_uppercase).chain("XXXX".chars());
    let mut letters: Vec<char> = candidates.take(4).collect();

    for step in 0..26 * 26 {
        let text: String = letters.iter().collect();
        let is_taken = taken.range((text.clone(), 0)..=(text.clone(), u32::MAX)).any(|(_, owner)| *owner != code);
        if !is_taken {
            return text;
        }
        letters[3] = next_letter(letters[3]);
        if step % 26 == 25 {
            letters[2] = next_letter(letters[2]);
        }
    }
    letters.iter().collect()
}

fn next_letter(letter: char) -> char {
    if letter == 'Z' { 'A' } else { char::from(letter as u8 + 1) }
}
