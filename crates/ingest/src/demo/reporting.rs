//! Which made-up companies publish financial statements, and when.

use chrono::{Datelike, Days, NaiveDate};
use vintem_domain::dates::month_end;
use vintem_domain::statement::ChartOfAccounts;
use vintem_domain::{Company, StatementSet};

use super::companies::{INSURANCE_SECTOR, STATUS_ACTIVE};
use super::market::is_business_day;
use super::rng::DemoRng;

/// How many years of statements each of them has, beside the current one.
const YEARS: i32 = 7;

/// The regulator's limits, and what companies make of them: most deliver on one of the last days.
const ANNUAL_DELAY_DAYS: i64 = 84;
const QUARTERLY_DELAY_DAYS: i64 = 43;

/// A company with financial statements.
#[derive(Debug, Clone, Copy)]
pub struct Reporter<'a> {
    pub company: &'a Company,
    pub chart: ChartOfAccounts,
    /// Most fiscal years end in December.
    pub fiscal_year_end_month: u32,
    /// A company without subsidiaries has no consolidated statements.
    pub is_individual_only: bool,
    /// Most count thousands.
    pub counts_units: bool,
}

/// A report and the day of its delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DueReport<'a> {
    pub due: NaiveDate,
    pub company: &'a Company,
    pub set: StatementSet,
    pub reference_date: NaiveDate,
}

impl Reporter<'_> {
    /// The set of the report on the quarter that ends on this day; `None` if no quarter does.
    pub fn set_of_report(&self, quarter_end: NaiveDate) -> Option<StatementSet> {
        let months_after = (quarter_end.month() + 12 - self.fiscal_year_end_month) % 12;
        match months_after {
            0 => Some(StatementSet::Dfp),
            3 | 6 | 9 => Some(StatementSet::Itr),
            _ => None,
        }
    }
}

/// The first day of the quarters that are reported.
pub fn first_reported_day(until: NaiveDate) -> NaiveDate {
    NaiveDate::from_ymd_opt(until.year() - YEARS, 1, 1).unwrap_or(until)
}

/// Listed companies, at least one for each chart of accounts if there is one. More filings have more reporters, so that
/// their reports are a small share of all filings.
pub fn pick_reporters(companies: &[Company], filing_count: usize, until: NaiveDate) -> Vec<Reporter<'_>> {
    const MAX_REPORTERS: usize = 25;
    let count = (filing_count / 2_000).clamp(4, MAX_REPORTERS);
    let earliest_report = first_reported_day(until);
    let may_report = |company: &&Company| {
        company.status == STATUS_ACTIVE && company.registered_on.is_some_and(|day| day < earliest_report)
    };
    let (listed, others): (Vec<&Company>, Vec<&Company>) =
        companies.iter().filter(may_report).partition(|company| !company.tickers.is_empty());

    let first_of = |chart| listed.iter().chain(&others).copied().find(|company| chart_of(company) == chart);
    let mut picked: Vec<&Company> = ChartOfAccounts::ALL.into_iter().filter_map(first_of).collect();
    for company in &listed {
        if picked.len() < count && !picked.iter().any(|other| other.id == company.id) {
            picked.push(company);
        }
    }
    picked.into_iter().enumerate().map(|(number, company)| reporter(number, company)).collect()
}

fn chart_of(company: &Company) -> ChartOfAccounts {
    match &*company.sector {
        "Bancos" | "Intermediação Financeira" | "Arrendamento Mercantil" => ChartOfAccounts::Bank,
        INSURANCE_SECTOR => ChartOfAccounts::Insurer,
        _ => ChartOfAccounts::Commercial,
    }
}

/// The fourth one has everything that is unusual.
fn reporter(number: usize, company: &Company) -> Reporter<'_> {
    let is_unusual = number == 3;
    let mut rng = DemoRng::new(&format!("reporter {}", company.id));
    Reporter {
        company,
        chart: chart_of(company),
        fiscal_year_end_month: if is_unusual || (number > 3 && rng.chance_per_thousand(60)) { 3 } else { 12 },
        is_individual_only: is_unusual || (number > 3 && rng.chance_per_thousand(250)),
        counts_units: is_unusual || (number > 3 && rng.chance_per_thousand(150)),
    }
}

/// In order of delivery.
pub fn due_reports<'a>(reporters: &[Reporter<'a>], until: NaiveDate) -> Vec<DueReport<'a>> {
    let mut reports = Vec::new();
    for reporter in reporters {
        let mut rng = DemoRng::new(&format!("reports of {}", reporter.company.id));
        for reference_date in quarter_ends(first_reported_day(until), until) {
            let Some(set) = reporter.set_of_report(reference_date) else { continue };
            let delay = match set {
                StatementSet::Dfp => ANNUAL_DELAY_DAYS,
                StatementSet::Itr => QUARTERLY_DELAY_DAYS,
            };
            let due = reference_date + Days::new((delay - rng.between(0, 14)).unsigned_abs());
            let due = due.iter_days().find(|day| is_business_day(*day)).unwrap_or(due);
            reports.push(DueReport { due, company: reporter.company, set, reference_date });
        }
    }
    reports.retain(|report| report.due <= until);
    reports.sort_by_key(|report| (report.due, report.company.id));
    reports
}

/// The ends of calendar quarters.
pub fn quarter_ends(from: NaiveDate, until: NaiveDate) -> impl Iterator<Item = NaiveDate> {
    let quarters =
        (0..).map(move |number| last_day_of_month(from.year() + number / 4, 3 * (number % 4).unsigned_abs() + 3));
    quarters.skip_while(move |end| *end < from).take_while(move |end| *end <= until)
}

fn last_day_of_month(year: i32, month: u32) -> NaiveDate {
    month_end(NaiveDate::from_ymd_opt(year, month, 1).expect("a month of the calendar"))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::super::companies::generate_registry;
    use super::*;

    #[test]
    fn every_chart_and_everything_unusual_is_reported() {
        let until: NaiveDate = "2026-11-13".parse().unwrap();
        let companies = generate_registry(300, until).current;
        let reporters = pick_reporters(&companies, 3_000, until);
        let charts: HashSet<ChartOfAccounts> = reporters.iter().map(|reporter| reporter.chart).collect();
        assert_eq!((reporters.len(), charts.len()), (4, 3));
        assert!(reporters.iter().any(|reporter| reporter.is_individual_only && reporter.counts_units));

        let reports = due_reports(&reporters, until);
        assert!(reports.is_sorted_by_key(|report| report.due));
        assert!(reports.iter().all(|report| report.reference_date < report.due && report.due <= until));
        let march: Vec<&DueReport<'_>> = reports
            .iter()
            .filter(|report| report.set == StatementSet::Dfp && report.reference_date.month() == 3)
            .collect();
        assert_eq!(march.len(), 8, "the years from 2019 to 2026");
        let count_of = |set| reports.iter().filter(|report| report.set == set).count();
        assert!(count_of(StatementSet::Itr) > 2 * count_of(StatementSet::Dfp));
    }

    #[test]
    fn quarters_end_on_the_last_day_of_their_month() {
        let day = |text: &str| text.parse::<NaiveDate>().unwrap();
        let ends: Vec<NaiveDate> = quarter_ends(day("2023-12-31"), day("2024-07-01")).collect();
        assert_eq!(ends, [day("2023-12-31"), day("2024-03-31"), day("2024-06-30")]);
    }
}
