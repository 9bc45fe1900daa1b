//! Models described as data: what they compute, how they are cut over ranks, what they cost.
#![forbid(unsafe_code)]

pub mod answer;
pub mod arch;
pub mod blocks;
pub mod budget;
pub mod build;
pub mod card;
pub mod cost;
pub mod dump;
pub mod error;
pub mod exec;
pub mod hash;
pub mod hyper;
pub mod null;
pub mod op;
pub mod pipeline;
pub mod plan;
pub mod presets;
pub mod synth;
pub mod watch;

pub use error::{Error, Result};
