//! `shardwright inspect`: what is in a GGUF file, from its header alone.

use crate::table::{Table, bytes, count};
use crate::wire::ModelArgs;
use serde_json::{Map, Value as Json, json};
use shardwright_gguf::{Array, Reader, TensorInfo, Value};
use shardwright_model::arch;
use shardwright_model::hyper::{Attention, Hyper, Source};
use std::collections::BTreeMap;
use std::io::Write;

/// Show what is in a GGUF file: architecture, numbers, parts, tensor types, tokenizer.
///
/// Only the header is read, however large the file. Files of architectures that cannot be run are shown too.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  shardwright inspect model.gguf
  shardwright inspect model-00001-of-00011.gguf -t    each tensor: type, dimensions, place
  shardwright inspect model.gguf -k --json            all metadata, for machines")]
pub(crate) struct Args {
    #[command(flatten)]
    model: ModelArgs,
    /// List the tensors.
    #[arg(short = 't', long)]
    tensors: bool,
    /// List the metadata.
    #[arg(short = 'k', long)]
    metadata: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let reader = args.model.read()?;
    let has = |name: &str| Some(reader.tensor(name).is_some());
    let hyper = arch::read(&Source { meta: reader.meta(), has: &has, options: args.model.options() });
    let hyper = hyper.map_err(|e| e.to_string());
    let mut out = std::io::stdout().lock();
    if args.json {
        let all = as_json(args, &reader, &hyper);
        serde_json::to_writer_pretty(&mut out, &all)?;
        writeln!(out)?;
        return Ok(());
    }
    writeln!(out, "{}", summary(&reader, &hyper))?;
    writeln!(out, "tensor types\n{}", types_table(&reader))?;
    if reader.files().len() > 1 {
        writeln!(out, "parts\n{}", parts_table(&reader))?;
    }
    if args.metadata {
        writeln!(out, "metadata\n{}", metadata_table(&reader))?;
    }
    if args.tensors {
        writeln!(out, "tensors\n{}", tensors_table(&reader))?;
    }
    Ok(())
}

fn text(reader: &Reader, key: &str) -> Option<String> {
    reader.meta().may::<String>(key).ok().flatten()
}

fn elements(reader: &Reader) -> u64 {
    reader.tensors().iter().map(TensorInfo::elements).sum()
}

fn tensor_bytes(reader: &Reader) -> u64 {
    reader.tensors().iter().map(|t| t.bytes).sum()
}

fn summary(reader: &Reader, hyper: &Result<Hyper, String>) -> Table {
    let mut t = Table::pairs();
    t.pair("file", reader.files()[0].display());
    if let Some(name) = text(reader, "general.name") {
        t.pair("name", name);
    }
    t.pair("format", format!("GGUF version {}, {} keys", reader.version(), reader.meta().len()));
    t.pair("architecture", text(reader, "general.architecture").unwrap_or_else(|| "not said".into()));
    match hyper {
        Ok(h) => numbers(&mut t, h),
        Err(why) => t.pair("cannot be run", why),
    }
    let (n, size) = (elements(reader), tensor_bytes(reader));
    let bits = size as f64 * 8.0 / n.max(1) as f64;
    let tensors = reader.tensors().len();
    t.pair("weights", format!("{} in {tensors} tensors, {} ({bits:.2} bits each)", count(n), bytes(size)));
    if let Some(line) = tokenizer(reader) {
        t.pair("tokenizer", line);
    }
    if let Some(template) = text(reader, "tokenizer.chat_template") {
        t.pair("chat template", format!("{} characters", template.chars().count()));
    }
    t
}

fn numbers(t: &mut Table, h: &Hyper) {
    let draft = if h.draft.is_some() { " and a next-token layer" } else { "" };
    t.pair("layers", format!("{}{draft}", h.layers));
    t.pair("width", format!("{}, vocabulary {}, context {}", h.width, h.vocab, h.context));
    let attention = match &h.attention {
        Attention::Gqa(g) => {
            format!("{} query heads of {}, {} key and value heads", g.heads, g.key, g.kv_heads)
        }
        Attention::Mla(m) => {
            let sparse = m.indexer.as_ref().map_or(String::new(), |i| format!(", best {} positions", i.keep));
            format!("{} latent heads of {}+{}, latent {}{sparse}", m.heads, m.nope, m.rotated, m.latent)
        }
    };
    t.pair("attention", attention);
    if h.dense_lead > 0 {
        t.pair("dense", format!("{} layers of {}", h.dense_lead, h.inner));
    }
    if let Some(m) = &h.moe {
        let shared = if m.shared > 0 { format!(", shared {}", m.shared) } else { String::new() };
        let r = &m.routing;
        t.pair("experts", format!("{} of {}, {} used ({:?}){shared}", r.experts, m.inner, r.used, r.gating));
    }
    h.notes.iter().for_each(|n| t.pair("note", n));
}

fn tokenizer(reader: &Reader) -> Option<String> {
    let meta = reader.meta();
    let model = text(reader, "tokenizer.ggml.model")?;
    let pre = text(reader, "tokenizer.ggml.pre").map_or(String::new(), |p| format!(" ({p})"));
    let len = |key: &str| match meta.get(key) {
        Some(Value::Array(a)) => a.len(),
        _ => 0,
    };
    let (tokens, merges) = (len("tokenizer.ggml.tokens"), len("tokenizer.ggml.merges"));
    let piece = |key: &str| {
        let id: u32 = meta.may(&format!("tokenizer.ggml.{key}_token_id")).ok()??;
        let tokens = meta.may_strings("tokenizer.ggml.tokens").ok()??;
        Some(format!(", {key} {id} {}", String::from_utf8_lossy(tokens.get(id as usize)?)))
    };
    let special: String = ["bos", "eos", "eot", "eom"].iter().filter_map(|k| piece(k)).collect();
    Some(format!("{model}{pre}, {tokens} tokens, {merges} merges{special}"))
}

/// For each type: tensors, weights, bytes.
fn by_type(reader: &Reader) -> BTreeMap<&'static str, [u64; 3]> {
    let mut types: BTreeMap<&str, [u64; 3]> = BTreeMap::new();
    for t in reader.tensors() {
        let [tensors, weights, bytes] = types.entry(t.quant.name()).or_default();
        (*tensors, *weights, *bytes) = (*tensors + 1, *weights + t.elements(), *bytes + t.bytes);
    }
    types
}

fn types_table(reader: &Reader) -> Table {
    let mut table = Table::new(1, ["type", "tensors", "weights", "bytes", "of all"]);
    let all = tensor_bytes(reader).max(1) as f64;
    for (name, [tensors, weights, size]) in by_type(reader) {
        let share = format!("{:.1} %", size as f64 * 100.0 / all);
        table.row([name.into(), tensors.to_string(), count(weights), bytes(size), share]);
    }
    table
}

fn parts_table(reader: &Reader) -> Table {
    let mut table = Table::new(1, ["file", "tensors", "bytes"]);
    for (i, path) in reader.files().iter().enumerate() {
        let own = || reader.tensors().iter().filter(|t| t.file == i);
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        table.row([name.into(), own().count().to_string(), bytes(own().map(|t| t.bytes).sum())]);
    }
    table
}

fn metadata_table(reader: &Reader) -> Table {
    let mut table = Table::new(3, ["key", "type", "value"]);
    reader.meta().iter().for_each(|(k, v)| table.row([k.into(), v.type_name().into(), v.to_string()]));
    table
}

fn tensors_table(reader: &Reader) -> Table {
    let mut table = Table::new(2, ["name", "type", "dimensions", "bytes", "part", "offset"]);
    for t in reader.tensors() {
        let dims: Vec<String> = t.dims().iter().map(u64::to_string).collect();
        table.row([
            t.name.clone(),
            t.quant.name().into(),
            dims.join(" x "),
            t.bytes.to_string(),
            (t.file + 1).to_string(),
            t.offset.to_string(),
        ]);
    }
    table
}

fn as_json(args: &Args, reader: &Reader, hyper: &Result<Hyper, String>) -> Json {
    let files: Vec<String> = reader.files().iter().map(|p| p.display().to_string()).collect();
    let types: Map<String, Json> = by_type(reader)
        .into_iter()
        .map(|(n, [t, w, b])| (n.into(), json!({ "tensors": t, "weights": w, "bytes": b })))
        .collect();
    let mut all = json!({
        "files": files,
        "version": reader.version(),
        "architecture": text(reader, "general.architecture"),
        "name": text(reader, "general.name"),
        "tensors_total": reader.tensors().len(),
        "weights": elements(reader),
        "bytes": tensor_bytes(reader),
        "types": types,
        "tokenizer": tokenizer(reader),
        "warnings": reader.warnings(),
    });
    match hyper {
        Ok(h) => {
            all["layers"] = json!(h.layers);
            all["next_token_layer"] = json!(h.draft.is_some());
            all["width"] = json!(h.width);
            all["vocabulary"] = json!(h.vocab);
            all["context"] = json!(h.context);
            all["notes"] = json!(h.notes);
        }
        Err(why) => all["unsupported"] = json!(why),
    }
    if args.metadata {
        let meta = reader.meta().iter().map(|(k, v)| (k.to_owned(), value_json(v)));
        all["metadata"] = Json::Object(meta.collect());
    }
    if args.tensors {
        let one = |t: &TensorInfo| {
            json!({ "name": t.name, "type": t.quant.name(), "dimensions": t.dims(), "bytes": t.bytes,
                    "file": t.file, "offset": t.offset })
        };
        all["tensors"] = reader.tensors().iter().map(one).collect();
    }
    all
}

fn value_json(value: &Value) -> Json {
    match value {
        Value::Bool(v) => json!(v),
        Value::F32(v) => json!(v),
        Value::F64(v) => json!(v),
        Value::U64(v) => json!(v),
        Value::String(s) => json!(String::from_utf8_lossy(s)),
        Value::Array(Array::Strings(list)) => {
            list.iter().map(|s| Json::from(String::from_utf8_lossy(s))).collect()
        }
        Value::Array(a) => (0..a.len()).filter_map(|i| a.get(i)).map(|v| value_json(&v)).collect(),
        // the other integers print as numbers that JSON reads
        number => number.to_string().parse::<i64>().map_or_else(|_| json!(number.to_string()), |n| json!(n)),
    }
}
