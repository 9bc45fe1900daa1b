//! GGUF files: reading, writing, and every quantized block format.
//!
//! A file is untrusted input: every size in it is checked before it is used, and whatever is wrong with it comes
//! back as an [`Error`] of one line that names the file and the key or tensor.
#![deny(unsafe_code)]

mod convert;
mod cursor;
mod error;
mod header;
mod map;
mod meta;
pub mod quant;
mod read;
mod sigbus;
mod split;
mod values;
mod write;

pub use convert::{Conversion, convert};
pub use error::{Error, Place, Result, UnknownType, short};
pub use header::{Header, RawTensor, parse_header};
pub use meta::{FromScalar, FromValue, ListItem, Meta, Scalar};
pub use quant::QuantType;
pub use read::{Reader, TensorInfo};
pub use split::parse_part_name;
pub use values::{Array, Strings, Value};
pub use write::{Split, TensorSpec, Writer};
