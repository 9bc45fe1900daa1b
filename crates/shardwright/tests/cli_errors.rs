//! Whatever a user gets wrong: one clear line, the right exit status, no panic.
#![allow(clippy::unwrap_used)]

mod util;

use util::{fails, model, run, scratch, told};

/// The call fails with this status, and its one line of error says all of `expected`.
fn check(args: &[&str], code: i32, expected: &[&str]) {
    let text = fails(args, code);
    let errors: Vec<&str> = text.lines().filter(|l| l.starts_with("error: ")).collect();
    assert_eq!(errors.len(), 1, "{args:?}: {text}");
    let told = |l: &str| ["error: ", "note: ", "warning: "].iter().any(|word| l.starts_with(word));
    assert!(code == 2 || text.lines().all(told), "{args:?}: {text}");
    assert!(!text.contains("internal error"), "{args:?}: {text}");
    let all = if code == 2 { text.as_str() } else { errors[0] };
    for part in expected {
        assert!(all.contains(part), "{args:?}: no {part:?} in {text}");
    }
}

#[test]
fn files_that_cannot_be_models() {
    let dir = scratch();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let text = path("notes.txt");
    std::fs::write(&text, "not a model\n").unwrap();
    std::fs::write(path("empty.gguf"), "").unwrap();
    let whole = std::fs::read(model("llama-f32")).unwrap();
    std::fs::write(path("cut.gguf"), &whole[..whole.len() / 2]).unwrap();
    for command in ["run", "logits", "generate", "tokenize"] {
        let check = |file: &str, expected: &[&str]| {
            let more: &[&str] = match command {
                "run" => &["-p", "x"],
                "logits" => &["--ids", &text, "--out", "never-written"],
                "generate" => &["--ids", &text, "-n", "1"],
                _ => &["--text", &text],
            };
            check(&[&[command, file], more].concat(), 1, expected);
        };
        check(&path("missing.gguf"), &["missing.gguf", "No such file"]);
        check(dir.path().to_str().unwrap(), &["is a folder"]);
        check(&text, &["notes.txt", "not a GGUF file"]);
        check(&path("empty.gguf"), &["empty.gguf"]);
        check(&path("cut.gguf"), &["cut.gguf"]);
    }
}

#[test]
fn models_that_cannot_be_run() {
    let llama = model("llama-f32");
    let over = |kv: &'static str| ["run", &llama, "-p", "x", "--override-kv", kv].map(str::to_owned);
    let check = |args: &[String], expected: &[&str]| {
        let expected = [&["llama-f32.gguf: "], expected].concat();
        check(&args.iter().map(String::as_str).collect::<Vec<_>>(), 1, &expected);
    };
    check(&over("general.architecture=str:mamba"), &["`mamba`", "supported: ", "glm-dsa"]);
    check(&over("llama.block_count=int:9"), &["blk.", "missing"]);
    check(&over("llama.feed_forward_length=int:96"), &["blk.0.ffn_", "shape"]);
    check(&over("tokenizer.ggml.model=str:bert"), &["`bert`", "gpt2"]);
    check(&over("tokenizer.ggml.pre=str:klingon"), &["`klingon`"]);
    check(&over("tokenizer.chat_template=str:{% fi %}"), &["the chat template cannot be used"]);
}

#[test]
fn what_this_machine_cannot_do() {
    let llama = model("llama-f32");
    let run = |more: &[&str], expected: &[&str]| {
        check(&[&["run", &llama, "-p", "x"], more].concat(), 1, expected);
    };
    run(&["--device", "cuda:9999"], &["GPU"]);
    run(&["--device", "cuda:0,1"], &["names 2 GPUs", "`--tp 2`"]);
    run(&["--tp", "64"], &["64 ranks", "legal for this file: 1"]);
    for device in ["cpu", "auto"] {
        run(
            &["--tp", "1", "--device", device, "--allreduce", "nccl"],
            &["`--allreduce nccl`", "a GPU each", "--device cuda --tp N"],
        );
    }
    let long = ["--override-kv", "llama.context_length=int:200000000", "-c", "0"];
    run(&long, &["not enough memory", "of weights", "of cache", "available", "--no-memory-check"]);
}

#[test]
fn prompts_and_ids_that_make_no_sense() {
    let dir = scratch();
    let file = |name: &str, text: &[u8]| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let llama = model("llama-f32");
    check(&["run", &llama, "-p", ""], 1, &["the prompt is empty"]);
    check(&["run", &llama], 1, &["the prompt is empty"]); // standard input is empty
    check(&["run", &llama, "-p", &"long ".repeat(99), "-c", "64"], 1, &["tokens", "64"]);
    check(&["run", &llama, "-p", "x", "--chat-template-file", "none.jinja"], 1, &["none.jinja"]);
    let template = file("bad.jinja", b"{% for %}");
    check(&["run", &llama, "-p", "x", "--chat-template-file", &template], 1, &["bad.jinja", "template"]);
    let loud = file("loud.jinja", br"{{ raise_exception('no\nway \x1b[31m') }}");
    check(
        &["run", &llama, "-p", "x", "--chat-template-file", &loud],
        1,
        &[r"refuses", r"no\nway \u{1b}[31m"],
    );
    let ids = |text: &[u8], expected: &[&str]| {
        let ids = file("ids.txt", text);
        check(&["generate", &llama, "--ids", &ids, "-n", "1"], 1, &[&["ids.txt"], expected].concat());
        check(&["logits", &llama, "--ids", &ids, "--out", "x"], 1, &[&["ids.txt"], expected].concat());
    };
    ids(b"", &["no token ids"]);
    ids(b"1 2 x", &["`x`"]);
    ids(b"1 -2", &["`-2`"]);
    ids(b"1 512", &["512"]);
    ids(b"99999999999", &["`99999999999`"]);
    ids(b"\xff\xfe", &["UTF-8"]);
    let good = file("good.txt", b"1 2");
    let out = dir.path().join("no/such/folder").to_str().unwrap().to_owned();
    check(&["logits", &llama, "--ids", &good, "--out", &out], 1, &[&out]);
    let latin = file("latin.txt", b"caf\xe9");
    check(&["tokenize", &llama, "--text", &latin], 1, &["latin.txt", "UTF-8"]);
}

#[test]
fn flags_that_make_no_sense() {
    let llama = model("llama-f32");
    let usage = |more: &[&str], expected: &str| {
        check(&[&["run", &llama, "-p", "x"], more].concat(), 2, &[expected]);
    };
    check(&["run", "-p", "x"], 2, &["MODEL", "--demo"]);
    check(&["run", &llama, "-m", &llama], 2, &["cannot be used with"]);
    check(&["frobnicate"], 2, &["frobnicate"]);
    check(&["generate", &llama, "--ids", "x", "-n", "0"], 2, &["0"]);
    check(&["completions", "tcsh"], 2, &["tcsh"]);
    usage(&["--frob"], "--frob");
    usage(&["--device", "gpu"], "cuda:0,1");
    usage(&["--device", "cuda:x"], "cuda:0,1");
    usage(&["--tp", "0"], "--tp");
    usage(&["-t", "0"], "--threads");
    usage(&["-t", "-1"], "invalid value '-1' for '--threads");
    usage(&["--tp", "-1"], "invalid value '-1' for '--tp");
    usage(&["-c", "-1"], "invalid value '-1' for '--ctx-size");
    usage(&["--seed", "x"], "-1 for another each time");
    usage(&["--seed", "18446744073709551616"], "2^64 - 1");
    usage(&["-n", "0"], "-n");
    usage(&["-n", "-2"], "-2");
    usage(&["--temp", "-1"], "temperature");
    usage(&["--temp", "nan"], "temperature");
    usage(&["--temp", "hot"], "--temp");
    usage(&["--top-p", "1.5"], "top_p");
    usage(&["--min-p", "-0.1"], "min_p");
    usage(&["--repeat-penalty", "0"], "repetition_penalty");
    usage(&["--override-kv", "a.b"], "KEY=TYPE:VALUE");
    usage(&["--override-kv", "a.b=int:x"], "no int");
    usage(&["--chat-template-kwargs", "[]"], "JSON object");
    usage(&["--activations", "f16"], "f32");
    usage(&["--allreduce", "ring"], "nccl");
    usage(&["--system", "x", "--raw"], "--raw");
    usage(&["--parse-special"], "--raw");
}

#[test]
fn flags_of_serve_that_make_no_sense() {
    let usage = |more: &[&str], expected: &str| {
        check(&[&["serve", "no-such-file.gguf"], more].concat(), 2, &[expected]);
    };
    usage(&["--temp", "nan"], "temperature");
    usage(&["--temp", "-1"], "temperature");
    usage(&["--top-p", "-0.5"], "top_p");
    usage(&["--min-p", "-1"], "min_p");
    usage(&["--repeat-penalty", "-1"], "repetition_penalty");
    usage(&["-n", "0"], "-n must be");
    usage(&["--seed", "many"], "-1 for another each time");
    usage(&["--max-model-len", "32q"], "32k (32,000)");
    usage(&["-c", "-2"], "32k (32,000)");
    usage(&["-pp", "0"], "--pipeline-parallel-size");
    usage(&["-dp", "0"], "--replicas");
    usage(&["--rope-scaling", "yarn"], "as the file says");
}

#[test]
fn pasted_flags_with_negative_numbers_and_units_are_understood() {
    let serve = |more: &[&str]| {
        check(
            &[&["-q", "serve", "no-such-file.gguf", "--port", "0"], more].concat(),
            1,
            &["no-such-file.gguf"],
        );
    };
    serve(&["--seed", "-1", "--top-k", "-1", "-n", "-1", "-c", "-1"]);
    serve(&["--seed", "-2", "--max-model-len", "32k", "-pp", "1", "--data-parallel-size=1"]);
    serve(&["--max-model-len", "auto", "--rope-scaling", "none", "--seed", "7"]);
    check(&["run", "no-such-file.gguf", "-p", "x", "--seed", "-2"], 1, &["no-such-file.gguf"]);
}

#[test]
fn flags_that_would_do_nothing_are_refused() {
    let demo = ["bench", "--demo", "-p", "1", "-n", "1", "-r", "1"];
    let bench = |more: &[&str], word: &str| check(&[&demo[..], more].concat(), 1, &[word, "leave it out"]);
    bench(&["--layers", "1"], "--layers");
    bench(&["--tp-rank", "0/8"], "--tp-rank");
    bench(&["--depth", "7"], "--depth");
    let plan = ["plan", "--like-preset", "tiny-llama"];
    let plan = |more: &[&str], word: &str| check(&[&plan[..], more].concat(), 1, &[word]);
    plan(&["--exchange-us", "3"], "--bandwidth");
    plan(&["--multiprocessors", "3"], "--bandwidth");
    plan(&["--bandwidth", "0"], "gives nothing");
}

#[test]
fn the_demo_is_named_without_the_place_of_its_build() {
    let why = fails(&["run", "--demo", "-p", "x", "--tp", "9"], 1);
    assert!(why.contains("9 ranks") && !why.contains('/'), "{why}");
}

/// Without driver, GPU or compiler everything that needs none still works, and what needs one says so in a line.
#[test]
fn c6_without_a_gpu_there_is_still_everything_else() {
    let dir = scratch();
    let ids = dir.path().join("ids.txt");
    std::fs::write(&ids, "1 2 3").unwrap();
    let (llama, ids, out) =
        (model("llama-f32"), ids.to_str().unwrap().to_owned(), dir.path().join("kernels"));
    let out = out.to_str().unwrap();
    run(&["generate", &llama, "--ids", &ids, "-n", "2"]);
    assert!(run(&["doctor"]).contains("driver"));
    let counted = run(&["kernels", &llama, "--out", out, "--tp", "1,2", "--arch", "sm_90a", "--dry-run"]);
    assert!(counted.contains("kernels for 1 architectures"), "{counted}");
    let part =
        ["kernels", &llama, "--out", out, "--arch", "sm_90a,sm_120a", "--multiprocessors", "48", "--dry-run"];
    assert!(run(&part).contains("kernels for 2 architectures"));
    assert!(!std::path::Path::new(out).exists(), "only counted");
    check(&["kernels", "--out", out, "--preset", "no-such-model"], 1, &["no-such-model", "glm-5"]);
    check(&["kernels", "--out", out], 2, &["--preset"]);
    check(&["kernels", &llama, "--out", out, "--tp", "7"], 1, &["none of these numbers of ranks"]);
    let left_out = told(&["kernels", &llama, "--out", out, "--tp", "1,7", "--dry-run"]);
    assert_eq!(left_out.matches("no kernels for 7 ranks").count(), 1, "{left_out}");
    check(&["bench", "--kernels", "--device", "cpu"], 1, &["only a GPU"]);
    check(
        &["bench", &llama, "--per-kernel", "--pipeline-parallel-size", "2", "--device", "cuda"],
        1,
        &["`--per-kernel`", "stages"],
    );
    if shardwright_cuda::driver::Gpu::list().is_err() {
        check(&["bench", "--kernels", "--device", "cuda:0,1"], 1, &["no NVIDIA GPU can be used"]);
        check(
            &["generate", &llama, "--ids", &ids, "-n", "2", "--device", "cuda"],
            1,
            &["no NVIDIA GPU can be used"],
        );
    }
}
