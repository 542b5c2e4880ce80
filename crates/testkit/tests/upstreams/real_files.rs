//! Real files take precedence over synthetic data; these tests write small ones in the real formats.

use super::*;

/// A temporary directory of files in the real formats; dropping it deletes them.
struct TempFiles(std::path::PathBuf);

impl TempFiles {
    fn new(files: &[(&str, &[u8])]) -> Self {
        static COUNT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
        let count = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let directory = std::env::temp_dir().join(format!("vintem-upstreams-{}-{count}", std::process::id()));

        std::fs::create_dir_all(directory.join("cvm")).unwrap();
        for (name, content) in files {
            let file = directory.join(name);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, content).unwrap();
        }
        Self(directory)
    }

    fn start_client(&self) -> TestClient {
        TestClient::with_options(FakeUpstreamOptions {
            data_dir: Some(self.0.clone()),
            ..FakeUpstreamOptions::default()
        })
    }
}

impl Drop for TempFiles {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[tokio::test]
async fn real_rows_are_kept_and_gaps_are_filled_consistently() {
    let files = TempFiles::new(&[
        ("sgs/12.json", br#"[{"data":"06/03/2025","valor":"0.0490370"},{"data":"10/03/2025","valor":"0.049"}]"#),
        ("sgs/1.json", br#"[{"data":"06/03/2025","valor":"7.77000"},{"data":"02/06/2025","valor":"7.9900"}]"#),
    ]);
    let client = files.start_client();
    let rows = client.get_series(12, "05/03/2025", "11/03/2025").await;
    let dates_and_values: Vec<(String, &str)> =
        rows.iter().map(|(date, value)| (date.to_string(), value.as_str())).collect();
    // This file makes March 7 a holiday, because the rows around it are close together.
    assert_eq!((dates_and_values[1].0.as_str(), dates_and_values[1].1), ("2025-03-06", "0.0490370"));
    assert_eq!((dates_and_values[2].0.as_str(), dates_and_values[2].1), ("2025-03-10", "0.049"));
    assert_eq!((dates_and_values.len(), dates_and_values[3].0.as_str()), (4, "2025-03-11"));

    // The gap between the two rates is filled at about their level, and buying is cheaper.
    let sell = client.get_series(1, "06/03/2025", "02/06/2025").await;
    let buy = client.get_series(10813, "06/03/2025", "02/06/2025").await;
    assert_eq!((sell[0].1.as_str(), sell.last().unwrap().1.as_str()), ("7.77000", "7.9900"));
    assert!(sell.len() > 55 && sell.len() == buy.len());
    for ((_, sell), (_, buy)) in sell.iter().zip(&buy) {
        assert!((7.3..8.5).contains(&parse_number(sell)) && parse_number(buy) < parse_number(sell), "{buy} {sell}");
    }

    let close = client.get_quotes("USD", "03-06-2025", "03-06-2025").await.pop().unwrap();
    assert_eq!((parse_number(&close.buy), parse_number(&close.sell)), (7.7694, 7.77));
}

#[tokio::test]
async fn real_registries_are_served_by_month_and_real_indexes_up_to_the_current_day() {
    let registry = |name: &str| {
        let header = decode_latin1(&TestClient::new().upstreams.registry()).lines().next().unwrap().to_owned();
        let mut row = vec![""; 47];
        row[0] = "99.900.001/0001-00";
        row[1] = name;
        row[3] = "1999-01-04";
        row[9] = "2437";
        format!("{header}\r\n{}\r\n", row.join(";"))
    };
    let old = registry("NOME ANTIGO S.A.");
    let new = registry("NOME NOVO S.A.");
    let header = "CNPJ_CIA;DT_REFER;VERSAO;DENOM_CIA;CD_CVM;CATEG_DOC;ID_DOC;DT_RECEB;LINK_DOC\r\n";
    let line = |version, received| {
        format!("99.900.001/0001-00;2025-12-31;{version};NOME;002437;DFP;1{version};{received};http://l\r\n")
    };
    let index = format!("{header}{}{}", line(1, "2026-03-31"), line(2, "2026-12-01"));

    let files = TempFiles::new(&[
        ("cvm/cad_cia_aberta_2024-06.csv", old.as_bytes()),
        ("cvm/cad_cia_aberta_2026-05.csv", new.as_bytes()),
        ("cvm/dfp_cia_aberta_2025.csv", index.as_bytes()),
    ]);

    let client = files.start_client();
    assert_eq!(client.get_text(REGISTRY_PATH).await, new);
    let served_index = async || client.get_archive("dfp", 2025).await["dfp_cia_aberta_2025.csv"].clone();
    assert_eq!(served_index().await, format!("{header}{}", line(1, "2026-03-31")));

    client.upstreams.set_today(parse_date("2026-12-31"));
    assert_eq!(served_index().await, index);
    client.upstreams.set_today(parse_date("2025-01-31"));
    assert_eq!(client.get_text(REGISTRY_PATH).await, old);

    // The filing companies come from the newest registry; the other rows of the year are from foreign issuers.
    let filings = client.get_filings(2024).await;
    assert!(filings.iter().filter(|row| row[2] == "2437" && row[1] == "NOME NOVO S.A.").count() > 150);
}

#[tokio::test]
async fn complete_days_of_real_bulletins_are_served_unchanged() {
    let body = r#"{"CotacaoMoedaDia_AUD_2025-05-14": {"value": [
        {"paridadeCompra":0.7050,"paridadeVenda":0.7053,"cotacaoCompra":3.80010,"cotacaoVenda":3.80160,
         "dataHoraCotacao":"2025-05-14 10:11:20.5","tipoBoletim":"Abertura"},
        {"paridadeCompra":0.7051,"paridadeVenda":0.7052,"cotacaoCompra":3.7771,"cotacaoVenda":3.7780,
         "dataHoraCotacao":"2025-05-14 13:07:02.511","tipoBoletim":"Fechamento PTAX"}]}}"#;

    let files = TempFiles::new(&[("ptax/ptax_samples.json", body.as_bytes())]);
    let client = files.start_client();
    let quotes = client.get_quotes("AUD", "05-13-2025", "05-15-2025").await;
    let day_quotes: Vec<&PtaxQuote> = quotes.iter().filter(|quote| quote.date() == parse_date("2025-05-14")).collect();
    assert_eq!((quotes.len(), day_quotes.len()), (12, 2));
    assert_eq!((day_quotes[0].buy.as_str(), day_quotes[0].timestamp.as_str()), ("3.80010", "2025-05-14 10:11:20.5"));
    assert_eq!(day_quotes[1].label, "Fechamento");
}

#[test]
fn missing_directories_and_non_loopback_addresses_are_refused() {
    let missing_directory =
        FakeUpstreamOptions { data_dir: Some("/nowhere/at/all".into()), ..FakeUpstreamOptions::default() };
    assert!(FakeUpstreams::start(missing_directory).is_err());
    let public_address = FakeUpstreamOptions { listen: "0.0.0.0:0".parse().unwrap(), ..FakeUpstreamOptions::default() };
    assert!(FakeUpstreams::start(public_address).is_err());
}
