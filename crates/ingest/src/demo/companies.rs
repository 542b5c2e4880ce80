//! Made-up companies in the shape of the regulator's registry.

use chrono::{Days, NaiveDate};
use vintem_domain::{Cnpj, Company, CompanyId};

use super::market::is_business_day;
use super::rng::{DemoRng, shuffled_index};
use super::vocabulary::{
    AUDITORS, CITIES, INDUSTRIES, Industry, PLACE_ENDINGS, PLACE_PREFIXES, PLACE_QUALIFIERS, PLACE_ROOTS,
};

/// As many as have a place name of their own (48,000 places with 12 qualifiers), rounded down.
pub const MAX_COMPANIES: usize = 500_000;

/// Codes that no company gets, because issuers outside the registry file under them.
pub const FOREIGN_COMPANY_IDS: std::ops::RangeInclusive<CompanyId> = 80_000..=80_040;

pub const STATUS_ACTIVE: &str = "ATIVO";
const STATUS_CANCELED: &str = "CANCELADA";
const STATUS_SUSPENDED: &str = "SUSPENSO(A) - DECISÃO ADM";

const PLACE_COUNT: u64 = (PLACE_PREFIXES.len() * PLACE_ROOTS.len() * PLACE_ENDINGS.len()) as u64;

/// Categories and situations of issuers exist since the rules of 2009; who left before has none.
const CATEGORIES_SINCE: NaiveDate = ymd(2010, 1, 1);

pub struct DemoRegistry {
    /// By rising code.
    pub current: Vec<Company>,
    /// What the registry once said of those that have changed their names.
    pub former: Vec<Company>,
}

/// The oldest company is active and registered long before the first filing, so that there is always one to file.
pub fn generate_registry(count: usize, until: NaiveDate) -> DemoRegistry {
    let count = count as u64;
    let mut random = DemoRng::new("companies");
    let mut tickers = TickerGenerator::default();
    let mut registry = DemoRegistry { current: Vec::new(), former: Vec::new() };
    for number in 0..count {
        let place = place_name(number);
        let trade = random.pick_weighted(&INDUSTRIES, |trade| trade.weight);
        let mut company = Company {
            id: company_code(number, count, &mut random),
            name: trade.company_name(&place),
            cnpj: Some(generate_cnpj(number)),
            sector: if random.chance_per_thousand(20) { String::new() } else { trade.sector.to_owned() },
            trade_name: if random.chance_per_thousand(35) { String::new() } else { trade.trade_name(&place) },
            control: pick_control(trade, &mut random).to_owned(),
            auditor: random.pick(&AUDITORS).to_owned(),
            is_registered: true,
            ..Company::default()
        };
        let (city, state) = random.pick(&CITIES);
        (company.city, company.state) = (city.to_owned(), state.to_owned());
        set_registration_status(&mut company, registration_date(number, count, until), number == 0, until, &mut random);
        set_markets_and_tickers(&mut company, &mut tickers, &mut random);
        if random.chance_per_thousand(20) {
            let former = INDUSTRIES[random.below(INDUSTRIES.len() as u64) as usize].company_name(&place);
            if former != company.name {
                registry.former.push(Company { name: former, trade_name: String::new(), ..company.clone() });
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

/// Another place for every number, so that no two companies share a name.
fn place_name(number: u64) -> PlaceName {
    let within = shuffled_index(number % PLACE_COUNT, PLACE_COUNT, 1) as usize;
    let (spot, word) = (PLACE_PREFIXES[within % PLACE_PREFIXES.len()], within / PLACE_PREFIXES.len());
    let short = format!("{}{}", PLACE_ROOTS[word % PLACE_ROOTS.len()], PLACE_ENDINGS[word / PLACE_ROOTS.len()]);
    let qualifier = PLACE_QUALIFIERS[(number / PLACE_COUNT) as usize];
    PlaceName { full: format!("{spot} {short} {qualifier}").trim_end().to_owned(), short }
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

/// Codes rise with the day of registration, with gaps where there is room, and keep to five digits while they can.
fn company_code(number: u64, count: u64, random: &mut DemoRng) -> CompanyId {
    const FIRST_CODE: u64 = 100;
    let reserved = u64::from(FOREIGN_COMPANY_IDS.end() - FOREIGN_COMPANY_IDS.start() + 1);
    let gap = ((100_000 - FIRST_CODE - reserved) / count).clamp(1, 10);
    let code = FIRST_CODE + number * gap + random.below(gap);
    let code = if code < u64::from(*FOREIGN_COMPANY_IDS.start()) { code } else { code + reserved };
    CompanyId::try_from(code).expect("fewer companies than codes")
}

/// Roots from 99.900.000 on belong to nobody; where they run out, further branches of them are used.
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

/// Spread evenly from 1968 to shortly before the last day, by rising number.
fn registration_date(number: u64, count: u64, until: NaiveDate) -> NaiveDate {
    const FIRST_DATE: NaiveDate = ymd(1968, 1, 2);
    let span = (until - FIRST_DATE).num_days().cast_unsigned() - 60;
    business_day_on_or_after(FIRST_DATE + Days::new(span * number / count))
}

/// Status, category and situation, and the days that belong to them.
fn set_registration_status(
    company: &mut Company,
    registered_on: NaiveDate,
    keep: bool,
    until: NaiveDate,
    random: &mut DemoRng,
) {
    let cancelled_per_thousand = match registered_on {
        date if date < ymd(2000, 1, 1) => 720,
        date if date < ymd(2015, 1, 1) => 450,
        _ => 120,
    };
    let earliest_end = registered_on + Days::new(365);
    let cancelled = !keep && earliest_end < until && random.chance_per_thousand(cancelled_per_thousand);
    company.registered_on = Some(registered_on);
    if cancelled {
        let days = random.between(0, (until - earliest_end).num_days()).cast_unsigned();
        let cancelled_on = (earliest_end + Days::new(days)).min(until);
        company.status = STATUS_CANCELED.to_owned();
        company.cancelled_on = Some(cancelled_on);
        company.status_since = Some(cancelled_on);
        if cancelled_on < CATEGORIES_SINCE {
            return;
        }
    } else if !keep && random.chance_per_thousand(8) {
        let days = random.between(0, (until - registered_on).num_days()).cast_unsigned();
        company.status = STATUS_SUSPENDED.to_owned();
        company.status_since = Some(registered_on + Days::new(days));
    } else {
        company.status = STATUS_ACTIVE.to_owned();
        company.status_since = Some(registered_on);
    }
    company.category = if random.chance_per_thousand(680) { "Categoria A" } else { "Categoria B" }.to_owned();
    company.situation = pick_situation(random).to_owned();
}

fn pick_situation(random: &mut DemoRng) -> &'static str {
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
    random.pick_weighted(&situations, |(weight, _)| *weight).1
}

fn pick_control(trade: &Industry, random: &mut DemoRng) -> &'static str {
    let holding = trade.sector.starts_with("Emp. Adm. Part");
    match (random.below(100), holding) {
        (0..88, false) => "PRIVADO",
        (0..88, true) => "PRIVADO HOLDING",
        (88..94, false) => "ESTRANGEIRO",
        (88..94, true) => "ESTRANGEIRO HOLDING",
        (_, false) => "ESTATAL",
        (_, true) => "ESTATAL HOLDING",
    }
}

/// Markets of those still registered, and tickers of the active ones whose shares may be listed.
fn set_markets_and_tickers(company: &mut Company, tickers: &mut TickerGenerator, random: &mut DemoRng) {
    if company.status == STATUS_CANCELED {
        return;
    }
    let markets: &[&str] = match random.below(100) {
        0..50 => &["BOLSA"],
        50..60 => &["BALCÃO ORGANIZADO", "BOLSA"],
        60..92 => &["BALCÃO ORGANIZADO"],
        92..95 => &["BALCÃO NÃO ORGANIZADO"],
        _ => &[],
    };
    company.markets = markets.iter().map(|market| (*market).to_owned()).collect();
    let listed = markets.contains(&"BOLSA") && company.status == STATUS_ACTIVE && company.category == "Categoria A";
    if listed && random.chance_per_thousand(850) {
        let classes: &[&str] = match random.below(100) {
            0..60 => &["3"],
            60..82 => &["3", "4"],
            82..92 => &["3", "4", "11"],
            _ => &["11"],
        };
        let letters = tickers.next_ticker_prefix();
        company.tickers =
            letters.map_or(Vec::new(), |letters| classes.iter().map(|class| format!("{letters}{class}")).collect());
    }
}

/// Four letters for each listed company, while there are any left.
#[derive(Default)]
struct TickerGenerator {
    issued_count: u64,
}

impl TickerGenerator {
    /// No real code ends in two of these letters.
    const LAST_LETTERS: &[u8] = b"JKQWXYZ";
    const FIRST_LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ";
    const SECOND_LETTERS: &[u8] = b"AEIOULNR";

    fn next_ticker_prefix(&mut self) -> Option<String> {
        let sets = [Self::FIRST_LETTERS, Self::SECOND_LETTERS, Self::LAST_LETTERS, Self::LAST_LETTERS];
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
        let (first, second) = (generate_registry(500, UNTIL), generate_registry(500, UNTIL));
        assert_eq!(first.current, second.current);
        assert_eq!(first.former, second.former);
    }

    #[test]
    fn names_codes_cnpjs_and_tickers_are_unique_at_any_size() {
        let DemoRegistry { current, former: earlier } = generate_registry(110_000, UNTIL);
        assert_eq!(current.len(), 110_000);
        // Folded, and with the former ones: a search must be able to tell them apart.
        assert_unique(current.iter().chain(&earlier).map(|company| normalize_text(&company.name)));
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
        let DemoRegistry { current, former: earlier } = generate_registry(2_700, UNTIL);
        assert_eq!(current[0].status, STATUS_ACTIVE);
        let share = |wanted: &dyn Fn(&Company) -> bool| current.iter().filter(|company| wanted(company)).count();
        assert!((900..1_800).contains(&share(&|company| company.status == STATUS_ACTIVE)));
        assert!(share(&|company| company.status == STATUS_SUSPENDED) > 0);
        assert!((150..900).contains(&share(&|company| !company.tickers.is_empty())));
        assert!(share(&|company| company.name.contains("COMPANHIA") || company.name.contains("PARTICIPAÇÕES")) > 700);
        assert!((25..100).contains(&earlier.len()), "{}", earlier.len());
        for company in &current {
            let registered_on = company.registered_on.unwrap();
            assert!(registered_on < UNTIL && company.status_since.unwrap() >= registered_on);
            assert!(company.status_since.unwrap() <= UNTIL);
            assert_eq!(company.cancelled_on.is_some(), company.status == STATUS_CANCELED);
            assert!(company.cancelled_on.is_none_or(|date| registered_on < date && date <= UNTIL));
            assert!(company.tickers.is_empty() || company.status == STATUS_ACTIVE);
        }
        for former in &earlier {
            let now = current.iter().find(|company| company.id == former.id).unwrap();
            assert!(now.name != former.name && now.cnpj == former.cnpj);
        }
    }

    #[test]
    fn a_handful_of_companies_can_be_generated() {
        for count in 0..5 {
            assert_eq!(generate_registry(count, ymd(2004, 1, 1)).current.len(), count);
        }
    }
}
