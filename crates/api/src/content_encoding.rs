//! Compression of whole responses: which encoding a client prefers, and the compression itself. Streams are compressed
//! by a layer (`lib.rs`), with the same choice.

use std::io::{self, Write};

use brotli::enc::BrotliEncoderParams;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::{HeaderMap, HeaderValue, header};
use vintem_domain::quality_list::{Preference, parse_quality_list};

/// Compressing less than this saves no packet and costs more than it saves.
pub const MIN_COMPRESSED_BYTES: usize = 1024;

const GZIP_LEVEL: u32 = 6;
const BROTLI_LEVEL: i32 = 4;
const BROTLI_WINDOW_BITS: i32 = 22;
const ZSTD_LEVEL: i32 = 3;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ContentEncoding {
    Identity,
    Gzip,
    Brotli,
    Zstd,
}

impl ContentEncoding {
    const COMPRESSED: [Self; 3] = [Self::Gzip, Self::Brotli, Self::Zstd];

    pub const fn id(self) -> &'static str {
        match self {
            Self::Identity => "identity",
            Self::Gzip => "gzip",
            Self::Brotli => "br",
            Self::Zstd => "zstd",
        }
    }

    /// The encoding with the highest quality in `Accept-Encoding`. Among equals the later one in the list of variants
    /// wins. A client without the header gets no compression.
    pub fn preferred(headers: &HeaderMap) -> Self {
        let accepted = headers.get_all(header::ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
        let accepted = accepted.flat_map(parse_quality_list).filter(|preference| preference.quality > 0);
        let best = accepted.filter_map(|Preference { range, quality }| {
            let named = Self::COMPRESSED.into_iter().find(|encoding| encoding.id() == range);
            named.map(|encoding| (quality, encoding))
        });
        best.max().map_or(Self::Identity, |(_, encoding)| encoding)
    }

    pub fn compress(self, body: &[u8]) -> Vec<u8> {
        let compressed = match self {
            Self::Identity => Ok(body.to_vec()),
            Self::Gzip => compress_gzip(body),
            Self::Brotli => compress_brotli(body),
            Self::Zstd => zstd::bulk::compress(body, ZSTD_LEVEL),
        };
        compressed.expect("writing to memory does not fail")
    }

    pub fn header_value(self) -> HeaderValue {
        HeaderValue::from_static(self.id())
    }
}

fn compress_gzip(body: &[u8]) -> io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(body.len() / 4), Compression::new(GZIP_LEVEL));
    encoder.write_all(body)?;
    encoder.finish()
}

fn compress_brotli(body: &[u8]) -> io::Result<Vec<u8>> {
    let params = BrotliEncoderParams {
        quality: BROTLI_LEVEL,
        lgwin: BROTLI_WINDOW_BITS,
        size_hint: body.len(),
        ..Default::default()
    };
    let mut compressed = Vec::with_capacity(body.len() / 4);
    brotli::BrotliCompress(&mut &*body, &mut compressed, &params)?;
    Ok(compressed)
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn the_encoding_with_the_highest_quality_is_preferred() {
        let preferred = |accept: &str| {
            let value = HeaderValue::from_str(accept).unwrap();
            ContentEncoding::preferred(&HeaderMap::from_iter([(header::ACCEPT_ENCODING, value)]))
        };
        for (accept, expected) in [
            ("gzip, deflate, br, zstd", ContentEncoding::Zstd),
            ("gzip, deflate, br", ContentEncoding::Brotli),
            ("gzip, deflate", ContentEncoding::Gzip),
            ("GZIP", ContentEncoding::Gzip),
            ("gzip;q=1.0, br;q=0.5", ContentEncoding::Gzip),
            ("br;q=0, gzip;q=0.1", ContentEncoding::Gzip),
            ("deflate", ContentEncoding::Identity),
            ("identity", ContentEncoding::Identity),
            ("*", ContentEncoding::Identity),
            ("gzip;q=0", ContentEncoding::Identity),
            ("", ContentEncoding::Identity),
        ] {
            assert_eq!(preferred(accept), expected, "{accept}");
        }
        assert_eq!(ContentEncoding::preferred(&HeaderMap::new()), ContentEncoding::Identity);
    }

    #[test]
    fn every_encoding_can_be_decoded_and_saves_bytes() {
        let body: Vec<u8> =
            (0..2_000).flat_map(|row| format!("{{\"row\":{row},\"rate\":13.65}},").into_bytes()).collect();
        for encoding in ContentEncoding::COMPRESSED {
            let compressed = encoding.compress(&body);
            assert!(compressed.len() * 4 < body.len(), "{encoding:?}: {} bytes", compressed.len());

            let mut decoded = Vec::new();
            match encoding {
                ContentEncoding::Gzip => {
                    flate2::read::GzDecoder::new(&*compressed).read_to_end(&mut decoded).unwrap();
                }
                ContentEncoding::Brotli => {
                    brotli::Decompressor::new(&*compressed, 4096).read_to_end(&mut decoded).unwrap();
                }
                _ => decoded = zstd::bulk::decompress(&compressed, body.len()).unwrap(),
            }
            assert_eq!(decoded, body, "{encoding:?}");
        }
    }
}
