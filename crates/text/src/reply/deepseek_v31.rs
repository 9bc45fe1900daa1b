//! DeepSeek V3.1: name and arguments with a separator between them.

use super::{
    Row,
    delimited::{Delimited, Table},
};

pub(super) const SECTION: &str = "<｜tool▁calls▁begin｜>";
pub(super) const BEGIN: &str = "<｜tool▁call▁begin｜>";
pub(super) const SEPARATOR: &str = "<｜tool▁sep｜>";
pub(super) const END: &str = "<｜tool▁call▁end｜>";
pub(super) const SECTION_END: &str = "<｜tool▁calls▁end｜>";
pub(super) const MARKS: [&str; 5] = [SECTION, BEGIN, SEPARATOR, END, SECTION_END];

pub(super) const ROW: Row = Row {
    name: "deepseek_v31",
    aliases: &["deepseek_v3_1"],
    detect: |template| template.contains(SECTION),
    marks: &MARKS,
    grammar: Some(|| Box::new(Delimited::new(&TABLE))),
};

static TABLE: Table = Table {
    section: SECTION,
    begin: BEGIN,
    separator: SEPARATOR,
    end: END,
    section_end: SECTION_END,
    header: |header| (None, header.trim()),
};
