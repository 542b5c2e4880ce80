//! Query parameters: parsing and validation. Errors name the parameter.

use axum::extract::FromRequestParts;
use chrono::{DateTime, NaiveTime};
use http::request::Parts;
use percent_encoding::percent_decode;
use vintem_domain::dates::parse_date;
use vintem_domain::decimal::parse_exact_decimal;
use vintem_domain::{CurrencyPair, DateRange, Decimal, LocalizedText, Problem};
use vintem_store::reader::RowProvenance;

use crate::api_error::ApiError;

/// Maximum page size for companies, filings and search hits.
pub const MAX_PAGE_ROWS: usize = 100;
/// Maximum page sizes for CSV, which is streamed.
pub const MAX_CSV_COMPANIES: usize = 100_000;
pub const MAX_CSV_FILINGS: usize = 1_000_000;
/// Enough for every annual document of a company, or for its whole income statement.
pub const MAX_STATEMENT_ROWS: usize = 10_000;
/// Enough for a whole daily series in one request.
pub const MAX_OBSERVATIONS: usize = 20_000;
/// Maximum hits of each kind in the global search, which is for finding and not for listing.
pub const MAX_SEARCH_HITS: usize = 20;
/// Maximum events per request.
pub const MAX_EVENTS: usize = 1_000;
/// How long a request for events may wait for the next one.
pub const MAX_WAIT_SECONDS: u64 = 30;
pub const DEFAULT_LIMIT: usize = 20;
pub const MAX_SEARCH_CHARS: usize = 200;
/// The longest category is far shorter.
pub const MAX_FILTER_CHARS: usize = 200;

type ParamResult<T> = Result<T, Problem>;

/// The parameters of a request. Unknown ones were refused before the handler runs; known ones must not be repeated.
#[derive(Debug, Default)]
pub struct QueryParams(Vec<QueryParam>);

/// A decoded parameter.
#[derive(Debug)]
struct QueryParam {
    name: String,
    /// `None` if it is not valid UTF-8.
    value: Option<String>,
}

impl<S: Sync> FromRequestParts<S> for QueryParams {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        Ok(Self::parse(parts.uri.query().unwrap_or("")))
    }
}

/// One page of a list: at most `limit` rows, starting at `offset`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pagination {
    pub limit: usize,
    pub offset: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SortOrder {
    Ascending,
    Descending,
}

/// The accepted values of a decimal parameter.
#[derive(Debug, Clone, Copy)]
pub struct DecimalBounds {
    pub min: i64,
    pub max: i64,
    pub max_decimals: u32,
    /// The same rule in words, for the error message.
    pub must: LocalizedText,
}

impl QueryParams {
    pub fn parse(query: &str) -> Self {
        let pairs = query.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            QueryParam { name: decode_component(name).unwrap_or_default(), value: decode_component(value) }
        });
        Self(pairs.collect())
    }

    /// Decoded names and values. A value is `None` if it is not valid UTF-8.
    pub fn pairs(&self) -> impl Iterator<Item = (&str, Option<&str>)> {
        self.0.iter().map(|param| (param.name.as_str(), param.value.as_deref()))
    }

    /// The value of a parameter, if present. Fails if it is repeated or not valid UTF-8.
    pub fn single_value(&self, name: &'static str) -> ParamResult<Option<&str>> {
        let mut params = self.0.iter().filter(|param| param.name == name);
        let Some(param) = params.next() else { return Ok(None) };
        if params.next().is_some() {
            return invalid_param(name, LocalizedText::new("must be sent only once", "deve ser enviado uma só vez"));
        }

        match &param.value {
            Some(value) => Ok(Some(value)),
            None => invalid_param(
                name,
                LocalizedText::new("must be percent-encoded UTF-8", "deve estar em UTF-8 com percent-encoding"),
            ),
        }
    }

    pub fn pagination(&self, max_limit: usize) -> ParamResult<Pagination> {
        Ok(Pagination { limit: self.limit(max_limit)?, offset: self.offset()? })
    }

    /// Larger values are clamped to `max_limit`.
    pub fn limit(&self, max_limit: usize) -> ParamResult<usize> {
        let must =
            LocalizedText::new("must be an integer of at least 1", "deve ser um número inteiro maior ou igual a 1");
        match self.whole_number("limit", must)? {
            Some(0) => invalid_param("limit", must),
            Some(limit) => Ok(limit.min(max_limit)),
            None => Ok(DEFAULT_LIMIT.min(max_limit)),
        }
    }

    /// One of a few words.
    pub fn choice(
        &self,
        name: &'static str,
        choices: &[&'static str],
        must: LocalizedText,
    ) -> ParamResult<Option<&'static str>> {
        let Some(text) = self.single_value(name)? else { return Ok(None) };
        let choice = choices.iter().find(|choice| **choice == text);
        choice.map_or_else(|| invalid_param(name, must), |choice| Ok(Some(*choice)))
    }

    /// The version of a document.
    pub fn version(&self) -> ParamResult<Option<u16>> {
        let must = LocalizedText::new("must be an integer from 1 to 65535", "deve ser um número inteiro de 1 a 65535");
        match self.whole_number("version", must)?.map(u16::try_from) {
            None => Ok(None),
            Some(Ok(version)) if version > 0 => Ok(Some(version)),
            Some(_) => invalid_param("version", must),
        }
    }

    /// How long to wait for events. Longer waits are clamped to [`MAX_WAIT_SECONDS`].
    pub fn wait_seconds(&self) -> ParamResult<u64> {
        let must = LocalizedText::new("must be a whole number of seconds", "deve ser um número inteiro de segundos");
        let seconds = self.whole_number("wait", must)?.unwrap_or(0);
        Ok(u64::try_from(seconds).unwrap_or(u64::MAX).min(MAX_WAIT_SECONDS))
    }

    fn offset(&self) -> ParamResult<usize> {
        let must =
            LocalizedText::new("must be an integer of at least 0", "deve ser um número inteiro maior ou igual a 0");
        Ok(self.whole_number("offset", must)?.unwrap_or(0))
    }

    fn whole_number(&self, name: &'static str, must: LocalizedText) -> ParamResult<Option<usize>> {
        let Some(text) = self.single_value(name)? else { return Ok(None) };
        if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
            return invalid_param(name, must);
        }
        // All digits but too large for a `usize`: larger than any list, so any large number will do.
        Ok(Some(text.parse().unwrap_or(usize::MAX >> 1)))
    }

    pub fn date_range(&self) -> ParamResult<DateRange> {
        let from = self.date("from")?.unwrap_or(DateRange::ALL.from);
        let to = self.date("to")?.unwrap_or(DateRange::ALL.to);
        ordered_date_range(from, to)
    }

    pub fn date(&self, name: &'static str) -> ParamResult<Option<chrono::NaiveDate>> {
        let Some(text) = self.single_value(name)? else { return Ok(None) };
        let must = LocalizedText::new(
            "must be a date in the format YYYY-MM-DD, from 1900-01-01 to 2199-12-31",
            "deve ser uma data no formato AAAA-MM-DD, de 1900-01-01 a 2199-12-31",
        );
        parse_date(text).map_or_else(|| invalid_param(name, must), |day| Ok(Some(day)))
    }

    /// A required date.
    pub fn required_date(&self, name: &'static str) -> ParamResult<chrono::NaiveDate> {
        let must = LocalizedText::new(
            "is required: a date in the format YYYY-MM-DD",
            "é obrigatório: uma data no formato AAAA-MM-DD",
        );
        self.date(name)?.map_or_else(|| invalid_param(name, must), Ok)
    }

    /// A plain decimal within `bounds`, both ends included.
    pub fn decimal(&self, name: &'static str, bounds: DecimalBounds) -> ParamResult<Option<Decimal>> {
        let Some(text) = self.single_value(name)? else { return Ok(None) };
        let is_in_bounds = |value: &Decimal| {
            (bounds.min.into()..=bounds.max.into()).contains(value) && value.scale() <= bounds.max_decimals
        };
        parse_exact_decimal(text)
            .filter(is_in_bounds)
            .map_or_else(|| invalid_param(name, bounds.must), |value| Ok(Some(value)))
    }

    /// In Unix seconds. The caller wants only rows that we learned of at or after this time.
    pub fn updated_since(&self) -> ParamResult<Option<u32>> {
        let Some(text) = self.single_value("updated_since")? else { return Ok(None) };
        let midnight = parse_date(text).map(|day| day.and_time(NaiveTime::MIN).and_utc());
        let instant = midnight.or_else(|| DateTime::parse_from_rfc3339(text).ok().map(|instant| instant.to_utc()));

        let must = LocalizedText::new(
            "must be a date (YYYY-MM-DD, meaning 00:00 UTC) or a timestamp such as 2026-11-13T18:00:00Z",
            "deve ser uma data (AAAA-MM-DD, a partir das 00:00 UTC) ou data e hora, como 2026-11-13T18:00:00Z",
        );
        instant.map_or_else(
            || invalid_param("updated_since", must),
            |instant| Ok(Some(RowProvenance::to_unix_seconds(instant))),
        )
    }

    pub fn sort_order(&self) -> ParamResult<SortOrder> {
        match self.single_value("order")? {
            None | Some("desc") => Ok(SortOrder::Descending),
            Some("asc") => Ok(SortOrder::Ascending),
            Some(_) => {
                invalid_param("order", LocalizedText::new("must be `asc` or `desc`", "deve ser `asc` ou `desc`"))
            }
        }
    }

    /// Whether decimals are requested as strings.
    pub fn numbers_as_text(&self) -> ParamResult<bool> {
        match self.single_value("numbers")? {
            None | Some("number") => Ok(false),
            Some("string") => Ok(true),
            Some(_) => {
                let must = LocalizedText::new("must be `number` or `string`", "deve ser `number` ou `string`");
                invalid_param("numbers", must)
            }
        }
    }

    /// A boolean parameter, `false` by default.
    pub fn flag(&self, name: &'static str) -> ParamResult<bool> {
        Ok(self.optional_flag(name)?.unwrap_or(false))
    }

    pub fn optional_flag(&self, name: &'static str) -> ParamResult<Option<bool>> {
        match self.single_value(name)? {
            None => Ok(None),
            Some("false") => Ok(Some(false)),
            Some("true") => Ok(Some(true)),
            Some(_) => {
                invalid_param(name, LocalizedText::new("must be `true` or `false`", "deve ser `true` ou `false`"))
            }
        }
    }

    pub fn currency_pair(&self) -> ParamResult<CurrencyPair> {
        Ok(self.optional_currency_pair()?.unwrap_or(CurrencyPair::DEFAULT))
    }

    /// A required currency pair.
    pub fn required_currency_pair(&self) -> ParamResult<CurrencyPair> {
        let must = LocalizedText::new(
            "is required: a currency pair such as USD/BRL",
            "é obrigatório: um par de moedas, como USD/BRL",
        );
        self.optional_currency_pair()?.map_or_else(|| invalid_param("pair", must), Ok)
    }

    fn optional_currency_pair(&self) -> ParamResult<Option<CurrencyPair>> {
        let Some(text) = self.single_value("pair")? else { return Ok(None) };
        let unknown = || Problem::UnknownPair { published_pairs: CurrencyPair::published_pair_names() };
        CurrencyPair::parse(text).ok_or_else(unknown).map(Some)
    }

    /// The search query, `q`.
    pub fn search_text(&self) -> ParamResult<String> {
        let must = LocalizedText::new(
            "is required: search text of 1 to 200 characters",
            "é obrigatório: um texto de busca de 1 a 200 caracteres",
        );
        self.optional_search_text()?.map_or_else(|| invalid_param("q", must), Ok)
    }

    /// `q` on a list that it filters.
    pub fn optional_search_text(&self) -> ParamResult<Option<String>> {
        let must = LocalizedText::new(
            "must have 1 to 200 characters and must not be blank",
            "deve ter de 1 a 200 caracteres e não pode ficar em branco",
        );
        match self.single_value("q")? {
            Some(text) if text.trim().is_empty() || text.chars().count() > MAX_SEARCH_CHARS => invalid_param("q", must),
            text => Ok(text.map(str::to_owned)),
        }
    }

    /// A year of the calendar. It replaces `from` and `to`.
    pub fn year(&self) -> ParamResult<Option<i32>> {
        let Some(text) = self.single_value("year")? else { return Ok(None) };
        for name in ["from", "to"] {
            if self.single_value(name)?.is_some() {
                let must =
                    LocalizedText::new("must not be combined with `year`", "não pode ser usado junto com `year`");
                return invalid_param(name, must);
            }
        }

        let must = LocalizedText::new("must be a year from 1900 to 2199", "deve ser um ano de 1900 a 2199");
        let is_year = text.len() == 4 && text.bytes().all(|byte| byte.is_ascii_digit());
        let year = is_year.then(|| text.parse().ok()).flatten().filter(|year| (1900..=2199).contains(year));
        year.map_or_else(|| invalid_param("year", must), |year| Ok(Some(year)))
    }

    /// The range of `from` and `to`, or the whole of `year`.
    pub fn date_range_or_year(&self) -> ParamResult<DateRange> {
        match self.year()? {
            Some(year) => Ok(DateRange::for_year(year)),
            None => self.date_range(),
        }
    }

    pub fn filter_text(&self, name: &'static str) -> ParamResult<Option<String>> {
        match self.single_value(name)? {
            Some(text) if text.chars().count() > MAX_FILTER_CHARS => {
                let must = LocalizedText::new("must have at most 200 characters", "deve ter no máximo 200 caracteres");
                invalid_param(name, must)
            }
            value => Ok(value.map(str::to_owned)),
        }
    }
}

/// The query without ignored parameters and empty pairs, sorted by name. Two requests with the same canonical query get the
/// same response.
pub fn canonical_query(query: &str) -> String {
    let named = query.split('&').filter(|pair| !pair.is_empty()).map(|pair| (param_name(pair), pair));
    let mut pairs: Vec<(String, &str)> = named.filter(|(name, _)| !is_ignored_param(name)).collect();
    // Stable: of a repeated parameter, which is an error, the order is kept.
    pairs.sort_by(|(name, _), (other, _)| name.cmp(other));
    pairs.iter().map(|(_, pair)| *pair).collect::<Vec<_>>().join("&")
}

/// The decoded name of a pair of a query.
pub fn param_name(pair: &str) -> String {
    let name = pair.split_once('=').map_or(pair, |(name, _)| name);
    decode_component(name).unwrap_or_default()
}

/// Whether a parameter is ignored on every route: cache busters and the tracking parameters of links.
pub fn is_ignored_param(name: &str) -> bool {
    name == "_" || name.starts_with("utm_")
}

pub fn ordered_date_range(from: chrono::NaiveDate, to: chrono::NaiveDate) -> ParamResult<DateRange> {
    if from > to {
        return invalid_param("from", LocalizedText::new("must not be after `to`", "não pode ser posterior a `to`"));
    }
    Ok(DateRange { from, to })
}

pub fn invalid_param<T>(name: &'static str, must: LocalizedText) -> ParamResult<T> {
    Err(Problem::BadParameter { name, requirement: must })
}

fn decode_component(text: &str) -> Option<String> {
    let with_spaces = text.replace('+', " ");
    percent_decode(with_spaces.as_bytes()).decode_utf8().ok().map(std::borrow::Cow::into_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_clamped_and_nonsense_is_refused_by_name() {
        let limit = |query: &str| QueryParams::parse(query).limit(100);
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
    fn empty_and_too_long_searches_are_refused() {
        let q = |query: &str| QueryParams::parse(query).search_text();
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
            QueryParams::parse("from=2024-02-01&to=2024-01-01").date_range(),
            Err(Problem::BadParameter { name: "from", .. })
        ));
    }
}
