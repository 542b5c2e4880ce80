//! The columns that filings are kept in: texts in one piece of memory, repeated texts once.

use std::collections::HashMap;

use crate::copy::{CopyError, CopyReader, CopyWriter};

/// Many short texts in one allocation: four bytes each beside their characters.
#[derive(Debug, Default)]
pub struct TextColumn {
    characters: String,
    ends: Vec<u32>,
}

impl TextColumn {
    pub fn push(&mut self, text: &str) {
        self.characters.push_str(text);
        // 4 GiB of text is beyond every size that one replica carries.
        self.ends.push(u32::try_from(self.characters.len()).expect("a column holds less than 4 GiB of text"));
    }

    pub fn get(&self, at: u32) -> &str {
        let at = at as usize;
        let start = if at == 0 { 0 } else { self.ends[at - 1] as usize };
        &self.characters[start..self.ends[at] as usize]
    }

    pub fn write_to(&self, copy: &mut CopyWriter) -> Result<(), CopyError> {
        copy.bytes(self.characters.as_bytes())?;
        copy.numbers(&self.ends)
    }

    pub fn read_from(copy: &mut CopyReader) -> Result<Self, CopyError> {
        Ok(Self { characters: copy.text()?, ends: copy.numbers()? })
    }

    /// The same texts in another order.
    pub fn reordered(&self, order: &[u32]) -> Self {
        let mut column =
            Self { characters: String::with_capacity(self.characters.len()), ends: Vec::with_capacity(order.len()) };
        for at in order {
            column.push(self.get(*at));
        }
        column
    }
}

/// Each distinct text once, by number.
#[derive(Debug, Default)]
pub struct Interner {
    numbers: HashMap<String, u32>,
    texts: Vec<String>,
}

impl Interner {
    pub fn number(&mut self, text: &str) -> u32 {
        if let Some(number) = self.numbers.get(text) {
            return *number;
        }
        let number = self.texts.len() as u32;
        self.numbers.insert(text.to_owned(), number);
        self.texts.push(text.to_owned());
        number
    }

    pub fn read_from(copy: &mut CopyReader) -> Result<Self, CopyError> {
        let texts = copy.texts()?;
        Ok(Self { numbers: texts.iter().cloned().zip(0..).collect(), texts })
    }

    pub fn find(&self, text: &str) -> Option<u32> {
        self.numbers.get(text).copied()
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
pub struct Groups {
    starts: Vec<u32>,
    rows: Vec<u32>,
}

impl Groups {
    /// From the group of every row.
    pub fn new(groups: usize, group_of: impl Fn(u32) -> u32, rows: usize) -> Self {
        let mut starts = vec![0u32; groups + 1];
        for row in 0..rows as u32 {
            starts[group_of(row) as usize + 1] += 1;
        }
        for group in 0..groups {
            starts[group + 1] += starts[group];
        }
        let mut next = starts.clone();
        let mut sorted = vec![0u32; rows];
        for row in 0..rows as u32 {
            let place = &mut next[group_of(row) as usize];
            sorted[*place as usize] = row;
            *place += 1;
        }
        Self { starts, rows: sorted }
    }

    pub fn write_to(&self, copy: &mut CopyWriter) -> Result<(), CopyError> {
        copy.numbers(&self.starts)?;
        copy.numbers(&self.rows)
    }

    pub fn read_from(copy: &mut CopyReader) -> Result<Self, CopyError> {
        Ok(Self { starts: copy.numbers()?, rows: copy.numbers()? })
    }

    pub fn get(&self, group: u32) -> &[u32] {
        let group = group as usize;
        &self.rows[self.starts[group] as usize..self.starts[group + 1] as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_come_back_in_any_order() {
        let mut column = TextColumn::default();
        for text in ["um", "", "três"] {
            column.push(text);
        }
        let reversed = column.reordered(&[2, 1, 0]);
        assert_eq!((0..3).map(|at| reversed.get(at)).collect::<Vec<_>>(), ["três", "", "um"]);
    }

    #[test]
    fn groups_hold_their_rows_in_order() {
        let of = [1u32, 0, 1, 2, 1];
        let groups = Groups::new(3, |row| of[row as usize], of.len());
        assert_eq!(groups.get(0), [1]);
        assert_eq!(groups.get(1), [0, 2, 4]);
        assert_eq!(groups.get(2), [3]);
    }
}
