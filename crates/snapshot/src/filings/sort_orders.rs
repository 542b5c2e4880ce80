//! The orders in which a layer keeps its rows.

use std::cmp::Reverse;

use super::filing_columns::FilingColumns;
use crate::columns::TextColumn;

/// Rows sorted by date, then id, both descending.
pub fn sorted_by_date_and_id(columns: &FilingColumns) -> Vec<u32> {
    let mut keys: Vec<(Reverse<i32>, Reverse<u64>, u32)> = (0..columns.len() as u32)
        .map(|row| (Reverse(columns.delivered_on[row as usize]), Reverse(prefix_sort_key(columns.ids.get(row))), row))
        .collect();
    keys.sort_unstable_by(|one, other| {
        (one.0, one.1).cmp(&(other.0, other.1)).then_with(|| columns.ids.get(other.2).cmp(columns.ids.get(one.2)))
    });

    keys.into_iter().map(|(_, _, row)| row).collect()
}

pub fn sorted_by_id(ids: &TextColumn, row_count: usize) -> Vec<u32> {
    let mut keys: Vec<(u64, u32)> = (0..row_count as u32).map(|row| (prefix_sort_key(ids.get(row)), row)).collect();
    keys.sort_unstable_by(|one, other| one.0.cmp(&other.0).then_with(|| ids.get(one.1).cmp(ids.get(other.1))));
    keys.into_iter().map(|(_, row)| row).collect()
}

pub fn sorted_by_company_and_category(
    row_count: usize,
    company_of: impl Fn(u32) -> u32,
    category_of: impl Fn(u32) -> u32,
) -> Vec<u32> {
    let mut keys: Vec<(u64, u32)> = (0..row_count as u32)
        .map(|row| (u64::from(company_of(row)) << 32 | u64::from(category_of(row)), row))
        .collect();
    keys.sort_unstable();
    keys.into_iter().map(|(_, row)| row).collect()
}

/// The first eight bytes of a text as a number that sorts alike: most comparisons need no more.
fn prefix_sort_key(text: &str) -> u64 {
    let mut bytes = [0; 8];
    let length = text.len().min(8);
    bytes[..length].copy_from_slice(&text.as_bytes()[..length]);
    u64::from_be_bytes(bytes)
}
