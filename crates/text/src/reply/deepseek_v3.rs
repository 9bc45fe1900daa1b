//! DeepSeek R1 and V3: the type of the call, its name on a line, its arguments in a fenced block.

use super::{
    Row,
    deepseek_v31::{BEGIN, END, MARKS, SECTION, SECTION_END, SEPARATOR},
    delimited::{Delimited, Table},
};

pub(super) const ROW: Row = Row {
    name: "deepseek_v3",
    aliases: &["deepseek_r1", "deepseek"],
    detect: |template| template.contains(SECTION) && template.contains("```json"),
    marks: &MARKS,
    grammar: Some(|| Box::new(Delimited::new(&TABLE))),
};

static TABLE: Table = Table {
    section: SECTION,
    begin: BEGIN,
    separator: "\n",
    end: END,
    section_end: SECTION_END,
    header: |header| (None, header.split_once(SEPARATOR).map_or(header, |(_kind, name)| name).trim()),
};
