//! Runs a rank plan on the CPU: the truth that every other backend is compared with.
//!
//! Activations are f32. Every sum of products runs in f64 in one fixed order, whatever the batch, the chunking of
//! the prompt, the number of threads or the instruction set: a row's result depends on its own sequence only.
#![deny(unsafe_code)]

mod cache;
mod dot;
mod error;
mod exec;
mod fast;
mod machine;
mod ops;
mod product;
mod rank;
mod rows;
mod scratch;
mod simd;
mod team;
#[cfg(test)]
mod testing;
mod weights;

pub use error::{Error, Result};
pub use exec::{Activations, CpuExecutor, CpuOptions};
