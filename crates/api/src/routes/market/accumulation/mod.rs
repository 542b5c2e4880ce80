//! Accumulates rates over a period with exact decimals, and compares the exchange rates of two days.
//!
//! A daily rate counts from `from` up to but excluding `to`, as contracts do. A monthly rate counts every month that ends
//! on or before `to`, starting with the month of `from`. Rates of the month ahead, such as the yield of savings accounts,
//! count once a month, on the anniversary.

mod anniversaries;
mod body;
mod params;

use axum::extract::Path;
use axum::response::Response;
use axum::routing::get;
use chrono::{Days, Months, NaiveDate};
use vintem_domain::accumulation::GrowthFactor;
use vintem_domain::dates::{month_end, month_start, same_day_next_month};
use vintem_domain::series::{Accumulation, DatedValue, Frequency, find_series};
use vintem_domain::{Calendar, Currency, CurrencyPair, Dataset, DateRange, Decimal, Lang, Problem, Quote};

use super::rates::format_loaded_at;
use crate::api_error::ApiError;
use crate::app::Handlers;
use crate::bodies::market::{FxSource, RateSource, SeriesHeaderBody, SeriesSource, fx_source, series_source};
use crate::params::QueryParams;
use crate::responses::EtagResponder;
use crate::snapshot_request::SnapshotRequest;
use anniversaries::{AnniversaryMonths, describe_anniversaries};
use body::{AccumulatedBody, CountedBody, describe_counting, incomplete_message};
use params::{AccumulationParams, FACTOR_TOO_LARGE, Period, PeriodBound};

pub use params::{AMOUNT_BOUNDS, PERCENT_BOUNDS, SPREAD_BOUNDS};

/// At most this many missing days are listed; `missing_total` counts all of them.
const MAX_MISSING_LISTED: usize = 100;

/// Both ends of the period, as responses state them.
const HALF_OPEN: &str = "[from, to)";
const CLOSED: &str = "[from, to]";

pub fn handlers() -> Handlers {
    vec![
        ("accumulate_selic", get(accumulate_selic)),
        ("accumulate_cdi", get(accumulate_cdi)),
        ("accumulate_ipca", get(accumulate_ipca)),
        ("accumulate_fx", get(accumulate_fx)),
        ("accumulate_series", get(accumulate_series)),
    ]
}

async fn accumulate_selic(request: SnapshotRequest, query: QueryParams) -> Result<Response, ApiError> {
    accumulated_series_response(&request, &query, "selic")
}

async fn accumulate_cdi(request: SnapshotRequest, query: QueryParams) -> Result<Response, ApiError> {
    accumulated_series_response(&request, &query, "cdi")
}

async fn accumulate_ipca(request: SnapshotRequest, query: QueryParams) -> Result<Response, ApiError> {
    accumulated_series_response(&request, &query, "ipca")
}

async fn accumulate_fx(request: SnapshotRequest, query: QueryParams) -> Result<Response, ApiError> {
    accumulated_fx_response(&request, &query, query.currency_pair()?)
}

async fn accumulate_series(
    request: SnapshotRequest,
    Path(id): Path<String>,
    query: QueryParams,
) -> Result<Response, ApiError> {
    match Currency::from_series_id(&id) {
        Some(currency) => accumulated_fx_response(&request, &query, CurrencyPair::Published(currency)),
        None => accumulated_series_response(&request, &query, &id),
    }
}

fn accumulated_series_response(request: &SnapshotRequest, query: &QueryParams, id: &str) -> Result<Response, ApiError> {
    let series = find_series(id).ok_or(Problem::NoSuchSeries)?;
    let params = AccumulationParams::from_query(query)?;
    let rate_id = match series.accumulation {
        Accumulation::OwnValues | Accumulation::Anniversaries | Accumulation::SimpleInterest => series.id,
        Accumulation::DailyTwin(twin) => twin,
        Accumulation::Refused { instead } => return Err(Problem::NotAccumulable { id: series.id, instead }.into()),
    };
    let has_anniversaries = series.accumulation == Accumulation::Anniversaries;
    if !has_anniversaries {
        params.refuse_day()?;
    }

    let snapshot = request.snapshot()?;
    let today = request.today;
    let source = series_source(&snapshot, rate_id)?;
    let newest = source.latest_row_until(today).map(|at| source.values.get(at).0);
    let newest = newest.ok_or_else(|| source.no_data_error(today))?;
    let counted = if has_anniversaries {
        CountedRates::of_anniversaries(&params, &source, (newest, today), request.lang)
    } else {
        CountedRates::of_days_or_months(&params, &source, newest, today, request.lang)
    };

    let mut detail = Vec::new();
    let mut product = GrowthFactor::ONE;
    for (date, value) in &counted.rows {
        let factor = GrowthFactor::from_rate(*value, params.percent).ok_or(FACTOR_TOO_LARGE)?;
        product = product.checked_mul(factor).ok_or(FACTOR_TOO_LARGE)?;
        if params.detail {
            detail.push(params.detail_body(*date, *value, factor));
        }
    }
    if series.accumulation == Accumulation::SimpleInterest {
        let sum: Decimal = counted.rows.iter().map(|(_, value)| *value).sum();
        product = GrowthFactor::from_rate(sum, params.percent).ok_or(FACTOR_TOO_LARGE)?;
    }

    let has_factor = counted.missing.is_empty() && (counted.is_complete || !counted.rows.is_empty());
    let index_factor = has_factor.then(|| product.round_half_up(8));
    let outcome = params.result_body(index_factor, counted.business_days)?;

    let responder = EtagResponder::new(request, &snapshot, &source.datasets(), today);
    Ok(responder.respond_json(|| AccumulatedBody {
        series: SeriesHeaderBody::of(&source, request.lang),
        as_of: format_loaded_at(&snapshot, &source),
        from: counted.from,
        to: counted.end,
        interval: if has_anniversaries { CLOSED } else { HALF_OPEN },
        counted: counted.body,
        complete: counted.is_complete && counted.missing.is_empty(),
        message: counted.message,
        business_days: counted.business_days,
        observations: counted.rows.len(),
        outcome,
        missing_total: counted.missing.len(),
        missing: counted.missing.into_iter().take(MAX_MISSING_LISTED).collect(),
        detail: params.detail.then_some(detail),
    }))
}

/// The rates of a period, and what the response says about them.
struct CountedRates {
    from: NaiveDate,
    end: NaiveDate,
    rows: Vec<DatedValue>,
    missing: Vec<NaiveDate>,
    is_complete: bool,
    business_days: u32,
    body: CountedBody,
    message: Option<String>,
}

impl CountedRates {
    fn of_days_or_months(
        params: &AccumulationParams,
        source: &SeriesSource<'_>,
        newest: NaiveDate,
        today: NaiveDate,
        lang: Lang,
    ) -> Self {
        let frequency = source.schedule().frequency;
        let is_monthly = frequency.months().is_some();
        let period = CountedPeriod::new(params.period, frequency, newest);
        let rows = period.rows(source, today);
        let expected = period.counted_days().map(|days| frequency.expected_dates(days)).unwrap_or_default();
        let body = CountedBody::of_rows(&rows, is_monthly);
        let excluded_day = excluded_month_end(params.period).filter(|_| !is_monthly);
        Self {
            from: period.from,
            end: period.end,
            missing: missing_days(&expected, &rows),
            is_complete: period.is_complete,
            business_days: Calendar::Settlement.count_business_days(period.from, period.counted_end),
            message: describe_counting(&body, period.is_complete, excluded_day, lang),
            body,
            rows,
        }
    }

    fn of_anniversaries(
        params: &AccumulationParams,
        source: &SeriesSource<'_>,
        (newest, today): (NaiveDate, NaiveDate),
        lang: Lang,
    ) -> Self {
        let months = AnniversaryMonths::count(params.period, params.day, source, (newest, today));
        let body = CountedBody::of_rows(&months.rows, true);
        // A spread is earned in the counted months alone, like the rate itself.
        let counted_end = body.last_counted.map_or(months.first, same_day_next_month);
        Self {
            from: params.period.start(),
            end: months.end,
            message: Some(describe_anniversaries(&months, counted_end, lang)),
            missing: months.missing,
            is_complete: months.is_complete,
            business_days: Calendar::Settlement.count_business_days(months.first, counted_end),
            body,
            rows: months.rows,
        }
    }
}

/// Which part of a period is counted.
struct CountedPeriod {
    from: NaiveDate,
    /// The first day after the period.
    end: NaiveDate,
    /// The first day that is not counted: the end, or the day after the newest value.
    counted_end: NaiveDate,
    /// Whether no value is expected between the newest value and the end of the period.
    is_complete: bool,
}

impl CountedPeriod {
    fn new(period: Period, frequency: Frequency, newest: NaiveDate) -> Self {
        let (from, end, newest_end) = match frequency.months() {
            // Every month that ends on or before `to`.
            Some(_) => (
                month_start(period.start()),
                period.end().map(|end| month_start(end + Days::new(1))),
                month_start(newest) + Months::new(1),
            ),
            None => (period.start(), period.end(), newest + Days::new(1)),
        };
        let end = end.unwrap_or(newest_end).max(from);
        let counted_end = end.min(newest_end).max(from);

        let uncounted = (counted_end < end).then(|| DateRange { from: counted_end, to: end - Days::new(1) });
        let is_complete = uncounted.is_none_or(|days| frequency.expected_dates(days).is_empty());
        Self { from, end, counted_end, is_complete }
    }

    fn counted_days(&self) -> Option<DateRange> {
        (self.from < self.counted_end).then(|| DateRange { from: self.from, to: self.counted_end - Days::new(1) })
    }

    fn rows(&self, source: &SeriesSource<'_>, today: NaiveDate) -> Vec<DatedValue> {
        let rows = self.counted_days().map_or(0..0, |days| source.row_range(days.capped_at(today)));
        rows.map(|at| source.values.get(at)).collect()
    }
}

/// The day given as `to`, if it is the last business day of a month: many people expect it to be counted.
fn excluded_month_end(period: Period) -> Option<NaiveDate> {
    let Some(PeriodBound::Day(to)) = period.to else { return None };
    let calendar = Calendar::Settlement;
    let is_last = calendar.is_business_day(to)
        && calendar.count_business_days(to + Days::new(1), month_end(to) + Days::new(1)) == 0;
    (is_last && period.start() < to).then_some(to)
}

/// Compares the closing sell rates of two days. A day without a close uses the last one before it.
fn accumulated_fx_response(
    request: &SnapshotRequest,
    query: &QueryParams,
    pair: CurrencyPair,
) -> Result<Response, ApiError> {
    let params = AccumulationParams::from_query(query)?;
    params.refuse_day()?;

    let snapshot = request.snapshot()?;
    let today = request.today;
    let source = fx_source(&snapshot, pair)?;
    let closes = ComparedCloses::find(params.period, &source, today)?;

    let index_factor = match closes.factor_closes() {
        Some((first, second)) => Some(
            GrowthFactor::from_prices(first.1.sell, second.1.sell, params.percent)
                .ok_or(FACTOR_TOO_LARGE)?
                .round_half_up(8),
        ),
        None => None,
    };
    let business_days = Calendar::Settlement.count_business_days(closes.from, closes.counted_until());
    let outcome = params.result_body(index_factor, business_days)?;

    let first_counted = closes.factor_closes().map(|(first, _)| first.0);
    let last_counted = closes.factor_closes().map(|(_, second)| second.0);
    let first_date = closes.first.map_or(closes.from, |(date, _)| date);
    let rows: Vec<(NaiveDate, Quote)> = source
        .row_range(DateRange { from: first_date, to: closes.to }.capped_at(today))
        .filter_map(|at| source.rates.get(at))
        .collect();

    let responder = EtagResponder::new(request, &snapshot, &[Dataset::Fx], today);
    Ok(responder.respond_json(|| {
        let daily_factor = |pair: &[(NaiveDate, Quote)]| {
            let [(_, previous), (date, close)] = pair else { return None };
            let factor = GrowthFactor::from_prices(previous.sell, close.sell, Decimal::ONE_HUNDRED)?;
            Some(params.detail_body(*date, close.sell, factor))
        };
        AccumulatedBody {
            series: SeriesHeaderBody::of(&source, request.lang),
            as_of: format_loaded_at(&snapshot, &source),
            from: closes.from,
            to: closes.to,
            interval: CLOSED,
            counted: CountedBody { first_counted, last_counted, days: Some(business_days as usize), months: None },
            complete: closes.is_complete && closes.missing.is_empty(),
            message: (!closes.is_complete).then(|| incomplete_message(last_counted, request.lang)),
            business_days,
            observations: rows.len(),
            outcome,
            missing_total: closes.missing.len(),
            missing: closes.missing.clone(),
            detail: params.detail.then(|| rows.windows(2).filter_map(daily_factor).collect()),
        }
    }))
}

/// A close: its date and its rates.
type Close = (NaiveDate, Quote);

/// The closes at both ends of a period.
struct ComparedCloses {
    from: NaiveDate,
    to: NaiveDate,
    first: Option<Close>,
    second: Option<Close>,
    newest: NaiveDate,
    /// The days that should have a close of their own and have none.
    missing: Vec<NaiveDate>,
    /// Whether no settlement day of the period is after the newest close.
    is_complete: bool,
}

impl ComparedCloses {
    fn find(period: Period, source: &FxSource<'_>, today: NaiveDate) -> Result<Self, ApiError> {
        let close = |day: NaiveDate| source.latest_row_until(day.min(today)).and_then(|at| source.rates.get(at));
        let (newest, _) = close(today).ok_or_else(|| source.no_data_error(today))?;
        let (from, to) = period.closing_days();
        let to = to.unwrap_or(newest).max(from);
        let first = close(from);
        let second = close(to);

        // A bound given as a settlement day must have its own close; a whole month uses its last close.
        let is_day = |bound: Option<PeriodBound>| !matches!(bound, Some(PeriodBound::Month(_)));
        let lacks_close = |day: NaiveDate, is_day: bool, close: Option<Close>| {
            let is_expected = is_day && day <= newest && Calendar::Settlement.is_business_day(day);
            close.is_none_or(|(date, _)| is_expected && date != day).then_some(day)
        };
        let mut missing: Vec<NaiveDate> =
            [lacks_close(from, is_day(Some(period.from)), first), lacks_close(to, is_day(period.to), second)]
                .into_iter()
                .flatten()
                .collect();
        missing.dedup();

        let days_to_come =
            Calendar::Settlement.count_business_days(newest + Days::new(1), to.max(newest) + Days::new(1));
        Ok(Self { from, to, first, second, newest, missing, is_complete: days_to_come == 0 })
    }

    /// The closes that the factor compares, if there is one.
    fn factor_closes(&self) -> Option<(Close, Close)> {
        let has_factor = self.missing.is_empty() && (self.is_complete || self.from <= self.newest);
        self.first.zip(self.second).filter(|_| has_factor)
    }

    /// The day up to which business days count.
    fn counted_until(&self) -> NaiveDate {
        if self.is_complete { self.to } else { self.newest.max(self.from) }
    }
}

/// The expected days without a value. Both lists must be sorted by date.
fn missing_days(expected: &[NaiveDate], rows: &[DatedValue]) -> Vec<NaiveDate> {
    let mut rows = rows.iter().map(|(date, _)| *date).peekable();
    let mut missing = Vec::new();
    for day in expected {
        while rows.next_if(|date| date < day).is_some() {}
        if rows.next_if(|date| date == day).is_none() {
            missing.push(*day);
        }
    }
    missing
}
