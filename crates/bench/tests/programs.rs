//! Every benchmark program starts, which also makes a test build compile them for the checks that run them.

use std::process::Command;

#[test]
fn every_program_prints_its_help() {
    let programs = [
        env!("CARGO_BIN_EXE_bench-export"),
        env!("CARGO_BIN_EXE_bench-ingest"),
        env!("CARGO_BIN_EXE_bench-request"),
        env!("CARGO_BIN_EXE_bench-search"),
        env!("CARGO_BIN_EXE_loads-under-traffic"),
        env!("CARGO_BIN_EXE_overload"),
        env!("CARGO_BIN_EXE_redis-memory"),
        env!("CARGO_BIN_EXE_webhook-trials"),
    ];
    for program in programs {
        let output = Command::new(program).arg("--help").output().unwrap();
        assert!(output.status.success(), "{program}");
        assert!(String::from_utf8_lossy(&output.stdout).contains("Usage:"), "{program}");
    }
}
