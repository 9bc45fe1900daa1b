//! The form that an answer must keep to, and where in the answer it begins: thoughts are free.

use crate::error::ApiError;
use crate::messages::tool_name;
use serde_json::{Map, Value, json};
use shardwright_engine::grammar::Grammar;
use shardwright_text::reply::Syntax;
use shardwright_text::tokenizer::Tokenizer;
use std::fmt::Write;

/// Most alternatives of a choice.
const CHOICES: usize = 4096;

/// What the answer must be, and the field of the request that says so.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Form {
    pub(crate) field: &'static str,
    kind: Kind,
}

#[derive(Clone, Debug, PartialEq)]
enum Kind {
    /// JSON that fits a schema.
    Json(Value),
    /// A text that a regular expression matches.
    Regex(String),
    /// A text of a grammar in Lark's form.
    Lark(String),
    /// One of these texts.
    Choice(Vec<String>),
    /// Calls of these tools, in OpenAI's form; `many`: more than one may come.
    Calls { tools: Vec<Value>, many: bool },
}

/// vLLM's and llama-server's fields for it.
pub(crate) fn from_fields(object: &Map<String, Value>) -> Result<Option<Form>, ApiError> {
    let nested = object.get("structured_outputs").filter(|v| !v.is_null());
    let nested = match nested {
        None => None,
        Some(Value::Object(fields)) => Some(fields),
        Some(_) => {
            return Err(ApiError::field("structured_outputs", "`structured_outputs` must be an object"));
        }
    };
    let rows = [
        ("guided_json", "json"),
        ("json_schema", "json"),
        ("guided_regex", "regex"),
        ("guided_choice", "choice"),
        ("guided_grammar", "grammar"),
    ];
    let inner = [
        ("structured_outputs.json", "json"),
        ("structured_outputs.regex", "regex"),
        ("structured_outputs.choice", "choice"),
        ("structured_outputs.grammar", "grammar"),
    ];
    let outer = rows.map(|(field, kind)| (object.get(field), field, kind));
    let inner = inner.map(|(field, kind)| (nested.and_then(|fields| fields.get(kind)), field, kind));
    for (value, field, kind) in outer.into_iter().chain(inner) {
        if let Some(value) = value.filter(|v| !v.is_null()) {
            return Ok(Some(Form { field, kind: one(field, kind, value)? }));
        }
    }
    Ok(None)
}

fn one(field: &str, kind: &str, value: &Value) -> Result<Kind, ApiError> {
    let wrong = |what: &str| ApiError::field(field, format!("`{field}` must be {what}"));
    let text = || value.as_str().map(str::to_owned).ok_or_else(|| wrong("a text"));
    match kind {
        // vLLM takes a schema as text, too
        "json" => match value {
            Value::String(text) => {
                serde_json::from_str(text).map(Kind::Json).map_err(|_| wrong("a JSON schema"))
            }
            _ => Ok(Kind::Json(value.clone())),
        },
        "regex" => text().map(Kind::Regex),
        "grammar" => text().map(Kind::Lark),
        _ => {
            let list = value.as_array().filter(|l| (1..=CHOICES).contains(&l.len()));
            let texts = list.and_then(|l| l.iter().map(|v| v.as_str().map(str::to_owned)).collect());
            texts.map(Kind::Choice).ok_or_else(|| wrong("a list of texts"))
        }
    }
}

impl Form {
    /// JSON that fits a schema.
    pub(crate) fn json(field: &'static str, schema: Value) -> Form {
        Form { field, kind: Kind::Json(schema) }
    }

    /// Any JSON object.
    pub(crate) fn object(field: &'static str) -> Form {
        Form::json(field, json!({"type": "object"}))
    }

    /// Calls of these tools, in OpenAI's form; `many`: more than one may come.
    pub(crate) fn calls(tools: Vec<Value>, many: bool) -> Form {
        Form { field: "tool_choice", kind: Kind::Calls { tools, many } }
    }

    /// The grammar of the whole answer to a rendered prompt.
    pub(crate) fn grammar(
        &self,
        tokenizer: &Tokenizer,
        syntax: Syntax,
        prompt: &str,
    ) -> Result<Grammar, ApiError> {
        let thoughts = Thoughts::of(syntax, prompt);
        if thoughts == Thoughts::Never {
            match &self.kind {
                Kind::Json(schema) => return Ok(Grammar::JsonSchema(plain(schema))),
                Kind::Regex(regex) => return Ok(Grammar::Regex(regex.clone())),
                Kind::Lark(lark) => return Ok(Grammar::Lark(lark.clone())),
                Kind::Choice(_) | Kind::Calls { .. } => {}
            }
        }
        let mut lark = match thoughts {
            Thoughts::Never => "start: answer\n".to_owned(),
            Thoughts::Open => "start: thoughts answer\n".to_owned(),
            Thoughts::Perhaps => format!("start: ({} thoughts)? answer\n", mark(tokenizer, "<think>")),
        };
        if thoughts != Thoughts::Never {
            lark += &until(tokenizer, "thoughts", "</think>");
        }
        self.answer(tokenizer, syntax, &mut lark)?;
        Ok(Grammar::Lark(lark))
    }

    /// The rule `answer`, and what it needs.
    fn answer(&self, tokenizer: &Tokenizer, syntax: Syntax, lark: &mut String) -> Result<(), ApiError> {
        match &self.kind {
            Kind::Json(schema) => *lark += &format!("answer: %json {}\n", plain(schema)),
            Kind::Regex(regex) => *lark += &format!("answer: /{}/\n", regex.replace('/', "\\/")),
            Kind::Choice(texts) => {
                let texts: Vec<String> = texts.iter().map(|t| json!(t).to_string()).collect();
                *lark += &format!("answer: {}\n", texts.join(" | "));
            }
            Kind::Lark(_) => {
                let why = "a grammar of one's own needs thinking to be off: `\"reasoning_effort\": \"none\"`";
                return Err(ApiError::unsupported(self.field, why));
            }
            Kind::Calls { tools, many } => {
                let names: Vec<String> = (0..tools.len()).map(|i| format!("tool{i}")).collect();
                *lark +=
                    &format!("answer: call{}\ncall: {}\n", if *many { "+" } else { "" }, names.join(" | "));
                for (i, tool) in tools.iter().enumerate() {
                    match syntax.name() {
                        "glm" => glm(tokenizer, i, tool, lark),
                        "hermes" => hermes(tokenizer, i, tool, lark),
                        _ => {
                            let why =
                                "a call cannot be forced for a model of this kind; use `auto` or `none`";
                            return Err(ApiError::unsupported("tool_choice", why));
                        }
                    }
                }
            }
        }
        Ok(())
    }
}

/// Written as Python does. With white space left free, a model in doubt may write nothing else for ever.
fn plain(schema: &Value) -> Value {
    let mut schema = schema.clone();
    if let Some(fields) = schema.as_object_mut() {
        let spaces = json!({"whitespace_flexible": false, "item_separator": ", ", "key_separator": ": "});
        fields.entry("x-guidance").or_insert(spaces);
    }
    schema
}

/// May thoughts come before the answer?
#[derive(Clone, Copy, Debug, PartialEq)]
enum Thoughts {
    Never,
    /// The prompt has opened them.
    Open,
    Perhaps,
}

impl Thoughts {
    fn of(syntax: Syntax, prompt: &str) -> Thoughts {
        match prompt.trim_end() {
            prompt if prompt.ends_with("<think>") => Thoughts::Open,
            prompt if prompt.ends_with("</think>") || syntax == Syntax::NONE => Thoughts::Never,
            _ => Thoughts::Perhaps,
        }
    }
}

/// A mark of the syntax in a grammar: as one token by its name, else as text.
fn mark(tokenizer: &Tokenizer, text: &str) -> String {
    match tokenizer.token_id(text) {
        Some(_) => text.to_owned(),
        None => json!(text).to_string(),
    }
}

/// A rule for any text up to a marker, which is part of it.
fn until(tokenizer: &Tokenizer, rule: &str, text: &str) -> String {
    let end = mark(tokenizer, text);
    match end.starts_with('"') {
        true => format!("{rule}[lazy]: /(?s:.*){}/\n", text.replace('/', "\\/")),
        false => format!("{rule}: {rule}_text {end}\n{rule}_text: /(?s:.*)/\n"),
    }
}

/// Name and arguments between tags.
fn glm(tokenizer: &Tokenizer, index: usize, tool: &Value, lark: &mut String) {
    let m = |text| mark(tokenizer, text);
    let parameters = &tool["function"]["parameters"];
    let needed = |name: &str| parameters["required"].as_array().is_some_and(|r| r.iter().any(|n| n == name));
    let name = json!(tool_name(tool).unwrap_or_default());
    let mut rule = format!("tool{index}: {} {name}", m("<tool_call>"));
    let mut rules = String::new();
    for (at, (key, schema)) in parameters["properties"].as_object().into_iter().flatten().enumerate() {
        let pair = format!("pair{index}_{at}");
        rule += &format!(" {pair}{}", if needed(key) { "" } else { "?" });
        let value = match schema["type"] == "string" && schema.get("enum").is_none() {
            // strings are written as they are
            true => {
                let value = format!("value{index}_{at}");
                rules += &until(tokenizer, &value, "</arg_value>");
                value
            }
            false => format!("%json {} {}", plain(schema), m("</arg_value>")),
        };
        let [begin, end, open] = ["<arg_key>", "</arg_key>", "<arg_value>"].map(m);
        let _ = writeln!(rules, "{pair}: {begin} {} {end} {open} {value}", json!(key));
    }
    let _ = write!(lark, "{rule} {}\n{rules}", m("</tool_call>"));
}

/// A JSON object between tags.
fn hermes(tokenizer: &Tokenizer, index: usize, tool: &Value, lark: &mut String) {
    let parameters = tool["function"].get("parameters").filter(|p| p.is_object());
    let schema = json!({
        "type": "object",
        "properties": {
            "name": {"const": tool_name(tool)},
            "arguments": parameters.cloned().unwrap_or_else(|| json!({"type": "object"})),
        },
        "required": ["name", "arguments"],
        "additionalProperties": false,
    });
    let (begin, end) = (mark(tokenizer, "<tool_call>"), mark(tokenizer, "</tool_call>"));
    let _ = writeln!(lark, "tool{index}: {begin} \"\\n\" %json {} \"\\n\" {end}", plain(&schema));
}
