//! Parquet with the types of the columns: dates are dates, decimals exact, lists lists.

use std::io::Write;
use std::sync::Arc;

use chrono::{Datelike, NaiveDate};
use parquet::basic::{Compression, LogicalType, Repetition, Type as Physical, ZstdLevel};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, Int32Type, Int64Type};
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::types::{PrimitiveTypeBuilder, Type, TypePtr};
use vintem_domain::{Decimal, VERSION};

use super::{Cells, Column, Kind, PRECISION, Table};

/// Rows that are gathered before they are written: what readers take at once.
const ROWS_IN_GROUP: usize = 50_000;

/// Writes every row, and says how many there were. `about` is kept in the file.
pub fn write_parquet(mut table: Table, about: &[(&str, &str)], into: impl Write + Send) -> Result<u64> {
    let fields = table.columns.iter().map(field).collect::<Result<Vec<_>>>()?;
    let schema = Type::group_type_builder("vintem").with_fields(fields).build()?;
    let about = about.iter().map(|(key, value)| KeyValue::new((*key).to_owned(), (*value).to_owned())).collect();
    let properties = WriterProperties::builder()
        .set_created_by(format!("vintem {VERSION}"))
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_key_value_metadata(Some(about))
        .build();
    let mut file = SerializedFileWriter::new(into, Arc::new(schema), Arc::new(properties))?;
    let (mut rows, mut is_done) = (0, false);
    while !is_done {
        let mut group = Group { columns: table.columns.iter().map(Values::of).collect(), at: 0, fault: None };
        let mut in_group = 0;
        while in_group < ROWS_IN_GROUP && !is_done {
            is_done = !table.write_next(&mut group);
            in_group += usize::from(!is_done);
            group.at = 0;
        }
        if let Some(fault) = group.fault {
            return Err(ParquetError::General(format!("row {rows} to {}: {fault}", rows + in_group as u64)));
        }
        if in_group > 0 {
            let mut writer = file.next_row_group()?;
            for values in &group.columns {
                let mut column = writer.next_column()?.ok_or_else(|| general("there are fewer columns than cells"))?;
                values.write(&mut column)?;
                column.close()?;
            }
            writer.close()?;
        }
        rows += in_group as u64;
    }
    file.close()?;
    Ok(rows)
}

fn general(fault: &str) -> ParquetError {
    ParquetError::General(fault.to_owned())
}

fn primitive(
    name: &str,
    physical: Physical,
    logical: Option<LogicalType>,
    repetition: Repetition,
) -> PrimitiveTypeBuilder<'_> {
    Type::primitive_type_builder(name, physical).with_repetition(repetition).with_logical_type(logical)
}

fn field(column: &Column) -> Result<TypePtr> {
    let (required, optional) = (Repetition::REQUIRED, Repetition::OPTIONAL);
    let name = column.name.as_ref();
    let field = match column.kind {
        Kind::Text => primitive(name, Physical::BYTE_ARRAY, Some(LogicalType::String), required).build()?,
        Kind::Whole => primitive(name, Physical::INT64, None, required).build()?,
        Kind::Flag => primitive(name, Physical::BOOLEAN, None, required).build()?,
        Kind::Day => primitive(name, Physical::INT32, Some(LogicalType::Date), optional).build()?,
        Kind::Midnight => primitive(name, Physical::INT32, Some(LogicalType::Date), required).build()?,
        Kind::Decimal(scale) => {
            let (scale, precision) = (scale.cast_signed(), PRECISION.cast_signed());
            let logical = Some(LogicalType::decimal(scale, precision));
            let builder = primitive(name, Physical::INT64, logical, optional);
            builder.with_precision(precision).with_scale(scale).build()?
        }
        Kind::Texts => {
            let element = primitive("element", Physical::BYTE_ARRAY, Some(LogicalType::String), required).build()?;
            let list = Type::group_type_builder("list").with_repetition(Repetition::REPEATED);
            let list = list.with_fields(vec![Arc::new(element)]).build()?;
            let outer = Type::group_type_builder(name).with_repetition(required);
            outer.with_logical_type(Some(LogicalType::List)).with_fields(vec![Arc::new(list)]).build()?
        }
    };
    Ok(Arc::new(field))
}

/// The values of a column in the rows that are gathered. A level of 1 says that there is a value, 0 that there is none.
enum Values {
    Text(Vec<ByteArray>),
    /// And for each level whether it goes on with the row before.
    Texts(Vec<ByteArray>, Vec<i16>, Vec<i16>),
    Whole(Vec<i64>),
    Flag(Vec<bool>),
    Day(Vec<i32>, Vec<i16>),
    Midnight(Vec<i32>),
    Decimal(Vec<i64>, Vec<i16>, u32),
}

impl Values {
    fn of(column: &Column) -> Self {
        match column.kind {
            Kind::Text => Self::Text(Vec::new()),
            Kind::Texts => Self::Texts(Vec::new(), Vec::new(), Vec::new()),
            Kind::Whole => Self::Whole(Vec::new()),
            Kind::Flag => Self::Flag(Vec::new()),
            Kind::Day => Self::Day(Vec::new(), Vec::new()),
            Kind::Midnight => Self::Midnight(Vec::new()),
            Kind::Decimal(scale) => Self::Decimal(Vec::new(), Vec::new(), scale),
        }
    }

    fn write(&self, column: &mut SerializedColumnWriter<'_>) -> Result<()> {
        match self {
            Self::Text(values) => column.typed::<ByteArrayType>().write_batch(values, None, None)?,
            Self::Texts(values, levels, repetitions) => {
                column.typed::<ByteArrayType>().write_batch(values, Some(levels), Some(repetitions))?
            }
            Self::Whole(values) => column.typed::<Int64Type>().write_batch(values, None, None)?,
            Self::Flag(values) => column.typed::<BoolType>().write_batch(values, None, None)?,
            Self::Day(values, levels) => column.typed::<Int32Type>().write_batch(values, Some(levels), None)?,
            Self::Midnight(values) => column.typed::<Int32Type>().write_batch(values, None, None)?,
            Self::Decimal(values, levels, _) => column.typed::<Int64Type>().write_batch(values, Some(levels), None)?,
        };
        Ok(())
    }
}

/// The rows that are gathered, column by column.
struct Group {
    columns: Vec<Values>,
    at: usize,
    /// Why what was written last cannot be kept.
    fault: Option<String>,
}

impl Group {
    fn next(&mut self) -> Option<&mut Values> {
        self.at += 1;
        self.columns.get_mut(self.at - 1)
    }

    fn is_of_another_kind(&mut self) {
        self.fault.get_or_insert_with(|| format!("cell {} is not of its column's kind", self.at));
    }

    fn bytes(&mut self, text: Vec<u8>) {
        match self.next() {
            Some(Values::Text(values)) => values.push(text.into()),
            _ => self.is_of_another_kind(),
        }
    }
}

/// Days since 1970.
fn epoch_day(day: NaiveDate) -> i32 {
    day.num_days_from_ce() - NaiveDate::from_ymd_opt(1970, 1, 1).map_or(0, |day| day.num_days_from_ce())
}

/// The value in units of its last decimal; none where it does not fit exactly.
fn unscaled(value: Decimal, scale: u32) -> Option<i64> {
    let value = value.normalize();
    let more = 10i128.checked_pow(scale.checked_sub(value.scale())?)?;
    let unscaled = i64::try_from(value.mantissa().checked_mul(more)?).ok()?;
    (unscaled.unsigned_abs() < 10u64.pow(PRECISION)).then_some(unscaled)
}

impl Cells for Group {
    fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes().to_vec());
    }

    fn code(&mut self, code: u32) {
        self.bytes(code.to_string().into_bytes());
    }

    fn texts(&mut self, texts: &mut dyn Iterator<Item = &str>) {
        let Some(Values::Texts(values, levels, repetitions)) = self.next() else { return self.is_of_another_kind() };
        let before = values.len();
        for text in texts {
            levels.push(1);
            repetitions.push(i16::from(values.len() > before));
            values.push(text.as_bytes().to_vec().into());
        }
        if values.len() == before {
            levels.push(0);
            repetitions.push(0);
        }
    }

    fn whole(&mut self, number: i64) {
        match self.next() {
            Some(Values::Whole(values)) => values.push(number),
            _ => self.is_of_another_kind(),
        }
    }

    fn flag(&mut self, flag: bool) {
        match self.next() {
            Some(Values::Flag(values)) => values.push(flag),
            _ => self.is_of_another_kind(),
        }
    }

    fn day(&mut self, day: Option<NaiveDate>) {
        match self.next() {
            Some(Values::Day(values, levels)) => {
                levels.push(i16::from(day.is_some()));
                values.extend(day.map(epoch_day));
            }
            _ => self.is_of_another_kind(),
        }
    }

    fn midnight(&mut self, day: NaiveDate) {
        match self.next() {
            Some(Values::Midnight(values)) => values.push(epoch_day(day)),
            _ => self.is_of_another_kind(),
        }
    }

    fn decimal(&mut self, value: Option<Decimal>) {
        let Some(Values::Decimal(values, levels, scale)) = self.next() else { return self.is_of_another_kind() };
        levels.push(i16::from(value.is_some()));
        let Some(value) = value else { return };
        match unscaled(value, *scale) {
            Some(unscaled) => values.push(unscaled),
            None => {
                let fault = format!("{value} has more than {PRECISION} digits or than {scale} decimals");
                self.fault.get_or_insert(fault);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use parquet::file::reader::{FileReader, SerializedFileReader};

    use super::super::samples;
    use super::*;

    #[test]
    fn every_kind_comes_back_as_what_it_is() {
        let mut written = Vec::new();
        assert_eq!(write_parquet(samples::of_every_kind(3), &[("licence", "ODbL-1.0")], &mut written).unwrap(), 3);
        let file = SerializedFileReader::new(bytes::Bytes::from(written)).unwrap();
        let about = file.metadata().file_metadata().key_value_metadata().unwrap();
        assert!(about.iter().any(|about| about.key == "licence" && about.value.as_deref() == Some("ODbL-1.0")));
        let rows: Vec<String> = file.get_row_iter(None).unwrap().map(|row| row.unwrap().to_string()).collect();
        let row = |id: &str, tickers: &str, latest: bool, day: &str, value: &str| {
            format!(
                "{{id: \"{id}\", name: \"=Açúcar \"União\", S.A.\", tickers: {tickers}, version: -7, \
                 is_latest: {latest}, reference_date: {day}, date: 2026-02-11, value: {value}}}"
            )
        };
        assert_eq!(
            rows,
            [
                row("1", "[\"UNIA3\"]", false, "null", "-0.053400"),
                row("2", "[\"UNIA3\", \"UNIA4\"]", true, "2026-02-11", "-0.053400"),
                row("3", "[]", false, "2026-02-11", "null"),
            ]
        );
    }

    #[test]
    fn rows_of_several_groups_are_all_there() {
        let (rows, mut written) = (2 * ROWS_IN_GROUP as u32 + 1, Vec::new());
        assert_eq!(write_parquet(samples::of_every_kind(rows), &[], &mut written).unwrap(), u64::from(rows));
        let file = SerializedFileReader::new(bytes::Bytes::from(written)).unwrap();
        assert_eq!((file.num_row_groups(), file.metadata().file_metadata().num_rows()), (3, i64::from(rows)));
    }

    #[test]
    fn what_does_not_fit_is_refused_and_not_rounded() {
        let write = |value: Decimal, kind: Kind| {
            let table = Table::of("one", vec![Column::new("value", kind)], vec![value], |value, cells| {
                cells.decimal(Some(*value));
            });
            write_parquet(table, &[], Vec::new())
        };
        assert_eq!(write(Decimal::new(1_500, 3), Kind::Decimal(1)).unwrap(), 1, "zeros at the end are no digits");
        assert!(write(Decimal::new(155, 2), Kind::Decimal(1)).is_err());
        assert!(write(Decimal::from_i128_with_scale(10i128.pow(18), 0), Kind::Decimal(0)).is_err());
        assert!(write(Decimal::from_i128_with_scale(10i128.pow(18) - 1, 0), Kind::Decimal(0)).is_ok());
        assert!(write(Decimal::ONE, Kind::Text).is_err(), "a cell of another kind");
    }
}
