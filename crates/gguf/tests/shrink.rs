//! A file that shrinks while it is mapped ends the process with a line that names it.
#![allow(clippy::unwrap_used)] // a test fails by panicking

use std::env;
use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output};

use shardwright_gguf::{Meta, QuantType, Reader, Writer};

const FILE: &str = "SHARDWRIGHT_TEST_SHRINKING_FILE";

fn write(path: &Path) {
    let mut writer = Writer::new(Meta::new()).unwrap();
    writer.tensor("big", QuantType::F32, &[1 << 20]).unwrap();
    writer.write_sparse(path).unwrap();
}

/// Runs one of the tests below in a process of its own.
fn child(test: &str, file: &Path) -> Output {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args([test, "--exact", "--ignored"]).env(FILE, file).output().unwrap()
}

#[test]
fn a_file_that_shrinks_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("shrinking.gguf");
    write(&path);
    let output = child("child_reads_what_is_gone", &path);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(74), "{text}");
    let line = text.lines().find(|l| l.contains("became shorter")).unwrap_or_else(|| panic!("{text}"));
    assert!(line.contains("shrinking.gguf"), "{line}");
}

#[test]
fn a_bus_error_of_another_kind_stays_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("innocent.gguf");
    write(&path);
    let output = child("child_is_sent_the_signal", &path);
    assert_eq!(output.status.signal(), Some(libc::SIGBUS));
    assert!(!String::from_utf8_lossy(&output.stderr).contains("innocent.gguf"));
}

#[test]
#[ignore = "run by a_file_that_shrinks_is_named in a process of its own"]
fn child_reads_what_is_gone() {
    let Ok(path) = env::var(FILE) else { return };
    let closed = Reader::open(Path::new(&path)).unwrap();
    drop(closed); // its place among the maps is used again
    let reader = Reader::open(Path::new(&path)).unwrap();
    File::options().write(true).open(&path).unwrap().set_len(4096).unwrap();
    let sum: u64 = reader.bytes(&reader.tensors()[0]).iter().map(|&b| u64::from(b)).sum();
    fs::write(&path, sum.to_string()).unwrap();
}

#[test]
#[ignore = "run by a_bus_error_of_another_kind_stays_one in a process of its own"]
fn child_is_sent_the_signal() {
    let Ok(path) = env::var(FILE) else { return };
    let _reader = Reader::open(Path::new(&path)).unwrap();
    // The former handler is that of Rust's runtime, which takes the first signal only to unregister itself.
    for _ in 0..2 {
        let kill = Command::new("kill").args(["-BUS", &std::process::id().to_string()]).status().unwrap();
        assert!(kill.success());
        std::thread::sleep(std::time::Duration::from_millis(200));
    }
}
