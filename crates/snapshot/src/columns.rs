//! Columns for filings: many texts in one allocation, and repeated texts stored once.

use std::collections::HashMap;

use crate::disk_cache::{DiskCacheError, DiskCacheReader, DiskCacheWriter};

/// Many short texts in one allocation, with four bytes of overhead for each.
#[derive(Debug, Default)]
pub struct TextColumn {
    characters: String,
    end_offsets: Vec<u32>,
}

impl TextColumn {
    pub fn push(&mut self, text: &str) {
        self.characters.push_str(text);
        // No replica holds anywhere near 4 GiB of text.
        self.end_offsets.push(u32::try_from(self.characters.len()).expect("a column holds less than 4 GiB of text"));
    }

    pub fn get(&self, index: u32) -> &str {
        let index = index as usize;
        let start = if index == 0 { 0 } else { self.end_offsets[index - 1] as usize };
        &self.characters[start..self.end_offsets[index] as usize]
    }

    pub fn write_to(&self, writer: &mut DiskCacheWriter) -> Result<(), DiskCacheError> {
        writer.write_bytes(self.characters.as_bytes())?;
        writer.write_numbers(&self.end_offsets)
    }

    pub fn read_from(reader: &mut DiskCacheReader) -> Result<Self, DiskCacheError> {
        Ok(Self { characters: reader.read_string()?, end_offsets: reader.read_numbers()? })
    }

    /// The same texts in another order.
    pub fn reordered(&self, order: &[u32]) -> Self {
        let mut column = Self {
            characters: String::with_capacity(self.characters.len()),
            end_offsets: Vec::with_capacity(order.len()),
        };
        for index in order {
            column.push(self.get(*index));
        }
        column
    }
}

/// Stores each distinct text once and gives it an id.
#[derive(Debug, Default)]
pub struct Interner {
    ids: HashMap<String, u32>,
    texts: Vec<String>,
}

impl Interner {
    pub fn intern(&mut self, text: &str) -> u32 {
        if let Some(id) = self.ids.get(text) {
            return *id;
        }

        let id = self.texts.len() as u32;
        self.ids.insert(text.to_owned(), id);
        self.texts.push(text.to_owned());
        id
    }

    pub fn read_from(reader: &mut DiskCacheReader) -> Result<Self, DiskCacheError> {
        let texts = reader.read_strings()?;
        Ok(Self { ids: texts.iter().cloned().zip(0..).collect(), texts })
    }

    pub fn find_id(&self, text: &str) -> Option<u32> {
        self.ids.get(text).copied()
    }

    pub fn get(&self, id: u32) -> &str {
        &self.texts[id as usize]
    }

    pub fn texts(&self) -> &[String] {
        &self.texts
    }
}

/// The rows of each group, in ascending order, in one allocation.
#[derive(Debug, Default)]
pub struct RowGroups {
    group_starts: Vec<u32>,
    rows: Vec<u32>,
}

impl RowGroups {
    /// Sorts rows into groups; `group_of` gives the group of each row.
    pub fn new(group_count: usize, group_of: impl Fn(u32) -> u32, row_count: usize) -> Self {
        let mut group_starts = vec![0u32; group_count + 1];
        for row in 0..row_count as u32 {
            group_starts[group_of(row) as usize + 1] += 1;
        }
        for group in 0..group_count {
            group_starts[group + 1] += group_starts[group];
        }

        let mut next_positions = group_starts.clone();
        let mut rows = vec![0u32; row_count];
        for row in 0..row_count as u32 {
            let position = &mut next_positions[group_of(row) as usize];
            rows[*position as usize] = row;
            *position += 1;
        }

        Self { group_starts, rows }
    }

    pub fn write_to(&self, writer: &mut DiskCacheWriter) -> Result<(), DiskCacheError> {
        writer.write_numbers(&self.group_starts)?;
        writer.write_numbers(&self.rows)
    }

    pub fn read_from(reader: &mut DiskCacheReader) -> Result<Self, DiskCacheError> {
        Ok(Self { group_starts: reader.read_numbers()?, rows: reader.read_numbers()? })
    }

    pub fn get(&self, group: u32) -> &[u32] {
        let group = group as usize;
        &self.rows[self.group_starts[group] as usize..self.group_starts[group + 1] as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_column_can_be_reordered() {
        let mut column = TextColumn::default();
        for text in ["um", "", "três"] {
            column.push(text);
        }
        let reversed = column.reordered(&[2, 1, 0]);
        assert_eq!((0..3).map(|index| reversed.get(index)).collect::<Vec<_>>(), ["três", "", "um"]);
    }

    #[test]
    fn each_group_lists_its_rows_in_order() {
        let group_of_row = [1u32, 0, 1, 2, 1];
        let groups = RowGroups::new(3, |row| group_of_row[row as usize], group_of_row.len());
        assert_eq!(groups.get(0), [1]);
        assert_eq!(groups.get(1), [0, 2, 4]);
        assert_eq!(groups.get(2), [3]);
    }
}
