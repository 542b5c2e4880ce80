//! Exchange rates: the bulletins of each currency, their closing rates in reais, and the pairs computed from them.

use std::ops::Range;
use std::sync::OnceLock;

use chrono::{NaiveDate, NaiveDateTime};
use vintem_domain::point_in_time::Certainty;
use vintem_domain::{Currency, CurrencyPair, DateRange, PublishedRates, Quote};
use vintem_store::load::BulletinKind;
use vintem_store::reader::{BulletinRow, RowProvenance};

use crate::parities::{ParityId, ParityTable, ParityTableBuilder};
use crate::series_values::find_date_range;

/// The closing rate of a day, and since when we know it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ClosingRate {
    pub(crate) date: NaiveDate,
    pub(crate) quote: Quote,
    pub(crate) parity: ParityId,
    pub(crate) provenance: RowProvenance,
}

/// For two currencies: pairs of indexes of the days on which both were quoted.
type CommonDayIndices = Vec<(u32, u32)>;

/// A bulletin of one currency.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FxBulletin {
    pub date: NaiveDate,
    /// In Brasília time, as published.
    pub published_at: NaiveDateTime,
    pub kind: BulletinKind,
    pub quote: Quote,
    pub provenance: RowProvenance,
    /// See [`FxRates::parity`].
    parity: ParityId,
    quote_currency: [u8; 3],
}

impl FxBulletin {
    pub(crate) fn from_row(row: &BulletinRow<'_>, parities: &mut ParityTableBuilder) -> Self {
        let quote_currency = row.quote_currency.as_bytes().try_into().unwrap_or(*b"???");
        Self {
            date: row.date,
            published_at: row.published_at,
            kind: row.kind,
            quote: row.quote,
            provenance: row.provenance,
            parity: parities.insert(row.parity),
            quote_currency,
        }
    }

    /// Before the introduction of the real: the currency of that day.
    pub fn quote_currency(&self) -> &str {
        std::str::from_utf8(&self.quote_currency).unwrap_or_default()
    }

    fn is_brl_closing_rate(&self) -> bool {
        self.kind == BulletinKind::Closing && self.quote_currency == *b"BRL"
    }
}

/// The days on which the closing bulletins of a currency do not agree with other data, sorted.
#[derive(Debug, Default)]
pub(crate) struct DisputedFxDays {
    /// In their rates in reais.
    pub(crate) rates: Vec<NaiveDate>,
    /// In their rates against the dollar.
    pub(crate) parities: Vec<NaiveDate>,
}

/// The bulletins of every currency and their closing rates in reais, oldest first.
#[derive(Debug, Default)]
pub struct FxRates {
    bulletins: [Vec<FxBulletin>; Currency::ALL.len()],
    closing_rates: [Vec<ClosingRate>; Currency::ALL.len()],
    /// The parities that bulletins and closing rates name.
    parities: ParityTable,
    /// For each cross the days on which both sides were quoted, computed on first use.
    cross_days: [[OnceLock<CommonDayIndices>; Currency::ALL.len()]; Currency::ALL.len()],
    disputed_days: [DisputedFxDays; Currency::ALL.len()],
    /// In a point-in-time view: the days of each currency whose availability is only estimated, sorted.
    estimated_days: [Vec<NaiveDate>; Currency::ALL.len()],
}

impl FxRates {
    /// Takes the bulletins of each currency in order of publication, and the parities that they name.
    pub(crate) fn new(bulletins: [Vec<FxBulletin>; Currency::ALL.len()], parities: ParityTable) -> Self {
        let closing = |bulletins: &Vec<FxBulletin>| {
            let mut rates: Vec<ClosingRate> = Vec::new();
            for bulletin in bulletins.iter().filter(|bulletin| bulletin.is_brl_closing_rate()) {
                // A day may have two closing rates with different times: the later one counts.
                rates.pop_if(|rate| rate.date == bulletin.date);
                rates.push(ClosingRate {
                    date: bulletin.date,
                    quote: bulletin.quote,
                    parity: bulletin.parity,
                    provenance: bulletin.provenance,
                });
            }
            rates
        };
        Self { closing_rates: bulletins.each_ref().map(closing), bulletins, parities, ..Self::default() }
    }

    /// Takes closing rates only, oldest first, each with the certainty of its availability, and the parities that they
    /// name.
    pub(crate) fn from_closing_rates(
        closing_rates: Vec<(Currency, Vec<(ClosingRate, Certainty)>)>,
        parities: ParityTable,
    ) -> Self {
        let mut rates = Self { parities, ..Self::default() };
        for (currency, closing_rates) in closing_rates {
            let estimated = closing_rates.iter().filter(|(_, certainty)| *certainty == Certainty::Estimated);
            rates.estimated_days[currency as usize] = estimated.map(|(rate, _)| rate.date).collect();
            rates.closing_rates[currency as usize] = closing_rates.into_iter().map(|(rate, _)| rate).collect();
        }
        rates
    }

    pub(crate) fn with_disputed_days(mut self, days: [DisputedFxDays; Currency::ALL.len()]) -> Self {
        self.disputed_days = days;
        self
    }

    pub(crate) fn disputed_days(&self, currency: Currency) -> &DisputedFxDays {
        &self.disputed_days[currency as usize]
    }

    /// All bulletins of a currency, in order of publication.
    pub(crate) fn all_bulletins(&self, currency: Currency) -> &[FxBulletin] {
        &self.bulletins[currency as usize]
    }

    /// All bulletins of a day, in order of publication.
    pub fn bulletins(&self, currency: Currency, date: NaiveDate) -> &[FxBulletin] {
        let bulletins = &self.bulletins[currency as usize];
        let start = bulletins.partition_point(|bulletin| bulletin.date < date);
        let end = bulletins.partition_point(|bulletin| bulletin.date <= date);
        &bulletins[start..end]
    }

    /// The last day with a bulletin, up to and including `until`.
    pub fn last_bulletin_date(&self, currency: Currency, until: NaiveDate) -> Option<NaiveDate> {
        let bulletins = &self.bulletins[currency as usize];
        let end = bulletins.partition_point(|bulletin| bulletin.date <= until);
        bulletins[..end].last().map(|bulletin| bulletin.date)
    }

    /// The rate against the dollar that a bulletin states, if any.
    pub fn parity(&self, bulletin: &FxBulletin) -> Option<Quote> {
        self.parities.get(bulletin.parity)
    }

    /// Number of published closing rates in all currencies.
    pub fn len(&self) -> usize {
        self.closing_rates.iter().map(Vec::len).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn newest_date(&self) -> Option<NaiveDate> {
        self.closing_rates.iter().filter_map(|rates| rates.last()).map(|rate| rate.date).max()
    }

    pub fn pair_rates(&self, pair: CurrencyPair) -> PairRates<'_> {
        let (first, second) = pair.legs();
        let first_leg = self.closing_rates(first);
        match second {
            None => PairRates { pair, rates: self, first_leg, second_leg: &[], common_days: None },
            Some(second) => {
                let second_leg = self.closing_rates(second);
                let days = self.cross_days[first as usize][second as usize]
                    .get_or_init(|| find_common_days(first_leg, second_leg));
                PairRates { pair, rates: self, first_leg, second_leg, common_days: Some(days) }
            }
        }
    }

    fn closing_rates(&self, currency: Currency) -> &[ClosingRate] {
        &self.closing_rates[currency as usize]
    }

    fn published_rates(&self, rate: &ClosingRate) -> PublishedRates {
        PublishedRates { quote: rate.quote, parity: self.parities.get(rate.parity) }
    }
}

/// The rates of one pair, oldest first.
#[derive(Debug)]
pub struct PairRates<'s> {
    pair: CurrencyPair,
    rates: &'s FxRates,
    first_leg: &'s [ClosingRate],
    second_leg: &'s [ClosingRate],
    /// Only for a cross: the indexes in both legs.
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
        find_date_range(self.len(), |index| self.date(index), days)
    }

    /// `None` only if a published rate is zero, which has no inverse.
    pub fn get(&self, index: usize) -> Option<(NaiveDate, Quote)> {
        let (first, second) = self.legs(index);
        let first_rates = self.rates.published_rates(first);
        let second_rates = second.map(|second| self.rates.published_rates(second));
        Some((first.date, self.pair.derive_quote(first_rates, second_rates)?))
    }

    /// Since when we know a rate, and which fetch brought it; for a cross those of the bulletins it is computed from.
    pub fn provenances(&self, index: usize) -> Vec<RowProvenance> {
        let sources = self.sources(index);
        sources.rates.into_iter().flatten().map(|(_, rate)| rate.provenance).collect()
    }

    /// Whether a cross-check found that the rate, or a rate or parity that it is computed from, does not agree with other
    /// data.
    pub fn is_disputed(&self, index: usize) -> bool {
        let (first, second) = self.pair.legs();
        let has_disputes = |currency: Currency| {
            let days = self.rates.disputed_days(currency);
            !days.rates.is_empty() || !days.parities.is_empty()
        };
        if !has_disputes(first) && !second.is_some_and(has_disputes) {
            return false;
        }

        let Sources { rates, uses_parities } = self.sources(index);
        rates.into_iter().flatten().any(|(currency, rate)| {
            let days = self.rates.disputed_days(currency);
            let days = if uses_parities { &days.parities } else { &days.rates };
            days.binary_search(&rate.date).is_ok()
        })
    }

    /// Whether we observed since when the rate could be known, or estimate it. A cross is estimated if one of its legs
    /// is.
    pub fn certainty(&self, index: usize) -> Certainty {
        let (first, second) = self.pair.legs();

        let is_estimated =
            |currency: Currency| self.rates.estimated_days[currency as usize].binary_search(&self.date(index)).is_ok();
        if is_estimated(first) || second.is_some_and(is_estimated) { Certainty::Estimated } else { Certainty::Observed }
    }

    fn date(&self, index: usize) -> NaiveDate {
        self.legs(index).0.date
    }

    fn sources(&self, index: usize) -> Sources<'_> {
        let (first_rate, second_rate) = self.legs(index);
        let (first_currency, second_currency) = self.pair.legs();
        let first = Some((first_currency, first_rate));
        let Some(second) = second_currency.zip(second_rate) else {
            return Sources { rates: [first, None], uses_parities: false };
        };

        let uses_parities =
            self.pair.uses_parities(self.rates.published_rates(first_rate), self.rates.published_rates(second.1));
        // A parity is a rate against the dollar, so the dollar's own bulletin is not needed.
        let is_needed = |(currency, _): &(Currency, _)| !uses_parities || *currency != Currency::Usd;
        Sources { rates: [first.filter(is_needed), Some(second).filter(is_needed)], uses_parities }
    }

    /// The closing rates that a rate is computed from.
    fn legs(&self, index: usize) -> (&ClosingRate, Option<&ClosingRate>) {
        match self.common_days {
            None => (&self.first_leg[index], None),
            Some(days) => {
                let (first, second) = days[index];
                (&self.first_leg[first as usize], Some(&self.second_leg[second as usize]))
            }
        }
    }
}

/// The published closing rates that a rate comes from.
struct Sources<'r> {
    rates: [Option<(Currency, &'r ClosingRate)>; 2],
    /// Whether their parities are used, not their rates in reais.
    uses_parities: bool,
}

fn find_common_days(first: &[ClosingRate], second: &[ClosingRate]) -> CommonDayIndices {
    let mut days = Vec::new();
    let mut second_index = 0;
    for (first_index, rate) in first.iter().enumerate() {
        while second_index < second.len() && second[second_index].date < rate.date {
            second_index += 1;
        }
        if second_index < second.len() && second[second_index].date == rate.date {
            days.push((first_index as u32, second_index as u32));
        }
    }
    days
}

#[cfg(test)]
mod tests {
    use vintem_domain::Decimal;

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
            provenance: RowProvenance::default(),
            parity: ParityId::default(),
            quote_currency: *b"BRL",
        }
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

        let fx = FxRates::new(bulletins, ParityTable::default());
        assert_eq!(fx.bulletins(Currency::Usd, day(4)).len(), 2);
        assert_eq!(fx.last_bulletin_date(Currency::Eur, day(3)), Some(day(2)));

        let cross = fx.pair_rates(CurrencyPair::Cross(Currency::Eur, Currency::Usd));
        assert_eq!(cross.len(), 1);
        let (date, rate) = cross.get(0).unwrap();
        assert_eq!((date, rate.buy.to_string()), (day(4), "2.00000000".to_owned()));
    }

    #[test]
    fn a_cross_uses_the_parity_of_the_day_and_names_the_bulletins_it_comes_from() {
        let mut parities = ParityTableBuilder::default();
        let mut bulletin = |number: u32, rate: Quote, parity: Option<Quote>, fetch_id: u32| FxBulletin {
            parity: parities.insert(parity),
            provenance: RowProvenance { known_at_seconds: 0, fetch_id },
            ..closing_bulletin(day(number), 13, rate)
        };
        let parity = Quote { buy: Decimal::new(11000, 4), sell: Decimal::new(11002, 4) };
        let mut bulletins: [Vec<FxBulletin>; 10] = Default::default();
        bulletins[Currency::Eur as usize] =
            vec![bulletin(1, quote(6), Some(parity), 1), bulletin(2, quote(6), None, 2)];
        bulletins[Currency::Usd as usize] = vec![bulletin(1, quote(5), None, 3), bulletin(2, quote(5), None, 4)];

        let fx = FxRates::new(bulletins, parities.finish());
        assert_eq!(fx.parity(&fx.bulletins(Currency::Eur, day(1))[0]), Some(parity));

        let fetch_ids = |rates: &PairRates<'_>, index: usize| -> Vec<u32> {
            rates.provenances(index).iter().map(|provenance| provenance.fetch_id).collect()
        };
        let cross = fx.pair_rates(CurrencyPair::Cross(Currency::Eur, Currency::Usd));
        assert_eq!(cross.get(0).unwrap().1.sell.to_string(), "1.1002");
        assert_eq!(fetch_ids(&cross, 0), [1]);

        // Without a parity: 6 reais over 6 reais.
        assert_eq!(cross.get(1).unwrap().1.buy.to_string(), "1.00000000");
        assert_eq!(fetch_ids(&cross, 1), [2, 4]);

        let inverse_cross = fx.pair_rates(CurrencyPair::Cross(Currency::Usd, Currency::Eur));
        assert_eq!(inverse_cross.get(0).unwrap().1.buy.to_string(), "0.90892565");
        assert_eq!(fetch_ids(&inverse_cross, 0), [1]);
    }
}
