//! What hostile bytes are tried on: one function a target, which panics if a promise is broken.
//!
//! libFuzzer calls them from `fuzz_targets`, `cargo test` with the kept corpus; `docs/testing.md` says how.
#![forbid(unsafe_code)]

mod files;
mod gguf;
mod input;
mod model;
mod quant;
mod reply;
mod stream;
mod template;
mod tokenizer;

use std::fmt::Display;

pub use files::{convert, split};
pub use gguf::header;
pub use input::{Input, Seed};
pub use model::model;
pub use quant::quant;
pub use reply::reply;
pub use stream::stream;
pub use template::template;
pub use tokenizer::tokenizer;

/// A function that takes any bytes.
pub type Target = fn(&[u8]);

/// All targets by the names of their corpora.
pub const TARGETS: [(&str, Target); 9] = [
    ("header", header),
    ("split", split),
    ("convert", convert),
    ("model", model),
    ("quant", quant),
    ("tokenizer", tokenizer),
    ("template", template),
    ("reply", reply),
    ("stream", stream),
];

/// The entry of a target's binary: libFuzzer's in a fuzzing build, else a `main` that tries the files named to it.
#[cfg(fuzzing)]
#[macro_export]
macro_rules! entry {
    ($target:ident) => {
        libfuzzer_sys::fuzz_target!(|data: &[u8]| $crate::$target(data));
    };
}

/// The entry of a target's binary: libFuzzer's in a fuzzing build, else a `main` that tries the files named to it.
#[cfg(not(fuzzing))]
#[macro_export]
macro_rules! entry {
    ($target:ident) => {
        fn main() -> std::io::Result<()> {
            for path in std::env::args_os().skip(1) {
                let start = std::time::Instant::now();
                $crate::$target(&std::fs::read(&path)?);
                println!("{}: {} ms", path.display(), start.elapsed().as_millis());
            }
            Ok(())
        }
    };
}

/// Errors are one line of bearable length, whatever is in the file.
fn one_line(error: &impl Display) {
    let text = error.to_string();
    assert!(!text.is_empty() && text.len() < 4096, "an error of {} bytes: {text:.300}", text.len());
    assert!(!text.contains(char::is_control), "an error with control characters: {text:?}");
}
