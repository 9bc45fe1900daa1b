//! Fetching in tests, and somebody who watches.
#![allow(dead_code, clippy::unwrap_used)] // each test file uses its part

use crate::server::Server;
use shardwright_hub::{Error, Settings, Watch};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

/// Bytes that no two seeds share.
pub(crate) fn content(len: usize, seed: u64) -> Vec<u8> {
    let mut x = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        x as u8
    };
    (0..len).map(|_| next()).collect()
}

pub(crate) fn settings(server: &Server, cache: &Path) -> Settings {
    Settings {
        endpoint: server.endpoint(),
        token: None,
        cache: cache.to_owned(),
        offline: false,
        pause: Duration::from_millis(1),
        piece: 1 << 40,
    }
}

pub(crate) fn fetch(settings: &Settings, wanted: &str, log: &Log) -> Result<PathBuf, Error> {
    shardwright_hub::fetch(settings, &wanted.parse().unwrap(), log)
}

type Begun = (Vec<(String, u64)>, u64);

/// Remembers everything.
#[derive(Default)]
pub(crate) struct Log {
    begun: Mutex<Begun>,
    at: Mutex<HashMap<usize, u64>>,
    notes: Mutex<Vec<String>>,
}

impl Log {
    pub(crate) fn begun(&self) -> Begun {
        self.begun.lock().unwrap().clone()
    }

    pub(crate) fn last(&self, file: usize) -> Option<u64> {
        self.at.lock().unwrap().get(&file).copied()
    }

    pub(crate) fn notes(&self) -> String {
        self.notes.lock().unwrap().join("\n")
    }
}

impl Watch for Log {
    fn begin(&self, files: &[(&str, u64)], missing: u64) {
        *self.begun.lock().unwrap() = (files.iter().map(|(n, s)| ((*n).to_owned(), *s)).collect(), missing);
    }

    fn at(&self, file: usize, bytes: u64) {
        self.at.lock().unwrap().insert(file, bytes);
    }

    fn note(&self, text: &str) {
        self.notes.lock().unwrap().push(text.to_owned());
    }
}
