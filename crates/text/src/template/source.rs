//! Changes to a template's source before it is compiled.

use std::sync::LazyLock;

use minijinja::machinery::{Token, tokenize};
use minijinja::syntax::SyntaxConfig;
use regex::Regex;

use super::library::SNAPSHOT;
use crate::error::{Error, Result};

/// Tokens that one tag may have. The engine bounds how deep brackets and blocks nest, but follows chains (`a + a + a`,
/// `not not a`, `a.b.c`) by recursion, too: about 8,000 links overflow the stack of a thread, and end the process.
const TAG_TOKENS: usize = 2000;

/// The same for `elif`, of which some 1,900 do.
const ELIFS: usize = 400;

/// The source as the engine gets it.
///
/// # Errors
/// A chain that would overflow the stack.
pub(super) fn prepare(source: &str, syntax: &SyntaxConfig) -> Result<String> {
    let source = without_training_blocks(source);
    refuse_long_chains(&source, syntax)?;
    let mut out = String::with_capacity(source.len());
    let mut at = 0;
    for (offset, text) in insertions(&source, syntax) {
        out.push_str(&source[at..offset]);
        out.push_str(&text);
        at = offset;
    }
    Ok(out + &source[at..])
}

fn refuse_long_chains(source: &str, syntax: &SyntaxConfig) -> Result<()> {
    let (mut tokens, mut elifs) = (0, 0);
    for (token, _) in tokenize(source, false, syntax.clone()).map_while(std::result::Result::ok) {
        match token {
            Token::VariableStart | Token::BlockStart => tokens = 0,
            Token::Ident("elif") => elifs += 1,
            _ => tokens += 1,
        }
        if tokens > TAG_TOKENS || elifs > ELIFS {
            return Err(Error::Template(format!(
                "a tag may have {TAG_TOKENS} tokens, and the whole {ELIFS} `elif`; it has more"
            )));
        }
    }
    Ok(())
}

/// Hugging Face's `{% generation %}` only marks text for training; to a renderer it is a block like any other.
fn without_training_blocks(source: &str) -> String {
    static BLOCK: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r"(\{%[-+]?\s*)(end)?generation(\s*[-+]?%\})").expect("a tested expression")
    });
    let replaced = BLOCK.replace_all(source, |c: &regex::Captures<'_>| {
        let block = if c.get(2).is_some() { "endif" } else { "if true" };
        format!("{}{block}{}", &c[1], &c[3])
    });
    replaced.into_owned()
}

/// Puts every value that is assigned to a field of a namespace through the filter [`SNAPSHOT`]. Fields are the one
/// place where a loop can carry a value on, so this is where values could contain themselves or nest without end,
/// and either overflows the stack.
fn insertions(source: &str, syntax: &SyntaxConfig) -> Vec<(usize, String)> {
    let mut out = Vec::new();
    // Within `{% set`: whether the target has a dot, and whether the value has begun.
    let mut set: Option<(bool, bool)> = None;
    let mut block_starts = false;
    // What cannot be read here cannot be compiled either.
    for (token, span) in tokenize(source, false, syntax.clone()).map_while(std::result::Result::ok) {
        set = match (&token, set) {
            (Token::Ident("set"), _) if block_starts => Some((false, false)),
            (Token::Dot, Some((_, false))) => Some((true, false)),
            (Token::Assign, Some((true, false))) => {
                out.push((span.end_offset as usize, " (".to_owned()));
                Some((true, true))
            }
            (Token::BlockEnd, Some((true, true))) => {
                out.push((span.start_offset as usize, format!(")|{SNAPSHOT} ")));
                None
            }
            (Token::BlockEnd, _) => None,
            (_, set) => set,
        };
        block_starts = matches!(token, Token::BlockStart);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_assignments_to_fields_change() {
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build().unwrap();
        for (source, expected) in [
            ("{% set x = a.b %}{{ set }}", "{% set x = a.b %}{{ set }}"),
            ("{%- set ns.x = '%}' -%} é", "{%- set ns.x = ( '%}' )|snapshot -%} é"),
            ("é{% set ns.x, y = 1, f(a=2) %}", "é{% set ns.x, y = ( 1, f(a=2) )|snapshot %}"),
            ("{% raw %}{% set ns.x = 1 %}{% endraw %}", "{% raw %}{% set ns.x = 1 %}{% endraw %}"),
            ("{% generation %}{%+endgeneration-%}", "{% if true %}{%+endif-%}"),
            ("{% set ns.x = 1", "{% set ns.x = ( 1"),
        ] {
            assert_eq!(prepare(source, &syntax).unwrap(), expected);
        }
    }
}
