//! What several tests need: raw GGUF bytes of which every field can be wrong, and the peak memory.
#![allow(dead_code)] // each test binary uses its own part

/// A file given by its records.
pub(crate) struct Raw {
    pub(crate) version: u32,
    pub(crate) n_tensors: Option<u64>,
    pub(crate) n_records: Option<u64>,
    pub(crate) records: Vec<Vec<u8>>,
    pub(crate) tensors: Vec<Vec<u8>>,
    pub(crate) align: usize,
    pub(crate) data: Vec<u8>,
}

impl Default for Raw {
    fn default() -> Raw {
        let records = vec![text("general.architecture", "llama")];
        Raw {
            version: 3,
            n_tensors: None,
            n_records: None,
            records,
            tensors: vec![],
            align: 32,
            data: vec![],
        }
    }
}

impl Raw {
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut out = b"GGUF".to_vec();
        out.extend(self.version.to_le_bytes());
        out.extend(self.n_tensors.unwrap_or(self.tensors.len() as u64).to_le_bytes());
        out.extend(self.n_records.unwrap_or(self.records.len() as u64).to_le_bytes());
        out.extend(self.records.concat());
        out.extend(self.tensors.concat());
        out.resize(out.len().next_multiple_of(self.align), 0);
        out.extend(&self.data);
        out
    }
}

pub(crate) fn string(s: impl AsRef<[u8]>) -> Vec<u8> {
    let mut out = (s.as_ref().len() as u64).to_le_bytes().to_vec();
    out.extend(s.as_ref());
    out
}

/// A record of any type id with any bytes as its value.
pub(crate) fn record(key: &str, id: u32, value: &[u8]) -> Vec<u8> {
    [&string(key)[..], &id.to_le_bytes(), value].concat()
}

pub(crate) fn text(key: &str, value: &str) -> Vec<u8> {
    record(key, 8, &string(value))
}

pub(crate) fn number(key: &str, value: u32) -> Vec<u8> {
    record(key, 4, &value.to_le_bytes())
}

/// A tensor record with as many dimensions as are given.
pub(crate) fn tensor(name: &str, ne: &[u64], id: u32, offset: u64) -> Vec<u8> {
    let dims: Vec<u8> = ne.iter().flat_map(|n| n.to_le_bytes()).collect();
    let count = (ne.len() as u32).to_le_bytes();
    [&string(name)[..], &count, &dims, &id.to_le_bytes(), &offset.to_le_bytes()].concat()
}

/// The most memory that this process ever had, in bytes, pages of maps included.
pub(crate) fn peak_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|l| l.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}
