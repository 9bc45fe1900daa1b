//! The house rules as a test: reads every file that is not ignored and says what breaks a rule, and where.
//!
//! What may be where is written in one place, [`house`]; the rules themselves are in the modules beside it. A file
//! that holds a table of uniform entries says so with a line `// tidy: table` under its `//!` header: it may then
//! be longer than the limit, and the lines of array literals and plain `match`es in its functions do not count.

mod house;
mod imports;
mod kinds;
mod rooms;
mod rust;
mod text;

use std::fmt;
use std::path::Path;

use anyhow::{Context, Result};

/// Something that breaks a rule.
#[derive(Clone, Debug, PartialEq)]
pub struct Violation {
    /// Path from the root.
    pub file: String,
    /// Line, from 1; 0 where the file as a whole is meant.
    pub line: usize,
    /// What is wrong and what to do.
    pub says: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.file, self.says),
            line => write!(f, "{}:{line}: {}", self.file, self.says),
        }
    }
}

/// A file of the repository.
#[derive(Clone, Debug)]
pub struct File {
    /// Path from the root, with `/`.
    pub path: String,
    /// Size in bytes.
    pub bytes: u64,
    /// Its content, if that is text.
    pub text: Option<String>,
}

impl File {
    fn breaks(&self, line: usize, says: impl Into<String>) -> Violation {
        Violation { file: self.path.clone(), line, says: says.into() }
    }

    /// The folder of a crate that the file belongs to: `crates/NAME` or `xtask`.
    fn room(&self) -> Option<&str> {
        let end = if self.path.starts_with("crates/") {
            self.path.match_indices('/').nth(1)?.0
        } else {
            "xtask".len()
        };
        let room = self.path.get(..end)?;
        (self.path[end..].starts_with('/') && (room == "xtask" || room.starts_with("crates/")))
            .then_some(room)
    }
}

/// All files that the rules speak of.
#[derive(Clone, Debug, Default)]
pub struct Tree {
    /// In path order.
    pub files: Vec<File>,
}

impl Tree {
    /// Reads the repository, without what `.gitignore` names.
    pub fn read(root: &Path) -> Result<Self> {
        let walk = ignore::WalkBuilder::new(root)
            .standard_filters(false)
            .git_ignore(true)
            .require_git(false)
            .filter_entry(|e| e.file_name() != ".git")
            .sort_by_file_path(Ord::cmp)
            .build();
        let mut files = Vec::new();
        for entry in walk {
            let entry = entry?;
            if entry.file_type().is_some_and(|t| t.is_file()) {
                let data = std::fs::read(entry.path()).with_context(|| entry.path().display().to_string())?;
                let path = entry.path().strip_prefix(root)?.to_string_lossy().replace('\\', "/");
                files.push(File { path, bytes: data.len() as u64, text: String::from_utf8(data).ok() });
            }
        }
        Ok(Self { files })
    }

    /// Everything that breaks a rule.
    pub fn check(&self) -> Vec<Violation> {
        let rules = [imports::check, rust::check, kinds::check, rooms::check, text::check];
        rules.iter().flat_map(|rule| rule(self)).collect()
    }

    /// Is the file compiled for tests only: in a `tests` or `benches` folder, or declared under `#[cfg(test)]`?
    fn is_test(&self, file: &File) -> bool {
        if file.path.split('/').any(|part| part == "tests" || part == "benches") {
            return true;
        }
        let Some((folder, name)) = file.path.rsplit_once('/') else { return false };
        let declared = format!("mod {};", name.trim_end_matches(".rs"));
        let parents = [
            format!("{folder}/lib.rs"),
            format!("{folder}/main.rs"),
            format!("{folder}/mod.rs"),
            format!("{folder}.rs"),
        ];
        parents.iter().filter_map(|p| self.text(p)).any(|text| {
            let lines: Vec<&str> = text.lines().map(str::trim).collect();
            lines.windows(2).any(|w| {
                w[0] == "#[cfg(test)]" && (w[1] == declared || w[1].ends_with(&format!(" {declared}")))
            })
        })
    }

    fn text(&self, path: &str) -> Option<&str> {
        self.files.iter().find(|f| f.path == path)?.text.as_deref()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A tree of these texts.
    pub(crate) fn tree(files: &[(&str, &str)]) -> Tree {
        let file = |&(path, text): &(&str, &str)| File {
            path: path.into(),
            bytes: text.len() as u64,
            text: Some(text.into()),
        };
        Tree { files: files.iter().map(file).collect() }
    }

    /// Exactly one violation, at this line, with this in its text; or none where `says` is empty.
    pub(crate) fn expect(found: &[Violation], line: usize, says: &str) {
        match found {
            [] => assert!(says.is_empty(), "nothing found, expected {says:?}"),
            [one] if !says.is_empty() => {
                assert!(one.line == line && one.says.contains(says), "{one}, expected {line}: {says}")
            }
            more => panic!("expected {says:?}, found {more:#?}"),
        }
    }

    #[test]
    fn a_file_knows_its_room() {
        let rows = [
            ("crates/cpu/src/lib.rs", Some("crates/cpu")),
            ("xtask/src/main.rs", Some("xtask")),
            ("xtask2/a.rs", None),
            ("README.md", None),
            ("crates/a.rs", None),
        ];
        for (path, room) in rows {
            assert_eq!(tree(&[(path, "")]).files[0].room(), room, "{path}");
        }
    }
}
