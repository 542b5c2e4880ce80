//! The HTML pages as a browser receives them.

use serde_json::Value;
use vintem_domain::route::{ROUTES, RateLimitKind};
use vintem_domain::{Dataset, Plan};
use vintem_testkit::{TestDatabase, TestReplica, TestReplicaOptions};

use crate::{TestResult, friday};

/// One path of every kind of page, with content.
const PAGE_PATHS: [&str; 19] = [
    "/",
    "/pricing",
    "/docs",
    "/docs/guides",
    "/docs/guides/quickstart",
    "/docs/guides/webhooks",
    "/dashboard",
    "/status",
    "/series",
    "/series?q=aluguel",
    "/series/group/inflation",
    "/series/cdi",
    "/series/savings",
    "/series/usd-brl",
    "/search?q=energia",
    "/terms",
    "/privacy",
    "/data",
    "/nowhere",
];

/// The compressed size limit of a page with all its assets.
const MAX_PAGE_BYTES: usize = 100 * 1024;

async fn get_page(replica: &TestReplica, url: &str) -> anyhow::Result<reqwest::Response> {
    replica.send(replica.http.get(replica.url(url)).header("Accept", "text/html,*/*;q=0.8")).await
}

/// The URLs that a browser loads by itself with a page.
fn asset_urls(html: &str) -> Vec<String> {
    let attributes = [" src=\"", "<link rel=\"stylesheet\" href=\"", "<link rel=\"icon\" href=\""];
    let found = attributes.into_iter().flat_map(|attribute| html.split(attribute).skip(1));
    found.filter_map(|rest| rest.split('"').next()).map(|url| url.replace("&amp;", "&")).collect()
}

/// A demo database in which one company has all filings, each with the URL of its original. Returns the company's code.
async fn demo_with_one_issuer() -> anyhow::Result<(TestDatabase, i32)> {
    let database = TestDatabase::create_demo(friday()).await?;
    let mut connection = database.connect().await?;
    let code = sqlx::query_scalar("select min(cvm_code) from company_version").fetch_one(&mut connection).await?;
    sqlx::query("update filing_version set cvm_code = $1, url = 'https://example.com/original?a=1&n=' || id || '.'")
        .bind(code)
        .execute(&mut connection)
        .await?;
    Ok((database, code))
}

#[tokio::test]
async fn page_assets_are_same_origin_and_within_the_size_limit() -> TestResult {
    let database = TestDatabase::create_demo(friday()).await?;
    let replica = TestReplica::start(&database, friday()).await?;
    let compressed_size = async |url: &str| -> anyhow::Result<usize> {
        let request = replica.http.get(replica.url(url)).header("Accept-Encoding", "br").header("Accept", "text/html");
        let response = replica.send(request).await?;
        anyhow::ensure!(response.status() == 200 || url == "/nowhere", "{url}: {}", response.status());
        Ok(response.bytes().await?.len())
    };

    for page in PAGE_PATHS {
        let html = get_page(&replica, page).await?.text().await?;
        let mut page_size = compressed_size(page).await?;
        let assets = asset_urls(&html);
        assert!(assets.len() >= 3, "{page}: {assets:?}");

        for url in assets {
            assert!(url.starts_with('/') && !url.starts_with("//"), "{url} on {page}");
            let asset_size = compressed_size(&url).await?;
            if !url.starts_with("/docs/scalar.js") {
                page_size += asset_size;
            }
        }

        println!("{page}: {page_size}");
        assert!(page_size < MAX_PAGE_BYTES, "{page}: {page_size}");
    }

    Ok(())
}

#[tokio::test]
async fn every_page_has_both_languages_the_exact_headers_and_nothing_inline() -> TestResult {
    let (database, code) = demo_with_one_issuer().await?;
    let replica = TestReplica::start(&database, friday()).await?;
    let company = format!("/companies/{code}");
    for page in PAGE_PATHS.into_iter().chain([company.as_str()]) {
        for (lang, html_lang, banner) in [
            ("en", "en", "Demo data: everything on this site is synthetic"),
            ("pt", "pt-BR", "Dados de demonstração: tudo neste site é fictício"),
        ] {
            let url = format!("{page}{}lang={lang}", if page.contains('?') { '&' } else { '?' });
            let response = get_page(&replica, &url).await?;
            assert_eq!(response.status(), if page == "/nowhere" { 404 } else { 200 }, "{url}");

            let style = if page == "/docs" { "'self' 'unsafe-inline'" } else { "'self'" };
            let policy = format!(
                "default-src 'none'; script-src 'self'; style-src {style}; img-src 'self' data:; font-src 'self'; \
                 connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
            );
            let cache = if page == "/nowhere" { "no-store" } else { "private, max-age=60" };
            for (name, value) in [
                ("content-security-policy", policy.as_str()),
                ("content-type", "text/html; charset=utf-8"),
                ("content-language", html_lang),
                ("cache-control", cache),
                ("x-content-type-options", "nosniff"),
                ("referrer-policy", "no-referrer"),
                ("x-data-source", "synthetic"),
            ] {
                assert_eq!(response.headers()[name], value, "{name} of {url}");
            }

            let vary = response.headers()["vary"].to_str()?.to_owned();
            assert!(vary.contains("Cookie") && vary.contains("Accept-Language"), "{url}: {vary}");

            let html = response.text().await?;
            assert!(html.contains(&format!("<html lang=\"{html_lang}\">")), "{url}");
            assert!(html.contains(banner), "{url}");
            assert_nothing_inline(&url, &html);
        }
    }

    Ok(())
}

fn assert_nothing_inline(url: &str, html: &str) {
    for script in html.split("<script").skip(1) {
        assert!(script.starts_with(" src=\"/") && script.contains("></script>"), "{url}");
    }

    let tags = html.split('<').filter_map(|piece| piece.split_once('>')).map(|(tag, _)| tag);
    for tag in tags {
        assert!(!tag.starts_with("style") && !tag.contains(" style="), "{url}: {tag}");
        let has_handler = tag.split_whitespace().any(|word| word.starts_with("on") && word.contains('='));
        assert!(!has_handler && !tag.contains("javascript:"), "{url}: {tag}");
        let is_external = tag.starts_with("a ") && tag.contains("href=\"http");
        assert!(!is_external || tag.contains("external"), "{url}: {tag}");
    }
}

#[tokio::test]
async fn a_chosen_language_is_remembered() -> TestResult {
    let database = TestDatabase::create_demo(friday()).await?;
    let replica = TestReplica::start(&database, friday()).await?;

    let chosen = get_page(&replica, "/search?q=banco&lang=pt").await?;
    let cookie = chosen.headers()["set-cookie"].to_str()?.to_owned();
    assert_eq!(cookie, "lang=pt; Path=/; Max-Age=31536000; SameSite=Lax");
    assert!(chosen.text().await?.contains("href=\"/search?q=banco&#38;lang=en\""));

    let request = replica.http.get(replica.url("/pricing")).header("Cookie", "lang=pt").header("Accept-Language", "en");
    let later = replica.send(request).await?;
    assert!(!later.headers().contains_key("set-cookie"));
    assert_eq!(later.headers()["content-language"], "pt-BR");

    let request = replica.http.get(replica.url("/pricing")).header("Accept-Language", "pt-BR,pt;q=0.9");
    assert_eq!(replica.send(request).await?.headers()["content-language"], "pt-BR");

    Ok(())
}

#[tokio::test]
async fn published_text_is_escaped_in_pages() -> TestResult {
    let database = TestDatabase::create_demo(friday()).await?;
    let payload = "<script>alert(1)</script> & \"aspas\"";
    let mut connection = database.connect().await?;
    for statement in [
        "update company_version set name = $1, trade_name = $1, city = $1",
        "update filing_version set subject = $1, url = 'javascript:alert(2)'",
    ] {
        sqlx::query(statement).bind(payload).execute(&mut connection).await?;
    }

    let replica = TestReplica::start(&database, friday()).await?;
    let (_, platinum) = replica.create_key(Plan::Platinum).await?;
    let listed: Value = replica.get_with_key("/api/v1/filings?limit=1", &platinum).await?.json().await?;
    let id = listed["data"][0]["company_id"].as_str().expect("an id").to_owned();

    for page in [
        format!("/companies/{id}"),
        "/search?q=alert".to_owned(),
        "/search?q=%3Cscript%3Ealert(3)%3C/script%3E".to_owned(),
    ] {
        let html = get_page(&replica, &page).await?.text().await?;
        assert!(html.contains("&#60;script&#62;alert("), "{page}");
        assert!(!html.contains("<script>alert") && !html.contains("javascript:"), "{page}");
    }

    Ok(())
}

#[tokio::test]
async fn no_page_returns_more_than_ten_filings() -> TestResult {
    let (database, code) = demo_with_one_issuer().await?;
    let replica = TestReplica::start(&database, friday()).await?;
    let (_, platinum) = replica.create_key(Plan::Platinum).await?;
    let all: Value = replica.get_with_key("/api/v1/filings?limit=100", &platinum).await?.json().await?;
    let rows = all["data"].as_array().expect("rows");
    assert!(rows.len() > 50, "{} filings cannot show it", rows.len());

    let id = code.to_string();
    let words = rows[0]["description"].as_str().expect("a text").replace(' ', "+");
    let mut max_shown = 0;

    for route in ROUTES.iter().filter(|route| route.rate_limit != RateLimitKind::Quota) {
        let path = route.path.replace("{id}", &id).replace("{guide}", "quickstart").replace("{file}", "site.js");
        for query in ["", "limit=100", "offset=10&page=2", "format=csv", "format=json&all=true"] {
            for accept in ["text/html", "application/json", "text/csv"] {
                let url = format!("{path}?q={words}&{query}");
                let request = replica.http.get(replica.url(&url));
                let response = replica.send(request.header("Accept", accept).header("X-API-Key", &platinum)).await?;
                assert_ne!(response.status(), 429, "{url}");
                let shown_count = response.text().await?.matches("https://example.com/original").count();
                assert!(shown_count <= 10, "{url}: {shown_count}");
                max_shown = max_shown.max(shown_count);
            }
        }
    }

    assert_eq!(max_shown, 10, "the page of the company shows ten");

    Ok(())
}

#[tokio::test]
async fn a_company_page_shows_two_years_of_statements_as_filed() -> TestResult {
    let database = TestDatabase::create_demo(friday()).await?;
    let replica = TestReplica::start_with_high_limits(&database, friday()).await?;
    let (_, key) = replica.create_key(Plan::Gold).await?;
    let companies: Vec<i64> = sqlx::query_scalar("select distinct cvm_code from statement_document")
        .fetch_all(&mut database.connect().await?)
        .await?;
    assert!(companies.len() >= 4, "{companies:?}");

    for company in companies {
        let html = get_page(&replica, &format!("/companies/{company}")).await?.text().await?;
        let attribute = |name: &str| -> Vec<String> {
            let values = html.split(name).skip(1).filter_map(|rest| rest.split('"').next());
            values.map(str::to_owned).collect()
        };
        let mut years = attribute("data-end=\"");
        years.sort_unstable();
        years.dedup();
        assert_eq!(years.len(), 2, "{company}");

        // The total of the assets, newest first, as the API has it.
        let path =
            format!("/api/v1/companies/{company}/statements?statement=balance-sheet-assets&period=annual&limit=1000");
        let body: Value = replica.get_with_key(&path, &key).await?.json().await?;
        let rows = body["data"].as_array().into_iter().flatten();
        let totals: Vec<String> =
            rows.filter(|row| row["account"] == "1").map(|row| row["value"].to_string()).collect();
        let line = html.split("<tr data-account=\"1\"").nth(1).and_then(|rest| rest.split("</tr>").next());
        let shown = line.unwrap_or_default().split("data-value=\"").skip(1).filter_map(|rest| rest.split('"').next());
        let shown: Vec<&str> = shown.collect();
        assert_eq!(shown, totals[..2], "{company}");
        assert!(totals.len() > 5, "the API has all years");
    }
    Ok(())
}

#[tokio::test]
async fn errors_are_html_for_browsers_and_json_for_programs() -> TestResult {
    let database = TestDatabase::create_demo(friday()).await?;
    let replica = TestReplica::start(&database, friday()).await?;
    for path in ["/nowhere", "/companies/99999999", "/series/nothing", "/docs/guides/nothing", "/assets/nothing.js"] {
        let page = get_page(&replica, path).await?;
        assert_eq!(page.status(), 404, "{path}");
        assert_eq!(page.headers()["content-type"], "text/html; charset=utf-8", "{path}");
        assert!(page.headers().contains_key("x-ratelimit-remaining"), "{path}");
        let html = page.text().await?;
        assert!(html.contains("Page not found") && html.contains("<nav"), "{path}");
        let body: Value = replica.get(path).await?.json().await?;
        assert_eq!(body["error"], "not_found", "{path}");
    }

    let body: Value = get_page(&replica, "/api/v1/nowhere").await?.json().await?;
    assert_eq!(body["error"], "not_found");

    Ok(())
}

#[tokio::test]
async fn searches_have_their_own_limit_and_pages_still_work() -> TestResult {
    let database = TestDatabase::create_demo(friday()).await?;
    let replica = TestReplica::start(&database, friday()).await?;
    let before: u32 = get_page(&replica, "/pricing").await?.headers()["x-ratelimit-remaining"].to_str()?.parse()?;
    for attempt in 0..60 {
        assert_eq!(get_page(&replica, "/search?q=banco").await?.status(), 200, "{attempt}");
    }

    let refused = get_page(&replica, "/search?q=banco").await?;
    assert_eq!(refused.status(), 429);
    assert!(refused.headers()["retry-after"].to_str()?.parse::<u32>()? >= 1);
    assert!(refused.text().await?.contains("Too many requests"));

    let page = get_page(&replica, "/pricing").await?;
    assert_eq!(page.status(), 200);
    assert_eq!(page.headers()["x-ratelimit-remaining"].to_str()?.parse::<u32>()?, before);

    Ok(())
}

#[tokio::test]
async fn search_results_link_to_series_and_companies() -> TestResult {
    let database = TestDatabase::create_demo(friday()).await?;
    let replica = TestReplica::start(&database, friday()).await?;
    let html = get_page(&replica, "/search?q=selic").await?.text().await?;
    assert!(html.contains("href=\"/series/selic\""));

    let (_, gold) = replica.create_key(Plan::Gold).await?;
    let all: Value = replica.get_with_key("/api/v1/companies?limit=1&offset=7", &gold).await?.json().await?;
    let company = &all["data"][0];
    let name = company["name"].as_str().expect("a name");
    let path = format!("/search?q={}", name.replace(' ', "+"));
    let link = format!("href=\"/companies/{}\"", company["id"].as_str().expect("an id"));
    let html = get_page(&replica, &path).await?.text().await?;
    assert!(html.contains(&link), "{path}");
    assert!(html.matches("<li>\n    <a href").count() <= 10);

    // The slash of a formatted CNPJ makes it another path; any spelling without the slash is found.
    let page = get_page(&replica, &format!("/companies/{}", company["cnpj"].as_str().expect("a CNPJ"))).await;
    assert_eq!(page?.status(), 404);
    let digits: String = company["cnpj"].as_str().expect("a CNPJ").chars().filter(char::is_ascii_digit).collect();
    let page = get_page(&replica, &format!("/companies/{digits}")).await?;
    assert!(page.text().await?.contains("<link rel=\"canonical\""));

    let too_long = get_page(&replica, &format!("/search?q={}", "a".repeat(201))).await?;
    assert_eq!(too_long.status(), 400);

    Ok(())
}

#[tokio::test]
async fn robots_sitemap_llms_and_feed_exist_and_their_links_work() -> TestResult {
    let database = TestDatabase::create_demo(friday()).await?;
    let flags = ["--contact", "seguranca@example.com", "--support", "+55 11 0000-0000"];
    let replica =
        TestReplica::start_with_options(&database, friday(), TestReplicaOptions { flags: &flags, redis_prefix: None })
            .await?;
    let base = replica.url("");

    let robots = replica.get("/robots.txt").await?.text().await?;
    assert!(robots.contains(&format!("Sitemap: {base}/sitemap.xml")), "{robots}");
    let sitemap = replica.get("/sitemap.xml").await?.text().await?;
    let llms = replica.get("/llms.txt").await?.text().await?;

    let sitemap_urls = sitemap.split("<loc>").skip(1).filter_map(|rest| rest.split('<').next());
    let llms_urls = llms.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let mut link_count = 0;
    for url in sitemap_urls.chain(llms_urls) {
        let path = url.strip_prefix(&base).expect("an address of ours");
        assert_eq!(replica.get(path).await?.status(), 200, "{url}");
        link_count += 1;
    }

    assert!(link_count > 40, "{link_count}");

    let contact = replica.get("/.well-known/security.txt").await?.text().await?;
    assert!(contact.contains("Contact: mailto:seguranca@example.com\nExpires: 2"), "{contact}");

    let feed = replica.get("/status.atom").await?;
    assert_eq!(feed.headers()["content-type"], "application/atom+xml; charset=utf-8");
    let feed = feed.text().await?;
    assert_eq!(feed.matches("<entry>").count(), Dataset::all().count(), "{feed}");
    assert_eq!(feed.matches("</entry>").count(), Dataset::all().count());

    Ok(())
}

#[tokio::test]
async fn only_plans_with_support_show_the_support_contact() -> TestResult {
    let database = TestDatabase::create_demo(friday()).await?;
    let flags = ["--support", "suporte@example.com"];
    let replica =
        TestReplica::start_with_options(&database, friday(), TestReplicaOptions { flags: &flags, redis_prefix: None })
            .await?;

    for plan in Plan::ALL {
        let (_, key) = replica.create_key(plan).await?;
        let me: Value = replica.get_with_key("/api/v1/keys/me", &key).await?.json().await?;
        let expected = (plan == Plan::Platinum).then_some("suporte@example.com");
        assert_eq!(me["support"].as_str(), expected, "{}", plan.id());
    }

    let plans: Value = replica.get("/api/v1/plans").await?.json().await?;
    assert!(plans["plans"][3]["features"].to_string().contains("Priority support"));
    assert!(plans["plans"][2]["restrictions"].to_string().contains("No priority support"));

    let without_support = TestReplica::start(&database, friday()).await?;
    let plans = without_support.get("/api/v1/plans").await?.text().await?;
    assert!(!plans.contains("riority support"));
    assert_eq!(without_support.get("/.well-known/security.txt").await?.status(), 404);

    Ok(())
}

#[tokio::test]
async fn pages_have_a_server_timing_header() -> TestResult {
    let database = TestDatabase::create_demo(friday()).await?;
    let replica = TestReplica::start(&database, friday()).await?;
    for page in PAGE_PATHS {
        if page == "/nowhere" {
            continue;
        }
        let timing = get_page(&replica, page).await?.headers()["server-timing"].to_str()?.to_owned();
        let total = timing.split("total;dur=").nth(1).expect("a total");
        assert!(total.parse::<f64>()? > 0.0, "{page}: {timing}");
    }

    Ok(())
}

#[tokio::test]
async fn the_api_reference_script_is_served_compressed() -> TestResult {
    let database = TestDatabase::create_empty().await?;
    let replica = TestReplica::start(&database, friday()).await?;
    let plain = replica.get("/docs/scalar.js").await?;
    assert_eq!(plain.headers()["content-type"], "text/javascript; charset=utf-8");
    let plain = plain.bytes().await?;
    assert!(plain.len() > 1_000_000);

    let request = replica.http.get(replica.url("/docs/scalar.js")).header("Accept-Encoding", "br");
    let response = replica.send(request).await?;
    assert_eq!(response.headers()["content-encoding"], "br");
    assert!(response.bytes().await?.len() < plain.len() / 3);

    Ok(())
}
