//! Runs rank plans on NVIDIA GPUs.

pub mod device;
mod error;
pub mod unit;

pub use error::{Error, Result};
