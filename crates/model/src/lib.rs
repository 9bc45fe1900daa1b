//! Models described as data: what they compute, how they are cut over ranks, what they cost.
#![forbid(unsafe_code)]

pub mod arch;
pub mod blocks;
pub mod build;
pub mod error;
pub mod exec;
pub mod hyper;
pub mod null;
pub mod op;
pub mod plan;

pub use error::{Error, Result};
