//! Filters, functions and variables that templates find beside the engine's own.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;
use jiff::tz::TimeZone;
use minijinja::value::{Enumerator, Kwargs, Object, ObjectRepr, ValueKind, from_args};
use minijinja::{Environment, Error, ErrorKind, Output, State, Value, escape_formatter};
use serde_json::Value as Json;

use super::guard::Guard;
use super::{TemplateInput, formatting, json};

/// The guard's name among the variables; no template can spell it.
const GUARD: &str = "\0guard";

/// The filter that values assigned to namespaces go through; see [`super::source`].
pub(super) const SNAPSHOT: &str = "snapshot";

/// Nesting of values that a namespace may hold.
const DEPTH: usize = 64;

/// What a template said to `raise_exception`.
#[derive(Debug)]
pub(super) struct Raised(pub(super) String);

impl fmt::Display for Raised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Raised {}

/// Adds everything that does not depend on the input.
pub(super) fn install(environment: &mut Environment<'static>) {
    environment.set_unknown_method_callback(formatting::method);
    environment.add_filter("format", formatting::printf);
    environment.set_formatter(format);
    environment.add_filter(SNAPSHOT, |state: &State<'_, '_>, value: &Value| snapshot(state, value, 0));
    environment.add_filter("tojson", json::tojson);
    environment.add_filter("from_json", json::from_json);
    environment.add_function("raise_exception", |message: String| -> Result<Value, Error> {
        Err(Error::new(ErrorKind::InvalidOperation, message.clone()).with_source(Raised(message)))
    });
    environment.add_function("namespace", namespace);
}

/// The variables of one rendering. Those of the client come first, so that they cannot replace ours.
pub(super) fn context(input: &TemplateInput<'_>, messages: &[Json], guard: &Arc<Guard>) -> Value {
    let mut variables: BTreeMap<String, Value> =
        input.kwargs.iter().map(|(k, v)| (k.clone(), guard.value(v))).collect();
    let list = |values: &[Json]| values.iter().map(|v| guard.value(v)).collect::<Value>();
    let now = input.now;
    let own = [
        ("messages", list(messages)),
        ("tools", if input.tools.is_empty() { Value::from(()) } else { list(input.tools) }),
        ("documents", Value::from(())),
        ("add_generation_prompt", Value::from(input.add_generation_prompt)),
        ("bos_token", Value::from(input.bos)),
        ("eos_token", Value::from(input.eos)),
        ("strftime_now", Value::from_function(move |format: &str| strftime(now, format))),
        (GUARD, Value::from_dyn_object(guard.clone())),
    ];
    variables.extend(own.map(|(name, value)| (name.to_owned(), value)));
    Value::from(variables)
}

/// The guard of the running render.
pub(super) fn guard(state: &State<'_, '_>) -> Result<Arc<Guard>, Error> {
    let value = state.lookup(GUARD).and_then(|v| v.downcast_object::<Guard>());
    value.ok_or_else(|| Error::new(ErrorKind::InvalidOperation, "only templates of chats can do this"))
}

/// Prints a value as Python does; the engine differs in floats only.
fn format(out: &mut Output<'_>, state: &mut State<'_, '_>, value: &Value) -> Result<(), Error> {
    if value.kind() == ValueKind::Number && !value.is_integer() {
        let x = f64::try_from(value.clone())?;
        if x.is_finite() {
            return out.write_str(&json::float(x)).map_err(|_| Error::from(ErrorKind::WriteFailure));
        }
    }
    escape_formatter(out, state, value)
}

fn strftime(now: i64, format: &str) -> Result<String, Error> {
    let invalid = |e: jiff::Error| Error::new(ErrorKind::InvalidOperation, format!("strftime_now: {e}"));
    let time = Timestamp::from_second(now).map_err(invalid)?.to_zoned_datetime(TimeZone::UTC);
    jiff::fmt::strtime::format(format, &time).map_err(invalid)
}

/// The engine's `namespace`, but lists given to it can grow.
fn namespace(state: &State<'_, '_>, kwargs: Kwargs) -> Result<Value, Error> {
    let mut fields = BTreeMap::new();
    for name in kwargs.args() {
        let value = snapshot(state, &kwargs.get::<Value>(name)?, 0)?;
        let is_plain = |v: &Value| v.as_object().is_none();
        let items: Option<Vec<Value>> = match value.kind() {
            ValueKind::Seq => Some(value.try_iter()?.collect()),
            _ => None,
        };
        let value = match items {
            Some(items) if items.iter().all(is_plain) => Value::from_object(List(Mutex::new(items))),
            _ => value,
        };
        fields.insert(name.to_owned(), value);
    }
    minijinja::functions::namespace(Some(Value::from(fields).into()))
}

/// A copy that shares nothing with what may change: no value can come to contain itself or nest without end.
fn snapshot(state: &State<'_, '_>, value: &Value, depth: usize) -> Result<Value, Error> {
    state.consume_fuel(1)?;
    if depth > DEPTH {
        return Err(Error::new(
            ErrorKind::InvalidOperation,
            "the value assigned to a namespace is nested too deeply",
        ));
    }
    if value.downcast_object_ref::<List>().is_some() {
        return Ok(value.clone());
    }
    match value.kind() {
        ValueKind::Map => {
            let mut pairs = Vec::new();
            for key in value.try_iter()?.checked() {
                let key = plain(&key?)?;
                let held = snapshot(state, &value.get_item(&key)?, depth + 1)?;
                pairs.push((key, held));
            }
            Ok(Value::from_pairs(pairs))
        }
        ValueKind::Seq | ValueKind::Iterable => {
            let items = value.try_iter()?.checked();
            items.map(|v| snapshot(state, &v?, depth + 1)).collect::<Result<Vec<_>, _>>().map(Value::from)
        }
        _ => Ok(value.clone()),
    }
}

/// A Python list of plain values: it may be changed in place.
#[derive(Debug)]
struct List(Mutex<Vec<Value>>);

impl List {
    fn items(&self) -> std::sync::MutexGuard<'_, Vec<Value>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Values that hold others could hold the list itself, and printing it would never end.
fn plain(value: &Value) -> Result<Value, Error> {
    match value.as_object() {
        None => Ok(value.clone()),
        Some(_) => Err(Error::new(
            ErrorKind::InvalidOperation,
            "only texts and numbers can be keys, or be added to a list",
        )),
    }
}

impl Object for List {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Seq
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        self.items().get(key.as_usize()?).cloned()
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Seq(self.items().len())
    }

    fn call_method(
        self: &Arc<Self>,
        state: &mut State<'_, '_>,
        method: &str,
        args: &[Value],
    ) -> Result<Value, Error> {
        let mut items = self.items();
        match method {
            "append" => {
                let (value,): (&Value,) = from_args(args)?;
                items.push(plain(value)?);
                Ok(Value::from(()))
            }
            "pop" => {
                let (index,): (Option<i64>,) = from_args(args)?;
                let index = index.unwrap_or(-1);
                let from_end = items.len().checked_sub(index.unsigned_abs() as usize);
                let at = if index < 0 { from_end } else { Some(index as usize) };
                match at.filter(|&i| i < items.len()) {
                    Some(i) => {
                        // All behind it move up.
                        let moved = (items.len() - i) * size_of::<Value>();
                        state.consume_fuel(moved as u64 / 64)?;
                        Ok(items.remove(i))
                    }
                    None => Err(Error::new(ErrorKind::InvalidOperation, "pop index out of range")),
                }
            }
            _ => Err(Error::from(ErrorKind::UnknownMethod)),
        }
    }
}
