//! Parquet with native types: dates are dates, decimals are exact, lists are lists.

use std::io::Write;
use std::sync::Arc;

use chrono::{Datelike, NaiveDate};
use parquet::basic::{Compression, LogicalType, Repetition, Type as Physical, ZstdLevel};
use parquet::data_type::{
    BoolType, ByteArray, ByteArrayType, FixedLenByteArray, FixedLenByteArrayType, Int32Type, Int64Type,
};
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::types::{PrimitiveTypeBuilder, Type, TypePtr};
use vintem_domain::{Decimal, VERSION};

use super::{CellWriter, Column, ColumnType, DECIMAL_PRECISION, OutputTable, WIDE_DECIMAL_PRECISION};

/// Rows per row group: buffered before they are written, and read at once by readers.
const ROWS_PER_GROUP: usize = 50_000;

/// Writes every row and returns their number. `metadata` is stored in the file.
pub fn write_parquet(mut table: OutputTable, metadata: &[(&str, &str)], writer: impl Write + Send) -> Result<u64> {
    let fields = table.columns.iter().map(schema_field).collect::<Result<Vec<_>>>()?;
    let schema = Type::group_type_builder("vintem").with_fields(fields).build()?;
    let key_values =
        metadata.iter().map(|(key, value)| KeyValue::new((*key).to_owned(), (*value).to_owned())).collect();
    let properties = WriterProperties::builder()
        .set_created_by(format!("vintem {VERSION}"))
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_key_value_metadata(Some(key_values))
        .build();
    let mut file = SerializedFileWriter::new(writer, Arc::new(schema), Arc::new(properties))?;

    let mut rows = 0;
    let mut is_done = false;
    while !is_done {
        let mut group = ParquetRowGroup {
            columns: table.columns.iter().map(ColumnValues::for_column).collect(),
            column_index: 0,
            error: None,
        };
        let mut group_rows = 0;
        while group_rows < ROWS_PER_GROUP && !is_done {
            is_done = !table.write_next_row(&mut group);
            group_rows += usize::from(!is_done);
            group.column_index = 0;
        }
        if let Some(error) = group.error {
            return Err(ParquetError::General(format!("row {rows} to {}: {error}", rows + group_rows as u64)));
        }

        if group_rows > 0 {
            let mut group_writer = file.next_row_group()?;
            for values in &group.columns {
                let mut column =
                    group_writer.next_column()?.ok_or_else(|| parquet_error("there are fewer columns than cells"))?;
                values.write_to(&mut column)?;
                column.close()?;
            }
            group_writer.close()?;
        }
        rows += group_rows as u64;
    }

    file.close()?;
    Ok(rows)
}

fn parquet_error(message: &str) -> ParquetError {
    ParquetError::General(message.to_owned())
}

fn primitive_type(
    name: &str,
    physical: Physical,
    logical: Option<LogicalType>,
    repetition: Repetition,
) -> PrimitiveTypeBuilder<'_> {
    Type::primitive_type_builder(name, physical).with_repetition(repetition).with_logical_type(logical)
}

fn schema_field(column: &Column) -> Result<TypePtr> {
    let required = Repetition::REQUIRED;
    let optional = Repetition::OPTIONAL;
    let name = column.name.as_ref();

    let field = match column.column_type {
        ColumnType::Text => primitive_type(name, Physical::BYTE_ARRAY, Some(LogicalType::String), required).build()?,
        ColumnType::Integer => primitive_type(name, Physical::INT64, None, required).build()?,
        ColumnType::Boolean => primitive_type(name, Physical::BOOLEAN, None, required).build()?,
        ColumnType::Date => primitive_type(name, Physical::INT32, Some(LogicalType::Date), optional).build()?,
        ColumnType::DateAsMidnight => {
            primitive_type(name, Physical::INT32, Some(LogicalType::Date), required).build()?
        }
        ColumnType::Decimal(scale) => {
            let scale = scale.cast_signed();
            let precision = DECIMAL_PRECISION.cast_signed();
            let logical = Some(LogicalType::decimal(scale, precision));
            let builder = primitive_type(name, Physical::INT64, logical, optional);
            builder.with_precision(precision).with_scale(scale).build()?
        }
        ColumnType::WideDecimal(scale) => {
            let scale = scale.cast_signed();
            let precision = WIDE_DECIMAL_PRECISION.cast_signed();
            let logical = Some(LogicalType::decimal(scale, precision));
            let builder = primitive_type(name, Physical::FIXED_LEN_BYTE_ARRAY, logical, optional);
            builder.with_length(WIDE_DECIMAL_BYTES).with_precision(precision).with_scale(scale).build()?
        }
        ColumnType::TextList => {
            let element =
                primitive_type("element", Physical::BYTE_ARRAY, Some(LogicalType::String), required).build()?;
            let list = Type::group_type_builder("list").with_repetition(Repetition::REPEATED);
            let list = list.with_fields(vec![Arc::new(element)]).build()?;
            let outer = Type::group_type_builder(name).with_repetition(required);
            outer.with_logical_type(Some(LogicalType::List)).with_fields(vec![Arc::new(list)]).build()?
        }
    };
    Ok(Arc::new(field))
}

/// A number of 128 bits.
const WIDE_DECIMAL_BYTES: i32 = 16;

/// The buffered values of a column. Definition levels are 1 for a value and 0 for null.
enum ColumnValues {
    Text(Vec<ByteArray>),
    /// Values, definition levels, and repetition levels: 1 for a further element of the same list.
    TextList(Vec<ByteArray>, Vec<i16>, Vec<i16>),
    Integer(Vec<i64>),
    Boolean(Vec<bool>),
    Date(Vec<i32>, Vec<i16>),
    DateAsMidnight(Vec<i32>),
    Decimal(Vec<i64>, Vec<i16>, u32),
    WideDecimal(Vec<FixedLenByteArray>, Vec<i16>, u32),
}

impl ColumnValues {
    fn for_column(column: &Column) -> Self {
        match column.column_type {
            ColumnType::Text => Self::Text(Vec::new()),
            ColumnType::TextList => Self::TextList(Vec::new(), Vec::new(), Vec::new()),
            ColumnType::Integer => Self::Integer(Vec::new()),
            ColumnType::Boolean => Self::Boolean(Vec::new()),
            ColumnType::Date => Self::Date(Vec::new(), Vec::new()),
            ColumnType::DateAsMidnight => Self::DateAsMidnight(Vec::new()),
            ColumnType::Decimal(scale) => Self::Decimal(Vec::new(), Vec::new(), scale),
            ColumnType::WideDecimal(scale) => Self::WideDecimal(Vec::new(), Vec::new(), scale),
        }
    }

    fn write_to(&self, column: &mut SerializedColumnWriter<'_>) -> Result<()> {
        match self {
            Self::Text(values) => column.typed::<ByteArrayType>().write_batch(values, None, None)?,
            Self::TextList(values, levels, repetitions) => {
                column.typed::<ByteArrayType>().write_batch(values, Some(levels), Some(repetitions))?
            }
            Self::Integer(values) => column.typed::<Int64Type>().write_batch(values, None, None)?,
            Self::Boolean(values) => column.typed::<BoolType>().write_batch(values, None, None)?,
            Self::Date(values, levels) => column.typed::<Int32Type>().write_batch(values, Some(levels), None)?,
            Self::DateAsMidnight(values) => column.typed::<Int32Type>().write_batch(values, None, None)?,
            Self::Decimal(values, levels, _) => column.typed::<Int64Type>().write_batch(values, Some(levels), None)?,
            Self::WideDecimal(values, levels, _) => {
                column.typed::<FixedLenByteArrayType>().write_batch(values, Some(levels), None)?
            }
        };
        Ok(())
    }
}

/// The buffered rows, column by column.
struct ParquetRowGroup {
    columns: Vec<ColumnValues>,
    column_index: usize,
    /// The first cell that could not be stored, and why.
    error: Option<String>,
}

impl ParquetRowGroup {
    fn next_column(&mut self) -> Option<&mut ColumnValues> {
        self.column_index += 1;
        self.columns.get_mut(self.column_index - 1)
    }

    fn record_type_mismatch(&mut self) {
        self.error.get_or_insert_with(|| format!("cell {} is not of its column's kind", self.column_index));
    }

    fn push_text_bytes(&mut self, text: Vec<u8>) {
        match self.next_column() {
            Some(ColumnValues::Text(values)) => values.push(text.into()),
            _ => self.record_type_mismatch(),
        }
    }
}

fn days_since_epoch(day: NaiveDate) -> i32 {
    day.num_days_from_ce() - NaiveDate::from_ymd_opt(1970, 1, 1).map_or(0, |day| day.num_days_from_ce())
}

/// The value in units of the last decimal place; `None` if it does not fit exactly.
fn to_unscaled(value: Decimal, scale: u32, precision: u32) -> Option<i128> {
    let value = value.normalize();
    let factor = 10i128.checked_pow(scale.checked_sub(value.scale())?)?;
    let unscaled = value.mantissa().checked_mul(factor)?;
    (unscaled.unsigned_abs() < 10u128.pow(precision)).then_some(unscaled)
}

impl CellWriter for ParquetRowGroup {
    fn write_text(&mut self, text: &str) {
        self.push_text_bytes(text.as_bytes().to_vec());
    }

    fn write_code(&mut self, code: u32) {
        self.push_text_bytes(code.to_string().into_bytes());
    }

    fn write_text_list(&mut self, texts: &mut dyn Iterator<Item = &str>) {
        let Some(ColumnValues::TextList(values, levels, repetitions)) = self.next_column() else {
            return self.record_type_mismatch();
        };
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

    fn write_integer(&mut self, number: i64) {
        match self.next_column() {
            Some(ColumnValues::Integer(values)) => values.push(number),
            _ => self.record_type_mismatch(),
        }
    }

    fn write_boolean(&mut self, flag: bool) {
        match self.next_column() {
            Some(ColumnValues::Boolean(values)) => values.push(flag),
            _ => self.record_type_mismatch(),
        }
    }

    fn write_date(&mut self, day: Option<NaiveDate>) {
        match self.next_column() {
            Some(ColumnValues::Date(values, levels)) => {
                levels.push(i16::from(day.is_some()));
                values.extend(day.map(days_since_epoch));
            }
            _ => self.record_type_mismatch(),
        }
    }

    fn write_date_as_midnight(&mut self, day: NaiveDate) {
        match self.next_column() {
            Some(ColumnValues::DateAsMidnight(values)) => values.push(days_since_epoch(day)),
            _ => self.record_type_mismatch(),
        }
    }

    fn write_decimal(&mut self, value: Option<Decimal>) {
        let (stored, precision, scale) = match self.next_column() {
            Some(ColumnValues::Decimal(values, levels, scale)) => {
                levels.push(i16::from(value.is_some()));
                let unscaled = value.and_then(|value| to_unscaled(value, *scale, DECIMAL_PRECISION));
                let narrow = unscaled.and_then(|unscaled| i64::try_from(unscaled).ok());
                values.extend(narrow);
                (narrow.is_some(), DECIMAL_PRECISION, *scale)
            }
            Some(ColumnValues::WideDecimal(values, levels, scale)) => {
                levels.push(i16::from(value.is_some()));
                let unscaled = value.and_then(|value| to_unscaled(value, *scale, WIDE_DECIMAL_PRECISION));
                values.extend(unscaled.map(|unscaled| ByteArray::from(unscaled.to_be_bytes().to_vec()).into()));
                (unscaled.is_some(), WIDE_DECIMAL_PRECISION, *scale)
            }
            _ => return self.record_type_mismatch(),
        };
        if let Some(value) = value.filter(|_| !stored) {
            let error = format!("{value} has more than {precision} digits or than {scale} decimals");
            self.error.get_or_insert(error);
        }
    }
}

#[cfg(test)]
mod tests {
    use parquet::file::reader::{FileReader, SerializedFileReader};

    use super::super::sample_tables;
    use super::*;

    #[test]
    fn every_column_type_round_trips() {
        let mut written = Vec::new();
        assert_eq!(
            write_parquet(sample_tables::table_with_every_column_type(3), &[("licence", "ODbL-1.0")], &mut written)
                .unwrap(),
            3
        );
        let file = SerializedFileReader::new(bytes::Bytes::from(written)).unwrap();

        let metadata = file.metadata().file_metadata().key_value_metadata().unwrap();
        assert!(metadata.iter().any(|pair| pair.key == "licence" && pair.value.as_deref() == Some("ODbL-1.0")));

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
    fn rows_across_several_groups_are_all_written() {
        let rows = 2 * ROWS_PER_GROUP as u32 + 1;
        let mut written = Vec::new();
        assert_eq!(
            write_parquet(sample_tables::table_with_every_column_type(rows), &[], &mut written).unwrap(),
            u64::from(rows)
        );
        let file = SerializedFileReader::new(bytes::Bytes::from(written)).unwrap();
        assert_eq!((file.num_row_groups(), file.metadata().file_metadata().num_rows()), (3, i64::from(rows)));
    }

    #[test]
    fn decimals_that_do_not_fit_are_rejected_not_rounded() {
        let write = |value: Decimal, column_type: ColumnType| {
            let columns = vec![Column::new("value", column_type)];
            let table = OutputTable::from_rows("one", columns, vec![value], |value, cells| {
                cells.write_decimal(Some(*value));
            });
            write_parquet(table, &[], Vec::new())
        };
        assert_eq!(write(Decimal::new(1_500, 3), ColumnType::Decimal(1)).unwrap(), 1, "zeros at the end are no digits");
        assert!(write(Decimal::new(155, 2), ColumnType::Decimal(1)).is_err());
        assert!(write(Decimal::from_i128_with_scale(10i128.pow(18), 0), ColumnType::Decimal(0)).is_err());
        assert!(write(Decimal::from_i128_with_scale(10i128.pow(18) - 1, 0), ColumnType::Decimal(0)).is_ok());
        let wide = Decimal::from_i128_with_scale(2_854_475_000_000_500_000, 6);
        assert!(write(wide, ColumnType::Decimal(10)).is_err());
        assert_eq!(write(wide, ColumnType::WideDecimal(10)).unwrap(), 1);
        assert!(write(Decimal::MAX, ColumnType::WideDecimal(10)).is_err());
        assert!(write(Decimal::ONE, ColumnType::Text).is_err(), "a cell of another kind");
    }
}
