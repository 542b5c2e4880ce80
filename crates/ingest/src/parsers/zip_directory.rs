//! Reads the directory at the end of a ZIP archive, so that single members can be fetched from a server.

const END_SIGNATURE: &[u8] = b"PK\x05\x06";
const END_BYTES: usize = 22;
const ENTRY_SIGNATURE: &[u8] = b"PK\x01\x02";
const ENTRY_BYTES: usize = 46;

/// Where an archive has its members.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ZipDirectory {
    /// Sorted by offset.
    entries: Vec<ZipDirectoryEntry>,
    /// Where the directory begins, and the last member ends.
    offset: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct ZipDirectoryEntry {
    name: Vec<u8>,
    crc32: u32,
    size: u32,
    offset: u64,
}

/// Why a directory cannot be read from the end of an archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DirectoryError {
    /// It begins before these bytes, at this offset of the archive.
    BeginsEarlier(u64),
    /// It is damaged, or of a kind that we don't read. The archive as a whole may still be readable.
    Unreadable,
}

impl ZipDirectory {
    /// From the last bytes of an archive of this length.
    pub fn parse(tail: &[u8], archive_bytes: u64) -> Result<Self, DirectoryError> {
        let tail_offset = archive_bytes.checked_sub(tail.len() as u64).ok_or(DirectoryError::Unreadable)?;
        let last_possible = tail.len().checked_sub(END_BYTES).ok_or(DirectoryError::Unreadable)?;
        let end = (0..=last_possible).rev().find(|at| tail[*at..].starts_with(END_SIGNATURE));
        let end = end.ok_or(DirectoryError::Unreadable)?;

        let entry_count = read_u16(tail, end + 10)?;
        let offset = u64::from(read_u32(tail, end + 16)?);
        // Archives beyond 4 GB have their numbers elsewhere.
        if entry_count == u16::MAX || offset >= u64::from(u32::MAX) || offset >= archive_bytes {
            return Err(DirectoryError::Unreadable);
        }
        let Some(mut at) = offset.checked_sub(tail_offset).and_then(|at| usize::try_from(at).ok()) else {
            return Err(DirectoryError::BeginsEarlier(offset));
        };

        let mut entries = Vec::with_capacity(entry_count.into());
        for _ in 0..entry_count {
            if !tail.get(at..).is_some_and(|rest| rest.starts_with(ENTRY_SIGNATURE)) {
                return Err(DirectoryError::Unreadable);
            }
            let name_bytes = usize::from(read_u16(tail, at + 28)?);
            let name = tail.get(at + ENTRY_BYTES..at + ENTRY_BYTES + name_bytes).ok_or(DirectoryError::Unreadable)?;
            entries.push(ZipDirectoryEntry {
                name: name.to_owned(),
                crc32: read_u32(tail, at + 16)?,
                size: read_u32(tail, at + 24)?,
                offset: read_u32(tail, at + 42)?.into(),
            });
            at += ENTRY_BYTES
                + name_bytes
                + usize::from(read_u16(tail, at + 30)?)
                + usize::from(read_u16(tail, at + 32)?);
        }
        entries.sort_by_key(|entry| entry.offset);
        Ok(Self { entries, offset })
    }

    /// The bytes of these members with their headers, in order: for each range the first byte, and the one after the last.
    /// Neighbors share a range. `None` if a member is missing.
    pub fn member_ranges(&self, names: &[String]) -> Option<Vec<(u64, u64)>> {
        let mut ranges = names.iter().map(|name| self.member_range(name)).collect::<Option<Vec<_>>>()?;
        ranges.sort_unstable();
        ranges.dedup_by(|next, range| {
            let are_neighbors = next.0 <= range.1;
            if are_neighbors {
                range.1 = range.1.max(next.1);
            }
            are_neighbors
        });
        Some(ranges)
    }

    fn member_range(&self, name: &str) -> Option<(u64, u64)> {
        let index = self.entries.iter().position(|entry| entry.name == name.as_bytes())?;
        let end = self.entries.get(index + 1).map_or(self.offset, |next| next.offset);
        let start = self.entries[index].offset;
        (start < end && end <= self.offset).then_some((start, end))
    }

    /// Changes with the content of these members. `None` if one of them is missing.
    pub fn fingerprint(&self, names: &[String]) -> Option<String> {
        let parts = names.iter().map(|name| {
            let entry = self.entries.iter().find(|entry| entry.name == name.as_bytes())?;
            Some(format!("{:08x}-{}", entry.crc32, entry.size))
        });
        Some(parts.collect::<Option<Vec<_>>>()?.join(" "))
    }
}

fn read_u16(bytes: &[u8], at: usize) -> Result<u16, DirectoryError> {
    let field = bytes.get(at..at + 2).ok_or(DirectoryError::Unreadable)?;
    Ok(u16::from_le_bytes([field[0], field[1]]))
}

fn read_u32(bytes: &[u8], at: usize) -> Result<u32, DirectoryError> {
    let field = bytes.get(at..at + 4).ok_or(DirectoryError::Unreadable)?;
    Ok(u32::from_le_bytes([field[0], field[1], field[2], field[3]]))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::parsers::zip::CheckedZipArchive;
    use crate::parsers::zip::tests::build_archive;

    #[test]
    fn a_member_can_be_read_from_its_own_bytes_and_the_directory() {
        let long = (0..5_000u32).map(|number| (number.wrapping_mul(2_654_435_761) >> 24) as u8).collect::<Vec<_>>();
        let archive = build_archive(&[("first.csv", &long), ("second.csv", b"content"), ("third.csv", b"")]);
        let length = archive.len() as u64;
        let directory = ZipDirectory::parse(&archive, length).unwrap();
        let tail = &archive[usize::try_from(directory.offset).unwrap()..];
        assert_eq!(ZipDirectory::parse(tail, length).unwrap(), directory);
        assert_eq!(
            ZipDirectory::parse(&tail[1..], length),
            Err(DirectoryError::BeginsEarlier(directory.offset)),
            "the first byte is missing"
        );

        for (name, content) in [("first.csv", long.clone()), ("second.csv", b"content".to_vec()), ("third.csv", vec![])]
        {
            let (start, end) = directory.member_range(name).unwrap();
            let mut pieces = vec![0; archive.len()];
            pieces[archive.len() - tail.len()..].copy_from_slice(tail);
            let member = usize::try_from(start).unwrap()..usize::try_from(end).unwrap();
            pieces[member.clone()].copy_from_slice(&archive[member]);
            assert_eq!(CheckedZipArchive::open_pieces(&pieces).unwrap().read_member(name).unwrap(), content);
        }
        assert_eq!(directory.member_range("fourth.csv"), None);

        let ranges_of =
            |names: &[&str]| directory.member_ranges(&names.iter().map(ToString::to_string).collect::<Vec<_>>());
        let [first, second, third] =
            ["first.csv", "second.csv", "third.csv"].map(|name| directory.member_range(name).unwrap());
        assert_eq!(ranges_of(&["third.csv", "first.csv"]), Some(vec![first, third]));
        assert_eq!(ranges_of(&["second.csv", "first.csv"]), Some(vec![(first.0, second.1)]), "neighbors");
        assert_eq!(ranges_of(&["first.csv", "fourth.csv"]), None);
    }

    #[test]
    fn the_fingerprint_changes_with_the_content() {
        let names = ["a.csv".to_owned()];
        let fingerprint = |content: &[u8]| {
            let archive = build_archive(&[("a.csv", content), ("b.csv", b"other")]);
            ZipDirectory::parse(&archive, archive.len() as u64).unwrap().fingerprint(&names)
        };
        assert_ne!(fingerprint(b"one"), fingerprint(b"two"));
        assert_eq!(fingerprint(b"one"), fingerprint(b"one"));
        let archive = build_archive(&[("b.csv", b"other")]);
        assert_eq!(ZipDirectory::parse(&archive, archive.len() as u64).unwrap().fingerprint(&names), None);
    }

    proptest! {
        #[test]
        fn parsing_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..300), length in any::<u32>()) {
            let _ = ZipDirectory::parse(&bytes, length.into());
            let mut archive = build_archive(&[("a.csv", b"content")]);
            for (at, byte) in bytes.iter().enumerate() {
                let at = (at * 37 + usize::from(*byte)) % archive.len();
                archive[at] = *byte;
            }
            if let Ok(directory) = ZipDirectory::parse(&archive, archive.len() as u64) {
                let _ = directory.member_range("a.csv");
            }
        }
    }
}
