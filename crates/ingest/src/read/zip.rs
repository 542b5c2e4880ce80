//! The regulator's archives, opened in memory and without trust: what an archive says of itself is checked before a
//! byte is inflated, and again while it is.

use std::io::{Cursor, Read as _};

use zip::ZipArchive;

use super::Refused;
use super::text::{decode, quoted};

/// Twice the largest archive that the regulator publishes.
pub const MOST_ARCHIVE_BYTES: usize = 64 << 20;

/// The largest member that we read has some 25 MB. Whatever inflates beyond this is a trap or somebody's accident.
pub const MOST_MEMBER_BYTES: u64 = 200_000_000;

/// Tables of text shrink to a tenth; only repetition without content shrinks to a hundredth.
pub const MOST_RATIO: u64 = 100;

/// The largest archive has 36.
const MOST_MEMBERS: usize = 1_000;

#[derive(Debug)]
pub struct Archive<'a> {
    archive: ZipArchive<Cursor<&'a [u8]>>,
}

impl<'a> Archive<'a> {
    pub fn open(bytes: &'a [u8]) -> Result<Self, Refused> {
        if bytes.is_empty() {
            return Err(Refused::Empty);
        }
        if bytes.len() > MOST_ARCHIVE_BYTES {
            return Err(Refused::TooLarge { most_bytes: MOST_ARCHIVE_BYTES });
        }
        if !bytes.starts_with(b"PK") {
            let beginning = quoted(&decode(&bytes[..bytes.len().min(100)]));
            let found = format!("it begins with {beginning}");
            return Err(Refused::NotTheFormat { expected: "a ZIP archive", found });
        }
        let archive = ZipArchive::new(Cursor::new(bytes)).map_err(damaged)?;
        if archive.len() > MOST_MEMBERS {
            return Err(Refused::ArchiveDamaged(format!("it lists {} members", archive.len())));
        }
        if archive.has_duplicate_names() {
            return Err(Refused::ArchiveDamaged("it has two members of the same name".to_owned()));
        }
        for name in archive.file_names_raw() {
            if leads_out(name) {
                return Err(Refused::UnsafeMemberName(decode(&name[..name.len().min(200)]).into_owned()));
            }
        }
        Ok(Self { archive })
    }

    /// All of the member with exactly this name.
    pub fn member(&mut self, name: &str) -> Result<Vec<u8>, Refused> {
        let Some(at) = self.archive.index_for_name(name) else {
            return Err(Refused::MemberMissing(name.to_owned()));
        };
        let file = self.archive.by_index(at).map_err(damaged)?;
        let declared_bytes = file.size();
        if declared_bytes > MOST_MEMBER_BYTES {
            return Err(Refused::MemberTooLarge { name: name.to_owned(), most_bytes: MOST_MEMBER_BYTES });
        }
        if declared_bytes > file.compressed_size().saturating_mul(MOST_RATIO) {
            return Err(Refused::MemberTooDense { name: name.to_owned(), most_ratio: MOST_RATIO });
        }
        // One byte beyond what is declared shows that the declaration was a lie, and is all that is read of it.
        let mut bytes = Vec::new();
        let read = file.take(declared_bytes + 1).read_to_end(&mut bytes);
        read.map_err(|error| Refused::ArchiveDamaged(format!("{name}: {error}")))?;
        if bytes.len() as u64 != declared_bytes {
            let mismatch = format!("{name} should have {declared_bytes} bytes, but has more or fewer");
            return Err(Refused::ArchiveDamaged(mismatch));
        }
        Ok(bytes)
    }
}

/// Nothing is ever written to a disk under such a name; but an archive that holds one was not made by the regulator.
fn leads_out(name: &[u8]) -> bool {
    let is_absolute = name.starts_with(b"/") || name.starts_with(b"\\") || name.contains(&b':');
    let has_parent = name.split(|byte| matches!(byte, b'/' | b'\\')).any(|part| part == b"..");
    is_absolute || has_parent || name.contains(&0)
}

fn damaged(error: impl std::fmt::Display) -> Refused {
    Refused::ArchiveDamaged(error.to_string())
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use proptest::prelude::*;
    use zip::ZipWriter;
    use zip::write::SimpleFileOptions;

    use super::*;

    const NAME: &str = "ipe_cia_aberta_2026.csv";

    fn archive(members: &[(&str, &[u8])]) -> Vec<u8> {
        let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
        for (name, content) in members {
            writer.start_file(*name, SimpleFileOptions::default()).unwrap();
            writer.write_all(content).unwrap();
        }
        writer.finish().unwrap().into_inner()
    }

    /// Lines that differ, so that they shrink as real ones do.
    fn content() -> Vec<u8> {
        (0..2_000u32)
            .flat_map(|number| format!("{};{:x}\r\n", number, number.wrapping_mul(2_654_435_761)).into_bytes())
            .collect()
    }

    fn member(bytes: &[u8]) -> Result<Vec<u8>, Refused> {
        Archive::open(bytes)?.member(NAME)
    }

    /// The archive with another declared size, wherever it stands: in the local header and in the directory.
    fn with_declared_size(mut bytes: Vec<u8>, size: u32) -> Vec<u8> {
        let true_size = u32::try_from(content().len()).unwrap().to_le_bytes();
        let places: Vec<usize> =
            bytes.windows(4).enumerate().filter(|(_, four)| *four == true_size).map(|(at, _)| at).collect();
        assert_eq!(places.len(), 2);
        for at in places {
            bytes[at..at + 4].copy_from_slice(&size.to_le_bytes());
        }
        bytes
    }

    #[test]
    fn a_member_is_found_by_its_exact_name() {
        let bytes = archive(&[("other.csv", b"no"), (NAME, &content())]);
        assert_eq!(member(&bytes).unwrap(), content());
        let mut archive = Archive::open(&bytes).unwrap();
        assert_eq!(archive.member("other.csv").unwrap(), b"no");
        for name in ["IPE_CIA_ABERTA_2026.csv", "ipe_cia_aberta_2025.csv", ""] {
            assert_eq!(archive.member(name), Err(Refused::MemberMissing(name.to_owned())));
        }
    }

    #[test]
    fn an_empty_member_is_empty() {
        assert_eq!(member(&archive(&[(NAME, b"")])).unwrap(), b"");
    }

    #[test]
    fn what_is_no_archive_is_refused() {
        assert_eq!(member(b""), Err(Refused::Empty));
        let page = member(b"<html>404 Not Found</html>").unwrap_err();
        assert_eq!(page.to_string(), "it should be a ZIP archive, but it begins with \"<html>404 Not Found</html>\"");
        assert!(matches!(member(b"PK"), Err(Refused::ArchiveDamaged(_))));
        assert_eq!(
            member(&vec![b'P'; MOST_ARCHIVE_BYTES + 1]),
            Err(Refused::TooLarge { most_bytes: MOST_ARCHIVE_BYTES })
        );
    }

    #[test]
    fn an_archive_cut_off_anywhere_is_refused() {
        let bytes = archive(&[(NAME, &content())]);
        for tenth in 0..10 {
            assert!(member(&bytes[..bytes.len() * tenth / 10]).is_err(), "{tenth}");
        }
        assert!(member(&bytes[..bytes.len() - 1]).is_err());
    }

    #[test]
    fn names_that_lead_out_are_refused() {
        for name in
            ["../evil.csv", "a/../../evil.csv", "/etc/evil.csv", "..\\evil.csv", "C:\\evil.csv", "\\\\host\\evil"]
        {
            let bytes = archive(&[(NAME, &content()), (name, b"x")]);
            assert!(matches!(member(&bytes), Err(Refused::UnsafeMemberName(_))), "{name}");
        }
        assert!(member(&archive(&[(NAME, &content()), ("notes..txt", b"x")])).is_ok());
    }

    #[test]
    fn a_bomb_is_refused_before_it_is_inflated() {
        let bomb = archive(&[(NAME, &vec![b'0'; 1 << 20])]);
        assert_eq!(member(&bomb), Err(Refused::MemberTooDense { name: NAME.to_owned(), most_ratio: MOST_RATIO }));
        let huge = with_declared_size(archive(&[(NAME, &content())]), 200_000_001);
        assert_eq!(
            member(&huge),
            Err(Refused::MemberTooLarge { name: NAME.to_owned(), most_bytes: MOST_MEMBER_BYTES })
        );
    }

    #[test]
    fn a_declared_size_is_not_believed() {
        for size in [0, 10, 40_000] {
            let lying = with_declared_size(archive(&[(NAME, &content())]), size);
            assert!(matches!(member(&lying), Err(Refused::ArchiveDamaged(_))), "{size}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn a_changed_byte_is_found_out_or_harmless(at in any::<proptest::sample::Index>(), byte in any::<u8>()) {
            let mut bytes = archive(&[(NAME, &content())]);
            let at = at.index(bytes.len());
            bytes[at] = byte;
            if let Ok(read) = member(&bytes) {
                prop_assert_eq!(read, content());
            }
        }

        #[test]
        fn nothing_panics(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = member(&[b"PK\x03\x04", bytes.as_slice()].concat());
        }
    }
}
