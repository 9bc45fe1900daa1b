//! One file a command.

pub(crate) mod bench;
pub(crate) mod completions;
pub(crate) mod doctor;
pub(crate) mod eval;
pub(crate) mod generate;
pub(crate) mod inspect;
pub(crate) mod kernels;
pub(crate) mod logits;
pub(crate) mod plan;
pub(crate) mod pull;
pub(crate) mod quantize;
pub(crate) mod run;
pub(crate) mod serve;
pub(crate) mod synth;
pub(crate) mod tokenize;
pub(crate) mod verify;
