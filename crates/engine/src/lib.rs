//! Decides which tokens run in the next step, and what comes of them.
#![forbid(unsafe_code)]

pub mod engine;
pub mod error;
pub mod generate;
pub mod grammar;
pub mod guide;
pub mod options;
mod pace;
pub mod pager;
pub mod reader;
mod regex;
pub mod replicas;
pub mod request;
pub mod sample;
mod scheduler;
mod schema;
pub mod selftest;
mod sequence;
pub mod stats;
mod worker;

pub use error::{Error, Result};
