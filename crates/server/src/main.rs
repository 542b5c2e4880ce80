//! The `vintem` binary.

use std::process::ExitCode;

use vintem_server::cli::Cli;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let cli = match Cli::from_command_line() {
        Ok(cli) => cli,
        Err(exit_code) => return exit_code,
    };

    let result = tokio::runtime::Runtime::new().map_err(anyhow::Error::from).and_then(|runtime| {
        let result = runtime.block_on(cli.run());
        // Does not wait for blocking tasks, such as the build of a snapshot that nobody will see.
        runtime.shutdown_background();
        result
    });

    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {}", vintem_server::describe_error(&error));
            ExitCode::FAILURE
        }
    }
}
