//! What a repository holds, by the hub's API.

use std::io::Read;

use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::client::Client;
use crate::error::{Error, Result};
use crate::hash::{Hash, is_hex};
use crate::patience::Patience;

/// A page of a listing is a thousand files at most.
const PAGE_BYTES: u64 = 16 << 20;
const MOST_PAGES: usize = 200;

/// A file of a repository.
pub(crate) struct File {
    /// Its name with the folders inside of the repository.
    pub(crate) path: String,
    pub(crate) size: u64,
    pub(crate) hash: Hash,
}

/// The files of a repository as they were at one commit.
pub(crate) struct Listing {
    pub(crate) commit: String,
    pub(crate) files: Vec<File>,
}

#[derive(Deserialize)]
struct Revision {
    sha: String,
}

#[derive(Deserialize)]
struct Entry {
    #[serde(rename = "type")]
    kind: String,
    path: String,
    #[serde(default)]
    size: u64,
    #[serde(default)]
    oid: String,
    lfs: Option<Lfs>,
}

#[derive(Deserialize)]
struct Lfs {
    oid: String,
    size: u64,
}

/// The files at the newest commit of `main`.
pub(crate) fn read(client: &Client, repo: &str, patience: &Patience<'_>) -> Result<Listing> {
    let url = format!("{}/revision/main", client.api());
    let (Revision { sha: commit }, _) = patience.ask(|| json::<Revision>(client, &url))?;
    if !is_hex(&commit) || commit.len() != 40 {
        return Err(Error::Answer { url, why: "its `sha` is no commit".into() });
    }
    let mut files = vec![];
    let mut next = Some(format!("{}/tree/{commit}?recursive=true", client.api()));
    for _ in 0..MOST_PAGES {
        let Some(url) = next else { return Ok(Listing { commit, files }) };
        let (entries, following) = patience.ask(|| json::<Vec<Entry>>(client, &url))?;
        let models = entries.into_iter().filter(|e| e.kind == "file" && e.path.ends_with(".gguf"));
        for entry in models {
            files.push(file(repo, &url, entry)?);
        }
        next = following;
    }
    Err(Error::Answer { url: client.api(), why: format!("its listing has more than {MOST_PAGES} pages") })
}

/// The answer, and the address of the next page.
fn json<T: DeserializeOwned>(client: &Client, url: &str) -> Result<(T, Option<String>)> {
    let mut reply = client.get(url, &[])?;
    let mut text = vec![];
    reply.body.by_ref().take(PAGE_BYTES).read_to_end(&mut text).map_err(|e| reply.broken(e))?;
    let wrong = |e: serde_json::Error| Error::Answer { url: url.to_owned(), why: e.to_string() };
    Ok((serde_json::from_slice(&text).map_err(wrong)?, reply.next()?))
}

fn file(repo: &str, url: &str, entry: Entry) -> Result<File> {
    if let Some(why) = stray(&entry.path) {
        return Err(Error::Name { repo: repo.to_owned(), name: entry.path, why });
    }
    let (oid, size) = entry.lfs.map_or((entry.oid, entry.size), |lfs| (lfs.oid, lfs.size));
    match Hash::parse(&oid) {
        Some(hash) => Ok(File { path: entry.path, size, hash }),
        None => {
            Err(Error::Answer { url: url.to_owned(), why: format!("it gives no hash of {}", entry.path) })
        }
    }
}

/// Why a name would not stay inside of the folder that it belongs in, or would confuse whoever reads it.
pub(crate) fn stray(path: &str) -> Option<&'static str> {
    match path {
        p if p.starts_with('/') => Some("an absolute path"),
        p if p.contains(['\\', ':']) || p.chars().any(char::is_control) => {
            Some("it has characters that no name may have")
        }
        p if p.split('/').any(|part| ["", ".", ".."].contains(&part)) => Some("it leads out of its folder"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_in_their_folder() {
        for good in ["a.gguf", "BF16/a b-00001-of-00002.gguf", "..a/b...gguf", "ü.gguf"] {
            assert_eq!(stray(good), None, "{good}");
        }
        for bad in
            ["", "/a", "../a", "a/../b", "a/..", "./a", "a//b", "a\\b", "C:a", "a\nb", "a\0b", "\u{1b}[2J"]
        {
            assert!(stray(bad).is_some(), "{bad:?}");
        }
    }
}
