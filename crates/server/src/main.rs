//! The `vintem` binary.

use std::process::ExitCode;

use clap::Parser;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let cli = vintem_server::cli::Cli::parse();
    let result = tokio::runtime::Runtime::new().map_err(anyhow::Error::from).and_then(|runtime| {
        let result = runtime.block_on(cli.run());
        // Does not wait for blocking tasks, such as the build of a snapshot that nobody will see.
        runtime.shutdown_background();
        result
    });

    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("vintem: {error:#}");
            ExitCode::FAILURE
        }
    }
}
