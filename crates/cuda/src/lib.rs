//! Runs rank plans on NVIDIA GPUs.
#![deny(unsafe_code)]

mod arena;
pub mod device;
pub mod driver;
mod error;
mod exchange;
mod exec;
mod find;
mod format;
mod found;
mod fuse;
pub mod gate;
mod group;
pub mod health;
pub mod jit;
mod lines;
mod load;
pub mod lower;
mod machine;
mod matmul;
pub mod measure;
pub mod nccl;
mod near;
mod needs;
pub mod nvml;
pub mod nvrtc;
mod ops;
pub mod peers;
pub mod planes;
mod product;
mod profile;
pub mod program;
mod report;
mod stamp;
mod start;
pub mod step;
mod store;
mod threads;
pub mod unit;
mod wave;
pub mod ways;
mod worker;

pub use error::{Error, Result};
pub use exec::{CudaExecutor, CudaOptions};
pub use needs::Needs;
pub use profile::{Profile, Timed};
