use std::process::ExitCode;

use clap::Parser;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let cli = vintem_server::cli::Cli::parse();
    let ended = tokio::runtime::Runtime::new().map_err(anyhow::Error::from).and_then(|runtime| {
        let ended = runtime.block_on(cli.run());
        // Not waiting for work beside, such as the building of a snapshot that nobody will see.
        runtime.shutdown_background();
        ended
    });
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("vintem: {error:#}");
            ExitCode::FAILURE
        }
    }
}
