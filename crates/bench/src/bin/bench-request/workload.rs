//! What is measured: five kinds of responses, as three clients request them.

use vintem_domain::Plan;
use vintem_store::Store;
use vintem_testkit::create_key;

/// The headers that a client sends besides `Host` and the key.
#[derive(Debug, Clone, Copy)]
pub struct Client {
    pub name: &'static str,
    headers: &'static str,
}

pub const BROWSER: Client = Client {
    name: "browser",
    headers: "Connection: keep-alive\r\n\
        sec-ch-ua-platform: \"Windows\"\r\n\
        User-Agent: Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0 Safari/537.36\r\n\
        sec-ch-ua: \"Chromium\";v=\"142\", \"Google Chrome\";v=\"142\", \"Not_A Brand\";v=\"99\"\r\n\
        sec-ch-ua-mobile: ?0\r\n\
        Accept: */*\r\n\
        Origin: https://app.example.com\r\n\
        Sec-Fetch-Site: cross-site\r\n\
        Sec-Fetch-Mode: cors\r\n\
        Sec-Fetch-Dest: empty\r\n\
        Referer: https://app.example.com/\r\n\
        Accept-Encoding: gzip, deflate, br, zstd\r\n\
        Accept-Language: pt-BR,pt;q=0.9,en-US;q=0.8,en;q=0.7\r\n",
};

/// Python's `requests`.
pub const REQUESTS: Client = Client {
    name: "requests",
    headers: "User-Agent: python-requests/2.32.5\r\nAccept-Encoding: gzip, deflate\r\nAccept: */*\r\nConnection: keep-alive\r\n",
};

/// Accepts no compression.
pub const CURL: Client = Client { name: "curl", headers: "User-Agent: curl/8.5.0\r\nAccept: */*\r\n" };

/// A kind of response.
#[derive(Debug, Clone)]
pub struct Answer {
    pub name: &'static str,
    /// Paths with their queries, which are requested in turns.
    pub targets: Vec<String>,
    /// Whether it counts for the headline.
    pub is_in_headline: bool,
}

const SEARCH_COUNT: usize = 1_000;

/// Words that occur in the demo's companies and filings.
const SEARCH_WORDS: [&str; 10] =
    ["banco", "energia", "ata", "assembleia", "fato", "relevante", "aviso", "acionistas", "comunicado", "mercado"];

pub fn answers() -> Vec<Answer> {
    let single = |name, target: &str| Answer { name, targets: vec![target.to_owned()], is_in_headline: true };
    let word = |index: usize| SEARCH_WORDS[index % SEARCH_WORDS.len()];
    // Three words in every order, which are distinct queries.
    let searches = (0..SEARCH_COUNT)
        .map(|index| format!("/api/v1/filings/search?q={}+{}+{}", word(index), word(index / 10), word(index / 100)));
    vec![
        single("current_value", "/api/v1/market/selic/current"),
        single("list_of_20", "/api/v1/market/selic"),
        single("filings_100", "/api/v1/filings?limit=100"),
        single("whole_history", "/api/v1/market/selic?limit=20000"),
        Answer { name: "searches", targets: searches.collect(), is_in_headline: false },
    ]
}

pub async fn create_platinum_keys(store: &Store, count: usize) -> anyhow::Result<Vec<String>> {
    let mut keys = Vec::with_capacity(count);
    for _ in 0..count {
        keys.push(create_key(store, Plan::Platinum).await?.1);
    }
    Ok(keys)
}

impl Client {
    pub fn build_get(&self, target: &str, key: &str) -> Vec<u8> {
        format!("GET {target} HTTP/1.1\r\nHost: vintem.example\r\n{}X-API-Key: {key}\r\n\r\n", self.headers)
            .into_bytes()
    }
}
