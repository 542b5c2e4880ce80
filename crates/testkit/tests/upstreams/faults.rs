//! What goes wrong on demand.

use super::*;

#[tokio::test]
async fn every_response_can_be_replaced_by_a_real_service_error() {
    let client = TestClient::new();
    let path = sgs_window_path(11, "01/10/2026", "30/10/2026");
    let meet = async |fault: Fault| {
        client.upstreams.set_fault("bcdata.sgs.11/", Some(fault));
        let answer = client.get(&path).await;
        let (status, kind) = (answer.status().as_u16(), header_text(&answer, "content-type").to_owned());
        let retry_after = header_text(&answer, "retry-after").to_owned();
        (status, kind, retry_after, answer.text().await.unwrap())
    };
    let true_body = client.get_text(&path).await;

    let (status, kind, _, body) = meet(Fault::HtmlWith200).await;
    assert!(status == 200 && kind.starts_with("text/html") && body.contains("Requisição inválida!"));
    let (status, _, _, body) = meet(Fault::Empty200).await;
    assert!(status == 200 && body.is_empty());
    let (status, _, _, body) = meet(Fault::EmptyArray).await;
    assert!(status == 200 && body == "[]");
    let (status, kind, _, body) = meet(Fault::JsonAsHtml).await;
    assert!(status == 200 && kind.starts_with("text/html") && body == true_body);
    let (status, _, _, body) = meet(Fault::SgsValuesNotFound).await;
    assert!(status == 404 && body.contains("Value(s) not found"));
    let (status, _, _, body) = meet(Fault::EmptyNotFound).await;
    assert!(status == 404 && body.is_empty());
    for with_200 in [false, true] {
        let (status, _, _, body) = meet(Fault::WindowTooWide { with_200 }).await;
        assert!(status == if with_200 { 200 } else { 406 } && body.contains("10 anos"));
    }
    let (status, _, retry_after, _) = meet(Fault::TooManyRequests { retry_after: Some("7".into()) }).await;
    assert!(status == 429 && retry_after == "7");
    let (status, _, retry_after, _) = meet(Fault::Unavailable { retry_after: None }).await;
    assert!(status == 503 && retry_after.is_empty());
    let (status, kind, _, body) = meet(Fault::ServerErrorPage).await;
    assert!(status == 500 && kind.starts_with("text/html") && body.contains("suporte.ti@bcb.gov.br"));
    let (status, _, _, body) = meet(Fault::Status(504)).await;
    assert!(status == 504 && body.is_empty());
    let (status, _, _, body) = meet(Fault::ReplaceBody(b"[1e308]".to_vec())).await;
    assert!(status == 200 && body == "[1e308]");
    let (_, _, _, body) = meet(Fault::transform_body(|body| body.to_ascii_uppercase())).await;
    assert_eq!(body, true_body.to_ascii_uppercase());

    // Others are well, and all are once it is over.
    assert_eq!(client.get(&sgs_window_path(12, "01/10/2026", "30/10/2026")).await.status(), 200);
    client.upstreams.set_fault("bcdata.sgs.11/", None);
    assert_eq!(client.get_text(&path).await, true_body);
}

#[tokio::test]
async fn a_fault_can_be_limited_to_n_requests_and_the_longest_match_wins() {
    let client = TestClient::new();
    client.upstreams.set_fault("/dados/serie/", Some(Fault::ServerErrorPage));
    client.upstreams.set_fault("dataInicial=01/10/2026", Some(Fault::Status(502).for_next_requests(2)));
    let path = sgs_window_path(11, "01%2F10%2F2026", "30/10/2026");
    let mut statuses = Vec::new();
    for _ in 0..4 {
        statuses.push(client.get(&path).await.status().as_u16());
    }
    assert_eq!(statuses, [502, 502, 500, 500]);
    client.upstreams.clear_faults();
    assert_eq!(client.get(&path).await.status(), 200);
    assert_eq!("3*cut-body".parse::<Fault>().map(|fault| format!("{fault:?}")), Ok("3 times cut-body".to_owned()));
    assert!("cut".parse::<Fault>().is_err());
}

#[tokio::test]
async fn bodies_can_be_cut_short_or_stall() {
    let client = TestClient::new();
    let path = sgs_window_path(432, "01/01/2024", "31/12/2025");
    let whole = client.get_bytes(&path).await;

    client.upstreams.set_fault("sgs.432", Some(Fault::CutBody));
    let answer = client.get(&path).await;
    assert_eq!(header_text(&answer, "content-length"), whole.len().to_string());
    assert!(answer.bytes().await.is_err());

    client.upstreams.set_fault("sgs.432", Some(Fault::WrongContentLength));
    assert_eq!(client.get_bytes(&path).await, whole[..whole.len() / 2]);

    // Long enough to be sure that nothing more comes, even on a slow machine: the rest of the body comes at once.
    let a_moment = Duration::from_secs(1);
    client.upstreams.set_fault("sgs.432", Some(Fault::Stall(StallAt::HalfBody)));
    let mut answer = client.get(&path).await;
    let mut got = 0;
    while let Ok(chunk) = tokio::time::timeout(a_moment, answer.chunk()).await {
        got += chunk.unwrap().unwrap().len();
    }
    assert_eq!(got, whole.len() / 2);
    drop(answer);

    client.upstreams.set_fault("sgs.432", Some(Fault::Stall(StallAt::Head)));
    let request = client.http.get(client.url(&path)).send();
    assert!(tokio::time::timeout(a_moment, request).await.is_err());
    assert_eq!(client.upstreams.requests().last().unwrap().status, None);
}

#[tokio::test]
async fn a_body_marked_gzip_can_be_garbage() {
    let client = TestClient::new();
    client.upstreams.set_fault("PTAX", Some(Fault::GzipGarbage));
    let answer = client.get(&ptax_period_path("USD", "11-09-2026", "11-13-2026")).await;
    assert_eq!(header_text(&answer, "content-encoding"), "gzip");
    assert!(answer.bytes().await.unwrap().starts_with(b"\x1f\x8b"));
}

#[tokio::test]
async fn a_followed_redirect_to_another_host_is_recorded() {
    let client = TestClient::new();
    client.upstreams.set_fault("cad_cia_aberta", Some(Fault::RedirectToOtherHost));
    let careful = http_client_builder().redirect(reqwest::redirect::Policy::none()).build().unwrap();
    let answer = careful.get(client.url(REGISTRY_PATH)).send().await.unwrap();
    assert_eq!(answer.status(), 302);
    assert!(
        header_text(&answer, "location").starts_with("http://localhost:")
            && header_text(&answer, "location").ends_with(REGISTRY_PATH)
    );
    assert!(client.upstreams.requests().iter().all(|seen| seen.host() == "127.0.0.1"));
    assert_eq!(client.get(REGISTRY_PATH).await.status(), 200);
    assert_eq!(client.upstreams.requests().last().unwrap().host(), "localhost");
}

#[tokio::test]
async fn archives_can_be_truncated_and_corrupted() {
    let client = TestClient::new();
    let path = archive_path("ipe", 2025);
    let whole = client.get_bytes(&path).await;
    let meet = async |fault: Fault| {
        client.upstreams.set_fault("ipe_cia_aberta_2025", Some(fault));
        client.get_bytes(&path).await
    };
    for tenths in 0..10 {
        let cut = meet(Fault::TruncatedZip { tenths }).await;
        assert_eq!(cut, whole[..whole.len() * usize::from(tenths) / 10]);
    }
    let missing = unzip_members(&meet(Fault::MissingMember).await);
    assert_eq!(missing.keys().collect::<Vec<_>>(), ["LEIA-ME.txt"]);
    let elsewhere = unzip_members(&meet(Fault::PathTraversalZip).await);
    assert!(elsewhere.contains_key("ipe_cia_aberta_2025.csv") && elsewhere.len() == 3);
    assert!(elsewhere.keys().any(|name| name.starts_with("../")) && elsewhere.keys().any(|name| name.starts_with('/')));
    let changed =
        meet(Fault::transform_zip_member(|csv| decode_latin1(&csv).replace("Assunto", "Tema").into_bytes())).await;
    assert!(unzip_members(&changed)["ipe_cia_aberta_2025.csv"].lines().next().unwrap().contains(";Tema;"));
    assert_eq!(meet(Fault::JsonAsHtml).await, whole);
}

#[tokio::test]
async fn a_zip_bomb_is_small_and_inflates_to_more_than_200_megabytes() {
    let client = TestClient::new();
    client.upstreams.set_fault("dfp_cia_aberta_2024", Some(Fault::ZipBomb));
    let bomb = client.get_bytes(&archive_path("dfp", 2024)).await;
    let mut archive = zip::ZipArchive::new(Cursor::new(&bomb)).unwrap();
    let member = archive.by_index(0).unwrap();
    assert_eq!(member.name().unwrap(), "dfp_cia_aberta_2024.csv");
    assert!(member.size() > 200_000_000 && bomb.len() as u64 * 100 < member.size());
}

#[tokio::test]
async fn a_changed_body_fails_conditional_requests() {
    let client = TestClient::new();
    let path = archive_path("fre", 2024);
    let answer = client.get(&path).await;
    let (etag, modified) = (header_text(&answer, "etag").to_owned(), header_text(&answer, "last-modified").to_owned());
    client
        .upstreams
        .set_fault("fre_cia_aberta", Some(Fault::transform_zip_member(|csv| csv[..csv.len() / 2].to_vec())));
    for (name, value) in [("if-none-match", &etag), ("if-modified-since", &modified)] {
        let answer = client.http.get(client.url(&path)).header(name, value).send().await.unwrap();
        assert_eq!(answer.status(), 200, "{name}");
    }
    // What is to fail on its way is on its way, even to those who have it.
    client.upstreams.set_fault("fre_cia_aberta", Some(Fault::CutBody));
    let answer = client.http.get(client.url(&path)).header("if-none-match", &etag).send().await.unwrap();
    assert!(answer.status() == 200 && answer.bytes().await.is_err());
    client.upstreams.clear_faults();
    let answer = client.http.get(client.url(&path)).header("if-none-match", &etag).send().await.unwrap();
    assert_eq!(answer.status(), 304);
}
