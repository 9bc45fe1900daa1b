//! Pipeline stages as processes over TCP: the bits of one process, and an end for all when one of them ends.
#![allow(clippy::unwrap_used)]

mod stages;
mod util;

use stages::{Stage, port, start, start_with, vars};
use std::fs::{read, read_to_string};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::{Duration, Instant};
use util::{model, run, scratch};

const IDS: &str = "3 17 42 5 9 11 60 2 8 21 33 7 1 14 25 6 4 30 12 19";

/// Logits by one process and by `count`, `flags` for both; then a continuation.
fn check_same(which: &[&str], count: usize, flags: &[&str]) {
    let dir = scratch();
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    std::fs::write(at("ids"), IDS).unwrap();
    let (ids, one, many) = (at("ids"), at("one"), at("many"));
    let logits = |out| [&["logits"], which, &["--ids", &ids, "--chunk", "7", "--out", out], flags].concat();
    run(&logits(&one));
    start(&logits(&many), count).into_iter().for_each(|stage| assert_eq!(stage.end().0, Some(0)));
    assert!(!read(&one).unwrap().is_empty() && read(&one).unwrap() == read(&many).unwrap(), "{which:?}");
    let generate = [&["generate"], which, &["--ids", &ids, "-n", "12"], flags].concat();
    let mut stages = start(&generate, count);
    assert_eq!(stages[0].output(), run(&generate), "{which:?}");
    assert!(stages.iter_mut().skip(1).all(|later| later.output().is_empty()));
}

#[test]
fn processes_give_the_bits_of_one() {
    let counts = [2, 3].into_iter().cycle();
    for (name, count) in stages::MODELS.iter().zip(counts) {
        check_same(&[&model(name)], count, &[]);
        check_same(&[&model(name)], 5 - count, &["--tp", "2"]);
    }
}

#[test]
fn the_demo_model_says_the_same() {
    let run_it = ["run", "--demo", "--raw", "-p", "Hello", "--temp", "0", "-n", "8", "--device", "cpu"];
    let alone = run(&run_it);
    for flags in [&[][..], &["--tp", "2"]] {
        let command = [&run_it, flags].concat();
        assert_eq!(start(&command, 2)[0].output(), alone);
    }
    check_same(&["--demo"], 3, &["--dense-attention"]);
}

#[test]
fn launchers_say_who_is_who() {
    let dir = scratch();
    let ids = dir.path().join("ids");
    std::fs::write(&ids, IDS).unwrap();
    let file = model("llama-f32");
    let generate = ["generate", &file, "--ids", ids.to_str().unwrap(), "-n", "4"];
    let alone = run(&generate);
    let launchers = [
        "MASTER_ADDR=127.0.0.2 MASTER_PORT={port} RANK={rank} WORLD_SIZE=2 LOCAL_RANK={rank}",
        "MASTER_PORT={port} SLURM_PROCID={rank} SLURM_NTASKS=2 SLURM_JOB_NODELIST=127.0.0.1",
        "MASTER_PORT={port} OMPI_COMM_WORLD_RANK={rank} OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_SIZE=2",
        "MASTER_PORT={port} PMI_RANK={rank} PMI_SIZE=2 MPI_LOCALNRANKS=2",
    ];
    let command = [&generate[..], &["--pipeline-parallel-size", "2"]].concat();
    for launcher in launchers {
        let port = port();
        let mut all: Vec<Stage> =
            (0..2).map(|rank| start_with(&command, &vars(launcher, rank, port))).collect();
        assert_eq!(all[0].output(), alone, "{launcher}");
        all.into_iter().for_each(|stage| assert_eq!(stage.end().0, Some(0)));
    }
}

#[test]
fn who_does_not_fit_is_refused_by_name() {
    let dir = scratch();
    let ids = dir.path().join("ids");
    std::fs::write(&ids, IDS).unwrap();
    let [file, other] = ["llama-f32", "qwen3-bf16"].map(model);
    let command = |file: &str, stage: &str, port: u16, flags: &[&str]| {
        let (ids, port) = (ids.to_str().unwrap(), port.to_string());
        let own = ["generate", file, "--ids", ids, "-n", "2", "--pipeline-parallel-size", "3"];
        let place = ["--node-rank", stage, "--master-port", &port];
        start_with(&[&own[..], &place, flags].concat(), &[])
    };
    let check = |file: &str, stage: &str, flags: &[&str], want: &str| {
        let port = port();
        let others = [command(&model("llama-f32"), "0", port, &[]), command(file, stage, port, flags)];
        for stage in others {
            let (code, log) = stage.end();
            assert!(code == Some(1) && log.contains(want), "{want}: {log}");
        }
    };
    check(&other, "1", &[], "header of the model");
    check(&file, "1", &["--tp", "2"], "--tp: `2` there, `1` here");
    check(&file, "2", &["--deal-embedding"], "options");
    check(&file, "2", &["--override-kv", "general.name=str:x"], "header of the model");
    let port = port();
    let all = ["0", "1", "1"].map(|stage| command(&file, stage, port, &[]));
    let logs: Vec<String> = all.into_iter().map(|stage| stage.end().1).collect();
    assert!(logs[0].contains("there is stage 1") && logs[1].contains("failed"), "{logs:?}");
}

#[test]
fn strangers_on_the_port_change_nothing() {
    let dir = scratch();
    let ids = dir.path().join("ids");
    std::fs::write(&ids, IDS).unwrap();
    let file = model("llama-f32");
    let port = port();
    let text = port.to_string();
    let generate = ["generate", &file, "--ids", ids.to_str().unwrap(), "-n", "4"];
    let place = |stage| ["--pipeline-parallel-size", "2", "--master-port", &text, "--node-rank", stage];
    let first = start_with(&[&generate[..], &place("0")].concat(), &[]);
    let connect = || loop {
        if let Ok(stream) = TcpStream::connect(("127.0.0.1", port)) {
            break stream;
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    let silent = connect();
    for garbage in
        [&b"GET / HTTP/1.1\r\n\r\n"[..], b"SWst\xff\xff\xff\xff\0\0\0\0", b"SWst\x01\0\0\0\0\0\0\0x"]
    {
        let mut stranger = connect();
        stranger.write_all(garbage).unwrap();
        let mut answer = vec![];
        // the connection may end before all was read
        let _ = stranger.read_to_end(&mut answer);
    }
    let second = start_with(&[&generate[..], &place("1")].concat(), &[]);
    let (code, log) = first.end();
    assert_eq!((code, second.end().0), (Some(0), Some(0)), "{log}");
    assert!(log.contains("is no stage"), "{log}");
    drop(silent);
}

/// Three stages that compute for minutes.
fn busy() -> Vec<Stage> {
    let dir = scratch();
    let ids = dir.path().join("ids");
    std::fs::write(&ids, IDS).unwrap();
    let file = model("llama-f32");
    let command = ["generate", &file, "--ids", ids.to_str().unwrap(), "-n", "50000", "--threads", "1"];
    let mut stages = start(&command, 3);
    stages[0].wait_for("all 3 stages are loaded");
    std::thread::sleep(Duration::from_millis(200));
    stages
}

/// After a signal to stage `victim` the others end within 5 s, and say why.
fn check_ends(victim: usize, signal: &str, want: &str) {
    let mut stages = busy();
    let begun = Instant::now();
    let lost = stages.remove(victim);
    lost.signal(signal);
    for stage in stages {
        let (code, log) = stage.end();
        assert!(code == Some(1) && log.contains(&format!("stage {victim} (")) && log.contains(want), "{log}");
    }
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
}

#[test]
fn one_killed_ends_all() {
    check_ends(1, "-KILL", "has gone");
    check_ends(0, "-KILL", "has gone");
    check_ends(2, "-TERM", "has gone");
}

#[test]
fn one_stopped_ends_all() {
    check_ends(2, "-STOP", "no sign of life");
}

#[test]
fn a_server_that_loses_a_stage_says_so_and_ends() {
    let mut stages = start(&["serve", &model("llama-f32"), "--port", "0", "--threads", "1"], 3);
    let address = stages[0].wait_for("http://").rsplit("http://").next().unwrap().trim().to_owned();
    let ask = |head: &str, body: &str| {
        let mut socket = TcpStream::connect(&address).unwrap();
        let length = body.len();
        write!(socket, "{head} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}").unwrap();
        socket
    };
    let text = |mut socket: TcpStream| {
        let mut text = String::new();
        socket.read_to_string(&mut text).unwrap();
        text
    };
    while !text(ask("GET /health", "")).starts_with("HTTP/1.1 200") {
        std::thread::sleep(Duration::from_millis(50));
    }
    let endless = r#"{"prompt": [1, 2], "max_tokens": 100000, "ignore_eos": true, "stream": true}"#;
    let mut stream = ask("POST /v1/completions", endless);
    assert!(stream.read(&mut [0; 256]).unwrap() > 0);
    // a connection from before, to ask while the server ends
    let mut early = TcpStream::connect(&address).unwrap();
    let begun = Instant::now();
    stages.remove(1).signal("-KILL");
    let rest = text(stream);
    assert!(rest.contains("stage 1 (") && rest.contains("has gone"), "{rest}");
    std::thread::sleep(Duration::from_millis(300));
    write!(early, "GET /health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").unwrap();
    let health = text(early);
    assert!(health.starts_with("HTTP/1.1 503") && health.contains("has gone"), "{health}");
    for stage in stages {
        let (code, log) = stage.end();
        assert!(code == Some(1) && log.contains("stage 1 (") && log.contains("has gone"), "{log}");
    }
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
}

#[test]
fn an_idle_server_notices_too() {
    let mut stages = start(&["serve", &model("llama-f32"), "--port", "0"], 2);
    stages[0].wait_for(" ready");
    let begun = Instant::now();
    stages.remove(1).signal("-KILL");
    let (code, log) = stages.remove(0).end();
    assert!(code == Some(1) && log.contains("stage 1 ("), "{log}");
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
}

/// Both stages on hosts of their own; None, and a line that says so, where the system does not let us make any.
fn on_two_hosts(what: &str, arguments: &[&str], logs: &std::path::Path) -> Option<String> {
    let may = Command::new("unshare")
        .args(["-rn", "ip", "link", "add", "a", "type", "veth", "peer", "name", "b"])
        .output();
    if !may.is_ok_and(|out| out.status.success()) {
        println!(
            "SKIPPED: there may be no network namespaces here; 127.0.0.1 and 127.0.0.2 are tried by others"
        );
        return None;
    }
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/stages/hosts.sh");
    let program = env!("CARGO_BIN_EXE_shardwright");
    let mut command = Command::new("unshare");
    command.args(["-rn", "sh", script, what, program]).args(arguments).env("LOGS", logs);
    let out = command.output().unwrap();
    let log = |n: &str| std::fs::read_to_string(logs.join(n)).unwrap_or_default();
    let text = String::from_utf8(out.stdout).unwrap();
    assert!(out.status.success(), "{text} {} {}", String::from_utf8_lossy(&out.stderr), log("0") + &log("1"));
    Some(text)
}

#[test]
fn on_two_hosts_the_text_is_the_same_and_a_cut_cable_is_seen() {
    let dir = scratch();
    let ids = dir.path().join("ids");
    std::fs::write(&ids, IDS).unwrap();
    let file = model("glm-dsa-share-bf16");
    let generate = |n| ["generate", &file, "--ids", ids.to_str().unwrap(), "-n", n, "--threads", "1"];
    let Some(text) = on_two_hosts("run", &generate("8"), dir.path()) else { return };
    assert_eq!(text, run(&generate("8")));
    let text = on_two_hosts("cut", &generate("50000"), dir.path()).unwrap();
    for (stage, line) in text.lines().enumerate() {
        let (code, took) = line.split_once(" after ").unwrap();
        let took: u64 = took.strip_suffix(" ms").unwrap().parse().unwrap();
        assert!(code == "1" && took < 5000, "stage {stage}: {line}");
        let log = read_to_string(dir.path().join(stage.to_string())).unwrap();
        assert!(log.contains("no sign of life"), "{log}");
    }
    assert_eq!(text.lines().count(), 2);
}

#[test]
fn flags_that_say_too_little_are_refused() {
    let check = |args: &[&str], want: &str| {
        let why = util::fails(args, 1);
        assert!(why.contains(want), "{why}");
    };
    let file = model("llama-f32");
    let ids = ["--ids", "none", "-n", "1"];
    let generate = |more: &[&'static str]| [&["generate", file.as_str()][..], &ids, more].concat();
    check(&generate(&["--pipeline-parallel-size", "2"]), "--node-rank");
    check(&generate(&["--node-rank", "1"]), "--pipeline-parallel-size");
    check(&generate(&["--pipeline-parallel-size", "9", "--node-rank", "1"]), "9 pipeline stages do not work");
    let verify = ["verify", &file, "--pipeline-parallel-size", "2", "--node-rank", "1"];
    check(&verify, "one process");
}
