//! Compression of data: which encoding a client prefers, and the compression itself, part by part. Pages and other
//! responses are compressed by a layer (`lib.rs`), with the same choice.

use std::io::{self, Write};

use brotli::CompressorWriter;
use brotli::enc::BrotliEncoderParams;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::{HeaderMap, HeaderValue, header};
use vintem_domain::quality_list::parse_quality_list;

/// Compressing less than this saves no packet and costs more than it saves.
pub const MIN_COMPRESSED_BYTES: usize = 1024;

/// How far back an encoder looks for repetitions: 256 KiB. An encoder takes a few times as much memory for as long as its
/// response is not sent, and rows of data repeat within a few hundred bytes.
const WINDOW_BITS: u8 = 18;

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
        let best = accepted.filter_map(|preference| {
            let named = Self::COMPRESSED.into_iter().find(|encoding| preference.is(encoding.id()));
            named.map(|encoding| (preference.quality, encoding))
        });
        best.max().map_or(Self::Identity, |(_, encoding)| encoding)
    }

    /// What `just compression-levels` shows to be worth its time: a higher level takes twice as long or more, and saves
    /// less than a tenth of the bytes.
    pub const fn level(self) -> u8 {
        match self {
            Self::Identity => 0,
            Self::Gzip => 4,
            Self::Brotli => 4,
            Self::Zstd => 3,
        }
    }

    pub fn header_value(self) -> HeaderValue {
        HeaderValue::from_static(self.id())
    }
}

/// Compresses a response part by part.
pub enum Encoder {
    Gzip(GzEncoder<Vec<u8>>),
    Brotli(Box<CompressorWriter<Vec<u8>>>),
    Zstd(zstd::stream::write::Encoder<'static, Vec<u8>>),
}

impl Encoder {
    /// `None` for [`ContentEncoding::Identity`].
    pub fn new(encoding: ContentEncoding) -> Option<Self> {
        Self::with_level(encoding, encoding.level())
    }

    /// For a stream, whose encoder stays in memory until all is sent.
    pub fn for_stream(encoding: ContentEncoding) -> Option<Self> {
        match encoding {
            // A quarter of the memory of higher levels.
            ContentEncoding::Brotli => Self::with_level(encoding, 2),
            _ => Self::new(encoding),
        }
    }

    pub fn with_level(encoding: ContentEncoding, level: u8) -> Option<Self> {
        match encoding {
            ContentEncoding::Identity => None,
            ContentEncoding::Gzip => Some(Self::Gzip(GzEncoder::new(Vec::new(), Compression::new(level.into())))),
            ContentEncoding::Brotli => {
                let lgwin = WINDOW_BITS.into();
                let params = BrotliEncoderParams { quality: level.into(), lgwin, ..Default::default() };
                Some(Self::Brotli(Box::new(CompressorWriter::with_params(Vec::new(), 4096, &params))))
            }
            ContentEncoding::Zstd => {
                let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), level.into()).ok()?;
                encoder.window_log(WINDOW_BITS.into()).ok()?;
                Some(Self::Zstd(encoder))
            }
        }
    }

    /// Compresses a part, and returns what is ready to be sent, which may be nothing.
    pub fn write(&mut self, part: &[u8]) -> Vec<u8> {
        let (written, ready) = match self {
            Self::Gzip(encoder) => (encoder.write_all(part), encoder.get_mut()),
            Self::Brotli(encoder) => (encoder.write_all(part), encoder.get_mut()),
            Self::Zstd(encoder) => (encoder.write_all(part), encoder.get_mut()),
        };
        written.expect("writing to memory does not fail");
        std::mem::take(ready)
    }

    /// What is left after the last part.
    pub fn finish(self) -> Vec<u8> {
        let rest: io::Result<Vec<u8>> = match self {
            Self::Gzip(encoder) => encoder.finish(),
            Self::Brotli(encoder) => Ok(encoder.into_inner()),
            Self::Zstd(encoder) => encoder.finish(),
        };
        rest.expect("writing to memory does not fail")
    }
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
        assert!(Encoder::new(ContentEncoding::Identity).is_none());
        let body: Vec<u8> =
            (0..2_000).flat_map(|row| format!("{{\"row\":{row},\"rate\":13.65}},").into_bytes()).collect();
        for encoding in ContentEncoding::COMPRESSED {
            let mut encoder = Encoder::new(encoding).expect("it compresses");
            let mut compressed: Vec<u8> = body.chunks(10_000).flat_map(|part| encoder.write(part)).collect();
            compressed.extend(encoder.finish());
            assert!(compressed.len() * 4 < body.len(), "{encoding:?}: {} bytes", compressed.len());

            let mut decoded = Vec::new();
            match encoding {
                ContentEncoding::Gzip => {
                    flate2::read::GzDecoder::new(&*compressed).read_to_end(&mut decoded).unwrap();
                }
                ContentEncoding::Brotli => {
                    brotli::Decompressor::new(&*compressed, 4096).read_to_end(&mut decoded).unwrap();
                }
                _ => decoded = zstd::decode_all(&*compressed).unwrap(),
            }
            assert_eq!(decoded, body, "{encoding:?}");
        }
    }
}
