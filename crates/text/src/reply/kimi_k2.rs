//! Kimi-K2: the header is an id like `functions.NAME:IDX`, which must come back with the result.

use super::{
    Row,
    delimited::{Delimited, Table},
};

const MARKS: [&str; 5] = [
    "<|tool_calls_section_begin|>",
    "<|tool_call_begin|>",
    "<|tool_call_argument_begin|>",
    "<|tool_call_end|>",
    "<|tool_calls_section_end|>",
];

pub(super) const ROW: Row = Row {
    name: "kimi_k2",
    aliases: &["kimi"],
    detect: |template| template.contains(MARKS[0]),
    marks: &MARKS,
    grammar: Some(|| Box::new(Delimited::new(&TABLE))),
};

static TABLE: Table = Table {
    section: MARKS[0],
    begin: MARKS[1],
    separator: MARKS[2],
    end: MARKS[3],
    section_end: MARKS[4],
    header: |header| {
        let id = header.trim();
        let name = id.strip_prefix("functions.").unwrap_or(id);
        (Some(id), name.rsplit_once(':').map_or(name, |(name, _index)| name))
    },
};
