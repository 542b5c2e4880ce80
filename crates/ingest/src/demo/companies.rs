//! Generates made-up companies in the shape of the regulator's registry.

use chrono::{Days, NaiveDate};
use vintem_domain::{Cnpj, Company, CompanyId};

use super::market::is_business_day;
use super::rng::{DemoRng, shuffled_index};
use super::vocabulary::{
    AUDITORS, CITIES, INDUSTRIES, Industry, PLACE_ENDINGS, PLACE_PREFIXES, PLACE_QUALIFIERS, PLACE_ROOTS,
};

/// The number of distinct place names (48,000 places with 12 qualifiers), rounded down.
pub const MAX_COMPANIES: usize = 500_000;

/// Codes reserved for issuers outside the registry; no generated company gets one.
pub const FOREIGN_COMPANY_IDS: std::ops::RangeInclusive<CompanyId> = 80_000..=80_040;

pub const STATUS_ACTIVE: &str = "ATIVO";
pub const INSURANCE_SECTOR: &str = "Seguradoras e Corretoras";
const INSURER_NUMBER: u64 = 1;

const STATUS_CANCELED: &str = "CANCELADA";
const STATUS_SUSPENDED: &str = "SUSPENSO(A) - DECISÃO ADM";

const PLACE_COUNT: u64 = (PLACE_PREFIXES.len() * PLACE_ROOTS.len() * PLACE_ENDINGS.len()) as u64;

/// Issuer categories and situations were introduced by the rules of 2009; companies that left earlier have none.
const CATEGORIES_SINCE: NaiveDate = ymd(2010, 1, 1);

pub struct DemoRegistry {
    /// Sorted by code.
    pub current: Vec<Company>,
    /// Earlier entries of companies that have since been renamed.
    pub former: Vec<Company>,
}

/// The oldest companies are active and registered long before the first filing, so that one can always file. One of them is
/// an insurer, because a small registry may have no other.
pub fn generate_registry(count: usize, until: NaiveDate) -> DemoRegistry {
    let count = count as u64;
    let mut rng = DemoRng::new("companies");
    let mut tickers = TickerGenerator::default();
    let mut registry = DemoRegistry { current: Vec::new(), former: Vec::new() };

    for number in 0..count {
        let place = place_name(number);
        let picked = rng.pick_weighted(&INDUSTRIES, |industry| industry.weight);
        let insurer = INDUSTRIES.iter().find(|industry| industry.sector == INSURANCE_SECTOR);
        let industry = insurer.filter(|_| number == INSURER_NUMBER).unwrap_or(picked);

        let mut company = Company {
            id: company_code(number, count, &mut rng),
            name: industry.company_name(&place),
            cnpj: Some(generate_cnpj(number)),
            sector: if rng.chance_per_thousand(20) { String::new() } else { industry.sector.to_owned() },
            trade_name: if rng.chance_per_thousand(35) { String::new() } else { industry.trade_name(&place) },
            control: pick_control(industry, &mut rng).to_owned(),
            auditor: rng.pick(&AUDITORS).to_owned(),
            is_registered: true,
            ..Company::default()
        };

        let (city, state) = rng.pick(&CITIES);
        company.city = city.to_owned();
        company.state = state.to_owned();
        set_registration_status(
            &mut company,
            registration_date(number, count, until),
            number <= INSURER_NUMBER,
            until,
            &mut rng,
        );
        set_markets_and_tickers(&mut company, &mut tickers, &mut rng);

        if rng.chance_per_thousand(20) {
            let former_name = INDUSTRIES[rng.below(INDUSTRIES.len() as u64) as usize].company_name(&place);
            if former_name != company.name {
                registry.former.push(Company { name: former_name, trade_name: String::new(), ..company.clone() });
            }
        }

        registry.current.push(company);
    }
    registry
}

struct PlaceName {
    /// `SERRA DO PIRAJUÍ`
    full: String,
    /// `PIRAJUÍ`
    short: String,
}

/// A different place for every number, so that no two companies share a name.
fn place_name(number: u64) -> PlaceName {
    let place_index = shuffled_index(number % PLACE_COUNT, PLACE_COUNT, 1) as usize;
    let prefix = PLACE_PREFIXES[place_index % PLACE_PREFIXES.len()];
    let word_index = place_index / PLACE_PREFIXES.len();
    let root = PLACE_ROOTS[word_index % PLACE_ROOTS.len()];
    let ending = PLACE_ENDINGS[word_index / PLACE_ROOTS.len()];
    let qualifier = PLACE_QUALIFIERS[(number / PLACE_COUNT) as usize];

    let short = format!("{root}{ending}");
    PlaceName { full: format!("{prefix} {short} {qualifier}").trim_end().to_owned(), short }
}

impl Industry {
    /// `CERÂMICA SERRA DO PIRAJUÍ S.A.`
    fn company_name(&self, place: &PlaceName) -> String {
        format!("{} {} {}", self.name_prefix, place.full, self.name_suffix).trim().to_owned()
    }

    /// `CERÂMICA PIRAJUÍ`
    fn trade_name(&self, place: &PlaceName) -> String {
        let kind = self.name_prefix.strip_prefix("COMPANHIA DE ").unwrap_or(self.name_prefix);
        format!("{} {}", kind, place.short).trim().to_owned()
    }
}

/// Codes increase with the registration date, with gaps where there is room, and have at most five digits if possible.
fn company_code(number: u64, count: u64, rng: &mut DemoRng) -> CompanyId {
    const FIRST_CODE: u64 = 100;
    let reserved = u64::from(FOREIGN_COMPANY_IDS.end() - FOREIGN_COMPANY_IDS.start() + 1);
    let gap = ((100_000 - FIRST_CODE - reserved) / count).clamp(1, 10);
    let code = FIRST_CODE + number * gap + rng.below(gap);
    let code = if code < u64::from(*FOREIGN_COMPANY_IDS.start()) { code } else { code + reserved };
    CompanyId::try_from(code).expect("fewer companies than codes")
}

/// Nobody owns the roots from 99.900.000; when they run out, further branches of them are used.
fn generate_cnpj(number: u64) -> Cnpj {
    const CNPJ_ROOT_COUNT: u64 = 100_000;
    let digits = format!(
        "999{:05}{:04}",
        shuffled_index(number % CNPJ_ROOT_COUNT, CNPJ_ROOT_COUNT, 2),
        1 + number / CNPJ_ROOT_COUNT
    );
    let digits: [u8; 12] = digits.into_bytes().try_into().expect("eight digits of root and four of branch");
    Cnpj::from_root_and_branch(digits)
}

/// Increases with the number, evenly spread from 1968 until 60 days before the last day.
fn registration_date(number: u64, count: u64, until: NaiveDate) -> NaiveDate {
    const FIRST_DATE: NaiveDate = ymd(1968, 1, 2);
    let span = (until - FIRST_DATE).num_days().cast_unsigned() - 60;
    business_day_on_or_after(FIRST_DATE + Days::new(span * number / count))
}

/// Sets status, category and situation, with their dates.
fn set_registration_status(
    company: &mut Company,
    registered_on: NaiveDate,
    keep_active: bool,
    until: NaiveDate,
    rng: &mut DemoRng,
) {
    let canceled_per_thousand = match registered_on {
        date if date < ymd(2000, 1, 1) => 720,
        date if date < ymd(2015, 1, 1) => 450,
        _ => 120,
    };

    let earliest_cancellation = registered_on + Days::new(365);
    let is_canceled = !keep_active && earliest_cancellation < until && rng.chance_per_thousand(canceled_per_thousand);

    company.registered_on = Some(registered_on);
    if is_canceled {
        let days = rng.between(0, (until - earliest_cancellation).num_days()).cast_unsigned();
        let cancelled_on = (earliest_cancellation + Days::new(days)).min(until);
        company.status = STATUS_CANCELED.to_owned();
        company.cancelled_on = Some(cancelled_on);
        company.status_since = Some(cancelled_on);
        if cancelled_on < CATEGORIES_SINCE {
            return;
        }
    } else if !keep_active && rng.chance_per_thousand(8) {
        let days = rng.between(0, (until - registered_on).num_days()).cast_unsigned();
        company.status = STATUS_SUSPENDED.to_owned();
        company.status_since = Some(registered_on + Days::new(days));
    } else {
        company.status = STATUS_ACTIVE.to_owned();
        company.status_since = Some(registered_on);
    }

    company.category = if rng.chance_per_thousand(680) { "Categoria A" } else { "Categoria B" }.to_owned();
    company.situation = pick_situation(rng).to_owned();
}

fn pick_situation(rng: &mut DemoRng) -> &'static str {
    let situations = [
        (860, "FASE OPERACIONAL"),
        (80, "FASE PRÉ-OPERACIONAL"),
        (30, "EM RECUPERAÇÃO JUDICIAL OU EQUIVALENTE"),
        (10, "FALIDA"),
        (8, "LIQUIDAÇÃO EXTRAJUDICIAL"),
        (4, "PARALISADA"),
        (4, "EM LIQUIDAÇÃO JUDICIAL"),
        (4, "EM RECUPERAÇÃO EXTRAJUDICIAL"),
    ];
    rng.pick_weighted(&situations, |(weight, _)| *weight).1
}

fn pick_control(industry: &Industry, rng: &mut DemoRng) -> &'static str {
    let is_holding = industry.sector.starts_with("Emp. Adm. Part");
    match (rng.below(100), is_holding) {
        (0..88, false) => "PRIVADO",
        (0..88, true) => "PRIVADO HOLDING",
        (88..94, false) => "ESTRANGEIRO",
        (88..94, true) => "ESTRANGEIRO HOLDING",
        (_, false) => "ESTATAL",
        (_, true) => "ESTATAL HOLDING",
    }
}

/// Sets the markets of companies that are still registered, and the tickers of active ones whose shares may be listed.
fn set_markets_and_tickers(company: &mut Company, tickers: &mut TickerGenerator, rng: &mut DemoRng) {
    if company.status == STATUS_CANCELED {
        return;
    }

    let markets: &[&str] = match rng.below(100) {
        0..50 => &["BOLSA"],
        50..60 => &["BALCÃO ORGANIZADO", "BOLSA"],
        60..92 => &["BALCÃO ORGANIZADO"],
        92..95 => &["BALCÃO NÃO ORGANIZADO"],
        _ => &[],
    };
    company.markets = markets.iter().map(|market| (*market).to_owned()).collect();

    let may_be_listed =
        markets.contains(&"BOLSA") && company.status == STATUS_ACTIVE && company.category == "Categoria A";
    if may_be_listed && rng.chance_per_thousand(850) {
        let classes: &[&str] = match rng.below(100) {
            0..60 => &["3"],
            60..82 => &["3", "4"],
            82..92 => &["3", "4", "11"],
            _ => &["11"],
        };
        let prefix = tickers.next_ticker_prefix();
        company.tickers =
            prefix.map_or(Vec::new(), |prefix| classes.iter().map(|class| format!("{prefix}{class}")).collect());
    }
}

/// Issues four letters to each listed company until all are used.
#[derive(Default)]
struct TickerGenerator {
    issued_count: u64,
}

impl TickerGenerator {
    /// The letters of no real ticker end in two of these.
    const LAST_LETTERS: &[u8] = b"JKQWXYZ";
    const FIRST_TICKER_LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ";
    const SECOND_LETTERS: &[u8] = b"AEIOULNR";

    fn next_ticker_prefix(&mut self) -> Option<String> {
        let sets = [Self::FIRST_TICKER_LETTERS, Self::SECOND_LETTERS, Self::LAST_LETTERS, Self::LAST_LETTERS];
        let domain = sets.iter().map(|set| set.len() as u64).product();
        if self.issued_count >= domain {
            return None;
        }

        let mut rest = shuffled_index(self.issued_count, domain, 3) as usize;
        self.issued_count += 1;

        let mut letters = String::with_capacity(4);
        for set in sets {
            letters.push(char::from(set[rest % set.len()]));
            rest /= set.len();
        }
        Some(letters)
    }
}

fn business_day_on_or_after(date: NaiveDate) -> NaiveDate {
    date.iter_days().find(|date| is_business_day(*date)).unwrap_or(date)
}

const fn ymd(year: i32, month: u32, day: u32) -> NaiveDate {
    NaiveDate::from_ymd_opt(year, month, day).expect("a day of the calendar")
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use vintem_domain::text::normalize_text;

    const UNTIL: NaiveDate = ymd(2026, 11, 13);

    fn assert_unique<T: std::hash::Hash + Eq>(items: impl Iterator<Item = T>) {
        let items: Vec<T> = items.collect();
        let count = items.len();
        assert_eq!(items.into_iter().collect::<HashSet<_>>().len(), count);
    }

    #[test]
    fn the_same_size_gives_the_same_companies() {
        let first = generate_registry(500, UNTIL);
        let second = generate_registry(500, UNTIL);
        assert_eq!(first.current, second.current);
        assert_eq!(first.former, second.former);
    }

    #[test]
    fn names_codes_cnpjs_and_tickers_are_unique_at_any_size() {
        let DemoRegistry { current, former } = generate_registry(110_000, UNTIL);
        assert_eq!(current.len(), 110_000);
        // Normalized, and including former names: a search must be able to tell all of them apart.
        assert_unique(current.iter().chain(&former).map(|company| normalize_text(&company.name)));
        assert_unique(current.iter().map(|company| company.id));
        assert_unique(current.iter().filter_map(|company| company.cnpj));
        assert_unique(current.iter().flat_map(|company| &company.tickers));

        for company in &current {
            let cnpj = company.cnpj.unwrap();
            assert!(cnpj.as_str().starts_with("999") && Cnpj::parse(cnpj.as_str()) == Some(cnpj));
            assert!(company.name.split(' ').any(|word| word.chars().count() >= 4), "{}", company.name);
            assert!(!company.name.contains("  "), "{}", company.name);
            assert!((100..1_000_000).contains(&company.id) && !FOREIGN_COMPANY_IDS.contains(&company.id));
        }
    }

    #[test]
    fn codes_keep_to_five_digits_up_to_fifty_thousand_companies() {
        for count in [1, 10, 2_700, 9_985, 50_000] {
            let companies = generate_registry(count, UNTIL).current;
            assert!(companies.iter().all(|company| company.id < 100_000));
            assert!(companies.is_sorted_by(|a, b| a.id < b.id));
        }
    }

    #[test]
    fn statuses_and_dates_are_consistent() {
        let DemoRegistry { current, former } = generate_registry(2_700, UNTIL);
        assert_eq!(current[0].status, STATUS_ACTIVE);
        let count = |predicate: &dyn Fn(&Company) -> bool| current.iter().filter(|company| predicate(company)).count();
        assert!((900..1_800).contains(&count(&|company| company.status == STATUS_ACTIVE)));
        assert!(count(&|company| company.status == STATUS_SUSPENDED) > 0);
        assert!((150..900).contains(&count(&|company| !company.tickers.is_empty())));
        assert!(count(&|company| company.name.contains("COMPANHIA") || company.name.contains("PARTICIPAÇÕES")) > 700);
        assert!((25..100).contains(&former.len()), "{}", former.len());

        for company in &current {
            let registered_on = company.registered_on.unwrap();
            assert!(registered_on < UNTIL && company.status_since.unwrap() >= registered_on);
            assert!(company.status_since.unwrap() <= UNTIL);
            assert_eq!(company.cancelled_on.is_some(), company.status == STATUS_CANCELED);
            assert!(company.cancelled_on.is_none_or(|date| registered_on < date && date <= UNTIL));
            assert!(company.tickers.is_empty() || company.status == STATUS_ACTIVE);
        }

        for before in &former {
            let after = current.iter().find(|company| company.id == before.id).unwrap();
            assert!(after.name != before.name && after.cnpj == before.cnpj);
        }
    }

    #[test]
    fn a_handful_of_companies_can_be_generated() {
        for count in 0..5 {
            assert_eq!(generate_registry(count, ymd(2004, 1, 1)).current.len(), count);
        }
    }
}
