//! Writes what fuzzing starts from into `corpus/TARGET/seed-*`: small headers, vocabularies, templates, transcripts.

#[allow(dead_code)] // what the transcripts mean is nothing that a seed has
#[path = "../../crates/text/tests/reply/transcripts.rs"]
mod transcripts;

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

use shardwright_fuzz::Seed;
use shardwright_gguf::{Meta, QuantType, Reader, Split, TensorSpec, Value, Writer};
use shardwright_model::presets::{self, Preset};
use shardwright_text::reply::Syntax;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn put(target: &str, name: &str, seed: impl AsRef<[u8]>) -> Result<()> {
    let folder = root().join("fuzz/corpus").join(target);
    fs::create_dir_all(&folder)?;
    Ok(fs::write(folder.join(format!("seed-{name}")), seed)?)
}

fn main() -> Result<()> {
    small_files()?;
    headers()?;
    quants()?;
    vocabularies()?;
    templates()?;
    replies()?;
    put(
        "stream",
        "stops",
        Seed::default().byte(2).bytes("STOP").bytes("\n\n").raw(b"\x03a ST\x02OP\x01\n\x02\xc3\n"),
    )?;
    put("stream", "halves", Seed::default().byte(1).bytes("aab").raw("\x02aa\x02ab\x01\u{20ac}"))
}

/// One file or several parts of a model with a few tensors of each kind of shape.
fn tiny(split: Option<Split>) -> Result<Vec<Vec<u8>>> {
    let mut meta = Meta::new();
    meta.set("general.architecture", "llama");
    meta.set("a.bool", true);
    meta.set("a.float", 0.5f32);
    meta.set("a.list", vec![1i32, -2, 3]);
    meta.set("a.texts", ["x", "", "yz"].iter().collect::<shardwright_gguf::Strings>());
    let mut writer = Writer::new(meta)?;
    if let Some(split) = split {
        writer = writer.split(split);
    }
    writer.tensor("blk.0.attn_q.weight", QuantType::F32, &[32, 2])?;
    writer.tensor("blk.0.attn_k.weight", QuantType::F32, &[32, 1])?;
    writer.tensor("blk.0.attn_v.weight", QuantType::F32, &[32, 1])?;
    writer.tensor("blk.0.ffn_gate_exps.weight", QuantType::Q8_0, &[32, 2, 2])?;
    writer.tensor("blk.0.ffn_up_exps.weight", QuantType::Q8_0, &[32, 2, 2])?;
    writer.tensor("output_norm.weight", QuantType::F16, &[32])?;
    let folder = tempfile::tempdir()?;
    let data = |spec: &TensorSpec, out: &mut dyn std::io::Write| {
        Ok(out.write_all(&vec![0x11; spec.bytes as usize])?)
    };
    let paths = writer.write(&folder.path().join("m.gguf"), data)?;
    Ok(paths.iter().map(fs::read).collect::<std::io::Result<_>>()?)
}

fn small_files() -> Result<()> {
    let whole = &tiny(None)?[0];
    put("header", "tiny", whole)?;
    for (i, flags) in [0u8, 3, 12, 49].into_iter().enumerate() {
        let types = [QuantType::Q4_0, QuantType::F16, QuantType::Q8_0, QuantType::BF16];
        let to = QuantType::ALL.iter().position(|q| *q == types[i]).unwrap_or(0);
        put("convert", &format!("tiny-{i}"), Seed::default().byte(to as u8).byte(flags).raw(whole))?;
    }
    let parts = tiny(Some(Split { max_tensors: Some(3), metadata_first: false, max_bytes: None }))?;
    let set = |opened: u8| {
        let head = Seed::default().byte(parts.len() as u8 - 1).byte(opened).byte(0);
        let all = parts.iter().fold(head, |seed, part| seed.byte(0).bytes(part));
        all.raw(whole)
    };
    put("split", "first", set(0))?;
    put("split", "second", set(1))
}

/// Headers of well-known models without tensors, and of the test models with theirs.
fn headers() -> Result<()> {
    for (i, (name, _)) in presets::all().enumerate() {
        let mut preset = Preset::find(name)?;
        preset.set_layers(3)?;
        let bytes = header_of(preset.meta(), &[])?;
        put("header", name, &bytes)?;
        put("model", name, Seed::default().byte(4 | (i as u8 & 3)).byte(i as u8).byte(i as u8).raw(bytes))?;
    }
    for (name, preset, key, value) in HOSTILE_NUMBERS {
        let mut meta = Preset::find(preset)?.meta().clone();
        let value = value.parse::<u64>().map_or_else(|_| Value::from(value), Value::U64);
        meta.set(key, value);
        put("model", name, Seed::default().byte(4).raw([0, 0]).raw(header_of(&meta, &[])?))?;
    }
    for name in ["llama-f32", "qwen3-bf16", "glm4moe-f32", "glm47flash-f16", "glm-dsa-share-bf16"] {
        let reader = Reader::open(&root().join(format!("tests/data/models/{name}.gguf")))?;
        let mut meta = Meta::new();
        let own = |k: &str| !k.starts_with("tokenizer.");
        reader.meta().iter().filter(|(k, _)| own(k)).for_each(|(k, v)| meta.set(k, v.clone()));
        let arch: String = meta.need("general.architecture")?;
        let vocab = reader.meta().need_strings("tokenizer.ggml.tokens")?.len();
        meta.set(&format!("{arch}.vocab_size"), vocab as u32);
        let specs: Vec<_> = reader.tensors().iter().map(|t| (t.name.as_str(), t.quant, t.dims())).collect();
        put("model", name, Seed::default().byte(0).byte(1).raw(header_of(&meta, &specs)?))?;
    }
    Ok(())
}

/// What was found: a name, a preset, a key of it, and the value that did harm.
const HOSTILE_NUMBERS: [(&str, &str, &str, &str); 5] = [
    ("found-escapes-in-a-name", "tiny-llama", "general.architecture", "\u{1b}[2J\n"),
    ("found-escapes-in-a-scaling", "tiny-llama", "llama.rope.scaling.type", "\u{1b}[2J\n"),
    ("found-wide-rotation", "tiny-deepseek2", "deepseek2.rope.dimension_count", "268435456"),
    ("found-rank-of-2e64", "tiny-deepseek2", "deepseek2.attention.q_lora_rank", "18446744073709551615"),
    ("found-experts-of-width-0", "tiny-glm4moe", "glm4moe.feed_forward_length", "1"),
];

fn header_of(meta: &Meta, specs: &[(&str, QuantType, &[u64])]) -> Result<Vec<u8>> {
    let mut writer = Writer::new(meta.clone())?;
    specs.iter().try_for_each(|(name, quant, ne)| writer.tensor(name, *quant, ne))?;
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("m.gguf");
    writer.write_sparse(&path)?;
    let mut bytes = fs::read(&path)?;
    bytes.truncate(shardwright_gguf::parse_header(&bytes)?.data_start as usize);
    Ok(bytes)
}

fn quants() -> Result<()> {
    for (i, quant) in QuantType::ALL.iter().enumerate() {
        let bytes: Vec<u8> = (0..quant.block_bytes() * 2).map(|b| (b * 37) as u8).collect();
        put("quant", quant.name(), Seed::default().byte(i as u8).byte(i as u8).raw(bytes))?;
    }
    for (name, x) in [("ones", 1.0f32), ("largest", 65_504.0), ("small", 1e-30)] {
        for to in 0..15u8 {
            let row: Vec<u8> = (0..256).flat_map(|i| (x * (i % 7 - 3) as f32).to_le_bytes()).collect();
            put("quant", &format!("{name}-{to}"), Seed::default().byte(0).byte(to).raw(row))?;
        }
    }
    Ok(())
}

fn vocabularies() -> Result<()> {
    let words = ["he", "ll", "hell", "\u{120}w", "<|user|>", "\u{2581}he", "<think>", "12"];
    for (i, flags) in [4u8, 5, 6, 7, 12, 13, 36, 0, 1].into_iter().enumerate() {
        let mut seed = Seed::default().byte(flags).byte(i as u8).byte(words.len() as u8);
        for (k, word) in words.iter().enumerate() {
            seed = if flags & 2 == 2 { seed.byte([1, 1, 1, 1, 3, 1, 4, 5][k]) } else { seed };
            seed = if flags & 8 == 8 { seed.raw(1f32.to_le_bytes()) } else { seed };
            seed = seed.bytes(word);
        }
        if flags & 32 == 0 {
            seed = ["h e", "l l", "he ll", "\u{120} w"].iter().fold(seed.byte(4), |seed, m| seed.bytes(m));
        }
        let seed =
            seed.raw([1, 2, 0, 3, 0, 0, 1, 2, 4]).bytes("hello  w<|user|>\n 12345 é日本 I'll\u{10ffff}");
        let seed = seed.byte(1).bytes("<|us").byte(1).bytes("er|> x").byte(0).bytes("<|user|>");
        put("tokenizer", &i.to_string(), seed)?;
    }
    Ok(())
}

fn templates() -> Result<()> {
    let folder = root().join("tests/data/templates");
    let doc: serde_json::Value = serde_json::from_slice(&fs::read(folder.join("renderings.json"))?)?;
    let cases = doc["cases"].as_object().ok_or("no cases")?;
    for name in ["GLM-4.7-Flash", "GLM-4.6", "DeepSeek-V3.1", "Qwen3-0.6B"] {
        let source = fs::read_to_string(folder.join(format!("{name}.jinja")))?;
        let case = &cases["tool turn"];
        put("template", name, Seed::default().byte(3).bytes(source).raw(case.to_string()))?;
    }
    for (i, case) in cases.values().enumerate() {
        put(
            "template",
            &format!("case-{i}"),
            Seed::default().byte(2).bytes("{{ messages }}").raw(case.to_string()),
        )?;
    }
    for (i, [before, link, after]) in CHAINS.into_iter().enumerate() {
        let source = before.to_owned() + &link.repeat(12_000 / link.len()) + after;
        put("template", &format!("found-chain-{i}"), Seed::default().byte(0).bytes(source))?;
    }
    for (i, source) in HOSTILE.iter().enumerate() {
        put("template", &format!("hostile-{i}"), Seed::default().byte(i as u8).bytes(source))?;
    }
    Ok(())
}

/// Chains that overflowed the stack.
const CHAINS: [[&str; 3]; 2] = [["{{ ", "-", "1 }}"], ["{% if 1 %}", "{% elif 1 %}", "{% endif %}"]];

/// Templates that ask for too much in ways of their own; the first three were found to get it.
const HOSTILE: &[&str] = &[
    "{% set ns = namespace(x=[]) %}{% for i in range(99999) %}{% set _ = ns.x.append(i) %}{% endfor %}{% for i in range(99999) %}{% set _ = ns.x.append(ns.x.pop(0)) %}{% endfor %}",
    "{{ range(20000) | list | tojson(separators=('x' * 100000, ':')) }}",
    "{{ range(20000) | list | tojson(indent='x' * 100000) }}",
    "{% set ns = namespace(x='xxxxxxxx') %}{% for i in range(60) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}{{ ns.x }}",
    "{% macro m(a, b=1) %}{{ m(a) }}{% endmacro %}{{ m([1]) }}",
    "{% set ns = namespace(x=[1]) %}{% for i in range(99) %}{% set _ = ns.x.append(i) %}{{ ns.x.pop(0) }}{% endfor %}",
    "{{ range(9) | list | tojson(indent=4, separators=(',', ': '), sort_keys=true, ensure_ascii=true) | from_json }}",
    "{{ messages | map(attribute='role') | join(', ') | upper | replace('A', 'bb') | indent(4) | title | truncate(9) }}",
    "{{ strftime_now('%Y-%m-%d %H:%M:%S %A %j %Z') }}{{ raise_exception('no') if messages | length > 99 }}",
    "{{ messages | selectattr('content', 'defined') | rejectattr('tool_calls') | groupby('role') | list }}",
    "{{ 'abc'[::-1] }}{{ messages[1:] | reverse | batch(2) | list }}{{ messages | slice(3) | list }}{{ 7 // 2 ** 3 % 5 }}",
    "{% for k, v in {'a': 1}.items() %}{{ loop.index }}{{ k.upper().lstrip('a').split('')[0] }}{% else %}-{% endfor %}",
    "{% filter upper %}{% set x %}{{ 'a' * 9 }}{% endset %}{{ x }}{% endfilter %}{{ '%5d|%-3s'|format(3, 'a') }}",
    "{{ namespace(a=namespace(b=1)).a.b }}{% set ns = namespace() %}{% set ns.y = {'z': [ns]} %}{{ ns.y }}",
    "{% call(x) f(1) %}{% endcall %}{% if x is mapping or x is not string and 1 in [1] %}a{% elif 2 %}b{% endif %}",
    "{%- generation -%}{{- 1.5e300 * 1e10 }}{{ -7 // 0 }}{%- endgeneration %}{% break %}",
    "{% for a in range(99) recursive %}{{ loop([a]) }}{% continue %}{% endfor %}{# c #}{% raw %}{{{% endraw %}",
];

fn replies() -> Result<()> {
    for t in transcripts::GLM.iter().chain(transcripts::OTHERS) {
        let syntax = Syntax::names().position(|n| n == t.syntax).unwrap_or(0);
        let prompt = ["", "<think>", "</think>"].iter().rposition(|p| t.prompt.ends_with(p)).unwrap_or(0);
        let tools = serde_json::to_string(&transcripts::tools())?;
        let mut seed =
            Seed::default().byte(syntax as u8).byte(1).byte(prompt as u8).bytes(tools).byte(1).bytes("STOP");
        for chunk in t.text.as_bytes().chunks(9) {
            seed = seed.byte((chunk.len() as u8) << 1).raw(chunk);
        }
        put("reply", t.name, seed)?;
    }
    Ok(())
}
