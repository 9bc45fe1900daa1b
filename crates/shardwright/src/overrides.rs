//! Metadata keys that are read as other values than the file's.

use shardwright_gguf::Value;
use std::str::FromStr;

/// `--override-kv`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Override {
    pub(crate) key: String,
    pub(crate) value: Value,
}

impl FromStr for Override {
    type Err = String;

    fn from_str(s: &str) -> Result<Override, String> {
        let form = "must look like KEY=TYPE:VALUE, with TYPE one of int, float, bool, str";
        let (key, typed) = s.split_once('=').ok_or(form)?;
        let (kind, text) = typed.split_once(':').ok_or(form)?;
        let fit = |e: &dyn std::fmt::Display| format!("`{text}` is no {kind}: {e}");
        let value = match kind {
            "int" => Value::I64(text.parse().map_err(|e| fit(&e))?),
            "float" => Value::F64(text.parse().map_err(|e| fit(&e))?),
            "bool" => Value::Bool(text.parse().map_err(|e| fit(&e))?),
            "str" => Value::String(text.as_bytes().to_vec()),
            _ => return Err(form.into()),
        };
        if key.is_empty() || key == "general.alignment" || key.starts_with("split.") {
            return Err(format!("`{key}` cannot be overridden: it is needed to read the file"));
        }
        Ok(Override { key: key.to_owned(), value })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overrides_are_typed() {
        let check = |text: &str, expected: Option<Value>| {
            assert_eq!(text.parse::<Override>().ok().map(|o| o.value), expected, "{text}");
        };
        check("a.b=int:-3", Some(Value::I64(-3)));
        check("a.b=float:0.5", Some(Value::F64(0.5)));
        check("a.b=bool:true", Some(Value::Bool(true)));
        check("a.b=str:x=y:z", Some(Value::String(b"x=y:z".to_vec())));
        for bad in ["a.b", "a.b=3", "a.b=int:x", "a.b=list:1", "=int:1", "split.count=int:1"] {
            check(bad, None);
        }
    }
}
