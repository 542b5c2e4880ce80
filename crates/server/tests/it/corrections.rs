//! Correction of amounts by published rules, against published results: savings accounts, TR, price indices and the legal
//! rate.

use rust_decimal::Decimal;
use serde_json::Value;
use vintem_testkit::TestReplica;

use crate::TestResult;
use crate::market::{database_with_values, get_market, start_replica};

/// The yield of savings accounts for each start day of 2024, in ten-thousandths of a percent: a month per line, the days
/// 1 to 28. From responses of the central bank for series 195, in github.com/fabiobarretoadvogado/CalculosJuridicos,
/// `backend/data/fontes`.
const SAVINGS_2024: &str = "
5879 6170 6171 5917 5663 5681 5977 6271 6252 6256 5939 5710 5429 5429 5721 5717 5692 5417 5099 5089 5379 5668 5659 5666 5378 5108 5122 5412
5079 5083 5000 5000 5090 5090 5087 5082 5079 5000 5000 5084 5374 5663 5668 5664 5366 5366 5655 5668 5651 5654 5638 5342 5342 5630 5626 5615
5333 5302 5565 5828 5816 5784 5475 5197 5551 5809 6067 6136 6106 5825 5522 5504 5763 6022 5990 5940 5631 5342 5517 5873 6131 6106 6066 5789
6028 5861 5854 5811 5464 5228 5488 5847 5844 5840 5812 5572 5212 5570 5828 5848 5602 5675 5364 5102 5365 5629 5608 5630 5624 5367 5088 5352
5874 5874 5524 5489 5848 6109 6087 6065 5838 5490 5344 5607 5869 5889 6149 5646 5387 5384 5649 5916 5926 5909 5643 5396 5418 5685 5952 5914
5367 5629 5891 5861 5853 6139 5606 5393 5658 5925 5887 5968 5950 5679 5401 5663 5927 5925 5941 5961 5656 5391 5655 5920 5898 5911 5921 5689
5743 5744 5746 5707 5672 5671 5709 5746 5748 5752 5711 5673 5673 5711 5748 5748 5749 5713 5674 5674 5712 5749 5749 5758 5714 5676 5674 5712
5711 5671 5671 5709 5746 5746 5747 5710 5674 5673 5711 5748 5748 5748 5712 5675 5676 5714 5763 5755 5749 5712 5675 5675 5713 5759 5767 5774
5678 5718 5722 5722 5722 5685 5648 5687 5726 5728 5730 5734 5696 5659 5697 5737 5738 5741 5742 5707 5668 5708 5747 5745 5742 5743 5704 5667
5982 5998 5760 5714 5716 5790 6054 6064 6083 5816 5720 5722 5835 6100 6081 5837 5713 5686 5687 5727 5727 5728 5729 5689 5649 5648 5688 5729
5652 5484 5654 5694 5694 5697 5699 5660 5531 5661 5701 5709 5701 5702 5663 5663 5704 5744 5746 5746 6004 5748 5714 5792 6068 5756 5802 5756
5826 5826 5847 5879 5732 5691 5704 5749 6051 6078 6091 5835 5731 5734 5958 6266 6291 6295 6044 5813 5804 6117 6430 6436 6425 6425 6175 6160
";

/// What a deposit of each day of January 2024 earned in twelve months, in ten-thousandths of a percent. Of the 1st, the
/// tables of portals give 7.03%.
const SAVINGS_2024_TOTALS: [u32; 28] = [
    70321, 70543, 70590, 70512, 70177, 70490, 70458, 70660, 71261, 71254, 70918, 70690, 70504, 70914, 71382, 71190,
    70807, 70885, 70536, 70264, 70449, 70537, 70973, 71141, 71333, 71026, 70782, 70765,
];

/// The monthly changes of a year or more: the series, its first month, and the changes.
type MonthlyChanges = (&'static str, (i32, u32), &'static str);

/// From responses of the central bank, in github.com/investash/inflacao and github.com/claudiogonzaga/damnum.
const MONTHLY_CHANGES: [MonthlyChanges; 8] = [
    ("igp-m", (2018, 9), "1.52 0.89 -0.49 -1.08 0.01 0.88 1.26 0.92 0.45 0.80 0.40 -0.67"),
    ("inpc", (2021, 1), "0.27 0.82 0.86 0.38 0.96 0.60 1.02 0.88 1.20 1.16 0.84 0.73"),
    ("ipca", (2024, 1), "0.42 0.83 0.16 0.38 0.46 0.21 0.38 -0.02 0.44 0.56 0.39 0.52"),
    ("ipca-15", (2024, 1), "0.31 0.78 0.36 0.21 0.44 0.39 0.30 0.19 0.13 0.54 0.62 0.34"),
    ("igp-di", (2023, 1), "0.06 0.04 -0.34 -1.01 -2.33 -1.45 -0.40 0.05 0.45 0.51 0.50 0.64"),
    (
        "legal-rate",
        (2024, 8),
        "0.605306 0.676227 0.704241 0.385874 0.171924 0.589427 0.902209 0.000000 0.321969 0.623200 0.775982 0.834880 \
         0.942622 1.305984 0.736394 1.093764 0.851001 0.967510 0.962232 0.155714 0.768672 0.198293",
    ),
    ("tr", (2024, 1), "0.0875 0.0079 0.0331 0.1023 0.0870 0.0365 0.0739 0.0707 0.0675 0.0977 0.0649 0.0822"),
    ("savings-old", (2008, 1), "0.6015 0.5244 0.5411 0.5960 0.5740 0.6152 0.6924 0.6582 0.6980 0.7519 0.6626 0.7160"),
];

async fn start_with(values: Vec<(&str, Vec<(String, String)>)>) -> anyhow::Result<TestReplica> {
    let borrowed: Vec<(&str, Vec<(&str, &str)>)> = values
        .iter()
        .map(|(id, rows)| (*id, rows.iter().map(|(date, value)| (date.as_str(), value.as_str())).collect()))
        .collect();
    let slices: Vec<(&str, &[(&str, &str)])> = borrowed.iter().map(|(id, rows)| (*id, rows.as_slice())).collect();
    start_replica(&database_with_values(&slices).await?).await
}

fn text(answer: &Value, field: &str) -> String {
    answer[field].to_string()
}

/// Without its trailing zeros, which JSON does not tell apart.
fn number(answer: &Value, field: &str) -> Option<Decimal> {
    text(answer, field).parse().ok()
}

#[tokio::test]
async fn savings_deposits_earn_one_rate_a_month_on_their_anniversary() -> TestResult {
    let months = SAVINGS_2024.trim().lines().zip(1..);
    let rows = months.flat_map(|(line, month)| {
        line.split(' ').zip(1..).map(move |(value, day)| (format!("2024-{month:02}-{day:02}"), format!("0.{value}")))
    });
    // The central bank's own example of its calculator: 10,000 reais from 2002-05-17 to 2002-08-30 are 10,221.87.
    let old = [("2002-05-17", "0.6683"), ("2002-06-17", "0.7516"), ("2002-07-17", "0.7826")];
    let old = old.map(|(date, value)| (date.to_owned(), value.to_owned())).to_vec();
    let replica = start_with(vec![("savings", rows.collect()), ("savings-old", old)]).await?;

    for (day, total) in (1..).zip(SAVINGS_2024_TOTALS) {
        let path = format!("series/savings/accumulated?from=2024-01-{day:02}&to=2025-01-{day:02}");
        let answer = get_market(&replica, &path).await?;
        assert_eq!((&answer["months"], &answer["complete"]), (&12.into(), &true.into()), "{answer}");
        let percent: f64 = text(&answer, "change_percent").parse()?;
        // The total has four decimals, and the factor that is served has eight.
        assert!((percent * 10_000.0 - f64::from(total)).abs() < 0.501, "day {day}: {answer}");
    }

    // A whole year is that of a deposit of the 1st; another day has eleven whole months in it.
    let year = get_market(&replica, "series/savings/accumulated?year=2024").await?;
    assert_eq!((text(&year, "months"), text(&year, "interval")), ("12".into(), "\"[from, to]\"".into()));
    assert_eq!(text(&year, "factor"), "1.07032116");
    let fifteenth = get_market(&replica, "series/savings/accumulated?year=2024&day=15").await?;
    assert_eq!((text(&fifteenth, "months"), text(&fifteenth, "first_counted")), ("11".into(), "\"2024-01-15\"".into()));
    // Deposits of the 29th, 30th and 31st count from the 1st of the next month.
    for from in ["2024-01-29", "2024-01-31", "2024-02-01"] {
        let path = format!("series/savings/accumulated?from={from}&to=2024-03-01");
        assert_eq!(number(&get_market(&replica, &path).await?, "factor"), Some("1.005079".parse()?), "{from}");
    }

    let example =
        get_market(&replica, "series/savings-old/accumulated?from=2002-05-17&to=2002-08-30&amount=10000").await?;
    assert_eq!((text(&example, "result"), text(&example, "months")), ("10221.87".into(), "3".into()));
    let too_short =
        get_market(&replica, "series/savings-old/accumulated?from=2002-06-01&to=2002-06-30&amount=500").await?;
    assert_eq!((number(&too_short, "result"), text(&too_short, "months")), (Some(500.into()), "0".into()));
    // The next anniversary, July 17, has no row of the 16th.
    let gap = get_market(&replica, "series/savings-old/accumulated?from=2002-05-16&to=2002-07-16").await?;
    assert_eq!((&gap["missing_total"], gap.get("factor")), (&2.into(), None), "{gap}");

    // A spread is earned in whole months, too.
    let spread = "series/savings/accumulated?from=2024-01-20&to=2024-01-25&day=15&spread=10&amount=1000";
    let spread = get_market(&replica, spread).await?;
    assert_eq!(
        (number(&spread, "result"), text(&spread, "business_days")),
        (Some(1000.into()), "0".into()),
        "{spread}"
    );

    for path in [
        "savings/accumulated?year=2024&day=32",
        "selic-daily/accumulated?year=2024&day=1",
        "usd-brl/accumulated?year=2024&day=5",
    ] {
        let response = replica.get(&format!("/api/v1/market/series/{path}")).await?;
        assert_eq!(response.status(), 400, "{path}");
        assert_eq!(response.json::<Value>().await?["param"], "day", "{path}");
    }
    Ok(())
}

#[tokio::test]
async fn indices_and_the_legal_rate_accumulate_to_the_published_totals() -> TestResult {
    let rows = MONTHLY_CHANGES.map(|(id, (year, month), changes)| {
        let dates =
            (month - 1..).map(move |months| format!("{}-{:02}-01", year + (months / 12) as i32, months % 12 + 1));
        (id, dates.zip(changes.split_whitespace().map(str::to_owned)).collect())
    });
    let replica = start_with(rows.to_vec()).await?;

    for (path, field, published) in [
        // The central bank's calculator, for a rent of September 2018.
        ("igp-m/accumulated?from=2018-09&to=2019-08", "change_percent", "4.9636"),
        // The totals that IBGE and FGV announced for the year.
        ("inpc/accumulated?year=2021", "change_percent", "10.1602"),
        ("ipca/accumulated?year=2024", "change_percent", "4.83"),
        ("ipca-15/accumulated?year=2024", "change_percent", "4.71"),
        ("igp-di/accumulated?year=2023", "change_percent", "-3.2755"),
        // Resolution CMN 5,171 of 2024: the months are added up.
        ("legal-rate/accumulated?from=2025-01&to=2025-02&amount=1000", "result", "1014.92"),
        ("legal-rate/accumulated?from=2024-08&to=2026-05", "change_percent", "14.573425"),
        ("tr/accumulated?year=2024", "change_percent", "0.8142"),
        ("savings-old/accumulated?year=2008", "change_percent", "7.9037"),
    ] {
        let answer = get_market(&replica, &format!("series/{path}")).await?;
        let published: Decimal = published.parse()?;
        let value: Decimal = text(&answer, field).parse()?;
        assert_eq!(value.round_dp(published.scale()), published, "{path}: {answer}");
    }
    Ok(())
}
