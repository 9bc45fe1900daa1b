//! Processes that are stages of one model.
#![allow(dead_code, clippy::unwrap_used)] // each test file uses its part

use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::process::{Child, ChildStderr, Command, Stdio};

/// Tiny models, one an architecture.
pub(crate) const MODELS: [&str; 6] =
    ["llama-f32", "qwen3-bf16", "glm4moe-f32", "deepseek2-v3-f32", "glm-dsa-share-bf16", "glm47flash-f16"];

/// One of them; killed when dropped.
pub(crate) struct Stage {
    process: Child,
    log: BufReader<ChildStderr>,
    /// What was read of the log.
    told: String,
}

/// A port that nobody listens on.
pub(crate) fn port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Variables of the environment from a line, for one process.
pub(crate) fn vars(line: &str, rank: usize, port: u16) -> Vec<(String, String)> {
    let line = line.replace("{rank}", &rank.to_string()).replace("{port}", &port.to_string());
    line.split(' ').map(|var| var.split_once('=').unwrap()).map(|(n, v)| (n.into(), v.into())).collect()
}

/// One process.
pub(crate) fn start_with(arguments: &[&str], vars: &[(String, String)]) -> Stage {
    let mut command = Command::new(env!("CARGO_BIN_EXE_shardwright"));
    command.args(arguments).envs(vars.iter().cloned());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut process = command.spawn().unwrap();
    let log = BufReader::new(process.stderr.take().unwrap());
    Stage { process, log, told: String::new() }
}

/// All processes of a command, the first of them first.
pub(crate) fn start(arguments: &[&str], count: usize) -> Vec<Stage> {
    let (port, count) = (port().to_string(), count.to_string());
    let stage = |rank: usize| {
        let rank = rank.to_string();
        let place = ["--pipeline-parallel-size", &count, "--node-rank", &rank, "--master-port", &port];
        start_with(&[arguments, &place].concat(), &[])
    };
    (0..count.parse().unwrap()).map(stage).collect()
}

impl Stage {
    /// Reads the log up to a line with this text.
    pub(crate) fn wait_for(&mut self, text: &str) -> String {
        loop {
            let mut line = String::new();
            assert!(self.log.read_line(&mut line).unwrap() > 0, "{text} is not in the log: {}", self.told);
            self.told += &line;
            if line.contains(text) {
                return line;
            }
        }
    }

    /// Everything that it prints.
    pub(crate) fn output(&mut self) -> String {
        let mut text = String::new();
        self.process.stdout.take().unwrap().read_to_string(&mut text).unwrap();
        text
    }

    pub(crate) fn signal(&self, signal: &str) {
        let id = self.process.id().to_string();
        assert!(Command::new("kill").args([signal, &id]).status().unwrap().success());
    }

    /// The exit status, and the log.
    pub(crate) fn end(mut self) -> (Option<i32>, String) {
        let mut told = std::mem::take(&mut self.told);
        self.log.read_to_string(&mut told).unwrap();
        (self.process.wait().unwrap().code(), told)
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        // it may have ended by itself
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
