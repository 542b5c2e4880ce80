//! CVM's files.

use super::*;

#[tokio::test]
async fn the_registry_is_latin1_with_crlf_and_unescaped_quotes() {
    let client = TestClient::new();
    let file = client.get_bytes(REGISTRY_PATH).await;
    let text = decode_latin1(&file);
    assert!(text.starts_with("CNPJ_CIA;DENOM_SOCIAL;DENOM_COMERC;DT_REG;") && !text.contains('\u{fffd}'));
    assert!(std::str::from_utf8(&file).is_err() && text.contains("SÃO PAULO"));
    assert!(text.lines().all(|line| line.split(';').count() == 47));
    assert!(text.contains("BLOCO \"C\";"));

    let rows = parse_csv_rows(&text);
    let codes: BTreeSet<&String> = rows.iter().map(|row| &row[9]).collect();
    assert!(codes.len() < rows.len() && codes.len() == client.upstreams.companies().len());
    assert!(codes.iter().all(|code| !code.starts_with('0')));
}

#[tokio::test]
async fn files_have_validators_and_honor_conditional_requests() {
    let client = TestClient::new();
    for path in [REGISTRY_PATH.to_owned(), archive_path("ipe", 2026), archive_path("dfp", 2024)] {
        let whole = client.get(&path).await;
        let etag = header_text(&whole, "etag").to_owned();
        let modified = header_text(&whole, "last-modified").to_owned();
        let length = header_text(&whole, "content-length").to_owned();
        assert!(etag.starts_with('"') && modified.ends_with(" GMT"), "{etag} {modified}");
        assert_eq!(whole.bytes().await.unwrap().len().to_string(), length);

        let head = client.http.head(client.url(&path)).send().await.unwrap();
        assert_eq!(
            (head.status(), header_text(&head, "content-length"), header_text(&head, "etag")),
            (StatusCode::OK, &*length, &*etag)
        );

        for (name, value) in [("if-none-match", &etag), ("if-modified-since", &modified)] {
            let response = client.http.get(client.url(&path)).header(name, value).send().await.unwrap();
            let status_and_etag = (response.status(), header_text(&response, "etag"));
            assert_eq!(status_and_etag, (StatusCode::NOT_MODIFIED, &*etag), "{name}");
            assert!(response.bytes().await.unwrap().is_empty());
        }

        // If both are sent, only the tag counts.
        let request = client.http.get(client.url(&path)).header("if-none-match", "\"other\"");
        let response = request.header("if-modified-since", &modified).send().await.unwrap();
        assert_eq!(response.status(), 200);
    }
}

#[tokio::test]
async fn the_registry_is_rewritten_every_morning_and_on_change() {
    let client = TestClient::new();
    let validators = async || {
        let response = client.get(REGISTRY_PATH).await;
        (header_text(&response, "etag").to_owned(), header_text(&response, "last-modified").to_owned())
    };

    let today = validators().await;
    assert_eq!(today.1, "Fri, 13 Nov 2026 08:00:00 GMT");

    client.upstreams.set_today(parse_date("2026-11-14"));
    let tomorrow = validators().await;
    assert_eq!(tomorrow.1, "Sat, 14 Nov 2026 08:00:00 GMT");
    assert_ne!(today.0, tomorrow.0);

    client.upstreams.set_registry(decode_latin1(&client.upstreams.registry()).replace("ATIVO", "PARADO").into_bytes());
    let changed = validators().await;
    assert!(changed.0 != tomorrow.0 && changed.1 == "Sat, 14 Nov 2026 08:00:01 GMT");
    assert!(client.get_text(REGISTRY_PATH).await.contains("PARADO"));
}

#[tokio::test]
async fn directories_list_available_files_and_a_year_can_be_hidden() {
    let client = TestClient::new();
    let listing = async || client.get_text("/dados/CIA_ABERTA/DOC/IPE/DADOS/").await;
    let page = listing().await;
    assert!(page.contains("<title>Index of /dados/CIA_ABERTA/DOC/IPE/DADOS</title>"));
    for year in 2003..=2026 {
        let name = format!("ipe_cia_aberta_{year}.zip");
        assert!(page.contains(&format!("<a href=\"{name}\">{name}</a>")));
    }
    assert!(client.get_text("/dados/CIA_ABERTA/CAD/DADOS/").await.contains("cad_cia_aberta.csv"));
    assert_eq!(client.get(&archive_path("ipe", 2027)).await.status(), 404);
    assert_eq!(client.get(&archive_path("ipe", 2002)).await.status(), 404);

    client.upstreams.set_file_hidden("ipe_cia_aberta_2026.zip", true);
    let response = client.get(&archive_path("ipe", 2026)).await;
    assert_eq!(response.status(), 404);
    assert!(response.text().await.unwrap().contains("was not found on this server"));
    let page = listing().await;
    assert!(page.contains("ipe_cia_aberta_2025.zip") && !page.contains("ipe_cia_aberta_2026.zip"));

    client.upstreams.set_file_hidden("ipe_cia_aberta_2026.zip", false);
    assert_eq!(client.get(&archive_path("ipe", 2026)).await.status(), 200);

    // Annual statements come after the end of the year, except for the few companies with an earlier fiscal year end.
    client.upstreams.set_today(parse_date("2026-03-31"));
    assert!(!client.get_text("/dados/CIA_ABERTA/DOC/DFP/DADOS/").await.contains("dfp_cia_aberta_2026.zip"));
    assert_eq!(client.get(&archive_path("dfp", 2026)).await.status(), 404);

    // Archives are written on Sundays; the first one of 2027 is January 3.
    client.upstreams.set_today(parse_date("2027-01-02"));
    assert_eq!(client.get(&archive_path("ipe", 2027)).await.status(), 404);
    client.upstreams.set_today(parse_date("2027-01-03"));
    assert_eq!(client.get(&archive_path("ipe", 2027)).await.status(), 200);
}

#[tokio::test]
async fn every_year_of_filings_has_every_oddity() {
    let client =
        TestClient::with_options(FakeUpstreamOptions { ipe_rows_per_year: 40, ..FakeUpstreamOptions::default() });
    let codes: BTreeSet<String> = client.upstreams.companies().iter().map(|company| company.code.to_string()).collect();
    for year in [2003, 2010, 2025, 2026] {
        let rows = client.get_filings(year).await;
        let any_row = |predicate: &dyn Fn(&[String]) -> bool| rows.iter().any(|row| predicate(row));
        assert!(rows.iter().all(|row| row.len() == 13), "{year}");
        assert!(any_row(&|row| row[0] == "00.000.000/0000-00"), "a foreign issuer");
        assert!(any_row(&|row| row[2] == "80152" && row[0].starts_with("99.999.")) && !codes.contains("80152"));
        assert!(rows.windows(2).any(|pair| pair[0] == pair[1]), "a row twice");
        assert!(any_row(&|row| row[3].starts_with("3026-")), "the year 3026");
        assert!(any_row(&|row| row[7].contains('"') && !row[7].starts_with('"')), "quotes");
        assert!(any_row(&|row| row[7].contains("||")), "an agenda");
        assert!(any_row(&|row| row[7].chars().count() > 1000), "a long subject");
        assert!(any_row(&|row| row[4] == "Relatório Proventos" && row[10].is_empty()), "no protocol");
        let second_version = if year == 2010 { "0" } else { "2" };
        let is_second_version = |row: &[String]| row[9] == "RE - Reapresentação Espontânea";
        assert!(
            any_row(&|row| is_second_version(row) && [second_version, ""].contains(&&*row[11])),
            "a second version"
        );
        assert!(rows.windows(2).any(|pair| pair[0][12] == pair[1][12] && pair[0][5] != pair[1][5]), "a shared number");
        assert!(any_row(&|row| row[3] > row[8]), "a day still to come");
        assert!(any_row(&|row| row[7].is_empty() && row[5].is_empty() && row[6].is_empty()));
    }
}

#[tokio::test]
async fn filings_are_filed_by_delivery_year_and_their_protocol_repeats_the_row() {
    let client = TestClient::new();
    for year in [2008, 2012, 2024] {
        let rows = client.get_filings(year).await;
        assert_eq!(rows.len(), 200);
        for row in &rows {
            assert!(
                row[8].starts_with(&year.to_string()) && parse_date(&row[8]) <= parse_date(&format!("{year}-12-31"))
            );
            let link_end = format!("numVersao={}", if row[11].is_empty() { "0" } else { &row[11] });
            assert!(
                row[12].starts_with("https://www.rad.cvm.gov.br/ENET/frmDownloadDocumento.aspx?Tela=ext&descTipo=IPE")
            );
            assert!(row[12].ends_with(&link_end));
            if !row[10].is_empty() {
                let reference = NaiveDate::parse_from_str(&row[3], "%Y-%m-%d").unwrap().format("%d%m%Y");
                let start = format!("{:0>6}IPE{reference}", row[2]);
                let version = &row[10][start.len()..start.len() + 2];
                assert!(row[10].starts_with(&start) && row[10].len() == start.len() + 13, "{row:?}");
                assert!(year == 2012 || version == format!("{:0>2}", row[11]), "{row:?}");
            }
        }
        let blank = rows.iter().filter(|row| row[10].is_empty()).count();
        assert!(if year == 2012 { blank > 180 } else { blank < 20 }, "{year}: {blank}");
    }
}

#[tokio::test]
async fn document_numbers_are_unique_across_years_but_for_documents_listed_twice() {
    let client =
        TestClient::with_options(FakeUpstreamOptions { ipe_rows_per_year: 60, ..FakeUpstreamOptions::default() });
    let mut rows_by_number: BTreeMap<String, BTreeSet<Vec<String>>> = BTreeMap::new();
    for year in 2003..=2026 {
        for row in client.get_filings(year).await {
            let number = row[12].split("numProtocolo=").nth(1).unwrap().split('&').next().unwrap().to_owned();
            rows_by_number.entry(number).or_default().insert(row);
        }
    }

    assert!(rows_by_number.len() > 24 * 50);
    // Apart from duplicated rows, a number occurs twice only for a document that is listed under two meetings.
    let shared: Vec<_> = rows_by_number.values().filter(|rows| rows.len() > 1).collect();
    assert!(shared.len() >= 24 && shared.iter().all(|rows| rows.iter().any(|row| row[6].starts_with("Boletim"))));
}

#[tokio::test]
async fn the_current_year_ends_on_the_last_sunday_and_only_grows() {
    let client = TestClient::new();
    let earlier = client.get_filings(2026).await;
    assert!(earlier.iter().all(|row| parse_date(&row[8]) <= parse_date("2026-11-08")));

    client.upstreams.set_today(parse_date("2026-11-14"));
    assert_eq!(client.get_filings(2026).await, earlier);
    client.upstreams.set_today(parse_date("2026-12-27"));
    let later = client.get_filings(2026).await;
    assert!(later.len() > earlier.len() && later.starts_with(&earlier));

    // The previous year is rewritten too; older years are not.
    let modified = async |year| header_text(&client.get(&archive_path("ipe", year)).await, "last-modified").to_owned();
    assert_eq!(modified(2026).await, "Sun, 27 Dec 2026 08:00:00 GMT");
    assert_eq!(modified(2025).await, "Sun, 27 Dec 2026 08:00:00 GMT");
    assert_eq!(modified(2024).await, "Sun, 28 Dec 2025 08:00:00 GMT");
}

#[tokio::test]
async fn a_test_can_add_a_filing() {
    let client = TestClient::new();
    let before = client.get(&archive_path("ipe", 2026)).await;
    let etag = header_text(&before, "etag").to_owned();
    let modified = header_text(&before, "last-modified").to_owned();
    let rows = client.get_filings(2026).await;

    let company = client.upstreams.companies()[0].clone();
    let delivered_on = parse_date("2026-11-12");
    let row =
        IpeRow::material_fact(&company.cnpj, &company.name, company.code, delivered_on, 9_000_001, "Ação \"nova\"");
    client.upstreams.add_filing(IpeRow { doc_type: "Tipo".into(), ..row }).unwrap();

    let after = client.get_filings(2026).await;
    assert_eq!(after[..rows.len()], rows);
    let added = &after[rows.len()];
    assert_eq!((added[4].as_str(), added[5].as_str(), added[7].as_str()), ("Fato Relevante", "Tipo", "Ação \"nova\""));
    assert!(added[12].contains("numProtocolo=9000001&"));

    for (name, value) in [("if-none-match", etag), ("if-modified-since", modified)] {
        let request = client.http.get(client.url(&archive_path("ipe", 2026))).header(name, value);
        assert_eq!(request.send().await.unwrap().status(), 200);
    }
}

#[tokio::test]
async fn structured_sets_have_their_index_among_other_members() {
    let client = TestClient::new();
    let mut ids = BTreeSet::new();
    for (set, count) in [("dfp", 19), ("itr", 19), ("fre", 6), ("fca", 10)] {
        let members = client.get_archive(set, 2024).await;
        assert_eq!(members.len(), count, "{set}");
        let index = &members[&format!("{set}_cia_aberta_2024.csv")];
        assert!(index.starts_with("CNPJ_CIA;DT_REFER;VERSAO;DENOM_CIA;CD_CVM;CATEG_DOC;ID_DOC;DT_RECEB;LINK_DOC\r\n"));
        let rows = parse_csv_rows(index);
        for row in &rows {
            assert!(row.len() == 9 && row[4].len() == 6 && row[5] == set.to_uppercase(), "{row:?}");
            assert!(row[1].starts_with("2024-") && row[7] > row[1]);
            assert!(row[8].starts_with("http://www.rad.cvm.gov.br/") && row[8].ends_with(&row[6]));
            assert!(ids.insert(row[6].clone()), "{row:?}");
        }
        assert!(rows.iter().any(|row| row[2] == "2") && rows.is_sorted_by(|a, b| a[0] <= b[0]));
    }

    assert_eq!(client.get(&archive_path("itr", 2010)).await.status(), 404);
    assert_eq!(client.get(&archive_path("dfp", 2010)).await.status(), 200);
    assert_eq!(client.get(&archive_path("dfp", 2009)).await.status(), 404);
}

#[tokio::test]
async fn fca_securities_contain_tickers_and_typing_errors() {
    let client = TestClient::with_options(FakeUpstreamOptions { companies: 1_000, ..FakeUpstreamOptions::default() });
    let members = client.get_archive("fca", 2025).await;
    let rows = parse_csv_rows(&members["fca_cia_aberta_valor_mobiliario_2025.csv"]);
    assert!(rows.iter().all(|row| row.len() == 18));
    let codes: Vec<&str> = rows.iter().map(|row| row[8].as_str()).collect();
    let is_ticker = |code: &&&str| code.len() == 5 && code.ends_with(['3', '4']);
    assert!(codes.iter().filter(is_ticker).count() * 10 > codes.len() * 9);
    for junk in ["ADR", "0000", ""] {
        assert!(codes.contains(&junk), "{junk:?}");
    }

    // A ticker belongs to one company only.
    let mut owners: BTreeMap<&str, &str> = BTreeMap::new();
    for row in rows.iter().filter(|row| is_ticker(&&row[8].as_str())) {
        assert_eq!(*owners.entry(&row[8]).or_insert(&row[0]), row[0]);
    }
}

#[tokio::test]
async fn a_full_year_has_45_000_filings_in_realistic_proportions() {
    let client = TestClient::with_options(FakeUpstreamOptions {
        ipe_rows_per_year: 45_000,
        companies: 2_600,
        ..FakeUpstreamOptions::default()
    });
    let rows = client.get_filings(2025).await;
    assert_eq!(rows.len(), 45_000);

    let per_thousand = |predicate: &dyn Fn(&[String]) -> bool| rows.iter().filter(|row| predicate(row)).count() / 45;
    let share = |field: usize| per_thousand(&|row| !row[field].is_empty());
    // Per thousand of the real 49,277 rows: type 836, kind 352, subject 665, protocol 982.
    assert!((780..900).contains(&share(5)), "{}", share(5));
    assert!((300..450).contains(&share(6)), "{}", share(6));
    assert!((600..750).contains(&share(7)), "{}", share(7));
    assert!((970..990).contains(&share(10)), "{}", share(10));
    assert!((8..20).contains(&per_thousand(&|row| row[7].contains('"'))));
    assert!((30..60).contains(&per_thousand(&|row| row[4] == "Fato Relevante")));
    assert!((20..70).contains(&per_thousand(&|row| row[11] != "1")));

    let foreign = rows.iter().filter(|row| row[0] == "00.000.000/0000-00").count();
    assert!((15..90).contains(&foreign), "{foreign}");
    let companies: BTreeSet<&String> = rows.iter().map(|row| &row[2]).collect();
    assert!(companies.len() > 500, "{}", companies.len());
}
