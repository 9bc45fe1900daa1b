//! Running the program in tests.
#![allow(dead_code, clippy::unwrap_used)] // each test file uses its part

use std::process::{Command, Output, Stdio};

fn call(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_shardwright"));
    command.args(args).current_dir(std::env::temp_dir()).stdin(Stdio::null()).output().unwrap()
}

/// Standard output of a call that must succeed.
pub(crate) fn run(args: &[&str]) -> String {
    let out = call(args);
    assert!(out.status.success(), "{args:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).unwrap()
}

pub(crate) fn json(args: &[&str]) -> serde_json::Value {
    serde_json::from_str(&run(args)).unwrap()
}

/// Standard error of a call that must succeed.
pub(crate) fn told(args: &[&str]) -> String {
    let out = call(args);
    let log = String::from_utf8(out.stderr).unwrap();
    assert!(out.status.success(), "{args:?}: {log}");
    log
}

/// Standard error of a call that must fail with this exit status.
pub(crate) fn fails(args: &[&str], code: i32) -> String {
    let out = call(args);
    let why = String::from_utf8(out.stderr).unwrap();
    assert_eq!(out.status.code(), Some(code), "{args:?}: {why}");
    why
}

pub(crate) fn scratch() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

/// A file of the test data that comes with the source.
pub(crate) fn data(name: &str) -> String {
    format!("{}/../../tests/data/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// A tiny model of the test data.
pub(crate) fn model(name: &str) -> String {
    data(&format!("models/{name}.gguf"))
}
