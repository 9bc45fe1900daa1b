//! Compiled kernels on disk, so that the next start finds them. Only a help: whatever is wrong with it costs time.

use std::fmt::Display;
use std::fs::Permissions;
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use ring::digest::{Context, SHA256, SHA256_OUTPUT_LEN};

use crate::find::{Environment, set};

/// By what a kernel is found again: a hash of everything that it is made from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key([u8; SHA256_OUTPUT_LEN]);

impl Key {
    /// No two lists have the same key.
    pub(crate) fn of(parts: &[&str]) -> Key {
        let mut hash = Context::new(&SHA256);
        for part in parts {
            hash.update(&(part.len() as u64).to_le_bytes());
            hash.update(part.as_bytes());
        }
        Key(finish(hash))
    }

    fn file_name(&self) -> String {
        self.0.iter().map(|b| format!("{b:02x}")).collect()
    }

    /// A checksum that only this key's content has.
    fn checksum(&self, content: &[u8]) -> [u8; SHA256_OUTPUT_LEN] {
        let mut hash = Context::new(&SHA256);
        hash.update(&self.0);
        hash.update(content);
        finish(hash)
    }
}

fn finish(hash: Context) -> [u8; SHA256_OUTPUT_LEN] {
    hash.finish().as_ref().try_into().expect("SHA-256 has this many bytes")
}

/// A folder with a file for each key: checksum, then content.
#[derive(Debug)]
pub(crate) struct Store {
    folder: Option<PathBuf>,
    warned: AtomicBool,
}

impl Store {
    /// Without a folder nothing is kept.
    pub(crate) fn new(folder: Option<PathBuf>) -> Store {
        Store { folder, warned: AtomicBool::new(false) }
    }

    /// What was kept under this key.
    pub(crate) fn get(&self, key: &Key) -> Option<Vec<u8>> {
        let path = self.folder.as_ref()?.join(key.file_name());
        let file = match std::fs::read(&path) {
            Ok(file) => file,
            Err(e) if e.kind() == ErrorKind::NotFound => return None,
            Err(e) => {
                self.complain(&path, &e);
                return None;
            }
        };
        let parts = file.split_at_checked(SHA256_OUTPUT_LEN);
        let whole = parts.filter(|(sum, content)| **sum == key.checksum(content));
        if whole.is_none() {
            self.complain(&path, &"its content is not what was written; it is made anew");
        }
        whole.map(|(_, content)| content.to_vec())
    }

    /// Keeps it. Another process sees all of it or nothing.
    pub(crate) fn put(&self, key: &Key, content: &[u8]) {
        let Some(folder) = &self.folder else { return };
        if let Err(e) = write(folder, &key.file_name(), &[&key.checksum(content), content]) {
            self.complain(folder, &e);
        }
    }

    /// Says once that the cache is no help.
    fn complain(&self, path: &Path, why: &dyn Display) {
        if !self.warned.swap(true, Relaxed) {
            log::warn!("the cache of compiled kernels: {}: {why}", path.display());
        }
    }
}

fn write(folder: &Path, name: &str, parts: &[&[u8]]) -> io::Result<()> {
    std::fs::create_dir_all(folder)?;
    // as any file of the user, so that a shared folder can be read by those who share it
    let readable = Permissions::from_mode(0o666);
    let mut file = tempfile::Builder::new().prefix(".").permissions(readable).tempfile_in(folder)?;
    parts.iter().try_for_each(|part| file.write_all(part))?;
    file.persist(folder.join(name))?;
    Ok(())
}

/// Where compiled kernels are kept: `SHARDWRIGHT_CACHE`, else a place in the user's folder for caches.
pub(crate) fn folder(env: Environment<'_>) -> Option<PathBuf> {
    let caches = || set(env, "XDG_CACHE_HOME").or_else(|| Some(set(env, "HOME")?.join(".cache")));
    set(env, "SHARDWRIGHT_CACHE").or_else(|| Some(caches()?.join("shardwright/kernels")))
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;

    fn key(text: &str) -> Key {
        Key::of(&[text])
    }

    fn warned(store: &Store) -> bool {
        store.warned.load(Relaxed)
    }

    #[test]
    fn keys_tell_parts_apart() {
        let lists: [&[&str]; 5] = [&["ab", "c"], &["a", "bc"], &["abc"], &["abc", ""], &[]];
        for (i, a) in lists.iter().enumerate() {
            for (j, b) in lists.iter().enumerate() {
                assert_eq!(Key::of(a) == Key::of(b), i == j, "{a:?} {b:?}");
            }
        }
    }

    #[test]
    fn what_is_put_is_found() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("not/yet/there");
        let store = Store::new(Some(folder.clone()));
        assert_eq!(store.get(&key("a")), None);
        store.put(&key("a"), b"machine code");
        store.put(&key("b"), b"");
        let again = Store::new(Some(folder.clone()));
        assert_eq!(again.get(&key("a")).as_deref(), Some(b"machine code".as_slice()));
        assert_eq!(again.get(&key("b")).as_deref(), Some(b"".as_slice()));
        assert_eq!(again.get(&key("c")), None);
        assert!(!warned(&store) && !warned(&again));
        assert_eq!(std::fs::read_dir(folder).unwrap().count(), 2, "temporary files are left");
    }

    #[test]
    fn damage_is_noticed_and_repaired() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join(key("a").file_name());
        Store::new(Some(root.path().into())).put(&key("a"), b"machine code");
        let whole = std::fs::read(&path).unwrap();
        let mut changed = whole.clone();
        *changed.last_mut().unwrap() ^= 1;
        let other = root.path().join(key("b").file_name());
        Store::new(Some(root.path().into())).put(&key("b"), b"other code");
        let foreign = std::fs::read(other).unwrap();
        for damaged in [&whole[..whole.len() - 1], &whole[..7], &[], &changed, &foreign] {
            std::fs::write(&path, damaged).unwrap();
            let store = Store::new(Some(root.path().into()));
            assert_eq!(store.get(&key("a")), None);
            assert!(warned(&store));
            store.put(&key("a"), b"machine code");
            assert!(store.get(&key("a")).is_some());
        }
    }

    #[test]
    fn no_usable_folder_is_no_error() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("file");
        std::fs::write(&file, "").unwrap();
        let store = Store::new(Some(file.join("below")));
        store.put(&key("a"), b"x");
        assert!(warned(&store));
        assert_eq!(store.get(&key("a")), None);
        let none = Store::new(None);
        none.put(&key("a"), b"x");
        assert!(none.get(&key("a")).is_none() && !warned(&none));
    }

    #[test]
    fn the_folder_is_the_users() {
        let check = |variables: &[(&str, &str)], want: Option<&str>| {
            let env = |name: &str| -> Option<OsString> {
                variables.iter().find(|(n, _)| *n == name).map(|(_, v)| v.into())
            };
            assert_eq!(folder(&env), want.map(PathBuf::from), "{variables:?}");
        };
        let home = ("HOME", "/u");
        check(&[home], Some("/u/.cache/shardwright/kernels"));
        check(&[home, ("XDG_CACHE_HOME", "/x")], Some("/x/shardwright/kernels"));
        check(&[home, ("XDG_CACHE_HOME", "/x"), ("SHARDWRIGHT_CACHE", "/c")], Some("/c"));
        check(
            &[home, ("XDG_CACHE_HOME", ""), ("SHARDWRIGHT_CACHE", "")],
            Some("/u/.cache/shardwright/kernels"),
        );
        check(&[], None);
    }
}
