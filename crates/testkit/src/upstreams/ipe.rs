//! Years of filings (IPE) for the companies of a registry, in CVM's layout. All of it is synthetic; the upstream format
//! has no field to mark it as such.
//!
//! A year is the same on every machine, whatever other years are requested; the current year reaches up to its last
//! dump. Every year has each oddity of the real files in its first rows, so that even the smallest has them, and more
//! of them in realistic proportions.

use std::collections::VecDeque;

use chrono::{Datelike, Days, NaiveDate};

use super::calendar::{date_range, is_business_day, ymd};
use super::company_registry::{RegistryCompany, encode_latin1, format_cnpj};
use super::seeded_random::SeededRandom;
use super::vocabulary::{
    AGENDA_ITEMS, CATEGORIES, FOREIGN_ISSUERS, IpeCategory, PROCEEDS_CATEGORY, ReferenceDateRule, UNREGISTERED_ISSUER,
};

pub const FIRST_YEAR: i32 = 2003;

pub const CSV_HEADER: &str = concat!(
    "CNPJ_Companhia;Nome_Companhia;Codigo_CVM;Data_Referencia;Categoria;Tipo;Especie;Assunto;Data_Entrega;",
    "Tipo_Apresentacao;Protocolo_Entrega;Versao;Link_Download"
);

/// CVM writes this for issuers without a CNPJ.
pub const PLACEHOLDER_CNPJ: &str = "00.000.000/0000-00";

/// One row, with its fields as written to the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IpeRow {
    pub cnpj: String,
    pub company_name: String,
    pub company_code: String,
    pub reference_date: String,
    pub category: String,
    pub doc_type: String,
    pub kind: String,
    pub subject: String,
    /// `YYYY-MM-DD`; its year decides which file the row is in.
    pub delivered_on: String,
    pub presentation: String,
    pub protocol: String,
    pub version: String,
    pub link: String,
}

impl IpeRow {
    /// A material fact (`Fato Relevante`) of this company; `number` is the document number.
    pub fn material_fact(
        cnpj: &str,
        name: &str,
        code: u32,
        delivered_on: NaiveDate,
        number: u64,
        subject: &str,
    ) -> Self {
        let issuer = IpeIssuer { cnpj: cnpj.to_owned(), name: name.to_owned(), code };
        let filing = IpeFiling {
            issuer,
            category: "Fato Relevante",
            doc_type_and_kind: ("", ""),
            subject: subject.to_owned(),
            reference_date: delivered_on,
            delivered_on,
            version: 1,
        };
        filing.to_row(number, true)
    }

    /// The same document, listed under an extraordinary instead of an ordinary meeting or the other way round.
    fn under_another_meeting(self) -> Self {
        let doc_type = if self.doc_type == "AGO" { "AGE" } else { "AGO" };
        Self { doc_type: doc_type.to_owned(), kind: "Boletim de voto a distância".to_owned(), ..self }
    }

    pub fn to_csv_line(&self) -> Vec<u8> {
        let fields = [
            &self.cnpj,
            &self.company_name,
            &self.company_code,
            &self.reference_date,
            &self.category,
            &self.doc_type,
            &self.kind,
            &self.subject,
            &self.delivered_on,
            &self.presentation,
            &self.protocol,
            &self.version,
            &self.link,
        ];

        let mut line = encode_latin1(&fields.map(String::as_str).join(";"));
        line.extend_from_slice(b"\r\n");
        line
    }
}

/// The rows of a year's file that were delivered by `until`, without its header.
pub fn generate_rows(year: i32, rows: usize, companies: &[RegistryCompany], until: NaiveDate) -> Vec<u8> {
    let mut generator = IpeGenerator::new(year, rows, companies);
    let mut file = Vec::with_capacity(420 * rows);
    let mut last: Option<IpeRow> = None;

    for (row_index, delivered_on) in delivery_days(year, rows).into_iter().enumerate() {
        // The rest of the year is in the future.
        if delivered_on > until {
            break;
        }
        let row = match last {
            // The same line again, as in CVM's files.
            Some(row) if row_index == oddity_row::DUPLICATE || generator.random.below(5_000) == 0 => row,
            // One document listed under two meetings. A public loader dropped its unique key over such rows: cvm.tucano,
            // migration 4c5d6e7f8a9b.
            Some(row)
                if row_index == oddity_row::SHARED_NUMBER
                    || (row_index > 12 && generator.random.chance_per_thousand(5)) =>
            {
                row.under_another_meeting()
            }
            _ => generator.generate_row(row_index, delivered_on),
        };
        file.extend(row.to_csv_line());
        last = Some(row);
    }
    file
}

/// The row index of each oddity.
mod oddity_row {
    pub const FOREIGN: usize = 1;
    pub const UNREGISTERED: usize = 2;
    /// Identical to the row before it.
    pub const DUPLICATE: usize = 3;
    pub const REFERENCE_YEAR_3026: usize = 4;
    pub const QUOTED_SUBJECT: usize = 5;
    pub const AGENDA_SUBJECT: usize = 6;
    pub const LONG_SUBJECT: usize = 7;
    pub const PROCEEDS_REPORT: usize = 8;
    pub const SECOND_VERSION: usize = 9;
    pub const REFERENCE_YEAR_2121: usize = 10;
    /// The number of the row before it, with another type of meeting.
    pub const SHARED_NUMBER: usize = 11;
}

#[derive(Debug, Clone)]
struct IpeIssuer {
    cnpj: String,
    name: String,
    code: u32,
}

#[derive(Debug, Clone)]
struct IpeFiling {
    issuer: IpeIssuer,
    category: &'static str,
    doc_type_and_kind: (&'static str, &'static str),
    subject: String,
    reference_date: NaiveDate,
    delivered_on: NaiveDate,
    version: u32,
}

struct IpeGenerator<'a> {
    random: SeededRandom,
    year: i32,
    companies: Vec<&'a RegistryCompany>,
    /// Each year has its own range of document numbers, so that all numbers are unique.
    first_document_number: u64,
    numbers_per_row: u64,
    /// Filings that will be delivered again as a new version.
    pending_corrections: VecDeque<IpeFiling>,
}

impl<'a> IpeGenerator<'a> {
    fn new(year: i32, rows: usize, companies: &'a [RegistryCompany]) -> Self {
        let first_day = ymd(year, 1, 1);
        let last_day = ymd(year, 12, 31);
        let was_registered = |company: &&RegistryCompany| {
            company.registered_on <= last_day && company.cancelled_on.is_none_or(|end| end > first_day)
        };

        let numbers_per_year = (rows as u64 * 5 / 4).max(60_000);
        let years_before = u64::try_from(year - FIRST_YEAR).unwrap_or(0);
        Self {
            random: SeededRandom::new(&format!("filings of {year}")),
            year,
            companies: companies.iter().filter(was_registered).collect(),
            first_document_number: 100_000 + years_before * numbers_per_year,
            numbers_per_row: (numbers_per_year / rows.max(1) as u64).max(1),
            pending_corrections: VecDeque::new(),
        }
    }

    fn generate_row(&mut self, row_index: usize, delivered_on: NaiveDate) -> IpeRow {
        let filing = match self.next_correction(row_index, delivered_on) {
            Some(correction) => correction,
            None => self.generate_original(row_index, delivered_on),
        };
        let is_corrected_later =
            row_index == 0 || self.random.chance_per_thousand(if filing.version == 1 { 35 } else { 250 });
        if is_corrected_later && filing.version < 9 {
            self.pending_corrections.push_back(filing.clone());
        }

        let number = self.first_document_number + row_index as u64 * self.numbers_per_row;
        // Nearly all rows of these years lack the protocol.
        let lacks_protocol = (2009..=2014).contains(&self.year) && !self.random.chance_per_thousand(10);
        filing.to_row(number, !lacks_protocol && filing.category != PROCEEDS_CATEGORY)
    }

    /// The next version of an earlier filing; sometimes a version in between is missing from the file.
    fn next_correction(&mut self, row_index: usize, delivered_on: NaiveDate) -> Option<IpeFiling> {
        if row_index < 12 && row_index != oddity_row::SECOND_VERSION {
            return None;
        }
        let is_due = row_index == oddity_row::SECOND_VERSION || self.random.chance_per_thousand(40);
        let mut filing = self.pending_corrections.pop_front_if(|_| is_due)?;
        filing.version += if row_index > 12 && self.random.chance_per_thousand(50) { 2 } else { 1 };
        filing.delivered_on = delivered_on;
        Some(filing)
    }

    fn generate_original(&mut self, row_index: usize, delivered_on: NaiveDate) -> IpeFiling {
        let issuer = self.pick_issuer(row_index, delivered_on);
        let category = self.pick_category(row_index);
        let doc_type_and_kind = *self.random.pick(category.doc_types_and_kinds);
        let subject = self.generate_subject(row_index, category, delivered_on);
        let reference_date = self.pick_reference_date(row_index, category, doc_type_and_kind.1, delivered_on);

        IpeFiling {
            issuer,
            category: category.name,
            doc_type_and_kind,
            subject,
            reference_date,
            delivered_on,
            version: 1,
        }
    }

    fn pick_issuer(&mut self, row_index: usize, delivered_on: NaiveDate) -> IpeIssuer {
        if row_index == oddity_row::UNREGISTERED || self.random.below(5_000) == 0 {
            let (code, name, root) = UNREGISTERED_ISSUER;
            return IpeIssuer { cnpj: format_cnpj(root), name: name.to_owned(), code };
        }

        let is_foreign = row_index == oddity_row::FOREIGN || self.random.below(10_000) < 9;
        for _ in 0..24 {
            if is_foreign || self.companies.is_empty() {
                break;
            }
            // Some companies file far more than others, independently of their codes.
            let bound = 1 + self.random.below(self.companies.len());
            let rank = self.random.below(bound);
            let company = self.companies[rank * 7_919 % self.companies.len()];
            if company.is_registered_on(delivered_on) {
                return IpeIssuer { cnpj: company.cnpj.clone(), name: company.name.clone(), code: company.code };
            }
        }

        let (code, name) = *self.random.pick(&FOREIGN_ISSUERS);
        IpeIssuer { cnpj: PLACEHOLDER_CNPJ.to_owned(), name: name.to_owned(), code }
    }

    fn pick_category(&mut self, row_index: usize) -> &'static IpeCategory {
        let find_by_name = |name: &str| CATEGORIES.iter().find(|category| category.name == name);
        let required = match row_index {
            0 | oddity_row::QUOTED_SUBJECT | oddity_row::REFERENCE_YEAR_3026 => find_by_name("Fato Relevante"),
            oddity_row::AGENDA_SUBJECT | oddity_row::LONG_SUBJECT => find_by_name("Assembleia"),
            oddity_row::PROCEEDS_REPORT => find_by_name(PROCEEDS_CATEGORY),
            _ => None,
        };

        let mut remaining = self.random.below(CATEGORIES.iter().map(|category| category.weight).sum());
        let drawn = CATEGORIES.iter().find(|category| {
            let is_drawn = remaining < category.weight;
            remaining = remaining.saturating_sub(category.weight);
            is_drawn
        });
        required.or(drawn).expect("the draw lies below the sum of the weights")
    }

    fn generate_subject(&mut self, row_index: usize, category: &IpeCategory, delivered_on: NaiveDate) -> String {
        let is_meeting = category.reference_date_rule == ReferenceDateRule::Meeting;
        if row_index == oddity_row::LONG_SUBJECT || (is_meeting && self.random.chance_per_thousand(8)) {
            return self.generate_agenda(20);
        }
        if row_index == oddity_row::AGENDA_SUBJECT || (is_meeting && self.random.chance_per_thousand(250)) {
            let items = 2 + self.random.below(3);
            return self.generate_agenda(items);
        }
        if category.subject_templates.is_empty() || (row_index > 12 && self.random.chance_per_thousand(180)) {
            return String::new();
        }

        let template = *self.random.pick(category.subject_templates);
        let subject = self.fill_template(template, delivered_on);
        if row_index == oddity_row::QUOTED_SUBJECT || self.random.chance_per_thousand(20) {
            return format!("{subject} - \"Programa {}\" da Companhia", delivered_on.year());
        }
        subject
    }

    /// Items joined as CVM joins them; twenty items are more than a thousand characters.
    fn generate_agenda(&mut self, items: usize) -> String {
        let first = self.random.below(AGENDA_ITEMS.len());
        let items: Vec<&str> = (0..items).map(|item| AGENDA_ITEMS[(first + item) % AGENDA_ITEMS.len()]).collect();
        items.join("||")
    }

    fn fill_template(&mut self, template: &str, delivered_on: NaiveDate) -> String {
        let mut subject = String::with_capacity(template.len() + 16);
        let mut rest = template;
        while let Some((before, (placeholder, after))) =
            rest.split_once('{').and_then(|(before, after)| Some((before, after.split_once('}')?)))
        {
            subject.push_str(before);
            subject.push_str(&match placeholder {
                "ano" => delivered_on.year().to_string(),
                "valor" => format!("R$ {}.{:03}.000,00", 1 + self.random.below(900), self.random.below(1000)),
                "emissao" => format!("{}ª", 1 + self.random.below(19)),
                "data" => (delivered_on - Days::new(self.random.below(12) as u64)).format("%d/%m/%Y").to_string(),
                "trimestre" => {
                    let end = last_quarter_end(delivered_on);
                    format!("{}º trimestre de {}", end.month() / 3, end.year())
                }
                unknown => panic!("no words for the gap {unknown}"),
            });
            rest = after;
        }
        subject.push_str(rest);
        subject
    }

    fn pick_reference_date(
        &mut self,
        row_index: usize,
        category: &IpeCategory,
        kind: &str,
        delivered_on: NaiveDate,
    ) -> NaiveDate {
        let date = match category.reference_date_rule {
            ReferenceDateRule::Meeting if kind != "Ata" => delivered_on + Days::new(8 + self.random.below(30) as u64),
            ReferenceDateRule::Meeting | ReferenceDateRule::NearDelivery => {
                delivered_on - Days::new(self.random.below(4) as u64)
            }
            ReferenceDateRule::LastQuarterEnd => last_quarter_end(delivered_on),
            ReferenceDateRule::YearEnd => ymd(delivered_on.year(), 12, 31),
        };

        // Typing errors, which the protocol repeats.
        let in_year = |year: i32| date.with_year(year).unwrap_or(ymd(year, 4, 30));
        match row_index {
            oddity_row::REFERENCE_YEAR_3026 => in_year(3026),
            oddity_row::REFERENCE_YEAR_2121 => in_year(2121),
            _ if self.random.below(8_000) == 0 => in_year(date.year() + 1000),
            _ => date,
        }
    }
}

impl IpeFiling {
    fn to_row(&self, number: u64, has_protocol: bool) -> IpeRow {
        let Self { issuer, category, doc_type_and_kind, subject, reference_date, delivered_on, version } = self;
        let presentation = if *version == 1 { "AP - Apresentação" } else { "RE - Reapresentação Espontânea" };
        let protocol = format!(
            "{:06}IPE{:02}{:02}{:04}{version:02}{:08}-{:02}",
            issuer.code,
            reference_date.day(),
            reference_date.month(),
            reference_date.year(),
            number * 53 % 100_000_000,
            number % 97
        );

        // Within a year the two numbers differ by a nearly constant offset. Every link from 2010 to 2014 that public
        // projects quote has 0 for both the sequence and the version; whether the column then holds 0 or nothing is
        // unknown, so there are both.
        let has_version = !(2010..=2014).contains(&delivered_on.year());
        let year_offset = 20_000 * u64::try_from(delivered_on.year() - FIRST_YEAR).unwrap_or(0);
        let sequence = if has_version { number.saturating_sub(15_294 + year_offset) } else { 0 };
        let linked_version = if has_version { *version } else { 0 };
        let link = format!(
            "https://www.rad.cvm.gov.br/ENET/frmDownloadDocumento.aspx?Tela=ext&descTipo=IPE&CodigoInstituicao=1\
             &numProtocolo={number}&numSequencia={sequence}&numVersao={linked_version}"
        );

        IpeRow {
            cnpj: issuer.cnpj.clone(),
            company_name: issuer.name.clone(),
            company_code: issuer.code.to_string(),
            reference_date: reference_date.format("%Y-%m-%d").to_string(),
            category: (*category).to_owned(),
            doc_type: doc_type_and_kind.0.to_owned(),
            kind: doc_type_and_kind.1.to_owned(),
            subject: subject.clone(),
            delivered_on: delivered_on.format("%Y-%m-%d").to_string(),
            presentation: presentation.to_owned(),
            protocol: if has_protocol { protocol } else { String::new() },
            version: if has_version || !number.is_multiple_of(3) { linked_version.to_string() } else { String::new() },
            link,
        }
    }
}

/// The delivery day of each row, ascending, with more in the months of annual and quarterly results.
fn delivery_days(year: i32, rows: usize) -> Vec<NaiveDate> {
    let weight = |date: &NaiveDate| match date.month() {
        3 | 4 => 18,
        5 | 8 | 11 => 14,
        _ => 10,
    };
    let weighted_days: Vec<(NaiveDate, usize)> = date_range(ymd(year, 1, 1), ymd(year, 12, 31))
        .filter(|date| is_business_day(*date))
        .map(|date| (date, weight(&date)))
        .collect();
    let total_weight: usize = weighted_days.iter().map(|(_, weight)| weight).sum();

    let mut cumulative_weight = 0;
    let mut assigned = 0;
    let mut delivery_days = Vec::with_capacity(rows);
    for (date, weight) in weighted_days {
        cumulative_weight += weight;
        // Cumulative, so that rounding never changes the total number of rows.
        let assigned_by_now = rows * cumulative_weight / total_weight;
        delivery_days.extend(std::iter::repeat_n(date, assigned_by_now - assigned));
        assigned = assigned_by_now;
    }
    delivery_days
}

/// The last day of the most recent complete quarter.
fn last_quarter_end(date: NaiveDate) -> NaiveDate {
    ymd(date.year(), date.month0() / 3 * 3 + 1, 1) - Days::new(1)
}
