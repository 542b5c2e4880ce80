//! The request log, shutdown, and determinism of the fakes.

use super::*;

#[tokio::test]
async fn requests_are_recorded_with_headers_status_and_upstream() {
    let client = TestClient::new();
    client
        .upstreams
        .set_fault("sgs.11", Some(Fault::TooManyRequests { retry_after: Some("1".into()) }.for_next_requests(1)));
    let path = sgs_window_path(11, "01/10/2026", "02/10/2026");
    client.get(&path).await;
    client.get(&path).await;
    let request = client.http.request(Method::HEAD, client.url(REGISTRY_PATH)).header("if-none-match", "\"x\"");
    request.send().await.unwrap();
    client.get("/elsewhere").await;

    let requests = client.upstreams.requests();
    let statuses: Vec<Option<u16>> = requests.iter().map(|request| request.status).collect();
    assert_eq!(statuses, [Some(429), Some(200), Some(200), Some(404)]);
    assert!(requests[0].path_and_query == path && requests.is_sorted_by(|a, b| a.received_at <= b.received_at));
    assert_eq!(requests[0].header("user-agent"), Some("stand-in tests"));
    assert_eq!((&requests[2].method, requests[2].header("if-none-match")), (&Method::HEAD, Some("\"x\"")));
    let upstreams: Vec<Option<UpstreamService>> = requests.iter().map(|request| request.upstream).collect();
    assert_eq!(upstreams, [Some(UpstreamService::Sgs), Some(UpstreamService::Sgs), Some(UpstreamService::Cvm), None]);

    client.upstreams.clear_requests();
    assert!(client.upstreams.requests().is_empty());
    assert_eq!(client.http.post(client.url(REGISTRY_PATH)).send().await.unwrap().status(), 405);
}

#[tokio::test]
async fn in_flight_requests_are_counted_per_upstream() {
    let client = TestClient::new();
    for _ in 0..20 {
        client.get_bytes(&archive_path("ipe", 2024)).await;
        client.get_text(&sgs_window_path(432, "01/01/2024", "31/12/2025")).await;
    }
    assert_eq!(
        (client.upstreams.max_in_flight(UpstreamService::Cvm), client.upstreams.max_in_flight(UpstreamService::Sgs)),
        (1, 1)
    );
    assert_eq!(client.upstreams.max_in_flight(UpstreamService::Ptax), 0);

    // A body that is not read to the end keeps its request in flight until the client gives up.
    client.upstreams.set_fault("sgs.432", Some(Fault::Stall(StallAt::HalfBody).for_next_requests(1)));
    let stalled = client.get(&sgs_window_path(432, "01/01/2024", "31/12/2025")).await;
    client.get_text(&sgs_window_path(11, "01/10/2026", "02/10/2026")).await;
    assert_eq!(client.upstreams.requests().last().unwrap().in_flight, 2);
    client.get_bytes(REGISTRY_PATH).await;
    assert_eq!(client.upstreams.requests().last().unwrap().in_flight, 1);

    drop(stalled);
    vintem_testkit::wait_until("the request is over", Duration::from_secs(5), async || {
        client.get_text(&sgs_window_path(11, "01/10/2026", "02/10/2026")).await;
        client.upstreams.requests().last().unwrap().in_flight == 1
    })
    .await;
}

#[tokio::test]
async fn dropping_the_fakes_stops_them_even_while_they_stall() {
    let client = TestClient::new();
    let url = client.url(REGISTRY_PATH);
    client.upstreams.set_fault(REGISTRY_PATH, Some(Fault::Stall(StallAt::HalfBody)));
    let response = client.get(REGISTRY_PATH).await;
    let TestClient { upstreams, http } = client;
    drop(upstreams);
    assert!(response.bytes().await.is_err());
    assert!(http.get(url).send().await.is_err());
}

#[tokio::test]
async fn two_fakes_with_the_same_options_answer_the_same() {
    let first = TestClient::new();
    let second = TestClient::new();
    for path in [
        REGISTRY_PATH.to_owned(),
        archive_path("ipe", 2015),
        archive_path("fca", 2020),
        ptax_period_path("GBP", "01-04-2021", "12-31-2021"),
    ] {
        assert_eq!(first.get_bytes(&path).await, second.get_bytes(&path).await, "{path}");
    }

    let now: NaiveDateTime = parse_date("2030-06-28").and_hms_opt(12, 0, 0).unwrap();
    first.upstreams.set_now(now);
    assert_eq!(first.get_series(11, "24/06/2030", "27/06/2030").await.len(), 4);
}
