//! Text to token ids and back, chat templates, reading replies.
#![forbid(unsafe_code)]

mod error;
pub mod reply;
pub mod stream;
pub mod template;
pub mod tokenizer;

pub use error::{Error, Result};
