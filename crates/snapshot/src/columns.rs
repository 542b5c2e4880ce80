//! The columns that filings are kept in: texts in one piece of memory, repeated texts once.

use std::collections::HashMap;

use crate::disk_cache::{DiskCacheError, DiskCacheReader, DiskCacheWriter};

/// Many short texts in one allocation: four bytes each beside their characters.
#[derive(Debug, Default)]
pub struct TextColumn {
    characters: String,
    end_offsets: Vec<u32>,
}

impl TextColumn {
    pub fn push(&mut self, text: &str) {
        self.characters.push_str(text);
        // 4 GiB of text is beyond every size that one replica carries.
        self.end_offsets.push(u32::try_from(self.characters.len()).expect("a column holds less than 4 GiB of text"));
    }

    pub fn get(&self, at: u32) -> &str {
        let at = at as usize;
        let start = if at == 0 { 0 } else { self.end_offsets[at - 1] as usize };
        &self.characters[start..self.end_offsets[at] as usize]
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
        for at in order {
            column.push(self.get(*at));
        }
        column
    }
}

/// Each distinct text once, by number.
#[derive(Debug, Default)]
pub struct Interner {
    ids: HashMap<String, u32>,
    texts: Vec<String>,
}

impl Interner {
    pub fn intern(&mut self, text: &str) -> u32 {
        if let Some(number) = self.ids.get(text) {
            return *number;
        }
        let number = self.texts.len() as u32;
        self.ids.insert(text.to_owned(), number);
        self.texts.push(text.to_owned());
        number
    }

    pub fn read_from(reader: &mut DiskCacheReader) -> Result<Self, DiskCacheError> {
        let texts = reader.read_strings()?;
        Ok(Self { ids: texts.iter().cloned().zip(0..).collect(), texts })
    }

    pub fn find_id(&self, text: &str) -> Option<u32> {
        self.ids.get(text).copied()
    }

    pub fn get(&self, number: u32) -> &str {
        &self.texts[number as usize]
    }

    pub fn texts(&self) -> &[String] {
        &self.texts
    }
}

/// For each group the rows that belong to it, in ascending order, in one allocation.
#[derive(Debug, Default)]
pub struct RowGroups {
    group_starts: Vec<u32>,
    rows: Vec<u32>,
}

impl RowGroups {
    /// From the group of every row.
    pub fn new(group_count: usize, group_of: impl Fn(u32) -> u32, row_count: usize) -> Self {
        let mut group_starts = vec![0u32; group_count + 1];
        for row in 0..row_count as u32 {
            group_starts[group_of(row) as usize + 1] += 1;
        }
        for group in 0..group_count {
            group_starts[group + 1] += group_starts[group];
        }
        let mut next = group_starts.clone();
        let mut sorted = vec![0u32; row_count];
        for row in 0..row_count as u32 {
            let place = &mut next[group_of(row) as usize];
            sorted[*place as usize] = row;
            *place += 1;
        }
        Self { group_starts, rows: sorted }
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
        assert_eq!((0..3).map(|at| reversed.get(at)).collect::<Vec<_>>(), ["três", "", "um"]);
    }

    #[test]
    fn each_group_lists_its_rows_in_order() {
        let of = [1u32, 0, 1, 2, 1];
        let groups = RowGroups::new(3, |row| of[row as usize], of.len());
        assert_eq!(groups.get(0), [1]);
        assert_eq!(groups.get(1), [0, 2, 4]);
        assert_eq!(groups.get(2), [3]);
    }
}
