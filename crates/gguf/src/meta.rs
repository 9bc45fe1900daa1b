//! Typed look-up of metadata: needed or optional, never with a default.

use std::collections::HashMap;

use crate::error::{Error, Result};
use crate::values::{Array, Strings, Value};

/// The metadata of a file, in file order.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Meta {
    records: Vec<(String, Value)>,
    index: HashMap<String, usize>,
}

impl Meta {
    /// No metadata yet.
    pub fn new() -> Meta {
        Meta::default()
    }

    /// The value as the file has it.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.index.get(key).map(|&i| &self.records[i].1)
    }

    /// Adds a record at the end, or replaces the value of a key that is there.
    pub fn set(&mut self, key: &str, value: impl Into<Value>) {
        let value = value.into();
        match self.index.get(key) {
            Some(&i) => self.records[i].1 = value,
            None => {
                self.index.insert(key.to_owned(), self.records.len());
                self.records.push((key.to_owned(), value));
            }
        }
    }

    /// Number of records.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// All records in file order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.records.iter().map(|(k, v)| (k.as_str(), v))
    }

    /// The value of a key that must be there.
    ///
    /// # Errors
    /// The key is missing, or its value does not fit `T`.
    pub fn need<T: FromValue>(&self, key: &str) -> Result<T> {
        self.may(key)?.ok_or_else(|| missing(key))
    }

    /// The value of a key that may be missing.
    ///
    /// # Errors
    /// The key is there, but its value does not fit `T`.
    pub fn may<T: FromValue>(&self, key: &str) -> Result<Option<T>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        T::from_value(value).map(Some).map_err(|found| Error::KeyValue {
            key: key.to_owned(),
            found,
            wanted: T::WANTED.to_owned(),
        })
    }

    /// One number per layer: a single value stands for every layer, an array must have `layers` elements.
    ///
    /// # Errors
    /// The key is missing, the array has another length, or an element does not fit `T`.
    pub fn need_per_layer<T: FromScalar>(&self, key: &str, layers: usize) -> Result<Vec<T>> {
        self.may_per_layer(key, layers)?.ok_or_else(|| missing(key))
    }

    /// As [`Meta::need_per_layer`], for a key that may be missing.
    ///
    /// # Errors
    /// The array has another length than `layers`, or an element does not fit `T`.
    pub fn may_per_layer<T: FromScalar>(&self, key: &str, layers: usize) -> Result<Option<Vec<T>>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let wrong = |found: String| Error::KeyValue {
            key: key.to_owned(),
            found,
            wanted: format!("{}, or an array of {layers} of them (one per layer)", T::WANTED),
        };
        let list = match value {
            Value::Array(a) if a.len() == layers => scalars(a, T::from_layer_scalar).map_err(wrong)?,
            Value::Array(a) => return Err(wrong(format!("an array of {} elements", a.len()))),
            one => {
                let one = scalar(one).and_then(T::from_layer_scalar).ok_or_else(|| wrong(describe(one)))?;
                vec![one; layers]
            }
        };
        Ok(Some(list))
    }

    /// A list of byte strings (token texts) that must be there.
    ///
    /// # Errors
    /// The key is missing or no array of strings.
    pub fn need_strings(&self, key: &str) -> Result<&Strings> {
        self.may_strings(key)?.ok_or_else(|| missing(key))
    }

    /// A list of byte strings that may be missing.
    ///
    /// # Errors
    /// The key is there, but no array of strings.
    pub fn may_strings(&self, key: &str) -> Result<Option<&Strings>> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Array(Array::Strings(list))) => Ok(Some(list)),
            Some(other) => Err(Error::KeyValue {
                key: key.to_owned(),
                found: describe(other),
                wanted: "an array of strings".to_owned(),
            }),
        }
    }
}

fn missing(key: &str) -> Error {
    Error::MissingKey { key: key.to_owned() }
}

/// A value for an error text: "the u32 7", "an array of string of 3 elements".
fn describe(value: &Value) -> String {
    match value {
        Value::Array(a) => format!("an {} of {} elements", value.type_name(), a.len()),
        other => format!("the {} {other}", other.type_name()),
    }
}

/// A number or text, whatever width the file stores it in.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Scalar<'a> {
    /// Any of the eight integer types.
    Int(i128),
    /// f32 or f64.
    Float(f64),
    /// A truth value.
    Bool(bool),
    /// The bytes of a string.
    Text(&'a [u8]),
}

fn scalar(value: &Value) -> Option<Scalar<'_>> {
    Some(match value {
        Value::U8(v) => Scalar::Int((*v).into()),
        Value::I8(v) => Scalar::Int((*v).into()),
        Value::U16(v) => Scalar::Int((*v).into()),
        Value::I16(v) => Scalar::Int((*v).into()),
        Value::U32(v) => Scalar::Int((*v).into()),
        Value::I32(v) => Scalar::Int((*v).into()),
        Value::U64(v) => Scalar::Int((*v).into()),
        Value::I64(v) => Scalar::Int((*v).into()),
        Value::F32(v) => Scalar::Float((*v).into()),
        Value::F64(v) => Scalar::Float(*v),
        Value::Bool(v) => Scalar::Bool(*v),
        Value::String(v) => Scalar::Text(v),
        Value::Array(_) => return None,
    })
}

/// All elements through `make`; the error describes the first that does not fit.
fn scalars<T>(array: &Array, make: impl Fn(Scalar<'_>) -> Option<T>) -> std::result::Result<Vec<T>, String> {
    let at = |i: usize| array.get(i).expect("i < len");
    let one = |i: usize| {
        let value = at(i);
        scalar(&value)
            .and_then(&make)
            .ok_or_else(|| format!("an array with {} at index {i}", describe(&value)))
    };
    (0..array.len()).map(one).collect()
}

/// A type that a single number or text converts to, as leniently as other readers do and no further.
pub trait FromScalar: Clone {
    /// What fits, for the error text.
    const WANTED: &'static str;

    /// The value, if it fits.
    fn from_scalar(s: Scalar<'_>) -> Option<Self>;

    /// The same for the keys with one value per layer, whose elements may be truth values or integers alike.
    fn from_layer_scalar(s: Scalar<'_>) -> Option<Self> {
        Self::from_scalar(s).or_else(|| match s {
            Scalar::Bool(b) => Self::from_scalar(Scalar::Int(b.into())),
            Scalar::Int(i @ (0 | 1)) => Self::from_scalar(Scalar::Bool(i == 1)),
            _ => None,
        })
    }
}

/// A type that a metadata value converts to.
pub trait FromValue: Sized {
    /// What fits, for the error text.
    const WANTED: &'static str;

    /// The value.
    ///
    /// # Errors
    /// A description of what the file has instead.
    fn from_value(value: &Value) -> std::result::Result<Self, String>;
}

impl<T: FromScalar> FromValue for T {
    const WANTED: &'static str = <T as FromScalar>::WANTED;

    fn from_value(value: &Value) -> std::result::Result<T, String> {
        scalar(value).and_then(T::from_scalar).ok_or_else(|| describe(value))
    }
}

impl<T: ListItem> FromValue for Vec<T> {
    const WANTED: &'static str = T::WANTED_LIST;

    fn from_value(value: &Value) -> std::result::Result<Vec<T>, String> {
        match value {
            Value::Array(a) => scalars(a, T::from_scalar),
            other => Err(describe(other)),
        }
    }
}

/// A scalar type of which lists are read.
pub trait ListItem: FromScalar {
    /// What fits, for the error text.
    const WANTED_LIST: &'static str;
}

macro_rules! integers {
    ($($t:ty, $wanted:literal;)*) => { $(
        impl FromScalar for $t {
            const WANTED: &'static str = $wanted;
            fn from_scalar(s: Scalar<'_>) -> Option<$t> {
                match s {
                    Scalar::Int(i) => i.try_into().ok(),
                    _ => None,
                }
            }
        }
        impl ListItem for $t {
            const WANTED_LIST: &'static str = concat!("an array, each element ", $wanted);
        }
    )* };
}
integers! {
    u32, "an integer from 0 to 2^32 - 1";
    i32, "an integer from -2^31 to 2^31 - 1";
    u64, "an integer from 0 to 2^64 - 1";
    usize, "an integer from 0 to 2^64 - 1";
    i64, "an integer from -2^63 to 2^63 - 1";
}

impl FromScalar for f64 {
    const WANTED: &'static str = "a finite f32 or f64";

    fn from_scalar(s: Scalar<'_>) -> Option<f64> {
        match s {
            Scalar::Float(x) if x.is_finite() => Some(x),
            _ => None,
        }
    }
}

impl FromScalar for f32 {
    const WANTED: &'static str = "a finite f32 or f64 within the range of f32";

    fn from_scalar(s: Scalar<'_>) -> Option<f32> {
        f64::from_scalar(s).map(|x| x as f32).filter(|x| x.is_finite())
    }
}

impl FromScalar for bool {
    const WANTED: &'static str = "a bool";

    fn from_scalar(s: Scalar<'_>) -> Option<bool> {
        match s {
            Scalar::Bool(b) => Some(b),
            _ => None,
        }
    }
}

impl FromScalar for String {
    const WANTED: &'static str = "a UTF-8 string";

    fn from_scalar(s: Scalar<'_>) -> Option<String> {
        match s {
            Scalar::Text(bytes) => String::from_utf8(bytes.to_vec()).ok(),
            _ => None,
        }
    }
}

impl ListItem for f32 {
    const WANTED_LIST: &'static str = "an array of finite f32 or f64";
}
impl ListItem for f64 {
    const WANTED_LIST: &'static str = "an array of finite f32 or f64";
}
impl ListItem for bool {
    const WANTED_LIST: &'static str = "an array of bools";
}
impl ListItem for String {
    const WANTED_LIST: &'static str = "an array of UTF-8 strings";
}
