//! `run` without a terminal: one answer, from flags or standard input. And what every command has.
#![allow(clippy::unwrap_used)]

mod util;

use std::io::Write;
use std::process::{Command, Stdio};
use util::{json, model, run, scratch};

const ANSWER: [&str; 6] = ["-n", "12", "--temp", "0", "-c", "128"];

fn program() -> Command {
    Command::new(env!("CARGO_BIN_EXE_shardwright"))
}

#[test]
fn a_prompt_is_continued_the_same_from_all_sides() {
    let llama = model("llama-f32");
    let text = run(&[&["run", &llama, "--raw", "-p", "and God"], &ANSWER[..]].concat());
    assert!(text.ends_with('\n') && text.len() > 12, "{text:?}");
    // the same from standard input, less the newline that shells add
    let mut child = program()
        .args([&["run", "-m", &llama, "--raw"], &ANSWER[..]].concat())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"and God\n").unwrap();
    let out = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8(out.stdout).unwrap(), text);
    let stats = String::from_utf8(out.stderr).unwrap();
    assert!(stats.contains("tok/s") && stats.contains("answer 12 tokens"), "{stats}");
    // and as JSON
    let report = json(&[&["run", &llama, "--raw", "-p", "and God", "--json"], &ANSWER[..]].concat());
    assert_eq!(report["content"].as_str().unwrap(), text.strip_suffix('\n').unwrap());
    assert_eq!((&report["finish"], &report["answer_tokens"]), (&"length".into(), &12.into()));
    assert!(
        report["prompt_tokens"].as_u64().unwrap() > 0 && report["prompt_seconds"].as_f64().unwrap() > 0.0
    );
}

#[test]
fn a_seed_repeats_an_answer() {
    let llama = model("llama-f32");
    let with = |seed: &str| {
        let flags = ["--temp", "1", "--top-k", "0", "--top-p", "1", "--min-p", "0", "-n", "24", "-c", "64"];
        run(&[&["run", &llama, "--raw", "-p", "and", "--seed", seed], &flags[..]].concat())
    };
    assert_eq!(with("7"), with("7"));
    assert_ne!(with("7"), with("8"));
    assert_ne!(with("-1"), with("-1"));
}

/// The template makes the prompt: what it writes, and nothing else, is in front of the model.
#[test]
fn a_chat_template_is_used_unless_raw() {
    let dir = scratch();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let template = "{% for m in messages %}{{ m.content }}{% endfor %}{{ ' God' if x is defined }}";
    std::fs::write(path("t.jinja"), template).unwrap();
    let llama = model("llama-f32");
    let run = |more: &[&str]| run(&[&["run", &llama], &ANSWER[..], more].concat());
    let raw = run(&["--raw", "-p", "and God"]);
    let file = path("t.jinja");
    let templated = ["--chat-template-file", &file];
    assert_eq!(run(&[&templated[..], &["-p", "and God"]].concat()), raw);
    assert_eq!(run(&[&templated[..], &["--system", "and ", "-p", "God"]].concat()), raw);
    let kwargs = ["-p", "and", "--chat-template-kwargs", r#"{"x": 1}"#];
    assert_eq!(run(&[&templated[..], &kwargs].concat()), raw);
    assert_eq!(run(&["-p", "and God"]), raw); // the file has no template of its own
}

/// A reader that goes away is no error, and gets no message.
#[test]
fn a_closed_pipe_ends_quietly() {
    let llama = model("llama-f32");
    let mut child = program()
        .args(["run", &llama, "--raw", "-p", "and", "-n", "4000", "-q"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let out = child.wait_with_output().unwrap();
    assert_eq!((out.status.code(), out.stderr), (Some(0), Vec::new()));
}

#[test]
fn standard_error_is_for_people_and_can_be_silenced() {
    let llama = model("llama-f32");
    let stderr = |more: &[&str], log: Option<&str>| {
        let mut command = program();
        command.args([&["run", &llama, "-p", "and"], &ANSWER[..], more].concat()).env_remove("RUST_LOG");
        log.iter().for_each(|level| {
            command.env("RUST_LOG", level);
        });
        String::from_utf8(command.output().unwrap().stderr).unwrap()
    };
    let plain = stderr(&[], None);
    assert!(plain.contains("note: ") && !plain.contains("debug: ") && !plain.contains('\x1b'), "{plain}");
    assert!(stderr(&["-v"], None).contains("debug: "));
    assert_eq!(stderr(&["-q"], None), "");
    assert_eq!(stderr(&[], Some("error")), "");
}

#[test]
fn every_command_has_help_and_completions() {
    let check = |args: &[&str], expected: &str| {
        let text = run(args);
        assert!(text.contains(expected), "{args:?}: {text}");
    };
    check(&["--version"], env!("CARGO_PKG_VERSION"));
    check(&["--help"], "Exit status");
    for command in
        ["run", "inspect", "plan", "verify", "synth", "logits", "generate", "tokenize", "completions"]
    {
        check(&[command, "--help"], "Examples:");
    }
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        check(&["completions", shell], "shardwright");
    }
}

/// A bias or a layer that the file has and nothing reads makes another model of it.
#[test]
fn tensors_that_nothing_reads_are_told() {
    let llama = model("llama-f32");
    let said = |more: &[&str]| {
        let args = [&["run", &llama, "--raw", "-p", "x", "-n", "1"], more].concat();
        let out = program().args(args).output().unwrap();
        assert!(out.status.success());
        String::from_utf8(out.stderr).unwrap()
    };
    assert!(!said(&[]).contains("left out"));
    let fewer = said(&["--override-kv", "llama.block_count=int:1"]);
    assert!(fewer.contains("tensors of the file are left out") && fewer.contains("`blk.1."), "{fewer}");
}
