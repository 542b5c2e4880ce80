//! Runs the fake upstreams of the tests as a program, to query by hand or to point `vintem` at.

use std::net::SocketAddr;
use std::path::PathBuf;

use chrono::{NaiveDate, Utc};
use clap::Parser;
use vintem_domain::dates::sao_paulo_date;
use vintem_testkit::upstreams::{FakeUpstreamOptions, FakeUpstreams, Fault, StatementOptions};

const HELP: &str = "\
Answers as the three upstreams do, on one address of loopback:

  /dados/serie/bcdata.sgs.{code}/dados?formato=json&dataInicial=01/01/2026&dataFinal=31/01/2026
  /dados/serie/bcdata.sgs.{code}/dados/ultimos/{1..20}?formato=json
      432, 11, 12, 4389, 1178, 433, 13522, 1 and 10813
  /olinda/servico/PTAX/versao/v1/odata/CotacaoMoedaPeriodo(…), CotacaoMoedaDia(…), Moedas
  /dados/CIA_ABERTA/CAD/DADOS/cad_cia_aberta.csv
  /dados/CIA_ABERTA/DOC/{IPE,DFP,ITR,FRE,FCA}/DADOS/{ipe,dfp,itr,fre,fca}_cia_aberta_{year}.zip

What is printed on standard output are settings of vintem, ready for a shell:

  upstreams --data DIR > upstreams.env &
  set -a; . ./upstreams.env; vintem …

With --data, real files in DIR/sgs, DIR/ptax and DIR/cvm are served as they are. Everything else is SYNTHETIC: made up,
and the same at every start. A fault meets requests whose path contains a text:

  --fault bcdata.sgs.432=html-with-200 --fault ipe_cia_aberta_2026=3*truncated-zip";

/// Stand-ins for the central bank's and the regulator's services, for tests and trials
#[derive(Debug, Parser)]
#[command(name = "upstreams", after_long_help = format!("{HELP}\n\nFaults: {}", Fault::names()))]
struct Arguments {
    /// Where to listen; an address on loopback
    #[arg(long, default_value = "127.0.0.1:8900")]
    listen: SocketAddr,
    /// A directory of real files to serve
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// A directory that `vintem doctor --live --record` filled; its responses are served, and nothing else
    #[arg(long, value_name = "DIR", conflicts_with = "data")]
    replay: Option<PathBuf>,
    /// The day that it is, in São Paulo; today if not given
    #[arg(long, value_name = "YYYY-MM-DD")]
    today: Option<NaiveDate>,
    /// Filings of each whole year
    #[arg(long, default_value_t = 45_000)]
    ipe_rows: usize,
    /// Rows of each document with financial statements
    #[arg(long, default_value_t = 840)]
    statement_rows: usize,
    /// The first year of filings
    #[arg(long, default_value_t = 2003)]
    ipe_from: i32,
    /// Companies of the registry, where no file has them
    #[arg(long, default_value_t = 2_600)]
    companies: usize,
    /// What goes wrong, and where: PART-OF-PATH=FAULT, or PART-OF-PATH=N*FAULT for the next N requests
    #[arg(long, value_name = "PART=FAULT", value_parser = parse_fault_argument)]
    fault: Vec<(String, Fault)>,
}

fn parse_fault_argument(text: &str) -> Result<(String, Fault), String> {
    // Split at the last `=`: a path may contain others.
    let (part, fault) = text.rsplit_once('=').ok_or("PART=FAULT is expected")?;
    Ok((part.to_owned(), fault.parse()?))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let today = arguments.today.unwrap_or_else(|| sao_paulo_date(Utc::now()));
    let made_up =
        if arguments.data.is_some() { "all that no file has (IPE, tickers, most of PTAX)" } else { "everything" };

    let upstreams = FakeUpstreams::start(FakeUpstreamOptions {
        data_dir: arguments.data,
        today,
        ipe_rows_per_year: arguments.ipe_rows,
        ipe_years: arguments.ipe_from..=i32::MAX,
        statements: StatementOptions { rows_per_document: arguments.statement_rows, restated_per_thousand_weekly: 0 },
        companies: arguments.companies,
        kit: arguments.replay,
        listen: arguments.listen,
    })?;
    for (part, fault) in arguments.fault {
        upstreams.set_fault(&part, Some(fault));
    }

    eprintln!("stand-ins for SGS, PTAX and CVM on {today}: {made_up} is SYNTHETIC; Ctrl-C ends them");
    println!("VINTEM_SGS_URL={}", upstreams.sgs_url());
    println!("VINTEM_PTAX_URL={}", upstreams.ptax_url());
    println!("VINTEM_CVM_URL={}", upstreams.cvm_url());
    tokio::signal::ctrl_c().await?;
    Ok(())
}
