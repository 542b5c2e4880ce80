//! Series and exchange rates: sorted columns, a range by two binary searches.

use std::ops::Range;
use std::sync::OnceLock;

use chrono::{NaiveDate, NaiveDateTime};
use vintem_domain::point_in_time::Certainty;
use vintem_domain::series::DatedValue;
use vintem_domain::{Currency, CurrencyPair, DateRange, Decimal, Quote};
use vintem_store::load::{BulletinKind, Observation};
use vintem_store::reader::{BulletinRow, RowProvenance};

/// One series, oldest first.
#[derive(Debug, Default)]
pub struct SeriesValues {
    dates: Vec<NaiveDate>,
    values: Vec<Decimal>,
    provenance: Vec<RowProvenance>,
    /// The days whose values were computed from another series, sorted.
    derived_days: Vec<NaiveDate>,
    /// Of what could be known on a day: the days of which that is only estimated, sorted.
    estimated_days: Vec<NaiveDate>,
}

impl SeriesValues {
    /// `derived` fills the days that the series itself lacks.
    pub(crate) fn new(mut rows: Vec<(Observation, RowProvenance)>, derived: Vec<(Observation, RowProvenance)>) -> Self {
        let days = derived.iter().map(|(row, _)| row.date).collect();
        if !derived.is_empty() {
            rows.extend(derived);
            rows.sort_by_key(|(row, _)| row.date);
        }
        let mut values = Self { derived_days: days, ..Self::default() };
        for (row, known) in rows {
            values.dates.push(row.date);
            values.values.push(row.value);
            values.provenance.push(known);
        }
        values
    }

    /// Since when we know a value, and which fetch brought it; of a computed one what it follows from.
    pub fn provenance(&self, at: usize) -> RowProvenance {
        self.provenance[at]
    }

    pub(crate) fn with_estimated_days(mut self, mut days: Vec<NaiveDate>) -> Self {
        days.sort_unstable();
        days.dedup();
        self.estimated_days = days;
        self
    }

    /// How we know that a value could be known.
    pub fn certainty(&self, at: usize) -> Certainty {
        match self.estimated_days.binary_search(&self.dates[at]) {
            Ok(_) => Certainty::Estimated,
            Err(_) => Certainty::Observed,
        }
    }

    pub fn is_derived(&self, at: usize) -> bool {
        self.derived_days.binary_search(&self.dates[at]).is_ok()
    }

    pub fn len(&self) -> usize {
        self.dates.len()
    }

    pub fn is_empty(&self) -> bool {
        self.dates.is_empty()
    }

    /// The places of the observations within these days.
    pub fn range(&self, days: DateRange) -> Range<usize> {
        find_date_range(self.dates.len(), |at| self.dates[at], days)
    }

    pub fn get(&self, at: usize) -> DatedValue {
        (self.dates[at], self.values[at])
    }

    pub(crate) fn rows_with_provenance(&self) -> Vec<(Observation, RowProvenance)> {
        let row = |at| Observation { date: self.dates[at], value: self.values[at] };
        (0..self.len()).map(|at| (row(at), self.provenance[at])).collect()
    }
}

/// The rate of a day at its close, and since when we know it.
pub(crate) type ClosingRate = (NaiveDate, Quote, RowProvenance);

/// Of two currencies the places of the days on which both were quoted.
type CommonDayIndices = Vec<(u32, u32)>;

/// A bulletin of one currency.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FxBulletin {
    pub date: NaiveDate,
    /// Brasília's time, as published.
    pub published_at: NaiveDateTime,
    pub kind: BulletinKind,
    pub quote: Quote,
    pub known: RowProvenance,
    quote_currency: [u8; 3],
}

impl From<BulletinRow<'_>> for FxBulletin {
    fn from(row: BulletinRow<'_>) -> Self {
        let BulletinRow { date, published_at, kind, quote_currency, quote, provenance: known } = row;
        let quote_currency = quote_currency.as_bytes().try_into().unwrap_or(*b"???");
        Self { date, published_at, kind, quote, known, quote_currency }
    }
}

impl FxBulletin {
    /// Before the real that of its day.
    pub fn quote_currency(&self) -> &str {
        std::str::from_utf8(&self.quote_currency).unwrap_or_default()
    }

    fn is_brl_closing_rate(&self) -> bool {
        self.kind == BulletinKind::Closing && self.quote_currency == *b"BRL"
    }
}

/// The bulletins of every currency, and of them the closing rates in reais, oldest first.
#[derive(Debug, Default)]
pub struct FxRates {
    bulletins: [Vec<FxBulletin>; Currency::ALL.len()],
    closing_rates: [Vec<ClosingRate>; Currency::ALL.len()],
    /// For each cross the days on which both sides were quoted, found when it is first asked for.
    cross_days: [[OnceLock<CommonDayIndices>; Currency::ALL.len()]; Currency::ALL.len()],
    /// Of what could be known on a day: the days of each currency of which that is only estimated, sorted.
    estimated_days: [Vec<NaiveDate>; Currency::ALL.len()],
}

impl FxRates {
    /// Of each currency in the order of publication.
    pub(crate) fn new(bulletins: [Vec<FxBulletin>; Currency::ALL.len()]) -> Self {
        let closing = |bulletins: &Vec<FxBulletin>| {
            let mut rates: Vec<ClosingRate> = Vec::new();
            for bulletin in bulletins.iter().filter(|bulletin| bulletin.is_brl_closing_rate()) {
                // A day may keep two closes of different moments: the later one rules.
                rates.pop_if(|(date, ..)| *date == bulletin.date);
                rates.push((bulletin.date, bulletin.quote, bulletin.known));
            }
            rates
        };
        Self { closing_rates: bulletins.each_ref().map(closing), bulletins, ..Self::default() }
    }

    /// With closing rates alone, oldest first, each with whether it is only estimated that it could be known.
    pub(crate) fn from_closing_rates(closes: Vec<(Currency, Vec<(ClosingRate, Certainty)>)>) -> Self {
        let mut rates = Self::default();
        for (currency, closes) in closes {
            let estimated = closes.iter().filter(|(_, certainty)| *certainty == Certainty::Estimated);
            rates.estimated_days[currency as usize] = estimated.map(|((date, ..), _)| *date).collect();
            rates.closing_rates[currency as usize] = closes.into_iter().map(|(close, _)| close).collect();
        }
        rates
    }

    /// All bulletins of a day, in the order of publication.
    pub fn bulletins(&self, currency: Currency, date: NaiveDate) -> &[FxBulletin] {
        let of_currency = &self.bulletins[currency as usize];
        let start = of_currency.partition_point(|bulletin| bulletin.date < date);
        let end = of_currency.partition_point(|bulletin| bulletin.date <= date);
        &of_currency[start..end]
    }

    /// The last day until this one that has a bulletin.
    pub fn last_bulletin_date(&self, currency: Currency, until: NaiveDate) -> Option<NaiveDate> {
        let of_currency = &self.bulletins[currency as usize];
        let end = of_currency.partition_point(|bulletin| bulletin.date <= until);
        of_currency[..end].last().map(|bulletin| bulletin.date)
    }

    /// All published rates.
    pub fn len(&self) -> usize {
        self.closing_rates.iter().map(Vec::len).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn newest_date(&self) -> Option<NaiveDate> {
        self.closing_rates.iter().filter_map(|quotes| quotes.last()).map(|(day, ..)| *day).max()
    }

    pub fn pair_rates(&self, pair: CurrencyPair) -> PairRates<'_> {
        let (first, second) = pair.legs();
        let first_quotes = self.closing_rates(first);
        match second {
            None => PairRates { pair, rates: self, first_leg: first_quotes, second_leg: &[], common_days: None },
            Some(second) => {
                let second_quotes = self.closing_rates(second);
                let days = self.cross_days[first as usize][second as usize]
                    .get_or_init(|| find_common_days(first_quotes, second_quotes));
                PairRates {
                    pair,
                    rates: self,
                    first_leg: first_quotes,
                    second_leg: second_quotes,
                    common_days: Some(days),
                }
            }
        }
    }

    fn closing_rates(&self, currency: Currency) -> &[ClosingRate] {
        &self.closing_rates[currency as usize]
    }
}

/// The rates of one pair, oldest first.
#[derive(Debug)]
pub struct PairRates<'s> {
    pair: CurrencyPair,
    rates: &'s FxRates,
    first_leg: &'s [ClosingRate],
    second_leg: &'s [ClosingRate],
    /// Of a cross: the places in both columns.
    common_days: Option<&'s [(u32, u32)]>,
}

impl PairRates<'_> {
    pub fn len(&self) -> usize {
        self.common_days.map_or(self.first_leg.len(), <[_]>::len)
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn range(&self, days: DateRange) -> Range<usize> {
        find_date_range(self.len(), |at| self.date(at), days)
    }

    /// `None` only where a published rate is zero, of which no inverse exists.
    pub fn get(&self, at: usize) -> Option<(NaiveDate, Quote)> {
        let (first, second) = match self.common_days {
            None => (self.first_leg[at].1, None),
            Some(days) => (self.first_leg[days[at].0 as usize].1, Some(self.second_leg[days[at].1 as usize].1)),
        };
        Some((self.date(at), self.pair.derive_quote(first, second)?))
    }

    /// Since when we know a rate, and which fetch brought it; of a cross both of its legs.
    pub fn provenances(&self, at: usize) -> Vec<RowProvenance> {
        match self.common_days {
            None => vec![self.first_leg[at].2],
            Some(days) => vec![self.first_leg[days[at].0 as usize].2, self.second_leg[days[at].1 as usize].2],
        }
    }

    /// How we know that a rate could be known; of a cross the less sure of its legs.
    pub fn certainty(&self, at: usize) -> Certainty {
        let (first, second) = self.pair.legs();
        let is_estimated =
            |currency: Currency| self.rates.estimated_days[currency as usize].binary_search(&self.date(at)).is_ok();
        if is_estimated(first) || second.is_some_and(is_estimated) { Certainty::Estimated } else { Certainty::Observed }
    }

    fn date(&self, at: usize) -> NaiveDate {
        match self.common_days {
            None => self.first_leg[at].0,
            Some(days) => self.first_leg[days[at].0 as usize].0,
        }
    }
}

fn find_common_days(first: &[ClosingRate], second: &[ClosingRate]) -> CommonDayIndices {
    let mut days = Vec::new();
    let mut other = 0;
    for (at, (day, ..)) in first.iter().enumerate() {
        while other < second.len() && second[other].0 < *day {
            other += 1;
        }
        if other < second.len() && second[other].0 == *day {
            days.push((at as u32, other as u32));
        }
    }
    days
}

/// The places in a column sorted by date that lie within `days`.
fn find_date_range(len: usize, date: impl Fn(usize) -> NaiveDate, days: DateRange) -> Range<usize> {
    let first_where = |holds: &dyn Fn(NaiveDate) -> bool| {
        let (mut low, mut high) = (0, len);
        while low < high {
            let middle = low + (high - low) / 2;
            if holds(date(middle)) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        low
    };
    let start = first_where(&|day| day >= days.from);
    let end = first_where(&|day| day > days.to);
    start..end.max(start)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn day(number: u32) -> NaiveDate {
        NaiveDate::from_ymd_opt(2026, 1, number).unwrap()
    }

    fn quote(value: i64) -> Quote {
        Quote { buy: Decimal::from(value), sell: Decimal::from(value + 1) }
    }

    fn closing_bulletin(date: NaiveDate, hour: u32, quote: Quote) -> FxBulletin {
        let published_at = date.and_hms_opt(hour, 0, 0).unwrap();
        FxBulletin {
            date,
            published_at,
            kind: BulletinKind::Closing,
            quote,
            known: RowProvenance::default(),
            quote_currency: *b"BRL",
        }
    }

    #[test]
    fn a_date_range_includes_both_ends() {
        let rows = [2, 3, 5, 9]
            .map(|number| (Observation { date: day(number), value: Decimal::ONE }, RowProvenance::default()));
        let series = SeriesValues::new(rows.to_vec(), Vec::new());
        let range = |from, to| series.range(DateRange { from: day(from), to: day(to) });
        assert_eq!(range(3, 5), 1..3);
        assert_eq!(range(1, 31), 0..4);
        assert_eq!(range(6, 8), 3..3);
        assert_eq!(range(9, 1).len(), 0);
    }

    #[test]
    fn a_cross_rate_uses_only_days_quoted_in_both_currencies() {
        let mut bulletins: [Vec<FxBulletin>; 10] = Default::default();
        bulletins[Currency::Eur as usize] =
            vec![closing_bulletin(day(2), 13, quote(6)), closing_bulletin(day(4), 13, quote(8))];
        bulletins[Currency::Usd as usize] = vec![
            closing_bulletin(day(1), 13, quote(4)),
            closing_bulletin(day(3), 13, quote(5)),
            closing_bulletin(day(4), 13, quote(9)),
            closing_bulletin(day(4), 14, quote(3)),
        ];
        let fx = FxRates::new(bulletins);
        assert_eq!(fx.bulletins(Currency::Usd, day(4)).len(), 2);
        assert_eq!(fx.last_bulletin_date(Currency::Eur, day(3)), Some(day(2)));
        let cross = fx.pair_rates(CurrencyPair::Cross(Currency::Eur, Currency::Usd));
        assert_eq!(cross.len(), 1);
        let (date, rate) = cross.get(0).unwrap();
        assert_eq!((date, rate.buy.to_string()), (day(4), "2.00000000".to_owned()));
    }
}
