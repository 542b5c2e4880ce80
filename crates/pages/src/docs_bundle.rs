//! `/docs/scalar.js`: Scalar's API reference (MIT), 4.9 MB of script from the `scalar_api_reference` crate.
//!
//! It is compressed on the first request and cached: about one megabyte to send instead of five.

use std::hash::{DefaultHasher, Hasher};
use std::io::{self, Write};
use std::sync::LazyLock;

use axum::body::Bytes;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, StatusCode, header};
use tokio::sync::OnceCell;
use vintem_domain::quality_list::parse_quality_list;

use crate::assets::JAVASCRIPT_MIME;

/// Higher qualities are several times slower and save only a few percent, and the first reader has to wait.
const BROTLI_QUALITY: u32 = 9;
/// Brotli's default window, 4 MB.
const BROTLI_WINDOW_BITS: u32 = 22;
const BROTLI_BUFFER_BYTES: usize = 64 * 1024;

/// The URL contains the hash of the script, so its content never changes.
const CACHE_IMMUTABLE: &str = "public, max-age=31536000, immutable";

static BUNDLE_HASH: LazyLock<String> = LazyLock::new(|| {
    let mut hasher = DefaultHasher::new();
    hasher.write(&scalar_script());
    format!("{:016x}", hasher.finish())
});

static PLAIN_SCRIPT: OnceCell<Bytes> = OnceCell::const_new();
static BROTLI_SCRIPT: OnceCell<Bytes> = OnceCell::const_new();
static GZIP_SCRIPT: OnceCell<Bytes> = OnceCell::const_new();

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ContentEncoding {
    Brotli,
    Gzip,
    Identity,
}

/// The hash of the script: a different bundle has a different URL, even within one version of Vintém.
pub(crate) fn bundle_hash() -> &'static str {
    &BUNDLE_HASH
}

pub(crate) async fn get_docs_bundle(headers: HeaderMap) -> Response {
    let accepted = headers.get_all(header::ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    let encoding = negotiate_encoding(accepted);
    let Some(body) = encoded_script(encoding).await else {
        return (StatusCode::INTERNAL_SERVER_ERROR, "Could not prepare the script. Reload the page.\n").into_response();
    };

    let common = [
        (header::CONTENT_TYPE, JAVASCRIPT_MIME),
        (header::CACHE_CONTROL, CACHE_IMMUTABLE),
        (header::VARY, "accept-encoding"),
    ];
    match encoding {
        ContentEncoding::Brotli => (common, [(header::CONTENT_ENCODING, "br")], body).into_response(),
        ContentEncoding::Gzip => (common, [(header::CONTENT_ENCODING, "gzip")], body).into_response(),
        ContentEncoding::Identity => (common, body).into_response(),
    }
}

/// The script in this encoding. Concurrent first requests share one compression. If it fails, the next request retries.
async fn encoded_script(encoding: ContentEncoding) -> Option<Bytes> {
    let cell = match encoding {
        ContentEncoding::Brotli => &BROTLI_SCRIPT,
        ContentEncoding::Gzip => &GZIP_SCRIPT,
        ContentEncoding::Identity => &PLAIN_SCRIPT,
    };
    let prepare = async || {
        // Compression needs a second of CPU: too long for a thread that serves other requests.
        let compressed = tokio::task::spawn_blocking(move || compress_script(scalar_script(), encoding)).await;
        compressed.ok().and_then(Result::ok).map(Bytes::from).ok_or(())
    };
    cell.get_or_try_init(prepare).await.ok().cloned()
}

fn compress_script(script: Vec<u8>, encoding: ContentEncoding) -> io::Result<Vec<u8>> {
    match encoding {
        ContentEncoding::Brotli => compress_brotli(&script),
        ContentEncoding::Gzip => compress_gzip(&script),
        ContentEncoding::Identity => Ok(script),
    }
}

fn scalar_script() -> Vec<u8> {
    scalar_api_reference::get_asset("scalar.js").unwrap_or_default()
}

fn compress_brotli(script: &[u8]) -> io::Result<Vec<u8>> {
    let mut writer = brotli::CompressorWriter::new(
        Vec::with_capacity(script.len() / 4),
        BROTLI_BUFFER_BYTES,
        BROTLI_QUALITY,
        BROTLI_WINDOW_BITS,
    );
    writer.write_all(script)?;
    Ok(writer.into_inner())
}

fn compress_gzip(script: &[u8]) -> io::Result<Vec<u8>> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::with_capacity(script.len() / 3), flate2::Compression::best());
    encoder.write_all(script)?;
    encoder.finish()
}

/// The smallest encoding that the client accepts. A quality matters only if it is 0: a client that accepts both
/// encodings gets the smaller one.
fn negotiate_encoding<'a>(accepted: impl Iterator<Item = &'a str>) -> ContentEncoding {
    let mut accepts_brotli = false;
    let mut accepts_gzip = false;
    for preference in accepted.flat_map(parse_quality_list) {
        let is_acceptable = preference.quality > 0;
        if preference.is("br") {
            accepts_brotli = is_acceptable;
        } else if preference.is("gzip") || preference.is("x-gzip") {
            accepts_gzip = is_acceptable;
        }
    }

    match (accepts_brotli, accepts_gzip) {
        (true, _) => ContentEncoding::Brotli,
        (false, true) => ContentEncoding::Gzip,
        (false, false) => ContentEncoding::Identity,
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn smallest_accepted_encoding_is_chosen() {
        for (accepted, coding) in [
            ("", ContentEncoding::Identity),
            ("gzip, deflate, br, zstd", ContentEncoding::Brotli),
            ("gzip;q=1.0, br;q=0.5", ContentEncoding::Brotli),
            ("br;q=0, gzip", ContentEncoding::Gzip),
            ("GZIP", ContentEncoding::Gzip),
            ("br; q=0.000, gzip;q=0", ContentEncoding::Identity),
            ("identity", ContentEncoding::Identity),
        ] {
            assert_eq!(negotiate_encoding([accepted].into_iter()), coding, "{accepted}");
        }
    }

    #[test]
    fn compressed_script_decompresses_to_the_original() {
        let text = "createApiReference ".repeat(5000);
        let mut decompressed = String::new();
        brotli::Decompressor::new(&compress_brotli(text.as_bytes()).unwrap()[..], 4096)
            .read_to_string(&mut decompressed)
            .unwrap();
        assert_eq!(decompressed, text);

        decompressed.clear();
        flate2::read::GzDecoder::new(&compress_gzip(text.as_bytes()).unwrap()[..])
            .read_to_string(&mut decompressed)
            .unwrap();
        assert_eq!(decompressed, text);
    }

    #[test]
    fn bundle_exports_create_api_reference() {
        let script = String::from_utf8(scalar_script()).unwrap();
        assert!(script.contains("window.Scalar={createApiReference:"));
    }

    #[tokio::test]
    async fn bundle_is_cached_forever_and_varies_by_encoding() {
        let response = get_docs_bundle(HeaderMap::new()).await;
        assert_eq!(response.headers()[header::CONTENT_TYPE], "text/javascript; charset=utf-8");
        assert_eq!(response.headers()[header::CACHE_CONTROL], CACHE_IMMUTABLE);
        assert_eq!(response.headers()[header::VARY], "accept-encoding");
        assert!(!response.headers().contains_key(header::CONTENT_ENCODING));
    }
}
