//! Types that a tool's JSON schema declares, and argument texts read by them.

use serde_json::Value;

/// Nodes of a schema that are looked at for one argument: schemas come from clients and may be cyclic.
const MAX_NODES: usize = 256;

/// A set of JSON types; empty if nothing is declared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kinds(u8);

const STRING: u8 = 1;
const INTEGER: u8 = 2;
const NUMBER: u8 = 4;
const BOOLEAN: u8 = 8;
const ARRAY: u8 = 16;
const OBJECT: u8 = 32;
const NULL: u8 = 64;

impl Kinds {
    pub(super) const UNDECLARED: Self = Self(0);
    pub(super) const STRING: Self = Self(STRING);

    /// The argument as JSON text: parsed where a type other than string allows it, else as a string.
    ///
    /// JSON keeps the model's spelling of numbers.
    pub(super) fn encode(self, text: &str) -> String {
        let json = text.trim();
        let parsed = if self == Self::STRING { None } else { serde_json::from_str::<Value>(json).ok() };
        match parsed {
            Some(value) if self.allows(&value) => json.to_owned(),
            _ => Value::from(text).to_string(),
        }
    }

    /// Any JSON will do unless a string is an alternative: then the others must be meant.
    fn allows(self, value: &Value) -> bool {
        self.0 & STRING == 0 || self.0 & kinds_of(value) & !STRING != 0
    }
}

fn kinds_of(value: &Value) -> u8 {
    match value {
        Value::Null => NULL,
        Value::Bool(_) => BOOLEAN,
        Value::String(_) => STRING,
        Value::Array(_) => ARRAY,
        Value::Object(_) => OBJECT,
        Value::Number(number) if number.as_f64().is_some_and(|number| number.fract() == 0.0) => {
            INTEGER | NUMBER
        }
        Value::Number(_) => NUMBER,
    }
}

fn kind_named(name: &str) -> u8 {
    match name {
        "string" => STRING,
        "integer" => INTEGER,
        "number" => NUMBER,
        "boolean" => BOOLEAN,
        "array" => ARRAY,
        "object" => OBJECT,
        "null" => NULL,
        _ => 0,
    }
}

/// The tools of a request: OpenAI's list (`{"type": "function", "function": {..}}`) or bare functions.
#[derive(Debug, Default)]
pub(super) struct Tools(Vec<Value>);

impl Tools {
    pub(super) fn new(tools: Vec<Value>) -> Self {
        Self(tools)
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.function(name).is_some()
    }

    /// The types declared for an argument.
    pub(super) fn kinds(&self, tool: &str, key: &str) -> Kinds {
        let Some(function) = self.function(tool) else { return Kinds::UNDECLARED };
        let Some(root) = function.get("parameters").or_else(|| function.get("input_schema")) else {
            return Kinds::UNDECLARED;
        };
        let declared = root.get("properties").and_then(|properties| properties.get(key));
        let mut budget = MAX_NODES;
        match declared.or_else(|| root.get("additionalProperties")) {
            Some(schema) => Kinds(collect(schema, root, &mut budget)),
            None => Kinds::UNDECLARED,
        }
    }

    fn function(&self, name: &str) -> Option<&Value> {
        let functions = self.0.iter().map(|tool| tool.get("function").unwrap_or(tool));
        functions.into_iter().find(|function| function.get("name").and_then(Value::as_str) == Some(name))
    }
}

/// All types that a schema allows, through references within `root` and combinations.
fn collect(schema: &Value, root: &Value, budget: &mut usize) -> u8 {
    if *budget == 0 {
        return 0;
    }
    *budget -= 1;
    let mut kinds = match schema.get("type") {
        Some(Value::String(name)) => kind_named(name),
        Some(Value::Array(names)) => {
            names.iter().filter_map(Value::as_str).map(kind_named).fold(0, |a, b| a | b)
        }
        _ => {
            let values = schema.get("enum").and_then(Value::as_array).into_iter().flatten();
            values.chain(schema.get("const")).map(kinds_of).fold(0, |a, b| a | b)
        }
    };
    if schema.get("nullable") == Some(&Value::Bool(true)) {
        kinds |= NULL;
    }
    for key in ["anyOf", "oneOf", "allOf"] {
        for branch in schema.get(key).and_then(Value::as_array).into_iter().flatten().take(*budget) {
            kinds |= collect(branch, root, budget);
        }
    }
    let reference = schema.get("$ref").and_then(Value::as_str).and_then(|path| path.strip_prefix('#'));
    if let Some(target) = reference.and_then(|pointer| root.pointer(pointer)) {
        kinds |= collect(target, root, budget);
    }
    kinds
}
