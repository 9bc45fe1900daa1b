//! Formatting of texts (`'%d' | format(1)`, `'{}'.format(1)`) for format strings that a stranger wrote.
//!
//! The engine steps through the keys of a format string byte by byte, and gives `str.format` the width it asks for. So
//! what a format string says is looked at here first.

use std::sync::LazyLock;

use minijinja::value::{Rest, ValueOrKwargs};
use minijinja::{Error, ErrorKind, State, Value};
use minijinja_contrib::pycompat;
use regex::Regex;

/// `%%`, or a conversion's key.
static PRINTF_KEY: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"%%|%\([^)]*").expect("a tested expression"));

/// `{{`, or a replacement field's name and path, and what it says of width and precision.
static FIELD: LazyLock<Regex> = LazyLock::new(|| {
    let name = r"(?<name>[A-Za-z0-9_]*(?:\.[A-Za-z0-9_]*|\[[^\]]*\]?)*)";
    let spec = r"(?s:.?[<>^])?[-+ ]?#?(?<width>[0-9]*)[,_]?(?:\.(?<precision>[0-9]*))?";
    Regex::new(&format!(r"\{{\{{|\{{{name}(?::{spec})?")).expect("a tested expression")
});

/// The filter `format`.
pub(super) fn printf(
    state: &mut State<'_, '_>,
    text: &Value,
    arguments: Rest<ValueOrKwargs>,
) -> Result<Value, Error> {
    let keys = PRINTF_KEY.find_iter(text.as_str().unwrap_or_default());
    keys.map(|m| m.as_str()).try_for_each(plain_key)?;
    minijinja::filters::format(state, text, arguments)
}

/// Methods of Python's types.
pub(super) fn method(
    state: &mut State<'_, '_>,
    value: &Value,
    name: &str,
    arguments: &[Value],
) -> Result<Value, Error> {
    if let (Some(text), "format") = (value.as_str(), name) {
        for field in FIELD.captures_iter(text) {
            plain_key(field.name("name").map_or("", |m| m.as_str()))?;
            let number = |group| field.name(group).map_or("", |m| m.as_str());
            // What does not parse is no number, or one beyond all bounds, which the engine refuses.
            let bytes = [number("width"), number("precision")].map(|n| n.parse().unwrap_or(0u64));
            // A fill takes up to four bytes.
            state.consume_fuel(1 + bytes[0].saturating_add(bytes[1]) / 16)?;
        }
    }
    pycompat::unknown_method_callback(state, value, name, arguments)
}

fn plain_key(key: &str) -> Result<(), Error> {
    if key.is_ascii() {
        return Ok(());
    }
    Err(Error::new(ErrorKind::InvalidOperation, "the keys of a format string must be ASCII"))
}
