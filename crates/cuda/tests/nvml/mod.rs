//! A shared object in NVML's place, compiled by the host's C compiler.

use shardwright_cuda::nvml::Nvml;
use std::path::PathBuf;
use std::process::Command;

/// The object, and the file that says how its card is.
pub(crate) struct Fake {
    folder: tempfile::TempDir,
}

/// Where its card is plugged in.
pub(crate) const PLACE: &str = "0000:17:00.0";

impl Fake {
    /// None where there is no C compiler, which is said.
    pub(crate) fn new() -> Option<Fake> {
        Fake::compiled(&[])
    }

    /// The same, with these options of the compiler.
    pub(crate) fn compiled(options: &[&str]) -> Option<Fake> {
        let fake = Fake { folder: tempfile::tempdir().unwrap() };
        let state = format!("-DSTATE=\"{}\"", fake.state().display());
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../cuda/tests/nvml/fake.c");
        let mut cc = Command::new("cc");
        cc.args(["-shared", "-fPIC", "-w", &state, source]).args(options).arg("-o").arg(fake.object());
        match cc.status() {
            Ok(status) => assert!(status.success()),
            Err(e) => {
                eprintln!("SKIPPED: no C compiler named cc: {e}");
                return None;
            }
        }
        Some(fake)
    }

    fn state(&self) -> PathBuf {
        self.folder.path().join("state")
    }

    fn object(&self) -> PathBuf {
        self.folder.path().join("libnvidia-ml.so.1")
    }

    /// From now on the card is so.
    pub(crate) fn is(&self, word: &str) {
        std::fs::write(self.state(), word).unwrap();
    }

    pub(crate) fn open(&self) -> Nvml {
        Nvml::open(&self.object()).unwrap()
    }
}
