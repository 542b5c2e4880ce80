//! Fetches what the pages take from npm, by the lock file's checksums: the chart that can be zoomed.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Of the package → as the pages name it.
const NPM_FILES: [(&str, &str); 2] =
    [("uplot/dist/uPlot.iife.min.js", "uplot.js"), ("uplot/dist/uPlot.min.css", "uplot.css")];

fn main() {
    println!("cargo::rerun-if-changed=npm");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo names it"));
    for name in ["package.json", "package-lock.json"] {
        std::fs::copy(Path::new("npm").join(name), out.join(name)).expect("the list of packages can be copied");
    }
    let fetched = Command::new("npm")
        .args(["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"])
        .current_dir(&out)
        .status()
        .expect("npm is needed to build the pages: it comes with Node.js, or as Debian's package npm");
    assert!(fetched.success(), "npm could not fetch what the pages are made of");
    for (from, to) in NPM_FILES {
        std::fs::copy(out.join("node_modules").join(from), out.join(to)).expect("the package has this file");
    }
}
