//! Exchange rates: one pair over time, the latest of all pairs, and every bulletin of a day.

use axum::response::Response;
use axum::routing::get;
use chrono::NaiveDate;
use serde::Serialize;
use vintem_deliver::table::{Column, OutputTable};
use vintem_domain::accumulation::FixedDecimal;
use vintem_domain::dates::sao_paulo_offset_seconds;
use vintem_domain::{Currency, CurrencyPair, Dataset, Decimal, LocalizedText, Problem, Quote};
use vintem_snapshot::FxBulletin;

use super::accumulation::AMOUNT_BOUNDS;
use super::rates::{
    CurrentRateParams, HistoryParams, RateListParams, current_rate, format_loaded_at, load_fx_as_of,
    rate_list_response, rate_value_response,
};
use crate::api_error::ApiError;
use crate::app::Handlers;
use crate::bodies::market::{
    CurrentRateBody, FX_DECIMALS, FxRateBody, RateRowBody, RateSource, SeriesHeaderBody, fx_source,
};
use crate::bodies::provenance::TraceBody;
use crate::bodies::require_loaded;
use crate::csv::ListFormat;
use crate::json_number::JsonNumber;
use crate::params::{QueryParams, invalid_param};
use crate::responses::{EtagResponder, WholeList};
use crate::snapshot_request::SnapshotRequest;

#[derive(Serialize)]
struct LatestFxBody {
    as_of: String,
    stale: bool,
    #[serde(flatten)]
    position: WholeList,
    data: Vec<FxRateBody>,
}

#[derive(Serialize)]
struct BulletinsBody {
    #[serde(flatten)]
    series: SeriesHeaderBody,
    pair: String,
    date: NaiveDate,
    #[serde(flatten)]
    position: WholeList,
    data: Vec<BulletinBody>,
}

#[derive(Serialize)]
struct ConversionBody {
    amount: JsonNumber,
    result: JsonNumber<FixedDecimal>,
    side: &'static str,
    rate: JsonNumber,
    /// The day of the bulletin, the source of the rate, and where it was fetched.
    #[serde(flatten)]
    bulletin: CurrentRateBody<FxRateBody>,
}

/// The side of a quote at which an amount is converted.
#[derive(Debug, Clone, Copy)]
enum QuoteSide {
    Buy,
    Sell,
    Mid,
}

impl QuoteSide {
    fn from_query(query: &QueryParams) -> Result<Self, Problem> {
        match query.single_value("side")? {
            None | Some("sell") => Ok(Self::Sell),
            Some("buy") => Ok(Self::Buy),
            Some("mid") => Ok(Self::Mid),
            Some(_) => {
                let must = LocalizedText::new("must be `buy`, `sell` or `mid`", "deve ser `buy`, `sell` ou `mid`");
                invalid_param("side", must)
            }
        }
    }

    const fn id(self) -> &'static str {
        match self {
            Self::Buy => "buy",
            Self::Sell => "sell",
            Self::Mid => "mid",
        }
    }

    /// The mid rate is exact: half the sum of both sides.
    fn rate(self, quote: Quote) -> Decimal {
        match self {
            Self::Buy => quote.buy,
            Self::Sell => quote.sell,
            Self::Mid => (quote.buy + quote.sell) / Decimal::TWO,
        }
    }
}

#[derive(Serialize)]
struct BulletinBody {
    kind: &'static str,
    published_at: String,
    /// For dates before the real, the currency of that time.
    quote_currency: String,
    buy: JsonNumber,
    sell: JsonNumber,
    /// The published rate against the dollar; absent if the bulletin has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    parity_buy: Option<JsonNumber>,
    #[serde(skip_serializing_if = "Option::is_none")]
    parity_sell: Option<JsonNumber>,
}

pub fn handlers() -> Handlers {
    vec![
        ("list_fx", get(list_fx)),
        ("get_fx", get(get_fx)),
        ("list_latest_fx", get(list_latest_fx)),
        ("list_bulletins", get(list_bulletins)),
        ("convert_currency", get(convert_currency)),
    ]
}

async fn list_fx(request: SnapshotRequest, query: QueryParams) -> Result<Response, ApiError> {
    let pair = query.currency_pair()?;
    let list_params = RateListParams::from_query(&request, &query)?;
    let history_params = HistoryParams::from_query(&query)?;

    let snapshot = request.snapshot()?;
    let current = fx_source(&snapshot, pair)?;
    let historical = load_fx_as_of(&request, pair, history_params.as_of).await?;
    let source = current.with_historical_rates(historical.as_ref());
    Ok(rate_list_response(&request, (&list_params, &history_params), &snapshot, &source))
}

async fn get_fx(request: SnapshotRequest, query: QueryParams) -> Result<Response, ApiError> {
    let pair = query.currency_pair()?;
    let params = CurrentRateParams::from_query_as_of(&request, &query, request.today)?;

    let snapshot = request.snapshot()?;
    let current = fx_source(&snapshot, pair)?;
    let current_no_data_error = current.no_data_error(request.today);
    let historical = load_fx_as_of(&request, pair, params.as_of).await?;
    let source = current.with_historical_rates(historical.as_ref());
    rate_value_response(&request, &params, &snapshot, &source, current_no_data_error)
}

/// The latest rate of every published pair, each with its own date.
async fn list_latest_fx(request: SnapshotRequest, query: QueryParams) -> Result<Response, ApiError> {
    let format = ListFormat::from_query(&query, request.prefers_csv)?;
    let params = CurrentRateParams::from_query(&request, &query, request.today)?;
    let snapshot = request.snapshot()?;
    let today = request.today;

    let sources = Currency::ALL.map(|currency| fx_source(&snapshot, CurrencyPair::Published(currency)));
    let mut data = Vec::new();
    let mut stale = false;
    let mut loaded_at = String::new();
    for source in sources {
        let source = source?;
        data.extend(source.latest_row_until(params.day).and_then(|at| source.row(at, params.row_options(&snapshot))));
        stale |= source.is_stale(today);
        loaded_at = format_loaded_at(&snapshot, &source);
    }
    if data.is_empty() {
        return Err(fx_source(&snapshot, CurrencyPair::DEFAULT)?.no_data_error(today));
    }

    let dates: Vec<NaiveDate> = data.iter().map(|row| row.date).collect();
    let responder = EtagResponder::new(&request, &snapshot, &[Dataset::Fx], (dates, stale));
    let body =
        |data: Vec<FxRateBody>| LatestFxBody { as_of: loaded_at, stale, position: WholeList::of(data.len()), data };
    let trace_columns = TraceBody::columns(params.provenance, false);
    let columns = [FxRateBody::columns(FX_DECIMALS), trace_columns].concat();
    Ok(responder.respond_list(format, data, body, |data| {
        OutputTable::from_rows("fx-latest", columns, data, |row, cells| {
            row.write_cells(cells);
            row.trace().write_cells(cells);
        })
    }))
}

/// Converts an amount at the close of a day; a day without one uses the last close before it.
async fn convert_currency(request: SnapshotRequest, query: QueryParams) -> Result<Response, ApiError> {
    let pair = query.required_currency_pair()?;
    let must = LocalizedText::new("is required: the amount to convert", "é obrigatório: o valor a converter");
    let amount = query.decimal("amount", AMOUNT_BOUNDS)?.map_or_else(|| invalid_param("amount", must), Ok)?;
    let side = QuoteSide::from_query(&query)?;
    let day = query.date("on")?.map_or(request.today, |on| on.min(request.today));
    let as_text = query.numbers_as_text()?;

    let snapshot = request.snapshot()?;
    let source = fx_source(&snapshot, pair)?;
    let params = CurrentRateParams { day, as_text, provenance: true, as_of: None, lang: request.lang };
    let bulletin = current_rate(&snapshot, &source, &params, request.today)?;
    let close = source.latest_row_until(day).and_then(|at| source.rates.get(at));
    let (_, quote) = close.ok_or_else(|| source.no_data_error(request.today))?;
    let rate = side.rate(quote);
    let product = FixedDecimal::from_decimal(amount).zip(FixedDecimal::from_decimal(rate));
    let result = product.and_then(|(amount, rate)| amount.checked_mul(rate, 2)).ok_or(Problem::Internal)?;

    let extra_state = (bulletin.row.date, bulletin.stale);
    let responder = EtagResponder::new(&request, &snapshot, &[Dataset::Fx], extra_state);
    Ok(responder.respond_json(|| ConversionBody {
        amount: JsonNumber { value: amount, as_text },
        result: JsonNumber { value: result, as_text },
        side: side.id(),
        rate: JsonNumber { value: rate, as_text },
        bulletin,
    }))
}

/// Includes bulletins from before the real, each in the currency of its time.
async fn list_bulletins(request: SnapshotRequest, query: QueryParams) -> Result<Response, ApiError> {
    let format = ListFormat::from_query(&query, request.prefers_csv)?;
    let pair = query.currency_pair()?;
    let as_text = query.numbers_as_text()?;
    let today = request.today;
    let CurrencyPair::Published(currency) = pair else {
        let must = LocalizedText::new(
            "must be a published pair such as USD/BRL; other pairs have no bulletins",
            "deve ser um par publicado, como USD/BRL; os demais não têm boletins",
        );
        return Ok(invalid_param("pair", must)?);
    };
    let requested_date = query.date("date")?;

    let snapshot = request.snapshot()?;
    let rates = require_loaded(snapshot.fx(), Dataset::Fx)?;
    let not_loaded = ApiError(Problem::DatasetNotLoaded { dataset: Dataset::Fx.id() });
    let date = requested_date.or_else(|| rates.last_bulletin_date(currency, today)).ok_or(not_loaded)?;
    let bulletins = if date > today { &[] } else { rates.bulletins(currency, date) };

    let responder = EtagResponder::new(&request, &snapshot, &[Dataset::Fx], (date, bulletins.len()));
    let source = fx_source(&snapshot, pair)?;
    let to_body = |bulletin: &FxBulletin| bulletin_body(bulletin, rates.parity(bulletin), as_text);
    let data: Vec<BulletinBody> = bulletins.iter().map(to_body).collect();
    let body = |data: Vec<BulletinBody>| BulletinsBody {
        series: SeriesHeaderBody::of(&source, request.lang),
        pair: pair.to_string(),
        date,
        position: WholeList::of(data.len()),
        data,
    };
    Ok(responder.respond_list(format, data, body, |data| {
        let columns = vec![
            Column::date("date"),
            Column::text("pair"),
            Column::text("kind"),
            Column::text("published_at"),
            Column::text("quote_currency"),
            Column::decimal("buy", FX_DECIMALS),
            Column::decimal("sell", FX_DECIMALS),
            Column::decimal("parity_buy", FX_DECIMALS),
            Column::decimal("parity_sell", FX_DECIMALS),
        ];
        let pair = pair.to_string();
        OutputTable::from_rows("fx-bulletins", columns, data, move |row, cells| {
            cells.write_date(Some(date));
            cells.write_text(&pair);
            cells.write_text(row.kind);
            cells.write_text(&row.published_at);
            cells.write_text(&row.quote_currency);
            cells.write_decimal(Some(row.buy.value));
            cells.write_decimal(Some(row.sell.value));
            cells.write_decimal(row.parity_buy.map(|parity| parity.value));
            cells.write_decimal(row.parity_sell.map(|parity| parity.value));
        })
    }))
}

fn bulletin_body(bulletin: &FxBulletin, parity: Option<Quote>, as_text: bool) -> BulletinBody {
    let offset_hours = sao_paulo_offset_seconds(bulletin.date) / 3600;
    let number = |value| JsonNumber { value, as_text };
    BulletinBody {
        kind: bulletin.kind.id(),
        published_at: format!("{}{offset_hours:+03}:00", bulletin.published_at.format("%Y-%m-%dT%H:%M:%S%.f")),
        quote_currency: bulletin.quote_currency().to_owned(),
        buy: number(bulletin.quote.buy),
        sell: number(bulletin.quote.sell),
        parity_buy: parity.map(|parity| number(parity.buy)),
        parity_sell: parity.map(|parity| number(parity.sell)),
    }
}
