//! Exchange rates: of a pair, of all pairs at once, and every bulletin of a day.

use axum::extract::State;
use axum::response::Response;
use axum::routing::get;
use chrono::NaiveDate;
use serde::Serialize;
use vintem_deliver::table::{Column, Table};
use vintem_domain::dates::sao_paulo_offset_seconds;
use vintem_domain::{Currency, Dataset, Pair, Problem, Text};
use vintem_snapshot::{Bulletin, FxRates, fx_as_of};

use super::source::{FX_DECIMALS, FxRateBody, FxSource, RowBody, SeriesBody, Source, fx_source};
use super::{AppState, CurrentParams, Handlers, ListParams, OriginParams, as_of, current, list, today};
use crate::App;
use crate::answer::Tag;
use crate::caller::Caller;
use crate::csv::Form;
use crate::number::Number;
use crate::params::{Query, refuse};
use crate::problem::Refusal;
use crate::routes::loaded;
use crate::routes::provenance::TraceBody;

#[derive(Serialize)]
struct LatestBody {
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
    /// Before the real that of its day.
    quote_currency: String,
    buy: Number,
    sell: Number,
}

pub fn handlers() -> Handlers {
    vec![
        ("list_fx", get(list_fx)),
        ("get_fx", get(get_fx)),
        ("list_latest_fx", get(list_latest_fx)),
        ("list_bulletins", get(list_bulletins)),
    ]
}

async fn list_fx(caller: Caller, State(app): AppState, query: Query) -> Result<Response, Refusal> {
    let (pair, params, origin) = (query.pair()?, ListParams::read(&caller, &query)?, OriginParams::read(&query)?);
    let snapshot = app.snapshot()?;
    let served = fx_source(&snapshot, pair)?;
    let known = rates_as_of(&app, pair, origin.as_of).await?;
    let source = known.as_ref().map_or(served, |rates| FxSource { pair, rates: rates.pair(pair) });
    Ok(list(&caller, &app, (&params, &origin), &snapshot, &source))
}

async fn get_fx(caller: Caller, State(app): AppState, query: Query) -> Result<Response, Refusal> {
    let (pair, asked) = (query.pair()?, CurrentParams::read_as_of(&caller, &query, today(&app))?);
    let snapshot = app.snapshot()?;
    let served = fx_source(&snapshot, pair)?;
    let served_first = served.nothing_until(today(&app));
    let known = rates_as_of(&app, pair, asked.as_of).await?;
    let source = known.as_ref().map_or(served, |rates| FxSource { pair, rates: rates.pair(pair) });
    // Where nothing was known yet, there is something now.
    let nothing_yet = |refusal| if asked.as_of.is_some() { served_first.clone() } else { refusal };
    let body = current(&snapshot, &source, &asked, today(&app)).map_err(nothing_yet)?;
    Ok(Tag::new(&caller, &app, &snapshot, &[Dataset::Fx], (body.row.date, body.stale)).answer(|| body))
}

/// What could be known on a day, where one is asked for: from the store, which alone has every version.
async fn rates_as_of(app: &App, pair: Pair, as_of: Option<NaiveDate>) -> Result<Option<FxRates>, Refusal> {
    match as_of {
        Some(day) => Ok(Some(fx_as_of(&app.store, pair, day).await?)),
        None => Ok(None),
    }
}

/// Every published pair with its newest rate, each with its own day.
async fn list_latest_fx(caller: Caller, State(app): AppState, query: Query) -> Result<Response, Refusal> {
    let (form, asked) = (Form::read(&caller, &query)?, CurrentParams::read(&caller, &query, today(&app))?);
    let (snapshot, today) = (app.snapshot()?, today(&app));
    let sources = Currency::ALL.map(|currency| fx_source(&snapshot, Pair::Published(currency)));
    let mut data = Vec::new();
    let (mut stale, mut loaded_at) = (false, String::new());
    for source in sources {
        let source = source?;
        data.extend(source.newest(asked.day).and_then(|at| source.row(at, asked.shown(&snapshot))));
        stale |= source.is_stale(today);
        loaded_at = as_of(&snapshot, &source);
    }
    if data.is_empty() {
        return Err(fx_source(&snapshot, Pair::DEFAULT)?.nothing_until(today));
    }
    let days: Vec<NaiveDate> = data.iter().map(|row| row.date).collect();
    let tag = Tag::new(&caller, &app, &snapshot, &[Dataset::Fx], (days, stale));
    let body = |data: Vec<FxRateBody>| LatestBody { as_of: loaded_at, stale, total: data.len(), data };
    let trace = TraceBody::columns(asked.provenance, false);
    let columns = [FxRateBody::columns(FX_DECIMALS), trace].concat();
    Ok(tag.list(form, data, body, |data| {
        Table::of("fx-latest", columns, data, |row, cells| {
            row.write(cells);
            row.trace().write(cells);
        })
    }))
}

/// Also those of before the real, each in the currency of its day.
async fn list_bulletins(caller: Caller, State(app): AppState, query: Query) -> Result<Response, Refusal> {
    let (form, pair) = (Form::read(&caller, &query)?, query.pair()?);
    let (as_text, today) = (query.numbers_as_text()?, today(&app));
    let Pair::Published(currency) = pair else {
        let must = Text::new(
            "be a published pair such as USD/BRL: only those have bulletins",
            "ser um par publicado, como USD/BRL: só esses têm boletins",
        );
        return Ok(refuse("pair", must)?);
    };
    let asked = query.day("date")?;
    let snapshot = app.snapshot()?;
    let rates = loaded(snapshot.fx(), Dataset::Fx)?;
    let never = Refusal(Problem::NeverLoaded { dataset: Dataset::Fx.id() });
    let date = asked.or_else(|| rates.last_bulletins_on(currency, today)).ok_or(never)?;
    let bulletins = if date > today { &[] } else { rates.bulletins(currency, date) };
    let tag = Tag::new(&caller, &app, &snapshot, &[Dataset::Fx], (date, bulletins.len()));
    let source = fx_source(&snapshot, pair)?;
    let data: Vec<BulletinBody> = bulletins.iter().map(|bulletin| bulletin_body(bulletin, as_text)).collect();
    let body =
        |data: Vec<BulletinBody>| BulletinsBody { series: source.describe(caller.lang), date, total: data.len(), data };
    Ok(tag.list(form, data, body, |data| {
        let columns = vec![
            Column::day("date"),
            Column::text("pair"),
            Column::text("kind"),
            Column::text("published_at"),
            Column::text("quote_currency"),
            Column::decimal("buy", FX_DECIMALS),
            Column::decimal("sell", FX_DECIMALS),
        ];
        let pair = pair.to_string();
        Table::of("fx-bulletins", columns, data, move |row, cells| {
            cells.day(Some(date));
            cells.text(&pair);
            cells.text(row.kind);
            cells.text(&row.published_at);
            cells.text(&row.quote_currency);
            cells.decimal(Some(row.buy.value));
            cells.decimal(Some(row.sell.value));
        })
    }))
}

fn bulletin_body(bulletin: &Bulletin, as_text: bool) -> BulletinBody {
    let hours = sao_paulo_offset_seconds(bulletin.date) / 3600;
    let number = |value| Number { value, as_text };
    BulletinBody {
        kind: bulletin.kind.id(),
        published_at: format!("{}{hours:+03}:00", bulletin.published_at.format("%Y-%m-%dT%H:%M:%S%.f")),
        quote_currency: bulletin.quote_currency().to_owned(),
        buy: number(bulletin.quote.buy),
        sell: number(bulletin.quote.sell),
    }
}
