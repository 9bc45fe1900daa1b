//! Speaks HTTP and JSON: the APIs that clients of other engines already know.
#![forbid(unsafe_code)]

mod answer;
mod anthropic;
pub mod app;
mod auth;
mod body;
mod cards;
mod connection;
mod cors;
pub mod error;
mod form;
pub mod gate;
pub mod host;
mod hosts;
mod messages;
mod metrics;
pub mod model;
mod openai;
mod ops;
pub mod options;
mod page;
mod refuse;
pub mod sampling;
pub mod serve;
mod sse;
mod tail;
mod thinking;
mod trace;
mod turn;
pub mod usage;

pub use answer::Patience;
