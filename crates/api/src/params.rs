//! Query parameters, read one by one and refused by name.

use axum::extract::FromRequestParts;
use chrono::{DateTime, NaiveTime};
use http::request::Parts;
use percent_encoding::percent_decode;
use vintem_domain::dates::parse_day;
use vintem_domain::decimal::parse_exact;
use vintem_domain::{DateRange, Decimal, Pair, Problem, Text};
use vintem_store::read::Known;

use crate::problem::Refusal;

/// The most results of a page of companies, filings or hits.
pub const MOST_ROWS: usize = 100;
/// The same as CSV, which is written while it is sent.
pub const MOST_COMPANIES_AS_CSV: usize = 100_000;
pub const MOST_FILINGS_AS_CSV: usize = 1_000_000;
/// A whole daily series in one call.
pub const MOST_OBSERVATIONS: usize = 20_000;
/// The most hits of each kind in the global search: it finds, it does not list.
pub const MOST_FOUND: usize = 20;
/// The most events of a call, and how long it may wait for the next one.
pub const MOST_EVENTS: usize = 1_000;
const LONGEST_WAIT_SECONDS: u64 = 30;
const DEFAULT_LIMIT: usize = 20;
const LONGEST_QUERY: usize = 200;
/// Of a filter; the longest category is far shorter.
const LONGEST_FILTER: usize = 200;

type Read<T> = Result<T, Problem>;

/// The parameters of a request. Unknown ones are ignored; a known one must be given once.
#[derive(Debug, Default)]
pub struct Query(Vec<(String, Option<String>)>);

impl<S: Sync> FromRequestParts<S> for Query {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Refusal> {
        Ok(Self::parse(parts.uri.query().unwrap_or("")))
    }
}

/// Which page: at most `limit` results from `offset` on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Page {
    pub limit: usize,
    pub offset: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    Ascending,
    Descending,
}

/// What a decimal must be.
#[derive(Debug, Clone, Copy)]
pub struct DecimalBounds {
    pub least: i64,
    pub most: i64,
    pub decimals: u32,
    /// The same in words.
    pub must: Text,
}

impl Query {
    pub fn parse(query: &str) -> Self {
        let pairs = query.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decode(name).unwrap_or_default(), decode(value))
        });
        Self(pairs.collect())
    }

    /// Names and values as they are read, whatever their spelling.
    pub fn pairs(&self) -> impl Iterator<Item = (&str, Option<&str>)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_deref()))
    }

    /// The value of a parameter, if it is given, once and as text.
    pub fn value(&self, name: &'static str) -> Read<Option<&str>> {
        let mut given = self.0.iter().filter(|(other, _)| other == name).map(|(_, value)| value);
        let Some(value) = given.next() else { return Ok(None) };
        if given.next().is_some() {
            return refuse(name, Text::new("be given once", "ser informado uma só vez"));
        }
        match value {
            Some(value) => Ok(Some(value)),
            None => refuse(name, Text::new("be percent-encoded UTF-8", "ser UTF-8 com codificação percentual")),
        }
    }

    pub fn page(&self, most: usize) -> Read<Page> {
        Ok(Page { limit: self.limit(most)?, offset: self.offset()? })
    }

    /// Above the most: clamped.
    pub fn limit(&self, most: usize) -> Read<usize> {
        let must = Text::new("be a whole number of at least 1", "ser um número inteiro de pelo menos 1");
        match self.whole_number("limit", must)? {
            Some(0) => refuse("limit", must),
            Some(limit) => Ok(limit.min(most)),
            None => Ok(DEFAULT_LIMIT.min(most)),
        }
    }

    /// Seconds; above the most: cut.
    pub fn wait(&self) -> Read<u64> {
        let must = Text::new("be a whole number of seconds", "ser um número inteiro de segundos");
        let seconds = self.whole_number("wait", must)?.unwrap_or(0);
        Ok(u64::try_from(seconds).unwrap_or(u64::MAX).min(LONGEST_WAIT_SECONDS))
    }

    fn offset(&self) -> Read<usize> {
        let must = Text::new("be a whole number of at least 0", "ser um número inteiro de pelo menos 0");
        Ok(self.whole_number("offset", must)?.unwrap_or(0))
    }

    fn whole_number(&self, name: &'static str, must: Text) -> Read<Option<usize>> {
        let Some(text) = self.value(name)? else { return Ok(None) };
        if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
            return refuse(name, must);
        }
        // All digits and yet no number of the machine: larger than everything that exists.
        Ok(Some(text.parse().unwrap_or(usize::MAX >> 1)))
    }

    pub fn days(&self) -> Read<DateRange> {
        let from = self.day("from")?.unwrap_or(DateRange::ALL.from);
        let to = self.day("to")?.unwrap_or(DateRange::ALL.to);
        ordered(from, to)
    }

    pub fn day(&self, name: &'static str) -> Read<Option<chrono::NaiveDate>> {
        let Some(text) = self.value(name)? else { return Ok(None) };
        let must = Text::new(
            "be a date as YYYY-MM-DD from 1900-01-01 to 2199-12-31",
            "ser uma data como AAAA-MM-DD, de 1900-01-01 a 2199-12-31",
        );
        parse_day(text).map_or_else(|| refuse(name, must), |day| Ok(Some(day)))
    }

    /// A day without which nothing can be answered.
    pub fn required_day(&self, name: &'static str) -> Read<chrono::NaiveDate> {
        let must = Text::new("be given: a date as YYYY-MM-DD", "ser informado: uma data como AAAA-MM-DD");
        self.day(name)?.map_or_else(|| refuse(name, must), Ok)
    }

    /// A plain decimal between two bounds, both included, with so many decimals at most.
    pub fn decimal(&self, name: &'static str, bounds: DecimalBounds) -> Read<Option<Decimal>> {
        let Some(text) = self.value(name)? else { return Ok(None) };
        let holds = |value: &Decimal| {
            (bounds.least.into()..=bounds.most.into()).contains(value) && value.scale() <= bounds.decimals
        };
        parse_exact(text).filter(holds).map_or_else(|| refuse(name, bounds.must), |value| Ok(Some(value)))
    }

    /// From which second on what we learned is wanted.
    pub fn updated_since(&self) -> Read<Option<u32>> {
        let Some(text) = self.value("updated_since")? else { return Ok(None) };
        let of_day = parse_day(text).map(|day| day.and_time(NaiveTime::MIN).and_utc());
        let instant = of_day.or_else(|| DateTime::parse_from_rfc3339(text).ok().map(|instant| instant.to_utc()));
        let must = Text::new(
            "be a date as YYYY-MM-DD, from midnight UTC, or an instant as 2026-11-13T18:00:00Z",
            "ser uma data como AAAA-MM-DD, desde a meia-noite UTC, ou um instante como 2026-11-13T18:00:00Z",
        );
        instant.map_or_else(|| refuse("updated_since", must), |instant| Ok(Some(Known::second(instant))))
    }

    pub fn order(&self) -> Read<Order> {
        match self.value("order")? {
            None | Some("desc") => Ok(Order::Descending),
            Some("asc") => Ok(Order::Ascending),
            Some(_) => refuse("order", Text::new("be `asc` or `desc`", "ser `asc` ou `desc`")),
        }
    }

    /// Whether decimals are asked for as strings.
    pub fn numbers_as_text(&self) -> Read<bool> {
        match self.value("numbers")? {
            None | Some("number") => Ok(false),
            Some("string") => Ok(true),
            Some(_) => refuse("numbers", Text::new("be `number` or `string`", "ser `number` ou `string`")),
        }
    }

    /// Whether something is asked for that is not given otherwise.
    pub fn flag(&self, name: &'static str) -> Read<bool> {
        match self.value(name)? {
            None | Some("false") => Ok(false),
            Some("true") => Ok(true),
            Some(_) => refuse(name, Text::new("be `true` or `false`", "ser `true` ou `false`")),
        }
    }

    pub fn pair(&self) -> Read<Pair> {
        let Some(text) = self.value("pair")? else { return Ok(Pair::DEFAULT) };
        Pair::parse(text).ok_or_else(|| Problem::UnknownPair { published: Pair::published_list() })
    }

    /// What is searched for.
    pub fn q(&self) -> Read<String> {
        let must =
            Text::new("be given: 1 to 200 characters to search for", "ser informado: 1 a 200 caracteres a procurar");
        let text = self.value("q")?.unwrap_or("");
        if text.trim().is_empty() || text.chars().count() > LONGEST_QUERY {
            return refuse("q", must);
        }
        Ok(text.to_owned())
    }

    pub fn filter(&self, name: &'static str) -> Read<Option<String>> {
        match self.value(name)? {
            Some(text) if text.chars().count() > LONGEST_FILTER => {
                refuse(name, Text::new("have at most 200 characters", "ter no máximo 200 caracteres"))
            }
            value => Ok(value.map(str::to_owned)),
        }
    }
}

pub fn ordered(from: chrono::NaiveDate, to: chrono::NaiveDate) -> Read<DateRange> {
    if from > to {
        return refuse("from", Text::new("not be after `to`", "não ser posterior a `to`"));
    }
    Ok(DateRange { from, to })
}

pub fn refuse<T>(name: &'static str, must: Text) -> Read<T> {
    Err(Problem::BadParameter { name, must })
}

fn decode(text: &str) -> Option<String> {
    let spaced = text.replace('+', " ");
    percent_decode(spaced.as_bytes()).decode_utf8().ok().map(std::borrow::Cow::into_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_clamped_and_nonsense_is_refused_by_name() {
        let limit = |query: &str| Query::parse(query).limit(100);
        assert_eq!(limit(""), Ok(20));
        assert_eq!(limit("limit=7"), Ok(7));
        assert_eq!(limit("limit=5000"), Ok(100));
        assert_eq!(limit("limit=99999999999999999999999"), Ok(100));
        for query in
            ["limit=0", "limit=-1", "limit=abc", "limit=1.5", "limit=", "limit=+5", "limit=1&limit=1", "limit=%ff"]
        {
            assert!(matches!(limit(query), Err(Problem::BadParameter { name: "limit", .. })), "{query}");
        }
    }

    #[test]
    fn an_empty_or_long_search_is_refused() {
        let q = |query: &str| Query::parse(query).q();
        for query in ["", "q=", "q=%20%20", "q=%09", "q"] {
            assert!(q(query).is_err(), "{query}");
        }
        assert!(q(&format!("q={}", "a".repeat(201))).is_err());
        assert_eq!(q(&format!("q={}", "%C3%A3".repeat(200))).map(|q| q.chars().count()), Ok(200));
        assert_eq!(q("q=a+b%26c"), Ok("a b&c".to_owned()));
    }

    #[test]
    fn a_range_that_ends_before_it_begins_is_refused() {
        assert!(matches!(
            Query::parse("from=2024-02-01&to=2024-01-01").days(),
            Err(Problem::BadParameter { name: "from", .. })
        ));
    }
}
