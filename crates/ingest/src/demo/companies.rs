//! Made-up companies in the shape of the regulator's registry.

use chrono::{Days, NaiveDate};
use vintem_domain::{Cnpj, Company, CompanyId};

use super::market::is_business_day;
use super::random::{Random, shuffled};
use super::words::{AUDITORS, CITIES, ENDINGS, QUALIFIERS, ROOTS, SPOTS, TRADES, Trade};

/// As many as have a place name of their own (48,000 places with 12 qualifiers), rounded down.
pub const MOST: usize = 500_000;

/// Codes that no company gets, because issuers outside the registry file under them.
pub const FOREIGN_CODES: std::ops::RangeInclusive<CompanyId> = 80_000..=80_040;

pub const ACTIVE: &str = "ATIVO";
const CANCELLED: &str = "CANCELADA";
const SUSPENDED: &str = "SUSPENSO(A) - DECISÃO ADM";

const PLACES: u64 = (SPOTS.len() * ROOTS.len() * ENDINGS.len()) as u64;

/// Categories and situations of issuers exist since the rules of 2009; who left before has none.
const CATEGORIES_SINCE: NaiveDate = day(2010, 1, 1);

pub struct Registry {
    /// By rising code.
    pub current: Vec<Company>,
    /// What the registry once said of those that have changed their names.
    pub earlier: Vec<Company>,
}

/// The oldest company is active and registered long before the first filing, so that there is always one to file.
pub fn registry(count: usize, until: NaiveDate) -> Registry {
    let count = count as u64;
    let mut random = Random::new("companies");
    let mut tickers = Tickers::default();
    let mut registry = Registry { current: Vec::new(), earlier: Vec::new() };
    for number in 0..count {
        let place = place(number);
        let trade = random.pick_weighted(&TRADES, |trade| trade.weight);
        let mut company = Company {
            id: code(number, count, &mut random),
            name: trade.name(&place),
            cnpj: Some(cnpj(number)),
            sector: if random.chance(20) { String::new() } else { trade.sector.to_owned() },
            trade_name: if random.chance(35) { String::new() } else { trade.trade_name(&place) },
            control: control(trade, &mut random).to_owned(),
            auditor: random.pick(&AUDITORS).to_owned(),
            registered: true,
            ..Company::default()
        };
        let (city, state) = random.pick(&CITIES);
        (company.city, company.state) = (city.to_owned(), state.to_owned());
        set_standing(&mut company, registration_day(number, count, until), number == 0, until, &mut random);
        set_market(&mut company, &mut tickers, &mut random);
        if random.chance(20) {
            let former = TRADES[random.below(TRADES.len() as u64) as usize].name(&place);
            if former != company.name {
                registry.earlier.push(Company { name: former, trade_name: String::new(), ..company.clone() });
            }
        }
        registry.current.push(company);
    }
    registry
}

struct Place {
    /// `SERRA DO PIRAJUÍ`
    full: String,
    /// `PIRAJUÍ`
    short: String,
}

/// Another place for every number, so that no two companies share a name.
fn place(number: u64) -> Place {
    let within = shuffled(number % PLACES, PLACES, 1) as usize;
    let (spot, word) = (SPOTS[within % SPOTS.len()], within / SPOTS.len());
    let short = format!("{}{}", ROOTS[word % ROOTS.len()], ENDINGS[word / ROOTS.len()]);
    let qualifier = QUALIFIERS[(number / PLACES) as usize];
    Place { full: format!("{spot} {short} {qualifier}").trim_end().to_owned(), short }
}

impl Trade {
    /// `CERÂMICA SERRA DO PIRAJUÍ S.A.`
    fn name(&self, place: &Place) -> String {
        format!("{} {} {}", self.before, place.full, self.after).trim().to_owned()
    }

    /// `CERÂMICA PIRAJUÍ`
    fn trade_name(&self, place: &Place) -> String {
        let kind = self.before.strip_prefix("COMPANHIA DE ").unwrap_or(self.before);
        format!("{} {}", kind, place.short).trim().to_owned()
    }
}

/// Codes rise with the day of registration, with gaps where there is room, and keep to five digits while they can.
fn code(number: u64, count: u64, random: &mut Random) -> CompanyId {
    const FIRST: u64 = 100;
    let reserved = u64::from(FOREIGN_CODES.end() - FOREIGN_CODES.start() + 1);
    let gap = ((100_000 - FIRST - reserved) / count).clamp(1, 10);
    let code = FIRST + number * gap + random.below(gap);
    let code = if code < u64::from(*FOREIGN_CODES.start()) { code } else { code + reserved };
    CompanyId::try_from(code).expect("fewer companies than codes")
}

/// Roots from 99.900.000 on belong to nobody; where they run out, further branches of them are used.
fn cnpj(number: u64) -> Cnpj {
    const ROOTS: u64 = 100_000;
    let digits = format!("999{:05}{:04}", shuffled(number % ROOTS, ROOTS, 2), 1 + number / ROOTS);
    let digits: [u8; 12] = digits.into_bytes().try_into().expect("eight digits of root and four of branch");
    Cnpj::from_root(digits)
}

/// Spread evenly from 1968 to shortly before the last day, by rising number.
fn registration_day(number: u64, count: u64, until: NaiveDate) -> NaiveDate {
    const FIRST: NaiveDate = day(1968, 1, 2);
    let span = (until - FIRST).num_days().cast_unsigned() - 60;
    business_day_from(FIRST + Days::new(span * number / count))
}

/// Status, category and situation, and the days that belong to them.
fn set_standing(company: &mut Company, registered_on: NaiveDate, keep: bool, until: NaiveDate, random: &mut Random) {
    let cancelled_per_thousand = match registered_on {
        date if date < day(2000, 1, 1) => 720,
        date if date < day(2015, 1, 1) => 450,
        _ => 120,
    };
    let earliest_end = registered_on + Days::new(365);
    let cancelled = !keep && earliest_end < until && random.chance(cancelled_per_thousand);
    company.registered_on = Some(registered_on);
    if cancelled {
        let days = random.between(0, (until - earliest_end).num_days()).cast_unsigned();
        let cancelled_on = (earliest_end + Days::new(days)).min(until);
        company.status = CANCELLED.to_owned();
        company.cancelled_on = Some(cancelled_on);
        company.status_since = Some(cancelled_on);
        if cancelled_on < CATEGORIES_SINCE {
            return;
        }
    } else if !keep && random.chance(8) {
        let days = random.between(0, (until - registered_on).num_days()).cast_unsigned();
        company.status = SUSPENDED.to_owned();
        company.status_since = Some(registered_on + Days::new(days));
    } else {
        company.status = ACTIVE.to_owned();
        company.status_since = Some(registered_on);
    }
    company.category = if random.chance(680) { "Categoria A" } else { "Categoria B" }.to_owned();
    company.situation = situation(random).to_owned();
}

fn situation(random: &mut Random) -> &'static str {
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

fn control(trade: &Trade, random: &mut Random) -> &'static str {
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
fn set_market(company: &mut Company, tickers: &mut Tickers, random: &mut Random) {
    if company.status == CANCELLED {
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
    let listed = markets.contains(&"BOLSA") && company.status == ACTIVE && company.category == "Categoria A";
    if listed && random.chance(850) {
        let classes: &[&str] = match random.below(100) {
            0..60 => &["3"],
            60..82 => &["3", "4"],
            82..92 => &["3", "4", "11"],
            _ => &["11"],
        };
        let letters = tickers.next_letters();
        company.tickers =
            letters.map_or(Vec::new(), |letters| classes.iter().map(|class| format!("{letters}{class}")).collect());
    }
}

/// Four letters for each listed company, while there are any left.
#[derive(Default)]
struct Tickers {
    given: u64,
}

impl Tickers {
    /// No real code ends in two of these letters.
    const RARE: &[u8] = b"JKQWXYZ";
    const FIRST: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ";
    const SECOND: &[u8] = b"AEIOULNR";

    fn next_letters(&mut self) -> Option<String> {
        let sets = [Self::FIRST, Self::SECOND, Self::RARE, Self::RARE];
        let domain = sets.iter().map(|set| set.len() as u64).product();
        if self.given >= domain {
            return None;
        }
        let mut rest = shuffled(self.given, domain, 3) as usize;
        self.given += 1;
        let mut letters = String::with_capacity(4);
        for set in sets {
            letters.push(char::from(set[rest % set.len()]));
            rest /= set.len();
        }
        Some(letters)
    }
}

fn business_day_from(date: NaiveDate) -> NaiveDate {
    date.iter_days().find(|date| is_business_day(*date)).unwrap_or(date)
}

const fn day(year: i32, month: u32, day: u32) -> NaiveDate {
    NaiveDate::from_ymd_opt(year, month, day).expect("a day of the calendar")
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use vintem_domain::text::fold;

    const UNTIL: NaiveDate = day(2026, 11, 13);

    fn assert_unique<T: std::hash::Hash + Eq>(items: impl Iterator<Item = T>) {
        let items: Vec<T> = items.collect();
        let count = items.len();
        assert_eq!(items.into_iter().collect::<HashSet<_>>().len(), count);
    }

    #[test]
    fn the_same_size_gives_the_same_companies() {
        let (first, second) = (registry(500, UNTIL), registry(500, UNTIL));
        assert_eq!(first.current, second.current);
        assert_eq!(first.earlier, second.earlier);
    }

    #[test]
    fn names_codes_numbers_and_tickers_are_unique_however_many_there_are() {
        let Registry { current, earlier } = registry(110_000, UNTIL);
        assert_eq!(current.len(), 110_000);
        // Folded, and with the former ones: a search must be able to tell them apart.
        assert_unique(current.iter().chain(&earlier).map(|company| fold(&company.name)));
        assert_unique(current.iter().map(|company| company.id));
        assert_unique(current.iter().filter_map(|company| company.cnpj));
        assert_unique(current.iter().flat_map(|company| &company.tickers));
        for company in &current {
            let cnpj = company.cnpj.unwrap();
            assert!(cnpj.as_str().starts_with("999") && Cnpj::parse(cnpj.as_str()) == Some(cnpj));
            assert!(company.name.split(' ').any(|word| word.chars().count() >= 4), "{}", company.name);
            assert!(!company.name.contains("  "), "{}", company.name);
            assert!((100..1_000_000).contains(&company.id) && !FOREIGN_CODES.contains(&company.id));
        }
    }

    #[test]
    fn codes_keep_to_five_digits_up_to_fifty_thousand_companies() {
        for count in [1, 10, 2_700, 9_985, 50_000] {
            let companies = registry(count, UNTIL).current;
            assert!(companies.iter().all(|company| company.id < 100_000));
            assert!(companies.is_sorted_by(|a, b| a.id < b.id));
        }
    }

    #[test]
    fn standing_and_days_agree() {
        let Registry { current, earlier } = registry(2_700, UNTIL);
        assert_eq!(current[0].status, ACTIVE);
        let share = |wanted: &dyn Fn(&Company) -> bool| current.iter().filter(|company| wanted(company)).count();
        assert!((900..1_800).contains(&share(&|company| company.status == ACTIVE)));
        assert!(share(&|company| company.status == SUSPENDED) > 0);
        assert!((150..900).contains(&share(&|company| !company.tickers.is_empty())));
        assert!(share(&|company| company.name.contains("COMPANHIA") || company.name.contains("PARTICIPAÇÕES")) > 700);
        assert!((25..100).contains(&earlier.len()), "{}", earlier.len());
        for company in &current {
            let registered_on = company.registered_on.unwrap();
            assert!(registered_on < UNTIL && company.status_since.unwrap() >= registered_on);
            assert!(company.status_since.unwrap() <= UNTIL);
            assert_eq!(company.cancelled_on.is_some(), company.status == CANCELLED);
            assert!(company.cancelled_on.is_none_or(|date| registered_on < date && date <= UNTIL));
            assert!(company.tickers.is_empty() || company.status == ACTIVE);
        }
        for former in &earlier {
            let now = current.iter().find(|company| company.id == former.id).unwrap();
            assert!(now.name != former.name && now.cnpj == former.cnpj);
        }
    }

    #[test]
    fn few_companies_are_no_special_case() {
        for count in 0..5 {
            assert_eq!(registry(count, day(2004, 1, 1)).current.len(), count);
        }
    }
}
