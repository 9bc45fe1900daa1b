//! Model files from the Hugging Face hub, by the name of their repository, kept in the cache that other tools share.
//!
//! What a server says is untrusted: names stay inside of the cache, every file is compared with the hash and size
//! under which it was listed before it gets its name, and the token goes to the hub alone.
#![forbid(unsafe_code)]

mod cache;
mod choose;
mod client;
mod connection;
mod download;
mod error;
mod fetch;
mod hash;
mod listing;
mod partial;
mod patience;
mod settings;
mod wanted;

pub use connection::connection;
pub use error::{Error, Result};
pub use fetch::{Watch, fetch};
pub use settings::Settings;
pub use wanted::Wanted;
