//! Exchange rates: one pair over time, the latest of all pairs, and every bulletin of a day.

use axum::extract::State;
use axum::response::Response;
use axum::routing::get;
use chrono::NaiveDate;
use serde::Serialize;
use vintem_deliver::table::{Column, OutputTable};
use vintem_domain::dates::sao_paulo_offset_seconds;
use vintem_domain::{Currency, CurrencyPair, Dataset, LocalizedText, Problem};
use vintem_snapshot::{FxBulletin, FxRates, fx_as_of};

use super::rates::{
    CurrentRateParams, HistoryParams, RateListParams, current_rate, format_loaded_at, rate_list_response,
};
use crate::api_error::ApiError;
use crate::app::{App, AppState, Handlers};
use crate::bodies::market::{FX_DECIMALS, FxRateBody, FxSource, RateRowBody, RateSource, fx_source};
use crate::bodies::provenance::TraceBody;
use crate::bodies::require_loaded;
use crate::bodies::series::SeriesBody;
use crate::caller::Caller;
use crate::csv::ListFormat;
use crate::json_number::JsonNumber;
use crate::params::{QueryParams, invalid_param};
use crate::responses::EtagResponder;

#[derive(Serialize)]
struct LatestFxBody {
    as_of: String,
    stale: bool,
    total: usize,
    data: Vec<FxRateBody>,
}

#[derive(Serialize)]
struct BulletinsBody {
    series: SeriesBody,
    date: NaiveDate,
    total: usize,
    data: Vec<BulletinBody>,
}

#[derive(Serialize)]
struct BulletinBody {
    kind: &'static str,
    published_at: String,
    /// For dates before the real, the currency of that time.
    quote_currency: String,
    buy: JsonNumber,
    sell: JsonNumber,
}

pub fn handlers() -> Handlers {
    vec![
        ("list_fx", get(list_fx)),
        ("get_fx", get(get_fx)),
        ("list_latest_fx", get(list_latest_fx)),
        ("list_bulletins", get(list_bulletins)),
    ]
}

async fn list_fx(caller: Caller, State(app): AppState, query: QueryParams) -> Result<Response, ApiError> {
    let pair = query.currency_pair()?;
    let list_params = RateListParams::from_query(&caller, &query)?;
    let history_params = HistoryParams::from_query(&query)?;

    let snapshot = app.current_snapshot()?;
    let current = fx_source(&snapshot, pair)?;
    let historical = load_fx_as_of(&app, pair, history_params.as_of).await?;
    let source = historical.as_ref().map_or(current, |rates| FxSource { pair, rates: rates.pair_rates(pair) });
    Ok(rate_list_response(&caller, &app, (&list_params, &history_params), &snapshot, &source))
}

async fn get_fx(caller: Caller, State(app): AppState, query: QueryParams) -> Result<Response, ApiError> {
    let pair = query.currency_pair()?;
    let params = CurrentRateParams::from_query_as_of(&caller, &query, app.today())?;

    let snapshot = app.current_snapshot()?;
    let current = fx_source(&snapshot, pair)?;
    let current_no_data_error = current.no_data_error(app.today());
    let historical = load_fx_as_of(&app, pair, params.as_of).await?;
    let source = historical.as_ref().map_or(current, |rates| FxSource { pair, rates: rates.pair_rates(pair) });

    // If nothing was known on the day of `as_of`, the error names the first date of the current data.
    let no_data_error = |error| if params.as_of.is_some() { current_no_data_error.clone() } else { error };
    let body = current_rate(&snapshot, &source, &params, app.today()).map_err(no_data_error)?;
    let responder = EtagResponder::new(&caller, &app, &snapshot, &[Dataset::Fx], (body.row.date, body.stale));
    Ok(responder.respond_json(|| body))
}

/// The rates as known on the day of `as_of`, if requested. They come from the store, because only it has every version.
async fn load_fx_as_of(app: &App, pair: CurrencyPair, as_of: Option<NaiveDate>) -> Result<Option<FxRates>, ApiError> {
    match as_of {
        Some(day) => Ok(Some(fx_as_of(&app.store, pair, day).await?)),
        None => Ok(None),
    }
}

/// The latest rate of every published pair, each with its own date.
async fn list_latest_fx(caller: Caller, State(app): AppState, query: QueryParams) -> Result<Response, ApiError> {
    let format = ListFormat::from_query(&caller, &query)?;
    let params = CurrentRateParams::from_query(&caller, &query, app.today())?;
    let snapshot = app.current_snapshot()?;
    let today = app.today();

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
    let responder = EtagResponder::new(&caller, &app, &snapshot, &[Dataset::Fx], (dates, stale));
    let body = |data: Vec<FxRateBody>| LatestFxBody { as_of: loaded_at, stale, total: data.len(), data };
    let trace_columns = TraceBody::columns(params.provenance, false);
    let columns = [FxRateBody::columns(FX_DECIMALS), trace_columns].concat();
    Ok(responder.respond_list(format, data, body, |data| {
        OutputTable::from_rows("fx-latest", columns, data, |row, cells| {
            row.write_cells(cells);
            row.trace().write_cells(cells);
        })
    }))
}

/// Includes bulletins from before the real, each in the currency of its time.
async fn list_bulletins(caller: Caller, State(app): AppState, query: QueryParams) -> Result<Response, ApiError> {
    let format = ListFormat::from_query(&caller, &query)?;
    let pair = query.currency_pair()?;
    let as_text = query.numbers_as_text()?;
    let today = app.today();
    let CurrencyPair::Published(currency) = pair else {
        let must = LocalizedText::new(
            "be a published pair such as USD/BRL: only those have bulletins",
            "ser um par publicado, como USD/BRL: só esses têm boletins",
        );
        return Ok(invalid_param("pair", must)?);
    };
    let requested_date = query.date("date")?;

    let snapshot = app.current_snapshot()?;
    let rates = require_loaded(snapshot.fx(), Dataset::Fx)?;
    let not_loaded = ApiError(Problem::DatasetNotLoaded { dataset: Dataset::Fx.id() });
    let date = requested_date.or_else(|| rates.last_bulletin_date(currency, today)).ok_or(not_loaded)?;
    let bulletins = if date > today { &[] } else { rates.bulletins(currency, date) };

    let responder = EtagResponder::new(&caller, &app, &snapshot, &[Dataset::Fx], (date, bulletins.len()));
    let source = fx_source(&snapshot, pair)?;
    let data: Vec<BulletinBody> = bulletins.iter().map(|bulletin| bulletin_body(bulletin, as_text)).collect();
    let body =
        |data: Vec<BulletinBody>| BulletinsBody { series: source.describe(caller.lang), date, total: data.len(), data };
    Ok(responder.respond_list(format, data, body, |data| {
        let columns = vec![
            Column::date("date"),
            Column::text("pair"),
            Column::text("kind"),
            Column::text("published_at"),
            Column::text("quote_currency"),
            Column::decimal("buy", FX_DECIMALS),
            Column::decimal("sell", FX_DECIMALS),
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
        })
    }))
}

fn bulletin_body(bulletin: &FxBulletin, as_text: bool) -> BulletinBody {
    let offset_hours = sao_paulo_offset_seconds(bulletin.date) / 3600;
    let number = |value| JsonNumber { value, as_text };
    BulletinBody {
        kind: bulletin.kind.id(),
        published_at: format!("{}{offset_hours:+03}:00", bulletin.published_at.format("%Y-%m-%dT%H:%M:%S%.f")),
        quote_currency: bulletin.quote_currency().to_owned(),
        buy: number(bulletin.quote.buy),
        sell: number(bulletin.quote.sell),
    }
}
