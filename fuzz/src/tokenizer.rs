//! Vocabularies of any tokens, kinds, merges and scores, and any text under them.

use shardwright_gguf::{Meta, Strings};
use shardwright_text::template::Segment;
use shardwright_text::tokenizer::{Special, Tokenizer};

use crate::{Input, one_line};

const MODELS: [&str; 3] = ["gpt2", "llama", "bert"];
const PRES: [&str; 13] = [
    "default",
    "llama-bpe",
    "glm4",
    "chatglm-bpe",
    "qwen2",
    "deepseek-v3",
    "deepseek-llm",
    "deepseek-coder",
    "smollm",
    "gpt-2",
    "kimi-k2",
    "",
    "?",
];
const IDS: [&str; 6] = ["bos", "eos", "unknown", "eot", "eom", "padding"];

/// A vocabulary, then a text.
pub fn tokenizer(data: &[u8]) {
    let mut input = Input::new(data);
    let flags = input.byte();
    let meta = meta(&mut input, flags);
    let tokenizer = match Tokenizer::from_meta(&meta) {
        Ok(tokenizer) => tokenizer,
        Err(e) => return one_line(&e),
    };
    tokenizer.warnings().iter().for_each(one_line);
    let text = input.text();
    for special in [Special::Parse, Special::AsText] {
        let ids = tokenizer.encode(&text, special);
        assert!(ids.as_ref().is_ok_and(|ids| ids.len() >= tokenizer.least(&text)) || ids.is_err());
        check(&tokenizer, ids);
    }
    let (mut segments, mut rest) = (Vec::new(), input);
    while !rest.is_empty() {
        segments.push(Segment { trusted: rest.byte() & 1 == 1, text: rest.text().into_owned() });
    }
    check(&tokenizer, tokenizer.encode_segments(&segments));
    let plain = flags & 3 == 0 && (0..tokenizer.vocab_len() as u32).all(|id| !tokenizer.is_control(id));
    if let (true, Ok(ids)) = (plain, tokenizer.encode(&text, Special::AsText)) {
        let back = tokenizer.decode(&ids, true).expect("ids of its own");
        assert_eq!(String::from_utf8_lossy(&back), text, "byte-level tokens join to the text");
    }
}

/// Ids are tokens, and decoding knows them.
fn check(tokenizer: &Tokenizer, ids: shardwright_text::Result<Vec<u32>>) {
    let ids = match ids {
        Ok(ids) => tokenizer.with_bos_eos(ids),
        Err(e) => return one_line(&e),
    };
    for shown in [false, true] {
        tokenizer.decode(&ids, shown).expect("ids of its own");
    }
    assert!(tokenizer.decode(&[tokenizer.vocab_len() as u32], true).is_err());
}

/// The metadata: with flag 4 the 256 bytes come first, so that most texts can be encoded.
fn meta(input: &mut Input<'_>, flags: u8) -> Meta {
    let mut meta = Meta::new();
    let kinds_differ = flags & 2 == 2;
    meta.set("tokenizer.ggml.model", MODELS[usize::from(flags & 1 | (flags >> 6 & 2)) % 3]);
    meta.set("tokenizer.ggml.pre", input.pick(&PRES));
    let (mut tokens, mut kinds, mut scores) = (Strings::default(), Vec::new(), Vec::new());
    for b in (0..=255u8).filter(|_| flags & 4 == 4) {
        let spelled = if flags & 1 == 1 { format!("<0x{b:02X}>") } else { spell(b).to_string() };
        tokens.push(spelled.as_bytes());
        kinds.push(if flags & 1 == 1 { 6 } else { 1 });
        scores.push(0.0);
    }
    for _ in 0..input.byte() {
        kinds.push(if kinds_differ { i32::from(input.byte() % 8) } else { 1 });
        scores.push(if flags & 8 == 8 { f32::from_bits(input.word()) } else { -(scores.len() as f32) });
        tokens.push(input.bytes());
    }
    meta.set("tokenizer.ggml.tokens", tokens);
    if flags & 16 == 0 {
        meta.set("tokenizer.ggml.token_type", kinds);
    }
    meta.set("tokenizer.ggml.scores", scores);
    if flags & 32 == 0 {
        let merges: Vec<&[u8]> = (0..input.byte()).map(|_| input.bytes()).collect();
        meta.set("tokenizer.ggml.merges", merges.into_iter().collect::<Strings>());
    }
    for (i, name) in IDS.into_iter().enumerate() {
        let given = input.byte();
        if given > 0 {
            meta.set(&format!("tokenizer.ggml.{name}_token_id"), u32::from(given) - 1 + 255 * (i as u32 & 1));
        }
    }
    for (bit, key) in ["add_bos_token", "add_eos_token", "add_space_prefix"].into_iter().enumerate() {
        meta.set(&format!("tokenizer.ggml.{key}"), input.byte() >> bit & 1 == 1);
    }
    meta
}

/// GPT-2's character for a byte.
pub(crate) fn spell(byte: u8) -> char {
    let stays = |b: u8| matches!(b, 33..=126 | 161..=172 | 174..);
    let code = match stays(byte) {
        true => u32::from(byte),
        false => 256 + (0..byte).filter(|b| !stays(*b)).count() as u32,
    };
    char::from_u32(code).expect("below the surrogates")
}
