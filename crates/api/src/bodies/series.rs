//! The description of a series, which every response with its values includes.

use std::borrow::Cow;

use serde::Serialize;
use vintem_deliver::table::{CellWriter, Column};
use vintem_domain::series::source_series;
use vintem_domain::{Dataset, Lang, Series};

/// Describes the series in every response, so that nobody has to guess.
#[derive(Serialize)]
pub struct SeriesBody {
    pub id: &'static str,
    pub source: &'static str,
    pub code: String,
    pub name: &'static str,
    pub unit: String,
    /// The same in every language.
    pub unit_code: Cow<'static, str>,
    pub basis: &'static str,
    pub frequency: &'static str,
    /// Only present on series that we compute.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub derived: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub formula: Option<&'static str>,
}

impl SeriesBody {
    /// In the order of [`Self::write_cells`].
    pub const COLUMNS: [Column; 10] = [
        Column::text("id"),
        Column::text("source"),
        Column::text("code"),
        Column::text("name"),
        Column::text("unit"),
        Column::text("basis"),
        Column::text("frequency"),
        Column::boolean("derived"),
        Column::text("formula"),
        Column::text("unit_code"),
    ];

    pub fn write_cells(&self, cells: &mut dyn CellWriter) {
        cells.write_text(self.id);
        cells.write_text(self.source);
        cells.write_text(&self.code);
        cells.write_text(self.name);
        cells.write_text(&self.unit);
        cells.write_text(self.basis);
        cells.write_text(self.frequency);
        cells.write_boolean(self.derived.unwrap_or(false));
        cells.write_text(self.formula.unwrap_or(""));
        cells.write_text(&self.unit_code);
    }
}

/// The datasets that a series comes from.
pub fn series_datasets(series: &Series) -> Vec<Dataset> {
    source_series(series).into_iter().map(Dataset::Series).collect()
}

pub fn series_body(series: &'static Series, lang: Lang) -> SeriesBody {
    SeriesBody {
        id: series.id,
        source: series.sgs_code.map_or("Vintém", |_| Dataset::Series(series).source_name()),
        code: series.sgs_code.map_or_else(|| series.id.to_owned(), |code| code.to_string()),
        name: series.name.in_lang(lang),
        unit: series.unit.in_lang(lang).to_owned(),
        unit_code: series.unit.code().into(),
        basis: series.basis.in_lang(lang),
        frequency: series.frequency.id(),
        derived: series.formula.is_some().then_some(true),
        formula: series.formula.as_ref().map(|formula| formula.description.in_lang(lang)),
    }
}
