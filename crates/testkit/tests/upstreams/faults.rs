//! Faults that a test switches on.

use super::*;

#[tokio::test]
async fn every_response_can_be_replaced_by_a_real_service_error() {
    let client = TestClient::new();
    let path = sgs_window_path(11, "01/10/2026", "30/10/2026");
    let get_with_fault = async |fault: Fault| {
        client.upstreams.set_fault("bcdata.sgs.11/", Some(fault));
        let response = client.get(&path).await;
        let status = response.status().as_u16();
        let content_type = header_text(&response, "content-type").to_owned();
        let retry_after = header_text(&response, "retry-after").to_owned();
        (status, content_type, retry_after, response.text().await.unwrap())
    };
    let normal_body = client.get_text(&path).await;

    let (status, content_type, _, body) = get_with_fault(Fault::HtmlWith200).await;
    assert!(status == 200 && content_type.starts_with("text/html") && body.contains("Requisição inválida!"));
    let (status, _, _, body) = get_with_fault(Fault::Empty200).await;
    assert!(status == 200 && body.is_empty());
    let (status, _, _, body) = get_with_fault(Fault::EmptyArray).await;
    assert!(status == 200 && body == "[]");
    let (status, content_type, _, body) = get_with_fault(Fault::JsonAsHtml).await;
    assert!(status == 200 && content_type.starts_with("text/html") && body == normal_body);
    let (status, _, _, body) = get_with_fault(Fault::SgsValuesNotFound).await;
    assert!(status == 404 && body.contains("Value(s) not found"));
    let (status, _, _, body) = get_with_fault(Fault::EmptyNotFound).await;
    assert!(status == 404 && body.is_empty());
    for with_200 in [false, true] {
        let (status, _, _, body) = get_with_fault(Fault::WindowTooWide { with_200 }).await;
        assert!(status == if with_200 { 200 } else { 406 } && body.contains("10 anos"));
    }
    let (status, _, retry_after, _) = get_with_fault(Fault::TooManyRequests { retry_after: Some("7".into()) }).await;
    assert!(status == 429 && retry_after == "7");
    let (status, _, retry_after, _) = get_with_fault(Fault::Unavailable { retry_after: None }).await;
    assert!(status == 503 && retry_after.is_empty());
    let (status, content_type, _, body) = get_with_fault(Fault::ServerErrorPage).await;
    assert!(status == 500 && content_type.starts_with("text/html") && body.contains("suporte.ti@bcb.gov.br"));
    let (status, _, _, body) = get_with_fault(Fault::Status(504)).await;
    assert!(status == 504 && body.is_empty());
    let (status, _, _, body) = get_with_fault(Fault::ReplaceBody(b"[1e308]".to_vec())).await;
    assert!(status == 200 && body == "[1e308]");
    let (_, _, _, body) = get_with_fault(Fault::transform_body(|body| body.to_ascii_uppercase())).await;
    assert_eq!(body, normal_body.to_ascii_uppercase());

    // Other series are not affected, and this one recovers once the fault is removed.
    assert_eq!(client.get(&sgs_window_path(12, "01/10/2026", "30/10/2026")).await.status(), 200);
    client.upstreams.set_fault("bcdata.sgs.11/", None);
    assert_eq!(client.get_text(&path).await, normal_body);
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
    let response = client.get(&path).await;
    assert_eq!(header_text(&response, "content-length"), whole.len().to_string());
    assert!(response.bytes().await.is_err());

    client.upstreams.set_fault("sgs.432", Some(Fault::WrongContentLength));
    assert_eq!(client.get_bytes(&path).await, whole[..whole.len() / 2]);

    // Long enough to be sure that no more data comes, even on a slow machine: everything else arrives immediately.
    let stall_timeout = Duration::from_secs(1);
    client.upstreams.set_fault("sgs.432", Some(Fault::Stall(StallAt::HalfBody)));
    let mut response = client.get(&path).await;
    let mut received = 0;
    while let Ok(chunk) = tokio::time::timeout(stall_timeout, response.chunk()).await {
        received += chunk.unwrap().unwrap().len();
    }
    assert_eq!(received, whole.len() / 2);
    drop(response);

    client.upstreams.set_fault("sgs.432", Some(Fault::Stall(StallAt::Head)));
    let request = client.http.get(client.url(&path)).send();
    assert!(tokio::time::timeout(stall_timeout, request).await.is_err());
    assert_eq!(client.upstreams.requests().last().unwrap().status, None);
}

#[tokio::test]
async fn a_body_marked_gzip_can_be_garbage() {
    let client = TestClient::new();
    client.upstreams.set_fault("PTAX", Some(Fault::GzipGarbage));
    let response = client.get(&ptax_period_path("USD", "11-09-2026", "11-13-2026")).await;
    assert_eq!(header_text(&response, "content-encoding"), "gzip");
    assert!(response.bytes().await.unwrap().starts_with(b"\x1f\x8b"));
}

#[tokio::test]
async fn a_followed_redirect_to_another_host_is_recorded() {
    let client = TestClient::new();
    client.upstreams.set_fault("cad_cia_aberta", Some(Fault::RedirectToOtherHost));
    let non_following = http_client_builder().redirect(reqwest::redirect::Policy::none()).build().unwrap();
    let response = non_following.get(client.url(REGISTRY_PATH)).send().await.unwrap();
    assert_eq!(response.status(), 302);
    assert!(
        header_text(&response, "location").starts_with("http://localhost:")
            && header_text(&response, "location").ends_with(REGISTRY_PATH)
    );
    assert!(client.upstreams.requests().iter().all(|request| request.host() == "127.0.0.1"));

    assert_eq!(client.get(REGISTRY_PATH).await.status(), 200);
    assert_eq!(client.upstreams.requests().last().unwrap().host(), "localhost");
}

#[tokio::test]
async fn archives_can_be_truncated_and_corrupted() {
    let client = TestClient::new();
    let path = archive_path("ipe", 2025);
    let whole = client.get_bytes(&path).await;
    let get_with_fault = async |fault: Fault| {
        client.upstreams.set_fault("ipe_cia_aberta_2025", Some(fault));
        client.get_bytes(&path).await
    };

    for tenths in 0..10 {
        let cut = get_with_fault(Fault::TruncatedZip { tenths }).await;
        assert_eq!(cut, whole[..whole.len() * usize::from(tenths) / 10]);
    }

    let missing = unzip_members(&get_with_fault(Fault::MissingMember).await);
    assert_eq!(missing.keys().collect::<Vec<_>>(), ["LEIA-ME.txt"]);
    let traversal = unzip_members(&get_with_fault(Fault::PathTraversalZip).await);
    assert!(traversal.contains_key("ipe_cia_aberta_2025.csv") && traversal.len() == 3);
    assert!(traversal.keys().any(|name| name.starts_with("../")) && traversal.keys().any(|name| name.starts_with('/')));

    let changed =
        get_with_fault(Fault::transform_zip_member(|csv| decode_latin1(&csv).replace("Assunto", "Tema").into_bytes()))
            .await;
    assert!(unzip_members(&changed)["ipe_cia_aberta_2025.csv"].lines().next().unwrap().contains(";Tema;"));
    assert_eq!(get_with_fault(Fault::JsonAsHtml).await, whole);
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
    let response = client.get(&path).await;
    let etag = header_text(&response, "etag").to_owned();
    let modified = header_text(&response, "last-modified").to_owned();

    client
        .upstreams
        .set_fault("fre_cia_aberta", Some(Fault::transform_zip_member(|csv| csv[..csv.len() / 2].to_vec())));
    for (name, value) in [("if-none-match", &etag), ("if-modified-since", &modified)] {
        let response = client.http.get(client.url(&path)).header(name, value).send().await.unwrap();
        assert_eq!(response.status(), 200, "{name}");
    }

    // A body that has to fail in transit is sent even to a client that already has it.
    client.upstreams.set_fault("fre_cia_aberta", Some(Fault::CutBody));
    let response = client.http.get(client.url(&path)).header("if-none-match", &etag).send().await.unwrap();
    assert!(response.status() == 200 && response.bytes().await.is_err());

    client.upstreams.clear_faults();
    let response = client.http.get(client.url(&path)).header("if-none-match", &etag).send().await.unwrap();
    assert_eq!(response.status(), 304);
}
