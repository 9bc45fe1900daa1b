//! A small tokenizer that any text passes through, for models whose words mean nothing: the 256 bytes, a few English
//! merges, and GLM's special tokens.

use crate::{Error, Result};
use shardwright_gguf::{Meta, Strings};

/// Pairs in order of rank; `_` stands for the space.
const MERGES: &str =
    "t+h _+th a+n an+d _th+e _+and _+s e+r _+o _+h _+w _+a i+n _o+f _+f e+a _+b e+d e+n a+t _+c _+m _+l o+r
     _+t _+g _+d _+i o+n l+l _b+e ea+r r+e u+n _+n o+d _h+i e+s e+v _s+h a+m o+u _+in _t+o a+s i+v in+g a+h
     _+y ear+th r+o _+earth _h+e t+er _hi+s _g+od _+ev _d+a _s+a _th+at i+d _w+as _n+o t+o un+d _w+h _w+i i+r
     _be+g _f+or _sh+a er+e _+u g+h _i+t l+e er+y _beg+at on+s c+h s+t un+to _ev+ery l+d _+unto _u+p _w+ere
     a+d _a+f _da+y _a+ll _af+ter t+y _y+ear am+e ea+t or+d _l+iv _th+ou a+r e+th _year+s _i+s _sa+id _l+ord
     _up+on _+p _sha+ll _s+ons c+e en+t _c+a re+e o+m r+ed und+red _a+r _h+undred _f+ro _fro+m _no+ah e+l o+w
     _+k o+od th+er _wi+th gh+t";

/// GLM's special tokens; the ids are by place, at the end of the vocabulary.
const SPECIALS: [&str; 18] = [
    "<|endoftext|>",
    "[MASK]",
    "[gMASK]",
    "[sMASK]",
    "<sop>",
    "<eop>",
    "<|system|>",
    "<|user|>",
    "<|assistant|>",
    "<|observation|>",
    "<think>",
    "</think>",
    "<tool_call>",
    "</tool_call>",
    "<arg_key>",
    "</arg_key>",
    "<arg_value>",
    "</arg_value>",
];

const TEMPLATE: &str = "[gMASK]<sop>{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}{% endfor %}\
                        {% if add_generation_prompt %}<|assistant|>\n{% endif %}";

const NORMAL: i32 = 1;
const CONTROL: i32 = 3;
const USER_DEFINED: i32 = 4;
const UNUSED: i32 = 5;

/// Adds a tokenizer of `vocab` entries and a chat template.
///
/// # Errors
/// If the vocabulary has no room for the bytes and the special tokens.
pub fn add(meta: &mut Meta, vocab: usize) -> Result<()> {
    let least = 256 + SPECIALS.len();
    if vocab < least {
        return Err(Error::Synth(format!(
            "a vocabulary of {vocab} has no room for a tokenizer; at least {least} entries are needed"
        )));
    }
    let spell = spelling();
    let pairs: Vec<(String, String)> = MERGES
        .split_whitespace()
        .filter_map(|m| m.split_once('+'))
        .map(|(a, b)| (a.replace('_', "\u{120}"), b.replace('_', "\u{120}")))
        .take(vocab - least)
        .collect();
    let mut tokens: Vec<String> = spell.iter().map(char::to_string).collect();
    tokens.extend(pairs.iter().map(|(a, b)| format!("{a}{b}")));
    let first_special = vocab - SPECIALS.len();
    let mut types = vec![NORMAL; tokens.len()];
    types.resize(first_special, UNUSED);
    tokens.extend((tokens.len()..first_special).map(|i| format!("<unused{i}>")));
    tokens.extend(SPECIALS.map(str::to_owned));
    // GLM's files let its tags for thinking and tools through as text
    let shown = |s: &str| ["think", "tool", "arg"].iter().any(|tag| s.contains(tag));
    types.extend(SPECIALS.map(|s| if shown(s) { USER_DEFINED } else { CONTROL }));
    meta.set("tokenizer.ggml.model", "gpt2");
    meta.set("tokenizer.ggml.pre", "glm4");
    meta.set("tokenizer.ggml.tokens", tokens.iter().collect::<Strings>());
    meta.set("tokenizer.ggml.token_type", types);
    meta.set("tokenizer.ggml.merges", pairs.iter().map(|(a, b)| format!("{a} {b}")).collect::<Strings>());
    for (key, special) in [("bos", 2), ("eos", 0), ("eot", 7), ("eom", 9), ("padding", 0)] {
        meta.set(&format!("tokenizer.ggml.{key}_token_id"), (first_special + special) as u32);
    }
    meta.set("tokenizer.ggml.add_bos_token", false);
    meta.set("tokenizer.chat_template", TEMPLATE);
    Ok(())
}

/// The printable character that stands for each byte in byte-level vocabularies (GPT-2): itself where it prints,
/// else the next from U+0100 on.
fn spelling() -> [char; 256] {
    let prints = |b: u32| matches!(b, 33..=126 | 161..=172 | 174..=255);
    let mut next = 256;
    std::array::from_fn(|b| {
        let b = b as u32;
        let code = if prints(b) {
            b
        } else {
            next += 1;
            next - 1
        };
        char::from_u32(code).expect("below the surrogates")
    })
}
