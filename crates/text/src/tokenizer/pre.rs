//! Pre-tokenizers: how text is cut into pieces before merging, by the name in the file.
//!
//! The published expressions end in `\s+(?!\S)|\s+`: a run of white space leaves its last character to the word that
//! follows. A linear-time engine has no look-ahead, so the expressions here end in `\s+` and [`Spaces`] shortens such
//! a match by that one character; this is the same cut, and no input makes it slow.

use std::sync::{LazyLock, Mutex, PoisonError};

use hashbrown::HashMap;
use regex::Regex;
use shardwright_gguf::short;

use crate::error::{Error, Result};

/// What a white-space match leaves to the next piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Spaces {
    /// Nothing: the expression has no `\s+(?!\S)|\s+`.
    All,
    /// Its last character, if text follows.
    ButLast,
    /// The same, but a match that ends in a newline came from `\s*[\r\n]+` and stays whole.
    ButLastUnlessNewline,
}
use Spaces::{All, ButLast, ButLastUnlessNewline};

/// What a pre-tokenizer name stands for.
pub(crate) struct Rules {
    names: &'static [&'static str],
    patterns: &'static [(&'static str, Spaces)],
    /// A piece that is a token is taken whole, without merging.
    pub(crate) ignore_merges: bool,
    /// Beginning-of-text goes first unless the file says otherwise.
    pub(crate) add_bos: bool,
    /// The file may come without merges; then a token's rank is its id.
    pub(crate) ranks_are_ids: bool,
}

const CJK: &str = r"[\x{4E00}-\x{9FA5}\x{800}-\x{4E00}\x{AC00}-\x{D7FF}]+";

const GPT2: (&str, Spaces) = (r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+", ButLast);

const LLAMA3: (&str, Spaces) = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+",
    ButLastUnlessNewline,
);

const QWEN2: (&str, Spaces) = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+",
    ButLastUnlessNewline,
);

const DEEPSEEK_V3: (&str, Spaces) = (
    concat!(
        r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"##,
        r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+"
    ),
    ButLastUnlessNewline,
);

const KIMI: (&str, Spaces) = (
    concat!(
        r"\p{Han}+",
        r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+",
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*",
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+"
    ),
    ButLastUnlessNewline,
);

/// The cased letters of DeepSeek-LLM's second expression; the Armenian small letters are missing there, too.
const CASED: &str = concat!(
    r"\s?[A-Za-z\x{B5}\x{C0}-\x{D6}\x{D8}-\x{F6}\x{F8}-\x{1BA}\x{1BC}-\x{1BF}\x{1C4}-\x{293}\x{295}-\x{2AF}",
    r"\x{370}-\x{373}\x{376}\x{377}\x{37B}-\x{37D}\x{37F}\x{386}\x{388}-\x{38A}\x{38C}\x{38E}-\x{3A1}\x{3A3}-\x{3F5}",
    r"\x{3F7}-\x{481}\x{48A}-\x{52F}\x{531}-\x{556}\x{10A0}-\x{10C5}\x{13A0}-\x{13F5}\x{13F8}-\x{13FD}",
    r"\x{1C90}-\x{1CBA}\x{1CBD}-\x{1CBF}\x{1D00}-\x{1D2B}\x{1D6B}-\x{1D77}\x{1D79}-\x{1D9A}\x{1E00}-\x{1F15}",
    r"\x{1F18}-\x{1F1D}\x{1F20}-\x{1F45}\x{1F48}-\x{1F4D}\x{1F50}-\x{1F57}\x{1F59}\x{1F5B}\x{1F5D}\x{1F5F}-\x{1F7D}",
    r"\x{1F80}-\x{1FB4}\x{1FB6}-\x{1FBC}\x{1FBE}\x{1FC2}-\x{1FC4}\x{1FC6}-\x{1FCC}\x{1FD0}-\x{1FD3}\x{1FD6}-\x{1FDB}",
    r"\x{1FE0}-\x{1FEC}\x{1FF2}-\x{1FF4}\x{1FF6}-\x{1FFC}\x{2102}\x{2107}\x{210A}-\x{2113}\x{2115}\x{2119}-\x{211D}",
    r"\x{2124}\x{2126}\x{2128}\x{212A}-\x{212D}\x{212F}-\x{2134}\x{2139}\x{213C}-\x{213F}\x{2145}-\x{2149}\x{214E}",
    r"\x{2183}\x{2184}\x{2C00}-\x{2C7B}\x{2C7E}-\x{2CE4}\x{2CEB}-\x{2CEE}\x{2CF2}\x{2CF3}\x{A640}-\x{A66D}",
    r"\x{A680}-\x{A69B}\x{A722}-\x{A76F}\x{A771}-\x{A787}\x{A78B}-\x{A78E}\x{AB70}-\x{ABBF}\x{FB00}-\x{FB06}",
    r"\x{FB13}-\x{FB17}\x{FF21}-\x{FF3A}\x{FF41}-\x{FF5A}\x{10400}-\x{1044F}\x{104B0}-\x{104D3}\x{104D8}-\x{104FB}",
    r"\x{10C80}-\x{10CB2}\x{10CC0}-\x{10CF2}\x{118A0}-\x{118DF}\x{1E900}-\x{1E943}]+"
);

const PLAIN: Rules =
    Rules { names: &[], patterns: &[], ignore_merges: false, add_bos: false, ranks_are_ids: false };

/// All names and their rules. Several expressions are applied in turn, each to the pieces the former left.
static TABLE: &[Rules] = &[
    Rules {
        names: &["llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral"],
        patterns: &[LLAMA3],
        ignore_merges: true,
        add_bos: true,
        ..PLAIN
    },
    Rules { names: &["glm4", "glm5"], patterns: &[LLAMA3], ignore_merges: true, ..PLAIN },
    Rules { names: &["chatglm-bpe"], patterns: &[LLAMA3], ..PLAIN },
    Rules { names: &["qwen2", "deepseek-r1-qwen"], patterns: &[QWEN2], ..PLAIN },
    Rules {
        names: &["deepseek-v3"],
        patterns: &[(r"\p{N}{1,3}", All), DEEPSEEK_V3_CJK, DEEPSEEK_V3],
        ..PLAIN
    },
    Rules {
        names: &["deepseek-llm"],
        patterns: &[
            (r"[\r\n]", All),
            (CASED, All),
            (r"\s?[!-/:-~\x{FF01}-\x{FF0F}\x{FF1A}-\x{FF5E}\x{2018}-\x{201F}\x{3000}-\x{3002}]+", All),
            (r"\s+$", All),
            (CJK, All),
            (r"\p{N}+", All),
        ],
        ..PLAIN
    },
    Rules {
        names: &["deepseek-coder"],
        patterns: &[(r"[\r\n]", All), (r"\s?\p{L}+", All), (r"\s?\p{P}+", All), (CJK, All), (r"\p{N}", All)],
        ..PLAIN
    },
    Rules { names: &["smollm"], patterns: &[(r"\p{N}", All), GPT2], ..PLAIN },
    Rules { names: &["gpt-2", "default"], patterns: &[GPT2], ..PLAIN },
    Rules { names: &["kimi-k2"], patterns: &[KIMI], ignore_merges: true, ranks_are_ids: true, ..PLAIN },
];

const DEEPSEEK_V3_CJK: (&str, Spaces) = (r"[\x{4E00}-\x{9FA5}\x{3040}-\x{309F}\x{30A0}-\x{30FF}]+", All);

/// The rules of a pre-tokenizer name.
///
/// # Errors
/// The name is not known.
pub(crate) fn rules(name: &str) -> Result<&'static Rules> {
    TABLE.iter().find(|r| r.names.contains(&name)).ok_or_else(|| Error::UnknownPre {
        name: short(name),
        known: TABLE.iter().flat_map(|r| r.names).copied().collect::<Vec<_>>().join(", "),
    })
}

/// The expression, compiled once in a process: that takes longer than reading a small vocabulary.
fn compiled(pattern: &'static str) -> Regex {
    static COMPILED: LazyLock<Mutex<HashMap<&'static str, Regex>>> = LazyLock::new(Mutex::default);
    let mut all = COMPILED.lock().unwrap_or_else(PoisonError::into_inner);
    let new = || Regex::new(pattern).expect("a tested expression of the table");
    all.entry(pattern).or_insert_with(new).clone()
}

/// Cuts text into pieces.
#[derive(Debug)]
pub(crate) struct Splitter {
    patterns: Vec<(Regex, Spaces)>,
}

impl Splitter {
    /// The splitter of these rules.
    pub(crate) fn new(rules: &Rules) -> Splitter {
        Splitter { patterns: rules.patterns.iter().map(|&(p, s)| (compiled(p), s)).collect() }
    }

    /// Gives every piece of the text in order; joined they are the text.
    pub(crate) fn split<'t, E>(
        &self,
        text: &'t str,
        out: &mut impl FnMut(&'t str) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        cut(&self.patterns, text, out)
    }
}

fn cut<'t, E>(
    patterns: &[(Regex, Spaces)],
    text: &'t str,
    out: &mut impl FnMut(&'t str) -> std::result::Result<(), E>,
) -> std::result::Result<(), E> {
    let Some(((regex, spaces), rest)) = patterns.split_first() else {
        return if text.is_empty() { Ok(()) } else { out(text) };
    };
    let mut at = 0;
    while let Some(found) = regex.find_at(text, at) {
        let end = found.start() + kept(found.as_str(), *spaces, found.end() == text.len());
        cut(rest, &text[at..found.start()], out)?;
        cut(rest, &text[found.start()..end], out)?;
        at = end;
    }
    cut(rest, &text[at..], out)
}

/// How many bytes of a match belong to its piece.
fn kept(found: &str, spaces: Spaces, at_end: bool) -> usize {
    let shortens = match spaces {
        All => false,
        ButLast => true,
        ButLastUnlessNewline => !found.ends_with(['\r', '\n']),
    };
    let last = found.chars().next_back().map_or(0, char::len_utf8);
    let more_than_one = found.len() > last;
    if shortens && !at_end && more_than_one && found.chars().all(char::is_whitespace) {
        found.len() - last
    } else {
        found.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces<'t>(pre: &str, text: &'t str) -> Vec<&'t str> {
        let mut out = Vec::new();
        let mut push = |piece| -> std::result::Result<(), ()> {
            out.push(piece);
            Ok(())
        };
        Splitter::new(rules(pre).unwrap()).split(text, &mut push).unwrap();
        out
    }

    fn check(pre: &str, text: &str, expected: &[&str]) {
        assert_eq!(pieces(pre, text), expected, "{pre} on {text:?}");
    }

    #[test]
    fn t1_pieces_are_those_of_the_named_pre_tokenizer() {
        check("glm4", "日本語501年", &["日本語", "501", "年"]);
        check("glm4", "1234567", &["123", "456", "7"]);
        check("glm4", "a  b", &["a", " ", " b"]);
        check("glm4", "\t\tif", &["\t", "\tif"]);
        check("glm4", "DON'T", &["DON", "'T"]);
        check("gpt-2", "DON'T", &["DON", "'", "T"]);
        check("qwen2", "x12", &["x", "1", "2"]);
        check("gpt-2", "a \n b", &["a", " \n", " b"]);
        check("glm4", "a \n b", &["a", " \n", " b"]);
        check("gpt-2", "\n\n\nb", &["\n\n", "\n", "b"]);
        check("glm4", "\n\n\nb", &["\n\n\n", "b"]);
        check("glm4", "x   ", &["x", "   "]);
        check("deepseek-v3", "a  12 漢字x", &["a", "  ", "12", " ", "漢字", "x"]);
        check("deepseek-llm", "Ab 12, c\n ", &["Ab", " ", "12", ",", " c", "\n", " "]);
        check("deepseek-coder", "if(x1) \n", &["if", "(", "x", "1", ")", " ", "\n"]);
        check("smollm", "a 12", &["a", " ", "1", "2"]);
        check("kimi-k2", "HelloWORLD's 漢字abc1234", &["Hello", "WORLD's", " ", "漢字", "abc", "123", "4"]);
    }

    #[test]
    fn t1_unknown_names_are_refused() {
        let message = rules("no-such-name").err().unwrap().to_string();
        assert!(message.contains("no-such-name") && message.contains("glm4"), "{message}");
    }

    #[test]
    fn pieces_join_to_the_text() {
        let text = " \t\u{a0}\n\r\n x　é'LL 12345 ..\n\n 漢かカ한 \u{10ffff}'s  ";
        for name in TABLE.iter().flat_map(|r| r.names) {
            assert_eq!(pieces(name, text).concat(), text, "{name}");
        }
    }
}
