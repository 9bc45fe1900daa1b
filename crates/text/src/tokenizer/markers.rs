//! Markers: tokens recognised in text by their spelling, and which of them a message may contain.
//!
//! A marker of the role set (`<|user|>`, `[gMASK]`, the end tokens and their like) in a message would let its author
//! speak as somebody else. So text from messages is *guarded* before a template sees it: every character that could
//! begin such a marker is followed by a sentinel, a character that occurs nowhere else. Whatever the template then
//! does to the text (joins, splits, trims), the character and its sentinel stay together, and after rendering the
//! sentinels tell which characters must not begin a marker. Markers of reasoning and tool calls are left alone, since
//! templates insert earlier turns as they were written.

use std::ops::Range;

use aho_corasick::{AhoCorasick, AhoCorasickKind, MatchKind};

use super::vocab::{Kind, Vocab};
use crate::error::{Error, Result};

/// Enough for ten times the markers of any published vocabulary, little enough to build in no time.
const MOST_BYTES: usize = 4 << 20;

/// Of more bytes no DFA is built: it takes up to a kilobyte for each.
const MOST_BYTES_OF_DFA: usize = 16 << 10;

/// Markers that a message may contain.
const OPEN_TO_MESSAGES: &[&str] = &[
    "<think>",
    "</think>",
    "<tool_call>",
    "</tool_call>",
    "<tool_response>",
    "</tool_response>",
    "<arg_key>",
    "</arg_key>",
    "<arg_value>",
    "</arg_value>",
    "/nothink",
    "<tools>",
    "</tools>",
];

/// Markers of the role set that no kind and no look gives away.
const ROLE_TEXTS: &[&str] = &[
    "[gMASK]",
    "[sMASK]",
    "[MASK]",
    "<sop>",
    "<eop>",
    "<s>",
    "</s>",
    "<bos>",
    "<eos>",
    "<start_of_turn>",
    "<end_of_turn>",
    "[INST]",
    "[/INST]",
    "[EOS]",
];

/// Which tokens a text is searched for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Special {
    /// Control tokens and user-defined tokens: for prompts whose author may write markers.
    Parse,
    /// User-defined tokens only; the texts of control tokens are ordinary text.
    AsText,
}

/// The markers of a vocabulary.
#[derive(Debug)]
pub struct Markers {
    all: Finder,
    user_defined: Finder,
    /// First characters of the markers that messages must not contain.
    openings: Vec<char>,
    /// Ids of the others, rising.
    open_to_messages: Vec<u32>,
}

impl Markers {
    pub(crate) fn new(vocab: &Vocab) -> Result<Markers> {
        let mut all = Vec::new();
        for (id, kind, text) in vocab.iter() {
            if let (Kind::Control | Kind::UserDefined | Kind::Unknown, Ok(text)) =
                (kind, std::str::from_utf8(text))
            {
                // Of equal texts only the first can ever be found.
                if !text.is_empty() && vocab.id(text.as_bytes()) == Some(id) {
                    all.push((id, kind, text));
                }
            }
        }
        let open = |&&(id, kind, text): &&(u32, Kind, &str)| is_open_to_messages(vocab, id, kind, text);
        let mut openings: Vec<char> =
            all.iter().filter(|m| !open(m)).filter_map(|(_, _, text)| text.chars().next()).collect();
        openings.sort_unstable();
        openings.dedup();
        Ok(Markers {
            open_to_messages: all.iter().filter(open).map(|m| m.0).collect(),
            user_defined: Finder::new(all.iter().filter(|m| m.1 == Kind::UserDefined).map(|m| (m.0, m.2)))?,
            all: Finder::new(all.iter().map(|m| (m.0, m.2)))?,
            openings,
        })
    }

    pub(crate) fn find<'a>(
        &'a self,
        text: &'a str,
        special: Special,
    ) -> impl Iterator<Item = (Range<usize>, u32)> + 'a {
        let finder = match special {
            Special::Parse => &self.all,
            Special::AsText => &self.user_defined,
        };
        finder.find(text)
    }

    /// The text of a message with a sentinel after every character that must not begin a marker.
    pub(crate) fn guard(&self, text: &str, sentinel: char) -> String {
        let mut out = String::with_capacity(text.len());
        let mut at = 0;
        let guarded = |part: &str, out: &mut String| {
            for c in part.chars() {
                out.push(c);
                if self.openings.binary_search(&c).is_ok() {
                    out.push(sentinel);
                }
            }
        };
        let open = |id: &u32| self.open_to_messages.binary_search(id).is_ok();
        for (range, _) in self.all.find(text).filter(|(_, id)| open(id)) {
            guarded(&text[at..range.start], &mut out);
            out.push_str(&text[range.clone()]);
            at = range.end;
        }
        guarded(&text[at..], &mut out);
        out
    }
}

fn is_open_to_messages(vocab: &Vocab, id: u32, kind: Kind, text: &str) -> bool {
    let looks_like_a_role = ["<|", "<｜"].iter().any(|s| text.starts_with(s)) || ROLE_TEXTS.contains(&text);
    let has_a_role = vocab.ends.contains(&id) || vocab.bos == Some(id) || looks_like_a_role;
    OPEN_TO_MESSAGES.contains(&text) || (kind == Kind::UserDefined && !has_a_role)
}

/// Finds texts: the leftmost, of these the longest.
#[derive(Debug)]
struct Finder {
    automaton: AhoCorasick,
    ids: Vec<u32>,
}

impl Finder {
    fn new<'a>(markers: impl Iterator<Item = (u32, &'a str)>) -> Result<Finder> {
        let (ids, texts): (Vec<u32>, Vec<&str>) = markers.unzip();
        let too_many = |why: String| Error::key("tokenizer.ggml.token_type", why);
        let bytes: usize = texts.iter().map(|t| t.len()).sum();
        if bytes > MOST_BYTES {
            return Err(too_many(format!(
                "marks {bytes} bytes of texts as special, expected at most {MOST_BYTES}"
            )));
        }
        let kind = (bytes > MOST_BYTES_OF_DFA).then_some(AhoCorasickKind::ContiguousNFA);
        let automaton =
            AhoCorasick::builder().kind(kind).match_kind(MatchKind::LeftmostLongest).build(&texts);
        Ok(Finder { automaton: automaton.map_err(|e| too_many(e.to_string()))?, ids })
    }

    fn find<'a>(&'a self, text: &'a str) -> impl Iterator<Item = (Range<usize>, u32)> + 'a {
        self.automaton.find_iter(text).map(|m| (m.range(), self.ids[m.pattern().as_usize()]))
    }
}
