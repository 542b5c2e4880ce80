//! Lists the files in `migrations`, so that a new migration is only a file.

use std::path::Path;
use std::{env, fs};

fn main() {
    println!("cargo::rerun-if-changed=migrations");

    let root = env::var("CARGO_MANIFEST_DIR").expect("cargo sets it");
    let directory = Path::new(&root).join("migrations");
    let mut paths: Vec<_> = fs::read_dir(directory)
        .expect("the folder of migrations can be read")
        .map(|entry| entry.expect("the folder of migrations can be read").path())
        .collect();
    paths.sort();

    let mut list = "[\n".to_owned();
    for path in paths {
        let file_name = path.file_name().and_then(|name| name.to_str()).expect("names of migrations are plain");
        let (number, name) = file_name
            .strip_suffix(".sql")
            .and_then(|stem| stem.split_once('_'))
            .unwrap_or_else(|| panic!("{file_name} is not named like 0001_data.sql"));
        let number: i64 = number.parse().unwrap_or_else(|_| panic!("{file_name} does not begin with a number"));
        let name = name.replace('_', " ");

        // The path is left to the compiler: a copy of the target folder must not name the folder that it was copied from.
        let path = format!("/migrations/{file_name}");
        let sql = format!("include_str!(concat!(env!(\"CARGO_MANIFEST_DIR\"), {path:?}))");
        list.push_str(&format!("    ({number}, {name:?}, {sql}),\n"));
    }
    list.push_str("]\n");

    let output = env::var("OUT_DIR").expect("cargo sets it");
    fs::write(Path::new(&output).join("migrations.rs"), list).expect("the list of migrations can be written");
}
