//! Reads the regulator's ZIP archives in memory without trusting them: declared sizes are checked before decompression,
//! and again during it.

use std::io::{Cursor, Read as _};

use zip::ZipArchive;

use super::FormatError;
use super::text::{decode_latin1, quote_truncated};

/// Twice the largest archive that the regulator publishes.
pub const MAX_ARCHIVE_BYTES: usize = 64 << 20;

/// The largest member that we read has about 25 MB. A member beyond this limit is a zip bomb or an accident.
pub const MAX_MEMBER_BYTES: u64 = 200_000_000;

/// Text tables compress to a tenth; only repetition without content compresses to a hundredth.
pub const MAX_COMPRESSION_RATIO: u64 = 100;

/// The largest archive has 36 members.
const MAX_MEMBERS: usize = 1_000;

#[derive(Debug)]
pub struct CheckedZipArchive<'a> {
    inner: ZipArchive<Cursor<&'a [u8]>>,
}

impl<'a> CheckedZipArchive<'a> {
    pub fn open(bytes: &'a [u8]) -> Result<Self, FormatError> {
        if bytes.is_empty() {
            return Err(FormatError::Empty);
        }
        if bytes.len() > MAX_ARCHIVE_BYTES {
            return Err(FormatError::TooLarge { max_bytes: MAX_ARCHIVE_BYTES });
        }
        if !bytes.starts_with(b"PK") {
            let start = quote_truncated(&decode_latin1(&bytes[..bytes.len().min(100)]));
            let found = format!("it begins with {start}");
            return Err(FormatError::UnexpectedFormat { expected: "a ZIP archive", found });
        }
        Self::open_pieces(bytes)
    }

    /// An archive of which only the directory and the needed members are there; all other bytes are zero.
    pub fn open_pieces(bytes: &'a [u8]) -> Result<Self, FormatError> {
        let archive = ZipArchive::new(Cursor::new(bytes)).map_err(corrupt_archive)?;
        if archive.len() > MAX_MEMBERS {
            return Err(FormatError::CorruptArchive(format!("it lists {} members", archive.len())));
        }
        if archive.has_duplicate_names() {
            return Err(FormatError::CorruptArchive("it has two members of the same name".to_owned()));
        }

        for name in archive.file_names_raw() {
            if is_unsafe_path(name) {
                return Err(FormatError::UnsafeMemberName(decode_latin1(&name[..name.len().min(200)]).into_owned()));
            }
        }
        Ok(Self { inner: archive })
    }

    /// The content of the member with exactly this name.
    pub fn read_member(&mut self, name: &str) -> Result<Vec<u8>, FormatError> {
        let Some(index) = self.inner.index_for_name(name) else {
            return Err(FormatError::MissingMember(name.to_owned()));
        };

        let file = self.inner.by_index(index).map_err(corrupt_archive)?;
        let declared_bytes = file.size();
        if declared_bytes > MAX_MEMBER_BYTES {
            return Err(FormatError::MemberTooLarge { name: name.to_owned(), max_bytes: MAX_MEMBER_BYTES });
        }
        if declared_bytes > file.compressed_size().saturating_mul(MAX_COMPRESSION_RATIO) {
            return Err(FormatError::CompressionRatioTooHigh {
                name: name.to_owned(),
                max_ratio: MAX_COMPRESSION_RATIO,
            });
        }

        // Reading one byte beyond the declared size is enough to detect a wrong size. A vector that grows would end with
        // up to twice the memory.
        let mut bytes = Vec::with_capacity(usize::try_from(declared_bytes + 1).unwrap_or_default());
        file.take(declared_bytes + 1)
            .read_to_end(&mut bytes)
            .map_err(|error| FormatError::CorruptArchive(format!("{name}: {error}")))?;
        if bytes.len() as u64 != declared_bytes {
            let mismatch = format!("{name} should have {declared_bytes} bytes, but has more or fewer");
            return Err(FormatError::CorruptArchive(mismatch));
        }
        Ok(bytes)
    }
}

/// Nothing is ever written to disk under these names, but an archive that has one was not made by the regulator.
fn is_unsafe_path(name: &[u8]) -> bool {
    let is_absolute = name.starts_with(b"/") || name.starts_with(b"\\") || name.contains(&b':');
    let has_parent = name.split(|byte| matches!(byte, b'/' | b'\\')).any(|part| part == b"..");
    is_absolute || has_parent || name.contains(&0)
}

fn corrupt_archive(error: impl std::fmt::Display) -> FormatError {
    FormatError::CorruptArchive(error.to_string())
}

#[cfg(test)]
pub(super) mod tests {
    use std::io::Write as _;

    use proptest::prelude::*;
    use zip::ZipWriter;
    use zip::write::SimpleFileOptions;

    use super::*;

    const MEMBER_NAME: &str = "ipe_cia_aberta_2026.csv";

    pub fn build_archive(members: &[(&str, &[u8])]) -> Vec<u8> {
        let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
        for (name, content) in members {
            writer.start_file(*name, SimpleFileOptions::default()).unwrap();
            writer.write_all(content).unwrap();
        }
        writer.finish().unwrap().into_inner()
    }

    /// Lines that differ, so that they compress like real ones.
    fn sample_content() -> Vec<u8> {
        (0..2_000u32)
            .flat_map(|number| format!("{};{:x}\r\n", number, number.wrapping_mul(2_654_435_761)).into_bytes())
            .collect()
    }

    fn open_and_read_member(bytes: &[u8]) -> Result<Vec<u8>, FormatError> {
        CheckedZipArchive::open(bytes)?.read_member(MEMBER_NAME)
    }

    /// Changes the declared size in both the local header and the central directory.
    fn with_declared_size(mut bytes: Vec<u8>, size: u32) -> Vec<u8> {
        let true_size = u32::try_from(sample_content().len()).unwrap().to_le_bytes();
        let offsets: Vec<usize> =
            bytes.windows(4).enumerate().filter(|(_, window)| *window == true_size).map(|(offset, _)| offset).collect();
        assert_eq!(offsets.len(), 2);
        for offset in offsets {
            bytes[offset..offset + 4].copy_from_slice(&size.to_le_bytes());
        }
        bytes
    }

    #[test]
    fn a_member_is_found_by_its_exact_name() {
        let bytes = build_archive(&[("other.csv", b"no"), (MEMBER_NAME, &sample_content())]);
        assert_eq!(open_and_read_member(&bytes).unwrap(), sample_content());
        let mut archive = CheckedZipArchive::open(&bytes).unwrap();
        assert_eq!(archive.read_member("other.csv").unwrap(), b"no");
        for name in ["IPE_CIA_ABERTA_2026.csv", "ipe_cia_aberta_2025.csv", ""] {
            assert_eq!(archive.read_member(name), Err(FormatError::MissingMember(name.to_owned())));
        }
    }

    #[test]
    fn an_empty_member_is_empty() {
        assert_eq!(open_and_read_member(&build_archive(&[(MEMBER_NAME, b"")])).unwrap(), b"");
    }

    #[test]
    fn non_archives_are_rejected() {
        assert_eq!(open_and_read_member(b""), Err(FormatError::Empty));
        let page = open_and_read_member(b"<html>404 Not Found</html>").unwrap_err();
        assert_eq!(page.to_string(), "it should be a ZIP archive, but it begins with \"<html>404 Not Found</html>\"");
        assert!(matches!(open_and_read_member(b"PK"), Err(FormatError::CorruptArchive(_))));
        assert_eq!(
            open_and_read_member(&vec![b'P'; MAX_ARCHIVE_BYTES + 1]),
            Err(FormatError::TooLarge { max_bytes: MAX_ARCHIVE_BYTES })
        );
    }

    #[test]
    fn a_truncated_archive_is_rejected() {
        let bytes = build_archive(&[(MEMBER_NAME, &sample_content())]);
        for tenth in 0..10 {
            assert!(open_and_read_member(&bytes[..bytes.len() * tenth / 10]).is_err(), "{tenth}");
        }
        assert!(open_and_read_member(&bytes[..bytes.len() - 1]).is_err());
    }

    #[test]
    fn unsafe_member_names_are_rejected() {
        for name in
            ["../evil.csv", "a/../../evil.csv", "/etc/evil.csv", "..\\evil.csv", "C:\\evil.csv", "\\\\host\\evil"]
        {
            let bytes = build_archive(&[(MEMBER_NAME, &sample_content()), (name, b"x")]);
            assert!(matches!(open_and_read_member(&bytes), Err(FormatError::UnsafeMemberName(_))), "{name}");
        }
        assert!(
            open_and_read_member(&build_archive(&[(MEMBER_NAME, &sample_content()), ("notes..txt", b"x")])).is_ok()
        );
    }

    #[test]
    fn a_zip_bomb_is_rejected_before_decompression() {
        let bomb = build_archive(&[(MEMBER_NAME, &vec![b'0'; 1 << 20])]);
        assert_eq!(
            open_and_read_member(&bomb),
            Err(FormatError::CompressionRatioTooHigh {
                name: MEMBER_NAME.to_owned(),
                max_ratio: MAX_COMPRESSION_RATIO
            })
        );

        let huge = with_declared_size(build_archive(&[(MEMBER_NAME, &sample_content())]), 200_000_001);
        assert_eq!(
            open_and_read_member(&huge),
            Err(FormatError::MemberTooLarge { name: MEMBER_NAME.to_owned(), max_bytes: MAX_MEMBER_BYTES })
        );
    }

    #[test]
    fn a_wrong_declared_size_is_rejected() {
        for size in [0, 10, 40_000] {
            let archive = with_declared_size(build_archive(&[(MEMBER_NAME, &sample_content())]), size);
            assert!(matches!(open_and_read_member(&archive), Err(FormatError::CorruptArchive(_))), "{size}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn a_corrupt_byte_is_detected_or_harmless(at in any::<proptest::sample::Index>(), byte in any::<u8>()) {
            let mut bytes = build_archive(&[(MEMBER_NAME, &sample_content())]);
            let at = at.index(bytes.len());
            bytes[at] = byte;
            if let Ok(content) = open_and_read_member(&bytes) {
                prop_assert_eq!(content, sample_content());
            }
        }

        #[test]
        fn parsing_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = open_and_read_member(&[b"PK\x03\x04", bytes.as_slice()].concat());
        }
    }
}
