//! Generates made-up filings one by one in order of delivery, so that any number of them needs little memory.

use std::collections::{HashSet, VecDeque};

use chrono::{Datelike, Days, NaiveDate};
use vintem_domain::{Company, CompanyId, CvmDataset, StatementSet};
use vintem_store::load::Filing;

use super::companies::FOREIGN_COMPANY_IDS;
use super::filing_subjects::{self, CATEGORY_TEMPLATES, CategoryTemplate, DemoReferenceDate, PROCEEDS_CATEGORY};
use super::market::{each_day, is_business_day};
use super::reporting::{DueReport, Reporter, due_reports};
use super::rng::{DemoRng, shuffled_index};
use super::vocabulary::FOREIGN_ISSUERS;

const FIRST_FILING_DATE: NaiveDate = NaiveDate::from_ymd_opt(2003, 1, 2).expect("a day of the calendar");

/// The structured datasets, each with the first year for which the regulator has an index.
const STRUCTURED_SETS: [(CvmDataset, i32); 4] =
    [(CvmDataset::Dfp, 2010), (CvmDataset::Itr, 2011), (CvmDataset::Fre, 2010), (CvmDataset::Fca, 2010)];

/// Yields exactly the requested number of filings, in order of delivery.
pub struct FilingGenerator<'a> {
    companies: &'a [Company],
    rng: DemoRng,
    schedule: std::vec::IntoIter<(NaiveDate, u64)>,
    today: NaiveDate,
    remaining_today: u64,
    next_ipe_id: u64,
    next_structured_id: u64,
    /// Filings that will be delivered again as a new version, in approximate order of their due dates.
    corrections: VecDeque<PendingCorrection<'a>>,
    /// The structured filings so far: a company delivers its annual statements once, apart from corrections.
    delivered_structured: HashSet<(CompanyId, CvmDataset, NaiveDate)>,
    /// The financial statements of companies that publish theirs on time.
    due_reports: VecDeque<DueReport<'a>>,
    reporting_companies: HashSet<CompanyId>,
}

struct PendingCorrection<'a> {
    due: NaiveDate,
    issuer: FilingIssuer<'a>,
    filing: Filing,
}

#[derive(Clone, Copy)]
enum FilingIssuer<'a> {
    Registered(&'a Company),
    Foreign { id: CompanyId, name: &'static str },
}

impl<'a> FilingGenerator<'a> {
    pub fn new(count: usize, companies: &'a [Company], reporters: &[Reporter<'a>], until: NaiveDate) -> Self {
        Self {
            companies,
            rng: DemoRng::new("filings"),
            schedule: build_schedule(count as u64, until).into_iter(),
            today: FIRST_FILING_DATE,
            remaining_today: 0,
            next_ipe_id: 100_000,
            next_structured_id: 2_000,
            corrections: VecDeque::new(),
            delivered_structured: HashSet::new(),
            due_reports: due_reports(reporters, until).into(),
            reporting_companies: reporters.iter().map(|reporter| reporter.company.id).collect(),
        }
    }
}

impl Iterator for FilingGenerator<'_> {
    type Item = Filing;

    fn next(&mut self) -> Option<Filing> {
        while self.remaining_today == 0 {
            (self.today, self.remaining_today) = self.schedule.next()?;
        }
        self.remaining_today -= 1;

        let due = self.next_due_report().or_else(|| self.next_due_correction());
        let (issuer, mut filing) = due.unwrap_or_else(|| self.generate_original());
        self.assign_id_and_protocol(&mut filing);

        let correction_per_thousand = if filing.version == 1 { 40 } else { 200 };
        if filing.version < 3 && self.rng.chance_per_thousand(correction_per_thousand) {
            let due = self.today + Days::new(1 + self.rng.below(40));
            self.corrections.push_back(PendingCorrection { due, issuer, filing: filing.clone() });
        }

        Some(filing)
    }
}

impl<'a> FilingGenerator<'a> {
    /// The next statements that are due. A company with few filings a day delivers them later.
    fn next_due_report(&mut self) -> Option<(FilingIssuer<'a>, Filing)> {
        let report = *self.due_reports.front().filter(|report| report.due <= self.today)?;
        self.due_reports.pop_front();
        let issuer = FilingIssuer::Registered(report.company);
        let set = report.set.cvm_dataset();
        let mut filing = self.blank_filing(issuer, set, report.reference_date);
        filing.category = set.id().to_uppercase();
        Some((issuer, filing))
    }

    /// The next version of an earlier filing, if one is due and its issuer still files.
    fn next_due_correction(&mut self) -> Option<(FilingIssuer<'a>, Filing)> {
        while self.corrections.front().is_some_and(|correction| correction.due <= self.today) {
            let PendingCorrection { issuer, mut filing, .. } = self.corrections.pop_front()?;
            if issuer.may_file(self.today) {
                filing.version += 1;
                filing.delivered_on = self.today;
                return Some((issuer, filing));
            }
        }
        None
    }

    fn generate_original(&mut self) -> (FilingIssuer<'a>, Filing) {
        // 7.5% of each year is about 6% since 2003, because the structured datasets begin in 2010.
        if self.rng.chance_per_thousand(75)
            && let Some(structured) = self.generate_structured()
        {
            return structured;
        }
        self.generate_document()
    }

    /// A structured filing that its company has not delivered yet, if a few attempts find one.
    fn generate_structured(&mut self) -> Option<(FilingIssuer<'a>, Filing)> {
        let year = self.today.year();
        let set = match self.today.month() {
            2..=4 => CvmDataset::Dfp,
            5 | 8 | 11 => CvmDataset::Itr,
            _ => self.rng.pick(&[CvmDataset::Fre, CvmDataset::Fca, CvmDataset::Itr]),
        };

        let reference_date = match set {
            CvmDataset::Ipe | CvmDataset::Fre | CvmDataset::Fca => NaiveDate::from_ymd_opt(year, 1, 1)?,
            CvmDataset::Dfp => NaiveDate::from_ymd_opt(year - 1, 12, 31)?,
            // There is no report for the fourth quarter: the annual statements cover it.
            CvmDataset::Itr => {
                Some(filing_subjects::previous_quarter_end(self.today)).filter(|end| end.month() < 12)?
            }
        };
        STRUCTURED_SETS
            .iter()
            .find(|(structured_set, since)| *structured_set == set && *since <= reference_date.year())?;

        for _ in 0..8 {
            // Every company owes these filings, so all are equally likely.
            let index = self.rng.below(self.companies.len().max(1) as u64) as usize;
            let issuer = FilingIssuer::Registered(self.companies.get(index)?);
            let is_on_schedule =
                StatementSet::from_cvm_dataset(set).is_some() && self.reporting_companies.contains(&issuer.id());
            if !is_on_schedule
                && issuer.may_file(self.today)
                && self.delivered_structured.insert((issuer.id(), set, reference_date))
            {
                let mut filing = self.blank_filing(issuer, set, reference_date);
                filing.category = set.id().to_uppercase();
                return Some((issuer, filing));
            }
        }
        None
    }

    /// A filing of the IPE dataset.
    fn generate_document(&mut self) -> (FilingIssuer<'a>, Filing) {
        let issuer = self.pick_issuer();
        let category = self.rng.pick_weighted(&CATEGORY_TEMPLATES, |category| category.weight);
        let (doc_type, kind) = self.rng.pick(category.types_and_kinds);
        let reference_date = self.pick_reference_date(category, kind);

        let mut filing = self.blank_filing(issuer, CvmDataset::Ipe, reference_date);
        filing.category = category.name.to_owned();
        filing.doc_type = doc_type.to_owned();
        filing.kind = kind.to_owned();

        // Many of the regulator's rows have no subject.
        if !self.rng.chance_per_thousand(120) {
            let template = self.rng.pick(category.subject_templates);
            filing.subject = filing_subjects::render_subject(template, self.today, &mut self.rng);
        }

        (issuer, filing)
    }

    /// A filing without content. Its URL stays empty, because a made-up document has none.
    fn blank_filing(&self, issuer: FilingIssuer<'_>, set: CvmDataset, reference_date: NaiveDate) -> Filing {
        Filing {
            cvm_dataset: set,
            company_id: issuer.id(),
            company_name: issuer.name().to_owned(),
            delivered_on: self.today,
            reference_date: Some(reference_date),
            version: 1,
            ..Filing::default()
        }
    }

    /// Some companies file far more than others, independent of their codes.
    fn pick_issuer(&mut self) -> FilingIssuer<'a> {
        let count = self.companies.len() as u64;
        if count == 0 || self.rng.chance_per_thousand(3) {
            let index = self.rng.below(FOREIGN_ISSUERS.len() as u64);
            let id = FOREIGN_COMPANY_IDS.start() + 2 * u32::try_from(index).expect("few issuers");
            return FilingIssuer::Foreign { id, name: FOREIGN_ISSUERS[index as usize] };
        }

        for _ in 0..24 {
            let rank = self.rng.below_skewed(count);
            let issuer = FilingIssuer::Registered(&self.companies[shuffled_index(rank, count, 4) as usize]);
            if issuer.may_file(self.today) {
                return issuer;
            }
        }

        // The oldest company is always active.
        FilingIssuer::Registered(&self.companies[0])
    }

    fn pick_reference_date(&mut self, category: &CategoryTemplate, kind: &str) -> NaiveDate {
        let today = self.today;
        let date = match category.reference_date {
            DemoReferenceDate::Meeting if kind != "Ata" => today + Days::new(8 + self.rng.below(30)),
            DemoReferenceDate::Meeting | DemoReferenceDate::Event => today - Days::new(self.rng.below(4)),
            DemoReferenceDate::Quarter => filing_subjects::previous_quarter_end(today),
            DemoReferenceDate::Month => filing_subjects::previous_month_end(today),
            DemoReferenceDate::Year => NaiveDate::from_ymd_opt(today.year(), 12, 31).unwrap_or(today),
        };

        // An occasional typing error, as the regulator publishes it.
        if self.rng.below(5_000) == 0 { date.with_year(date.year() + 1000).unwrap_or(date) } else { date }
    }

    /// Each version has its own id and protocol.
    fn assign_id_and_protocol(&mut self, filing: &mut Filing) {
        if filing.cvm_dataset != CvmDataset::Ipe {
            self.next_structured_id += 1 + self.rng.below(2);
            filing.id = format!("{}-{}", filing.cvm_dataset.id(), self.next_structured_id);
            return;
        }

        self.next_ipe_id += 1 + self.rng.below(2);
        filing.id = self.next_ipe_id.to_string();
        // The regulator's files of these years have no protocols, and this category has none in any year.
        let has_no_protocol =
            (2009..=2014).contains(&filing.delivered_on.year()) || filing.category == PROCEEDS_CATEGORY;
        filing.protocol = if has_no_protocol { String::new() } else { build_protocol(filing, self.next_ipe_id) };
    }
}

impl FilingIssuer<'_> {
    const fn id(&self) -> CompanyId {
        match self {
            Self::Registered(company) => company.id,
            Self::Foreign { id, .. } => *id,
        }
    }

    fn name(&self) -> &str {
        match self {
            Self::Registered(company) => &company.name,
            Self::Foreign { name, .. } => name,
        }
    }

    fn may_file(&self, day: NaiveDate) -> bool {
        match self {
            Self::Registered(company) => {
                company.registered_on.is_some_and(|registered_on| registered_on <= day)
                    && company.cancelled_on.is_none_or(|cancelled_on| day < cancelled_on)
            }
            Self::Foreign { .. } => true,
        }
    }
}

/// `009512IPE160420260381550020-83`: company code, reference date, version, sequence number, two check digits.
fn build_protocol(filing: &Filing, number: u64) -> String {
    let date = filing.reference_date.unwrap_or(filing.delivered_on);
    format!(
        "{:06}IPE{:02}{:02}{:04}{:02}{number:08}-{:02}",
        filing.company_id,
        date.day(),
        date.month(),
        date.year(),
        filing.version,
        number % 97
    )
}

/// The number of filings on each business day: more every year, and most in the weeks of annual and quarterly results.
/// The last filing falls on the last business day, so that the data is never stale on the day it is generated for.
fn build_schedule(count: u64, until: NaiveDate) -> Vec<(NaiveDate, u64)> {
    let mut rng = DemoRng::new("filing days");
    let weighted_days: Vec<(NaiveDate, u64)> = each_day(FIRST_FILING_DATE, until)
        .filter(|day| is_business_day(*day))
        .map(|day| {
            let years = u64::try_from(day.year() - FIRST_FILING_DATE.year()).unwrap_or(0);
            let season = match day.month() {
                3 | 4 => 18,
                5 | 8 | 11 => 14,
                _ => 10,
            };
            (day, (10 + 3 * years) * season * (70 + rng.below(60)))
        })
        .collect();

    let total: u128 = weighted_days.iter().map(|(_, weight)| u128::from(*weight)).sum();
    let mut cumulative_weight: u128 = 0;
    let mut assigned: u64 = 0;
    let mut schedule = Vec::with_capacity(weighted_days.len());
    for (day, weight) in weighted_days {
        cumulative_weight += u128::from(weight);
        // Cumulative, so that the days add up to the total without a rounding remainder.
        let due_so_far =
            u64::try_from(u128::from(count) * cumulative_weight / total).expect("never more than the whole");
        schedule.push((day, due_so_far - assigned));
        assigned = due_so_far;
    }
    schedule
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::super::reporting::pick_reporters;
    use super::*;
    use crate::demo::companies::generate_registry;

    fn parse_date(text: &str) -> NaiveDate {
        text.parse().unwrap()
    }

    fn generate_filings(count: usize, companies: &[Company]) -> Vec<Filing> {
        let until = parse_date("2026-11-15");
        FilingGenerator::new(count, companies, &pick_reporters(companies, count, until), until).collect()
    }

    #[test]
    fn the_same_size_gives_the_same_filings() {
        let companies = generate_registry(80, parse_date("2026-11-15")).current;
        assert_eq!(generate_filings(3_000, &companies), generate_filings(3_000, &companies));
    }

    #[test]
    fn exactly_the_requested_number_is_generated() {
        let companies = generate_registry(80, parse_date("2026-11-15")).current;
        for count in [0, 1, 7, 5_999, 20_000] {
            assert_eq!(generate_filings(count, &companies).len(), count);
        }
        for company_count in 0..3 {
            assert_eq!(generate_filings(500, &companies[..company_count]).len(), 500);
        }
        assert_eq!(FilingGenerator::new(100, &companies, &[], parse_date("2004-01-01")).count(), 100);
    }

    #[test]
    fn filings_fall_on_business_days_and_increase_over_the_years() {
        let companies = generate_registry(300, parse_date("2026-11-15")).current;
        let rows = generate_filings(30_000, &companies);
        assert!(rows.is_sorted_by_key(|row| row.delivered_on));
        assert!(rows.iter().all(|row| is_business_day(row.delivered_on)));
        assert!((parse_date("2003-01-02")..=parse_date("2003-01-10")).contains(&rows.first().unwrap().delivered_on));
        assert_eq!(rows.last().unwrap().delivered_on, parse_date("2026-11-13"));

        let count_in_year = |year| rows.iter().filter(|row| row.delivered_on.year() == year).count();
        assert!(count_in_year(2025) > 3 * count_in_year(2004));
    }

    #[test]
    fn ids_are_unique_and_protocols_encode_code_date_and_version() {
        let companies = generate_registry(300, parse_date("2026-11-15")).current;
        let rows = generate_filings(30_000, &companies);
        let ids: HashSet<&str> = rows.iter().map(|row| row.id.as_str()).collect();
        assert_eq!(ids.len(), rows.len());

        let ipe: Vec<u64> =
            rows.iter().filter(|row| row.cvm_dataset == CvmDataset::Ipe).map(|row| row.id.parse().unwrap()).collect();
        assert!(ipe.is_sorted());

        let with_protocol: Vec<&Filing> = rows.iter().filter(|row| !row.protocol.is_empty()).collect();
        assert!(with_protocol.len() * 10 > rows.len() * 7);
        for row in with_protocol {
            let date = row.reference_date.unwrap().format("%d%m%Y");
            let start = format!("{:06}IPE{date}{:02}", row.company_id, row.version);
            assert!(row.protocol.starts_with(&start) && row.protocol.len() == start.len() + 11, "{}", row.protocol);
        }
    }

    #[test]
    fn issuers_file_only_while_registered_and_under_their_own_name() {
        let companies = generate_registry(300, parse_date("2026-11-15")).current;
        let by_id: HashMap<CompanyId, &Company> = companies.iter().map(|company| (company.id, company)).collect();
        let rows = generate_filings(30_000, &companies);

        let mut foreign = 0;
        for row in &rows {
            match by_id.get(&row.company_id) {
                Some(company) => {
                    assert_eq!(row.company_name, company.name);
                    assert!(FilingIssuer::Registered(company).may_file(row.delivered_on));
                }
                None => {
                    assert!(FOREIGN_COMPANY_IDS.contains(&row.company_id));
                    foreign += 1;
                }
            }
        }

        assert!((50..150).contains(&foreign), "{foreign}");
    }

    #[test]
    fn a_later_version_belongs_to_an_earlier_filing() {
        let companies = generate_registry(300, parse_date("2026-11-15")).current;
        let rows = generate_filings(30_000, &companies);
        let document = |row: &Filing, version: u16| {
            let row = row.clone();
            (row.company_id, row.category, row.doc_type, row.kind, row.reference_date, row.subject, version)
        };

        let mut seen = HashSet::new();
        let mut later_versions = 0;
        for row in &rows {
            if row.version > 1 {
                assert!(seen.contains(&document(row, row.version - 1)), "{row:?}");
                later_versions += 1;
            }
            seen.insert(document(row, row.version));
        }

        assert!(rows.iter().any(|row| row.version == 3) && (600..2_400).contains(&later_versions), "{later_versions}");
    }

    #[test]
    fn structured_filings_are_a_small_share_and_start_in_2010() {
        let companies = generate_registry(300, parse_date("2026-11-15")).current;
        let rows = generate_filings(30_000, &companies);
        let structured: Vec<&Filing> = rows.iter().filter(|row| row.cvm_dataset != CvmDataset::Ipe).collect();
        assert!((1_200..2_400).contains(&structured.len()), "{}", structured.len());
        for row in structured {
            assert!(row.id.starts_with(row.cvm_dataset.id()) && row.category == row.cvm_dataset.id().to_uppercase());
            assert!(row.reference_date.unwrap().year() >= 2010 && row.reference_date.unwrap() < row.delivered_on);
        }
        assert!(rows.iter().any(|row| row.subject.is_empty()));
    }
}
