//! Runs rank plans on NVIDIA GPUs.

mod arena;
pub mod device;
mod error;
mod exec;
mod format;
mod found;
mod load;
pub mod lower;
mod machine;
mod ops;
pub mod program;
pub mod step;
pub mod unit;

pub use error::{Error, Result};
pub use exec::{CudaExecutor, CudaOptions};
