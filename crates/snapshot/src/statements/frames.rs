//! Compressed documents: one zstd frame for each table, so that a table is read without decompressing the others.

use vintem_domain::statement::{StatementTable, StatementTableSet};
use zstd::bulk::Decompressor;
use zstd::zstd_safe::{find_frame_compressed_size, get_frame_content_size};

use crate::disk_cache::DiskCacheError;

/// Bounds memory only: a document of 840 rows has some 130 KB.
const MAX_FRAME_BYTES: u64 = 32 << 20;

/// The text of the wanted tables. All of the text if the frames are not one for each table: documents that were archived
/// early are a single frame.
pub fn decompress_tables(
    compressed: &[u8],
    tables: StatementTableSet,
    is_wanted: impl Fn(StatementTable) -> bool,
) -> Result<Vec<u8>, DiskCacheError> {
    let frames = split_into_frames(compressed)?;
    let has_frame_for_each_table = frames.len() == tables.iter().count();
    let mut decompressor = Decompressor::new()?;
    let mut text = Vec::new();
    if has_frame_for_each_table {
        for (frame, _) in frames.into_iter().zip(tables.iter()).filter(|(_, table)| is_wanted(*table)) {
            text.extend(decompress_frame(&mut decompressor, frame)?);
        }
    } else {
        for frame in frames {
            text.extend(decompress_frame(&mut decompressor, frame)?);
        }
    }
    Ok(text)
}

fn split_into_frames(compressed: &[u8]) -> Result<Vec<&[u8]>, DiskCacheError> {
    let mut frames = Vec::new();
    let mut rest = compressed;
    while !rest.is_empty() {
        let length = find_frame_compressed_size(rest).map_err(|_| damaged())?;
        let (frame, following) = rest.split_at_checked(length).ok_or_else(damaged)?;
        frames.push(frame);
        rest = following;
    }
    Ok(frames)
}

fn decompress_frame(decompressor: &mut Decompressor<'_>, frame: &[u8]) -> Result<Vec<u8>, DiskCacheError> {
    let size = get_frame_content_size(frame).ok().flatten().filter(|size| *size <= MAX_FRAME_BYTES);
    let size = size.and_then(|size| usize::try_from(size).ok()).ok_or_else(damaged)?;
    Ok(decompressor.decompress(frame, size)?)
}

fn damaged() -> DiskCacheError {
    DiskCacheError::Damaged("the compressed text of a statement is damaged")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames_of(texts: &[&str]) -> Vec<u8> {
        texts.iter().flat_map(|text| zstd::bulk::compress(text.as_bytes(), 3).unwrap()).collect()
    }

    #[test]
    fn only_wanted_tables_are_decompressed() {
        let tables = StatementTableSet::from_names(["DRE_ind", "BPA_con", "DRE_con"]);
        let mut compressed = frames_of(&["assets;", "consolidated;", "individual;"]);
        let read = |compressed: &[u8], wanted: &[&str]| {
            let text = decompress_tables(compressed, tables, |table| wanted.contains(&table.name)).unwrap();
            String::from_utf8(text).unwrap()
        };
        assert_eq!(read(&compressed, &["DRE_ind"]), "individual;");
        assert_eq!(read(&compressed, &["DRE_con", "BPA_con"]), "assets;consolidated;");
        assert_eq!(read(&compressed, &["DVA_con"]), "");

        // Damage of a table does not keep others from being read.
        let last = compressed.len() - 1;
        compressed[last] ^= 0xff;
        assert_eq!(read(&compressed, &["DRE_con"]), "consolidated;");
    }

    #[test]
    fn a_single_frame_has_all_tables() {
        let tables = StatementTableSet::from_names(["BPA_con", "DRE_con"]);
        let compressed = frames_of(&["assets;income;"]);
        assert_eq!(decompress_tables(&compressed, tables, |_| false).unwrap(), b"assets;income;");
    }

    #[test]
    fn what_is_no_frame_is_refused() {
        let tables = StatementTableSet::from_names(["BPA_con"]);
        let compressed = frames_of(&["assets;"]);
        assert!(decompress_tables(&compressed[..compressed.len() - 1], tables, |_| true).is_err());
        assert!(decompress_tables(b"assets;", tables, |_| true).is_err());
    }
}
