//! The pages as a browser gets them.

use vintem_testkit::{TestDatabase, TestReplica};

use crate::{Outcome, friday};

#[tokio::test]
async fn all_that_a_page_loads_is_served_here() -> Outcome {
    let database = TestDatabase::demo(friday()).await?;
    let replica = TestReplica::start(&database, friday()).await?;
    let mut loaded = 0;
    for page in ["/", "/pricing", "/docs"] {
        let html = replica.get(page).await?.text().await?;
        for attribute in ["src=\"", "<link rel=\"stylesheet\" href=\"", "<link rel=\"icon\" href=\""] {
            for rest in html.split(attribute).skip(1) {
                let address = rest.split('"').next().unwrap_or("");
                assert!(address.starts_with('/'), "{address} on {page}");
                assert_eq!(replica.get(address).await?.status(), 200, "{address} on {page}");
                loaded += 1;
            }
        }
    }
    assert!(loaded >= 6, "{loaded}");
    Ok(())
}

#[tokio::test]
async fn the_reference_is_sent_compressed_and_whole() -> Outcome {
    let database = TestDatabase::empty().await?;
    let replica = TestReplica::start(&database, friday()).await?;
    let plain = replica.get("/docs/scalar.js").await?;
    assert_eq!(plain.headers()["content-type"], "text/javascript; charset=utf-8");
    let plain = plain.bytes().await?;
    assert!(plain.len() > 1_000_000);
    let request = replica.http.get(replica.url("/docs/scalar.js")).header("Accept-Encoding", "br");
    let answer = replica.send(request).await?;
    assert_eq!(answer.headers()["content-encoding"], "br");
    assert!(answer.bytes().await?.len() < plain.len() / 3);
    Ok(())
}
