//! Flags of vLLM and llama-server that have no work to do here: taken, and told in one line what they mean.
//!
//! Commands pasted from other engines start this way. It happens before the arguments are parsed: short flags of
//! llama-server have several letters (`-ngl`), which our parser would read as several flags.
// tidy: table

use std::ffi::OsString;
use std::iter::Peekable;
use std::sync::OnceLock;

/// What follows a flag.
#[derive(Clone, Copy, PartialEq)]
enum Takes {
    Nothing,
    Value,
    /// A value, unless another flag follows.
    Perhaps,
    /// This value; any other would ask for something.
    Only(&'static str),
}

use Takes::{Nothing, Only, Perhaps, Value};

/// Names, what follows, and what the flag means here.
struct Flag {
    names: &'static [&'static str],
    takes: Takes,
    note: &'static str,
}

const fn flag(names: &'static [&'static str], takes: Takes, note: &'static str) -> Flag {
    Flag { names, takes, note }
}

/// Other engines' names of flags that we have.
const RENAMED: &[(&str, &str)] = &[
    ("-tp", "--tp"),
    ("--tensor-parallel-size", "--tp"),
    ("-pp", "--pipeline-parallel-size"),
    ("-dp", "--replicas"),
    ("--data-parallel-size", "--replicas"),
    ("-hf", "--hf"),
    ("-hfr", "--hf"),
    ("-np", "--max-num-seqs"),
    ("-ub", "--max-num-batched-tokens"),
    ("-to", "--request-timeout"),
];

const ALL_LAYERS: &str = "all layers run on the chosen device";
const ATTENTION: &str = "there is one attention on each device, and it is blockwise";
const CACHE_TYPE: &str = "the cache has 16 bits an element, with --activations f32 it has 32";
const DEALT: &str = "the model is cut over all ranks alike; their number is --tp";
const SPECULATION: &str = "answers are not drafted";
const BACKEND: &str = "kernels are chosen by the device";
const ALWAYS: &str = "it is always so";
const MAPPED: &str = "the file is mapped into memory; the system keeps what is used";
const TRUST: &str = "no code of a model is ever run";
const ONE_PROCESS: &str = "there is one process";
const CACHE: &str = "the size of the cache is --cache-tokens";
const ROPE: &str = "positions are rotated as the file says; --override-kv reads its keys otherwise";
const SAMPLER: &str = "the order of sampling rules is fixed: penalties, top-k, top-p, min-p, temperature";
const MARKERS: &str = "reasoning is told apart by the model's own markers";

const FLAGS: &[Flag] = &[
    flag(&["-ngl", "--n-gpu-layers", "--gpu-layers"], Value, ALL_LAYERS),
    flag(&["-fa", "--flash-attn"], Perhaps, ATTENTION),
    flag(&["--attention-backend"], Value, ATTENTION),
    flag(&["-sm", "--split-mode"], Value, DEALT),
    flag(&["-ts", "--tensor-split"], Value, DEALT),
    flag(&["-mg", "--main-gpu"], Value, DEALT),
    flag(&["-ot", "--override-tensor"], Value, DEALT),
    flag(&["-cmoe", "--cpu-moe"], Nothing, DEALT),
    flag(&["-ncmoe", "--n-cpu-moe"], Value, DEALT),
    flag(&["--enable-expert-parallel", "-ep"], Nothing, DEALT),
    flag(&["--rope-scaling"], Only("none"), ROPE),
    flag(&["--rope-scale", "--rope-freq-base", "--rope-freq-scale", "--yarn-orig-ctx"], Only("0"), ROPE),
    flag(&["--moe-backend", "--all2all-backend"], Value, BACKEND),
    flag(&["--distributed-executor-backend"], Value, ONE_PROCESS),
    flag(&["--api-server-count", "-asc"], Value, ONE_PROCESS),
    flag(&["--threads-http"], Value, ONE_PROCESS),
    flag(&["--disable-custom-all-reduce"], Nothing, BACKEND),
    flag(&["--speculative-config", "--spec-type"], Value, SPECULATION),
    flag(
        &["-md", "--model-draft", "--draft-max", "--draft", "--draft-min", "--draft-p-min"],
        Value,
        SPECULATION,
    ),
    flag(&["--gpu-memory-utilization"], Value, CACHE),
    flag(
        &["--kv-cache-memory-bytes", "--swap-space", "--cpu-offload-gb", "-cram", "--cache-ram"],
        Value,
        CACHE,
    ),
    flag(&["--block-size"], Value, "blocks of the cache hold 64 tokens"),
    flag(&["--kv-cache-dtype", "-ctk", "--cache-type-k", "-ctv", "--cache-type-v"], Value, CACHE_TYPE),
    flag(&["--compilation-config", "-O"], Value, BACKEND),
    flag(&["--dtype"], Value, "weights keep the types of the file; what is computed with is --activations"),
    flag(&["--quantization"], Value, "weights keep the types of the file"),
    flag(&["--load-format", "--config-format", "--tokenizer-mode"], Value, "models are GGUF files"),
    flag(&["--tokenizer", "--hf-config-path"], Value, "everything about a model is in its file"),
    flag(&["--trust-remote-code"], Nothing, TRUST),
    flag(&["--enable-auto-tool-choice"], Nothing, ALWAYS),
    flag(&["--jinja", "--no-jinja"], Nothing, "the chat template of the file always runs"),
    flag(&["--reasoning-parser"], Value, MARKERS),
    flag(&["--reasoning-format"], Value, MARKERS),
    flag(&["--enable-reasoning"], Nothing, MARKERS),
    flag(
        &["--enable-chunked-prefill", "--no-enable-chunked-prefill"],
        Nothing,
        "prompts are always read in pieces",
    ),
    flag(
        &["-cb", "--cont-batching", "-nocb", "--no-cont-batching"],
        Nothing,
        "batching is always continuous",
    ),
    flag(&["--no-mmap", "--mmap", "--mlock", "--direct-io", "-dio"], Nothing, MAPPED),
    flag(&["--numa"], Value, MAPPED),
    flag(&["-tb", "--threads-batch"], Value, "prompts and answers run on the same threads, --threads"),
    flag(&["--no-warmup", "--warmup"], Nothing, "the test of the start warms up"),
    flag(&["--metrics", "--slots", "--props", "--no-slots"], Nothing, "/metrics is always there"),
    flag(&["--no-webui", "--no-ui"], Nothing, "nothing is served at / but a page"),
    flag(
        &["--log-disable", "--no-perf", "--log-colors"],
        Nothing,
        "the log is set by -v, -q and --log-format",
    ),
    flag(&["--uvicorn-log-level", "-lv", "--verbosity"], Value, "the log is set by -v, -q and --log-format"),
    flag(
        &["--disable-log-requests", "--no-enable-log-requests", "--enable-log-requests"],
        Nothing,
        "the log is set by -v, -q and --log-format",
    ),
    flag(&["--disable-log-stats"], Nothing, "/metrics has all numbers"),
    flag(&["--generation-config"], Value, "defaults for sampling are flags: --temp, --top-p, ..."),
    flag(&["--samplers", "--sampler-seq"], Value, SAMPLER),
    flag(&["--cache-reuse", "--slot-prompt-similarity", "-sps"], Value, "prefixes are found by content"),
    flag(&["--context-shift", "--no-context-shift"], Nothing, "an answer ends where the context is full"),
    flag(&["-kvu", "--kv-unified"], Nothing, "there is one cache for all sequences"),
];

/// What was told of in place of being done: (flag, what it means here).
type Notes = Vec<(String, &'static str)>;

static NOTES: OnceLock<Notes> = OnceLock::new();

/// Lines for the log, once there is one.
pub(super) fn notes() -> impl Iterator<Item = String> {
    NOTES
        .get()
        .into_iter()
        .flatten()
        .map(|(name, note)| format!("`{name}` is taken and changes nothing: {note}"))
}

/// The arguments of `serve` in our own words; those of other commands as they are.
pub(crate) fn translate(arguments: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let arguments: Vec<OsString> = arguments.collect();
    let is_serve = arguments.iter().skip(1).find(|a| !a.to_string_lossy().starts_with('-'));
    if is_serve.is_none_or(|command| command != "serve") {
        return arguments;
    }
    let (ours, notes) = sort(arguments).unwrap_or_else(|why| crate::usage("serve", &why));
    // The arguments are read once.
    let _ = NOTES.set(notes);
    ours
}

/// Our arguments, and what was told of in place of being done; or why another's flag cannot be taken.
fn sort(arguments: Vec<OsString>) -> Result<(Vec<OsString>, Notes), String> {
    let (mut ours, mut notes) = (Vec::new(), Vec::new());
    let mut rest = arguments.into_iter().peekable();
    // The program, and all up to the command.
    for argument in rest.by_ref() {
        let is_command = argument == "serve";
        ours.push(argument);
        if is_command {
            break;
        }
    }
    while let Some(argument) = rest.next() {
        let text = argument.to_string_lossy().into_owned();
        let (name, joined) = match text.split_once('=') {
            Some((name, _)) if name.starts_with('-') => (name.to_owned(), true),
            _ => (text.clone(), false),
        };
        // vLLM takes underscores for dashes.
        let name = if name.starts_with("--") { name.replace('_', "-") } else { name };
        if let Some((_, renamed)) = RENAMED.iter().find(|(other, _)| *other == name) {
            let value = if joined { &text[name.len()..] } else { "" };
            ours.push(format!("{renamed}{value}").into());
        } else if let Some(flag) = FLAGS.iter().find(|f| f.names.contains(&name.as_str())) {
            let value = match joined {
                true => Some(text[text.find('=').map_or(0, |at| at + 1)..].to_owned()),
                false => take_value(flag.takes, &mut rest),
            };
            if let Only(only) = flag.takes
                && value.as_deref() != Some(only)
            {
                let value = value.unwrap_or_default();
                return Err(format!("`{name} {value}` is not possible here, only `{only}`: {}", flag.note));
            }
            notes.push((name, flag.note));
        } else if joined && name.len() == text.find('=').unwrap_or(0) && name.starts_with("--") {
            ours.push(format!("{name}{}", &text[name.len()..]).into());
        } else if name.starts_with("--") {
            ours.push(name.into());
        } else {
            ours.push(argument);
        }
    }
    Ok((ours, notes))
}

fn take_value(takes: Takes, rest: &mut Peekable<impl Iterator<Item = OsString>>) -> Option<String> {
    let is_flag = rest.peek().is_some_and(|next| next.to_string_lossy().starts_with('-'));
    let looks_right = |next: &OsString| ["on", "off", "auto", "0", "1"].iter().any(|w| next == w);
    let takes = match takes {
        Nothing => false,
        Value | Only(_) => true,
        Perhaps => !is_flag && rest.peek().is_some_and(looks_right),
    };
    if takes { rest.next().map(|value| value.to_string_lossy().into_owned()) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pasted_commands_become_ours() {
        let check = |line: &str, ours: &str, noted: &[&str]| {
            let (found, notes) = sort(line.split(' ').map(OsString::from).collect()).unwrap();
            let found: Vec<_> = found.iter().map(|a| a.to_string_lossy()).collect();
            assert_eq!(found.join(" "), ours);
            assert_eq!(notes.iter().map(|n| n.0.as_str()).collect::<Vec<_>>(), noted, "{line}");
        };
        check("x serve m.gguf --port 1", "x serve m.gguf --port 1", &[]);
        check(
            "x serve -m m.gguf -ngl 99 -fa -c 4096 -ctk f16 -sm row -ts 1,1",
            "x serve -m m.gguf -c 4096",
            &["-ngl", "-fa", "-ctk", "-sm", "-ts"],
        );
        check("x serve -fa on m.gguf", "x serve m.gguf", &["-fa"]);
        check("x serve -fa m.gguf -tp 2", "x serve m.gguf --tp 2", &["-fa"]);
        check(
            "x serve m --gpu-memory-utilization=0.9 --max_model_len 10 --speculative-config {\"a\":1}",
            "x serve m --max-model-len 10",
            &["--gpu-memory-utilization", "--speculative-config"],
        );
        check("x serve m --max_model_len=10", "x serve m --max-model-len=10", &[]);
        check(
            "x serve m -pp 2 --data_parallel_size=3",
            "x serve m --pipeline-parallel-size 2 --replicas=3",
            &[],
        );
    }

    #[test]
    fn what_asks_for_more_is_refused_with_a_reason() {
        let check = |line: &str, expected: &str| {
            let why = sort(line.split(' ').map(OsString::from).collect()).unwrap_err();
            assert!(why.contains(expected) && why.contains(": "), "{line}: {why}");
        };
        check("x serve m --rope-scaling", "only `none`");
        check("x serve m --rope-scaling yarn --port 1", "--override-kv");
        check("x serve m --rope-freq-base 1000000", "`--rope-freq-base 1000000`");
    }

    #[test]
    fn no_name_is_there_twice() {
        let mut names: Vec<_> = FLAGS.iter().flat_map(|f| f.names).collect();
        names.extend(RENAMED.iter().map(|(other, _)| other));
        let all = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), all);
    }
}
