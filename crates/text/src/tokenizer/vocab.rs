//! The vocabulary of a file: texts, bytes and kinds of its tokens, checked before anything relies on them.

use hashbrown::HashMap;
use shardwright_gguf::{Meta, Strings, short};

use super::bytes::spelled_bytes;
use crate::error::{Error, Result};

const TOKENS: &str = "tokenizer.ggml.tokens";
const TYPES: &str = "tokenizer.ggml.token_type";

/// Texts of tokens that end an answer, whatever the file's own end tokens are.
const END_TEXTS: &[&str] = &[
    "<|endoftext|>",
    "<|user|>",
    "<|observation|>",
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end_of_text|>",
    "<｜end▁of▁sentence｜>",
    "<end_of_turn>",
    "[EOS]",
];

/// Texts that are markers even in files that list them as ordinary tokens; llama.cpp reads them so too.
const ALWAYS_CONTROL: &[&str] = &[
    "<|endoftext|>",
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<｜end▁of▁sentence｜>",
    "<end_of_turn>",
    "</s>",
];

/// What kind of token it is; the numbers are those of the file format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Ordinary text.
    Normal = 1,
    /// Stands for what cannot be spelled.
    Unknown = 2,
    /// A marker, never text.
    Control = 3,
    /// Text that is always one token.
    UserDefined = 4,
    /// Padding of the vocabulary.
    Unused = 5,
    /// One byte, spelled `<0x0A>`.
    Byte = 6,
}

impl Kind {
    fn from_file(n: i32) -> Option<Kind> {
        use Kind::{Byte, Control, Normal, Unknown, Unused, UserDefined};
        [Normal, Unknown, Control, UserDefined, Unused, Byte].into_iter().find(|&k| k as i32 == n)
    }
}

/// How a vocabulary spells its texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Spelling {
    /// Every byte as a printable character, as GPT-2 does.
    ByteLevel,
    /// Plain UTF-8 with `▁` for a space.
    SentencePiece,
}

/// The tokens of a file.
#[derive(Debug)]
pub(crate) struct Vocab {
    texts: Strings,
    bytes: Strings,
    kinds: Vec<Kind>,
    ids: HashMap<Box<[u8]>, u32>,
    /// Beginning of text, if the file names one.
    pub(crate) bos: Option<u32>,
    /// End of text, if the file names one.
    pub(crate) eos: Option<u32>,
    /// What stands for unspellable text, if the file names one.
    pub(crate) unknown: Option<u32>,
    /// Tokens that end an answer, rising.
    pub(crate) ends: Vec<u32>,
    /// Remarks on oddities of the file.
    pub(crate) warnings: Vec<String>,
}

impl Vocab {
    /// Reads and checks the tokens, their kinds and the special ids.
    pub(crate) fn from_meta(meta: &Meta, spelling: Spelling) -> Result<Vocab> {
        let texts = meta.need_strings(TOKENS)?.clone();
        if texts.is_empty() || u32::try_from(texts.len()).is_err() {
            return Err(Error::key(TOKENS, format!("has {} tokens, expected 1 to 2^32 - 1", texts.len())));
        }
        let mut warnings = Vec::new();
        let mut kinds = kinds(meta, texts.len(), &mut warnings)?;
        for (text, kind) in texts.iter().zip(&mut kinds) {
            if *kind != Kind::Unused && ALWAYS_CONTROL.iter().any(|c| c.as_bytes() == text) {
                *kind = Kind::Control;
            }
        }
        let ids = index(&texts, &kinds, &mut warnings);
        let mut bytes = Strings::with_capacity(texts.len(), 0);
        for (text, kind) in texts.iter().zip(&kinds) {
            bytes.push(&token_bytes(text, *kind, spelling));
        }
        let id = |name: &str| special_id(meta, name, texts.len());
        let (bos, eos, unknown) = (id("bos")?, id("eos")?, id("unknown")?);
        let mut ends: Vec<u32> = [eos, id("eot")?, id("eom")?].into_iter().flatten().collect();
        id("padding")?;
        let by_text = END_TEXTS.iter().filter_map(|t| ids.get(t.as_bytes()).copied());
        ends.extend(by_text.filter(|&i| kinds[i as usize] == Kind::Control));
        ends.sort_unstable();
        ends.dedup();
        Ok(Vocab { texts, bytes, kinds, ids, bos, eos, unknown, ends, warnings })
    }

    /// Number of tokens.
    pub(crate) fn len(&self) -> usize {
        self.kinds.len()
    }

    /// The id of a token's text as the file spells it.
    pub(crate) fn id(&self, text: &[u8]) -> Option<u32> {
        self.ids.get(text).copied()
    }

    /// The id of a text that may come out of merging: never a marker, padding or the name of a byte.
    pub(crate) fn piece(&self, text: &[u8]) -> Option<u32> {
        self.id(text).filter(|&id| self.is(id, Kind::Normal) || self.is(id, Kind::UserDefined))
    }

    /// The text as the file spells it.
    pub(crate) fn text(&self, id: u32) -> Option<&[u8]> {
        self.texts.get(id as usize)
    }

    /// The bytes a token stands for.
    pub(crate) fn bytes(&self, id: u32) -> Option<&[u8]> {
        self.bytes.get(id as usize)
    }

    /// The kind of a token.
    pub(crate) fn kind(&self, id: u32) -> Option<Kind> {
        self.kinds.get(id as usize).copied()
    }

    /// The kind of a token that came out of this vocabulary.
    pub(crate) fn is(&self, id: u32, kind: Kind) -> bool {
        self.kind(id) == Some(kind)
    }

    /// All ids with the text as the file spells it.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, Kind, &[u8])> {
        self.texts.iter().zip(&self.kinds).enumerate().map(|(i, (text, kind))| (i as u32, *kind, text))
    }

    /// Length of the longest text in bytes.
    pub(crate) fn longest(&self) -> usize {
        self.texts.iter().map(<[u8]>::len).max().unwrap_or(0)
    }
}

fn kinds(meta: &Meta, tokens: usize, warnings: &mut Vec<String>) -> Result<Vec<Kind>> {
    let Some(numbers) = meta.may::<Vec<i32>>(TYPES)? else {
        warnings.push(format!("`{TYPES}` is missing: markers in the text will not be recognised"));
        return Ok(vec![Kind::Normal; tokens]);
    };
    if numbers.len() != tokens {
        return Err(Error::key(
            TYPES,
            format!("has {} elements, expected {tokens} as `{TOKENS}` has", numbers.len()),
        ));
    }
    let kind = |(i, &n): (usize, &i32)| {
        Kind::from_file(n).ok_or_else(|| Error::key(TYPES, format!("is {n} for token {i}, expected 1 to 6")))
    };
    numbers.iter().enumerate().map(kind).collect()
}

/// Text to id. Of equal texts the first wins, but padding never hides a real token.
fn index(texts: &Strings, kinds: &[Kind], warnings: &mut Vec<String>) -> HashMap<Box<[u8]>, u32> {
    let mut ids: HashMap<Box<[u8]>, u32> = HashMap::with_capacity(texts.len());
    let mut doubles: Vec<u32> = Vec::new();
    for unused in [false, true] {
        for (i, text) in texts.iter().enumerate().filter(|(i, _)| (kinds[*i] == Kind::Unused) == unused) {
            let id = i as u32;
            let first = *ids.entry(text.into()).or_insert(id);
            if first != id && !unused {
                doubles.push(id);
            }
        }
    }
    if let Some(first) = doubles.first() {
        let text = String::from_utf8_lossy(texts.get(*first as usize).unwrap_or_default()).into_owned();
        warnings.push(format!(
            "`{TOKENS}`: {} tokens repeat the text of an earlier one, first `{}` (id {first}); text is encoded as the earlier",
            doubles.len(),
            short(&text)
        ));
    }
    ids
}

fn special_id(meta: &Meta, name: &str, tokens: usize) -> Result<Option<u32>> {
    let key = format!("tokenizer.ggml.{name}_token_id");
    match meta.may::<u32>(&key)? {
        Some(id) if id as usize >= tokens => Err(Error::key(
            &key,
            format!("is {id}, expected an id below {tokens}, the size of the vocabulary"),
        )),
        id => Ok(id),
    }
}

fn token_bytes(text: &[u8], kind: Kind, spelling: Spelling) -> Vec<u8> {
    match (kind, spelling) {
        (Kind::Control | Kind::Unknown | Kind::UserDefined, _) => text.to_vec(),
        (Kind::Byte, _) => byte_of(text).map_or_else(|| text.to_vec(), |b| vec![b]),
        (Kind::Normal | Kind::Unused, Spelling::ByteLevel) => {
            spelled_bytes(text).unwrap_or_else(|| text.to_vec())
        }
        (Kind::Normal | Kind::Unused, Spelling::SentencePiece) => {
            String::from_utf8_lossy(text).replace('▁', " ").into_bytes()
        }
    }
}

/// The byte that a text like `<0x0A>` stands for.
fn byte_of(text: &[u8]) -> Option<u8> {
    let hex = std::str::from_utf8(text).ok()?.strip_prefix("<0x")?.strip_suffix('>')?;
    u8::from_str_radix(hex, 16).ok()
}
