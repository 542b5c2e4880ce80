//! The record of requests, and that stand-ins are alike.

use super::*;

#[tokio::test]
async fn requests_are_recorded_with_what_clients_are_judged_by() {
    let client = Client::new();
    client.upstreams.set_fault("sgs.11", Some(Fault::TooManyRequests { retry_after: Some("1".into()) }.times(1)));
    let path = window(11, "01/10/2026", "02/10/2026");
    client.get(&path).await;
    client.get(&path).await;
    let request = client.http.request(Method::HEAD, client.url(REGISTRY)).header("if-none-match", "\"x\"");
    request.send().await.unwrap();
    client.get("/elsewhere").await;
    let seen = client.upstreams.requests();
    let statuses: Vec<Option<u16>> = seen.iter().map(|seen| seen.status).collect();
    assert_eq!(statuses, [Some(429), Some(200), Some(200), Some(404)]);
    assert!(seen[0].path_and_query == path && seen.is_sorted_by(|a, b| a.at <= b.at));
    assert_eq!(seen[0].header("user-agent"), Some("stand-in tests"));
    assert_eq!((&seen[2].method, seen[2].header("if-none-match")), (&Method::HEAD, Some("\"x\"")));
    let upstreams: Vec<Option<Upstream>> = seen.iter().map(|seen| seen.upstream).collect();
    assert_eq!(upstreams, [Some(Upstream::Sgs), Some(Upstream::Sgs), Some(Upstream::Cvm), None]);
    client.upstreams.forget_requests();
    assert!(client.upstreams.requests().is_empty());
    assert_eq!(client.http.post(client.url(REGISTRY)).send().await.unwrap().status(), 405);
}

#[tokio::test]
async fn requests_under_way_are_counted_for_each_upstream() {
    let client = Client::new();
    for _ in 0..20 {
        client.bytes(&archive("ipe", 2024)).await;
        client.text(&window(432, "01/01/2024", "31/12/2025")).await;
    }
    assert_eq!(
        (client.upstreams.most_in_flight(Upstream::Cvm), client.upstreams.most_in_flight(Upstream::Sgs)),
        (1, 1)
    );
    assert_eq!(client.upstreams.most_in_flight(Upstream::Ptax), 0);

    // A body that is not read to its end keeps its request under way, until its client gives up.
    client.upstreams.set_fault("sgs.432", Some(Fault::Stall(StallAt::HalfBody).times(1)));
    let stalled = client.get(&window(432, "01/01/2024", "31/12/2025")).await;
    client.text(&window(11, "01/10/2026", "02/10/2026")).await;
    assert_eq!(client.upstreams.requests().last().unwrap().in_flight, 2);
    client.bytes(REGISTRY).await;
    assert_eq!(client.upstreams.requests().last().unwrap().in_flight, 1);
    drop(stalled);
    vintem_testkit::eventually("the request is over", Duration::from_secs(5), async || {
        client.text(&window(11, "01/10/2026", "02/10/2026")).await;
        client.upstreams.requests().last().unwrap().in_flight == 1
    })
    .await;
}

#[tokio::test]
async fn stand_ins_are_gone_when_they_are_dropped_even_while_they_stall() {
    let client = Client::new();
    let url = client.url(REGISTRY);
    client.upstreams.set_fault(REGISTRY, Some(Fault::Stall(StallAt::HalfBody)));
    let answer = client.get(REGISTRY).await;
    let Client { upstreams, http } = client;
    drop(upstreams);
    assert!(answer.bytes().await.is_err());
    assert!(http.get(url).send().await.is_err());
}

#[tokio::test]
async fn two_stand_ins_of_one_kind_say_the_same() {
    let (first, second) = (Client::new(), Client::new());
    for path in
        [REGISTRY.to_owned(), archive("ipe", 2015), archive("fca", 2020), period("GBP", "01-04-2021", "12-31-2021")]
    {
        assert_eq!(first.bytes(&path).await, second.bytes(&path).await, "{path}");
    }
    let now: NaiveDateTime = day("2030-06-28").and_hms_opt(12, 0, 0).unwrap();
    first.upstreams.set_now(now);
    assert_eq!(first.series(11, "24/06/2030", "27/06/2030").await.len(), 4);
}
