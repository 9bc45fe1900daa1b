//! Compiled kernels on disk: those that a start has compiled, so that the next one finds them, and those that came with the program,
//! so that it needs no compiler. Whatever is wrong with a file, it is as if it were not there.

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

    /// Below one of the folders.
    fn file(&self, architecture: &str) -> PathBuf {
        let name: String = self.0.iter().map(|b| format!("{b:02x}")).collect();
        Path::new(architecture).join(name)
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

/// Where compiled kernels lie, in a folder for each architecture.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Folders {
    /// Where new ones are kept; without it none are.
    pub own: Option<PathBuf>,
    /// Where those lie that came with the program. Nothing is written there.
    pub shipped: Vec<PathBuf>,
}

impl Folders {
    /// What the user's environment asks for. Own: `SHARDWRIGHT_CACHE`, else `shardwright/kernels` in `XDG_CACHE_HOME` or `~/.cache`.
    /// Shipped: `SHARDWRIGHT_KERNELS`, else `kernels` beside the program and `share/shardwright/kernels` beside its folder.
    pub fn find() -> Folders {
        let program = std::env::current_exe().ok();
        Folders::find_in(&|name| std::env::var_os(name), program.as_deref().and_then(Path::parent))
    }

    fn find_in(env: Environment<'_>, program: Option<&Path>) -> Folders {
        let caches = || set(env, "XDG_CACHE_HOME").or_else(|| Some(set(env, "HOME")?.join(".cache")));
        let own = set(env, "SHARDWRIGHT_CACHE").or_else(|| Some(caches()?.join("shardwright/kernels")));
        let beside =
            || ["kernels", "../share/shardwright/kernels"].map(|place| program.map(|p| p.join(place)));
        let shipped = match set(env, "SHARDWRIGHT_KERNELS") {
            Some(chosen) => vec![chosen],
            None => beside().into_iter().flatten().collect(),
        };
        Folders { own, shipped }
    }

    fn all(&self) -> impl Iterator<Item = &PathBuf> {
        self.own.iter().chain(&self.shipped)
    }

    /// In words.
    pub(crate) fn named(&self) -> String {
        self.all().map(|folder| folder.display().to_string()).collect::<Vec<_>>().join(", ")
    }
}

/// What is kept of a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Kept {
    /// Version of the compiler that made it.
    pub(crate) maker: (i32, i32),
    pub(crate) code: Vec<u8>,
}

/// A file for each key: checksum, the compiler's version, code.
#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) folders: Folders,
    warned: AtomicBool,
}

/// Bytes of the compiler's version.
const MAKER: usize = 8;

impl Store {
    pub(crate) fn new(folders: Folders) -> Store {
        Store { folders, warned: AtomicBool::new(false) }
    }

    /// Is there anything for this architecture?
    pub(crate) fn has(&self, architecture: &str) -> bool {
        self.folders.all().any(|folder| folder.join(architecture).is_dir())
    }

    /// What was kept under this key.
    pub(crate) fn get(&self, architecture: &str, key: &Key) -> Option<Kept> {
        self.folders.all().find_map(|folder| self.read(&folder.join(key.file(architecture)), key))
    }

    fn read(&self, path: &Path, key: &Key) -> Option<Kept> {
        let file = match std::fs::read(path) {
            Ok(file) => file,
            Err(e) if e.kind() == ErrorKind::NotFound => return None,
            Err(e) => {
                self.complain(path, &e);
                return None;
            }
        };
        let parts = file.split_at_checked(SHA256_OUTPUT_LEN);
        let whole = parts.filter(|(sum, content)| **sum == key.checksum(content));
        let kept = whole.and_then(|(_, content)| content.split_first_chunk::<MAKER>());
        if kept.is_none() {
            self.complain(path, &"its content is not what was written; it is as if it were not there");
        }
        let (maker, code) = kept?;
        let half = |at: usize| i32::from_le_bytes([maker[at], maker[at + 1], maker[at + 2], maker[at + 3]]);
        Some(Kept { maker: (half(0), half(MAKER / 2)), code: code.to_vec() })
    }

    /// Keeps it. Another process sees all of it or nothing.
    pub(crate) fn put(&self, architecture: &str, key: &Key, kept: &Kept) {
        let Some(folder) = &self.folders.own else { return };
        let (major, minor) = kept.maker;
        let content = [&major.to_le_bytes()[..], &minor.to_le_bytes(), &kept.code].concat();
        if let Err(e) = write(&folder.join(key.file(architecture)), &[&key.checksum(&content), &content]) {
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

fn write(path: &Path, parts: &[&[u8]]) -> io::Result<()> {
    let folder = path.parent().unwrap_or(path);
    std::fs::create_dir_all(folder)?;
    // as any file of the user, so that a shared folder can be read by those who share it
    let readable = Permissions::from_mode(0o666);
    let mut file = tempfile::Builder::new().prefix(".").permissions(readable).tempfile_in(folder)?;
    parts.iter().try_for_each(|part| file.write_all(part))?;
    file.persist(path)?;
    Ok(())
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

    fn store(own: &Path) -> Store {
        Store::new(Folders { own: Some(own.into()), shipped: vec![] })
    }

    fn kept(code: &[u8]) -> Kept {
        Kept { maker: (13, 5), code: code.to_vec() }
    }

    const SM: &str = "sm_90a";

    #[test]
    fn what_is_put_is_found() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("not/yet/there");
        let first = store(&folder);
        assert_eq!(first.get(SM, &key("a")), None);
        assert!(!first.has(SM));
        first.put(SM, &key("a"), &kept(b"machine code"));
        first.put(SM, &key("b"), &kept(b""));
        let again = store(&folder);
        assert_eq!(again.get(SM, &key("a")), Some(kept(b"machine code")));
        assert_eq!(again.get(SM, &key("b")), Some(kept(b"")));
        assert_eq!(again.get(SM, &key("c")), None);
        assert_eq!(again.get("sm_80", &key("a")), None);
        assert!(again.has(SM) && !again.has("sm_80") && !warned(&first) && !warned(&again));
        assert_eq!(std::fs::read_dir(folder.join(SM)).unwrap().count(), 2, "temporary files are left");
    }

    #[test]
    fn what_is_shipped_is_found_and_left_alone() {
        let root = tempfile::tempdir().unwrap();
        let [own, shipped] = ["own", "shipped"].map(|f| root.path().join(f));
        store(&shipped).put(SM, &key("a"), &kept(b"shipped"));
        let both =
            Store::new(Folders { own: Some(own.clone()), shipped: vec!["/nowhere".into(), shipped.clone()] });
        assert!(both.has(SM));
        assert_eq!(both.get(SM, &key("a")), Some(kept(b"shipped")));
        both.put(SM, &key("a"), &kept(b"own"));
        assert_eq!(both.get(SM, &key("a")), Some(kept(b"own")));
        // a damaged one of one's own hides nothing
        std::fs::write(own.join(key("a").file(SM)), "").unwrap();
        assert_eq!(both.get(SM, &key("a")), Some(kept(b"shipped")));
        assert_eq!(std::fs::read_dir(shipped.join(SM)).unwrap().count(), 1);
    }

    #[test]
    fn damage_is_noticed_and_repaired() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join(key("a").file(SM));
        store(root.path()).put(SM, &key("a"), &kept(b"machine code"));
        let whole = std::fs::read(&path).unwrap();
        let mut changed = whole.clone();
        *changed.last_mut().unwrap() ^= 1;
        let other = root.path().join(key("b").file(SM));
        store(root.path()).put(SM, &key("b"), &kept(b"other code"));
        let foreign = std::fs::read(other).unwrap();
        for damaged in [&whole[..whole.len() - 1], &whole[..7], &[], &changed, &foreign] {
            std::fs::write(&path, damaged).unwrap();
            let store = store(root.path());
            assert_eq!(store.get(SM, &key("a")), None);
            assert!(warned(&store));
            store.put(SM, &key("a"), &kept(b"machine code"));
            assert!(store.get(SM, &key("a")).is_some());
        }
    }

    #[test]
    fn no_usable_folder_is_no_error() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("file");
        std::fs::write(&file, "").unwrap();
        let below = store(&file.join("below"));
        below.put(SM, &key("a"), &kept(b"x"));
        assert!(warned(&below));
        assert_eq!(below.get(SM, &key("a")), None);
        let none = Store::new(Folders::default());
        none.put(SM, &key("a"), &kept(b"x"));
        assert!(none.get(SM, &key("a")).is_none() && !warned(&none));
    }

    #[test]
    fn folders_are_the_users_and_the_programs() {
        let check = |variables: &[(&str, &str)], own: Option<&str>, shipped: &[&str]| {
            let env = |name: &str| -> Option<OsString> {
                variables.iter().find(|(n, _)| *n == name).map(|(_, v)| v.into())
            };
            let found = Folders::find_in(&env, Some(Path::new("/opt/s/bin")));
            assert_eq!(found.own, own.map(PathBuf::from), "{variables:?}");
            assert_eq!(found.shipped, shipped.iter().map(PathBuf::from).collect::<Vec<_>>(), "{variables:?}");
        };
        let home = ("HOME", "/u");
        let beside = ["/opt/s/bin/kernels", "/opt/s/bin/../share/shardwright/kernels"];
        check(&[home], Some("/u/.cache/shardwright/kernels"), &beside);
        check(&[home, ("XDG_CACHE_HOME", "/x")], Some("/x/shardwright/kernels"), &beside);
        check(&[home, ("XDG_CACHE_HOME", "/x"), ("SHARDWRIGHT_CACHE", "/c")], Some("/c"), &beside);
        let empty = [home, ("XDG_CACHE_HOME", ""), ("SHARDWRIGHT_CACHE", ""), ("SHARDWRIGHT_KERNELS", "")];
        check(&empty, Some("/u/.cache/shardwright/kernels"), &beside);
        check(&[("SHARDWRIGHT_KERNELS", "/k")], None, &["/k"]);
    }
}
