//! `tojson` and `from_json`: Python's `json.dumps` and `json.loads` on template values.

use std::fmt::Write;

use minijinja::value::{Kwargs, ValueKind};
use minijinja::{Error, ErrorKind, State, Value};

use super::library::guard;

/// Nesting beyond this is refused; it bounds the stack.
const DEPTH: usize = 128;

/// Python's `json.dumps(value, ensure_ascii, indent, separators, sort_keys)`, with Hugging Face's default of
/// `ensure_ascii=False`.
pub(super) fn tojson(state: &State<'_, '_>, value: &Value, kwargs: Kwargs) -> Result<Value, Error> {
    let indent: Option<Value> = kwargs.get("indent")?;
    let indent = match indent {
        None => None,
        Some(v) if v.is_none() => None,
        Some(v) => match (v.as_str(), i64::try_from(v.clone())) {
            (Some(text), _) => Some(text.to_owned()),
            (None, Ok(n)) => Some(" ".repeat(n.clamp(0, 64) as usize)),
            (None, Err(_)) => return Err(invalid("tojson: indent must be a number or a text")),
        },
    };
    let separators: Option<Value> = kwargs.get("separators")?;
    let (item, key) = match separators.filter(|s| !s.is_none()) {
        Some(pair) => (pair.get_item_by_index(0)?.to_string(), pair.get_item_by_index(1)?.to_string()),
        None => (if indent.is_some() { "," } else { ", " }.to_owned(), ": ".to_owned()),
    };
    let mut writer = Writer {
        out: String::new(),
        indent,
        item,
        key,
        ascii: kwargs.get::<Option<bool>>("ensure_ascii")?.unwrap_or(false),
        sort: kwargs.get::<Option<bool>>("sort_keys")?.unwrap_or(false),
        sentinel: guard(state)?.sentinel(),
        state,
    };
    kwargs.assert_all_used()?;
    writer.value(value, 0)?;
    Ok(Value::from(writer.out))
}

/// Python's `json.loads`.
pub(super) fn from_json(state: &State<'_, '_>, text: &str) -> Result<Value, Error> {
    let guard = guard(state)?;
    state.consume_fuel(text.len() as u64)?;
    let plain = guard.unguarded(text);
    let value = serde_json::from_str(&plain).map_err(|e| invalid(&format!("from_json: {e}")))?;
    Ok(guard.value(&value))
}

fn invalid(why: &str) -> Error {
    Error::new(ErrorKind::InvalidOperation, why.to_owned())
}

struct Writer<'a, 'b, 'c> {
    out: String,
    indent: Option<String>,
    item: String,
    key: String,
    ascii: bool,
    sort: bool,
    sentinel: char,
    state: &'a State<'b, 'c>,
}

impl Writer<'_, '_, '_> {
    fn value(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        // Shared values can make a small value print huge: each costs as it is printed.
        self.state.consume_fuel(1)?;
        if depth > DEPTH {
            return Err(invalid("tojson: the value is nested too deeply"));
        }
        match value.kind() {
            ValueKind::None | ValueKind::Bool | ValueKind::Number => self.out.push_str(&scalar(value)?),
            ValueKind::String => self.text(value.as_str().unwrap_or_default())?,
            ValueKind::Map => self.map(value, depth)?,
            ValueKind::Seq | ValueKind::Iterable => {
                let items: Vec<Value> = value.try_iter()?.checked().collect::<Result<_, _>>()?;
                self.block(['[', ']'], depth, &items, |writer, item| writer.value(item, depth + 1))?;
            }
            other => {
                return Err(invalid(&format!("tojson: a value of kind {other} is not JSON serializable")));
            }
        }
        Ok(())
    }

    fn map(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        let mut pairs = Vec::new();
        for key in value.try_iter()?.checked() {
            let key = key?;
            let name = match key.kind() {
                ValueKind::None | ValueKind::Bool | ValueKind::Number => scalar(&key)?,
                ValueKind::String => key.as_str().unwrap_or_default().to_owned(),
                other => return Err(invalid(&format!("tojson: keys must be texts or numbers, not {other}"))),
            };
            pairs.push((name, value.get_item(&key)?));
        }
        if self.sort {
            let sentinel = self.sentinel;
            pairs.sort_by_cached_key(|(name, _)| name.replace(sentinel, ""));
        }
        self.block(['{', '}'], depth, &pairs, |writer, (name, value)| {
            writer.text(name)?;
            writer.layout(&writer.key.clone(), 1)?;
            writer.value(value, depth + 1)
        })
    }

    /// Brackets, separators and line breaks around items.
    fn block<T>(
        &mut self,
        [open, close]: [char; 2],
        depth: usize,
        items: &[T],
        mut each: impl FnMut(&mut Self, &T) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.out.push(open);
        for (i, item) in items.iter().enumerate() {
            if i > 0 {
                self.layout(&self.item.clone(), 1)?;
            }
            self.line(depth + 1)?;
            each(self, item)?;
        }
        if !items.is_empty() {
            self.line(depth)?;
        }
        self.out.push(close);
        Ok(())
    }

    fn line(&mut self, depth: usize) -> Result<(), Error> {
        if let Some(indent) = self.indent.clone() {
            self.out.push('\n');
            self.layout(&indent, depth)?;
        }
        Ok(())
    }

    /// Separators and indents are the template's own texts, of any length, and are written for every item.
    fn layout(&mut self, text: &str, times: usize) -> Result<(), Error> {
        self.state.consume_fuel(text.len().saturating_mul(times) as u64 / 64)?;
        (0..times).for_each(|_| self.out.push_str(text));
        Ok(())
    }

    fn text(&mut self, text: &str) -> Result<(), Error> {
        self.state.consume_fuel(text.len() as u64 / 64)?;
        self.out.push('"');
        for c in text.chars() {
            match c {
                '"' => self.out.push_str("\\\""),
                '\\' => self.out.push_str("\\\\"),
                '\n' => self.out.push_str("\\n"),
                '\r' => self.out.push_str("\\r"),
                '\t' => self.out.push_str("\\t"),
                '\u{8}' => self.out.push_str("\\b"),
                '\u{c}' => self.out.push_str("\\f"),
                c if c < ' ' || (self.ascii && c > '~' && c != self.sentinel) => {
                    for unit in c.encode_utf16(&mut [0; 2]) {
                        write!(self.out, "\\u{unit:04x}").map_err(|_| ErrorKind::WriteFailure)?;
                    }
                }
                c => self.out.push(c),
            }
        }
        self.out.push('"');
        Ok(())
    }
}

fn scalar(value: &Value) -> Result<String, Error> {
    Ok(match value.kind() {
        ValueKind::None => "null".to_owned(),
        ValueKind::Bool => value.is_true().to_string(),
        _ if value.is_integer() => value.to_string(),
        _ => match f64::try_from(value.clone())? {
            x if x.is_nan() => "NaN".to_owned(),
            x if x.is_infinite() => if x > 0.0 { "Infinity" } else { "-Infinity" }.to_owned(),
            x => float(x),
        },
    })
}

/// Python's `repr` of a finite float: the shortest digits that read back as it.
pub(super) fn float(x: f64) -> String {
    let scientific = format!("{x:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    match exponent.parse::<i32>().unwrap_or(0) {
        -4..16 => {
            let plain = format!("{x}");
            if plain.contains('.') { plain } else { plain + ".0" }
        }
        e => format!("{digits}e{}{:02}", if e < 0 { '-' } else { '+' }, e.abs()),
    }
}

#[cfg(test)]
mod tests {
    use super::float;

    #[test]
    fn floats_are_spelled_as_python_does() {
        for (x, expected) in [
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (1.0, "1.0"),
            (0.1, "0.1"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (1.5e300, "1.5e+300"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (-1.25e-7, "-1.25e-07"),
            (5e-324, "5e-324"),
        ] {
            assert_eq!(float(x), expected);
        }
    }
}
