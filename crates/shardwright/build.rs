//! Puts version and commit into the binary.

use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=../../.git/HEAD");
    println!("cargo:rerun-if-changed=../../.git/refs/heads");
    let commit = Command::new("git").args(["rev-parse", "--short=12", "HEAD"]).output();
    let commit = commit.ok().filter(|o| o.status.success()).and_then(|o| String::from_utf8(o.stdout).ok());
    let version = std::env::var("CARGO_PKG_VERSION").expect("cargo sets it");
    let version = commit.map_or(version.clone(), |c| format!("{version} ({})", c.trim()));
    println!("cargo:rustc-env=SHARDWRIGHT_VERSION={version}");
}
